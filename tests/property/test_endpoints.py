"""The choice of endpoints against a model of a cluster whose nodes come, go, lag behind and lie.

What must hold at any moment: the chosen endpoint is known, and is no avoided one while there is one
that is not; configured endpoints stay, learned ones are bounded; the epoch never falls; the same
facts and fractions give the same choices. And whatever has happened: once there is a master that
lasts and the others can be reached, a client finds it within a bounded time, without running wild.
"""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.transport.endpoints import GONE_MS_MAX, LEARNED_MAX, Endpoints, Move, Trouble
from hourwheel.transport.retry import AT_ONCE_MAX, SEARCH_MS_MAX, Backoff, Pace

NODES = [f"n{number}:1" for number in range(5)]
STRANGERS = [f"x{number}:1" for number in range(30)]
SLACK_MS = 3 * SEARCH_MS_MAX
"""A wait that had begun before, and one after each of the last failures."""


class World:
    """A client's view of a cluster, and a script of what happens to it."""

    def __init__(self, seed: int, configured: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000.0
        self.epoch = 1
        self.master = NODES[0]
        self.configured = NODES[:configured]
        self.endpoints = Endpoints(self.configured)
        self.trace: list[str] = []

    def choose(self) -> str:
        endpoints, now_ms = self.endpoints, self.now_ms
        chosen = endpoints.choose(now_ms, self.rng.random())
        assert chosen in endpoints.addresses
        free = [one for one in endpoints.addresses if not endpoints.trouble_at(one, now_ms)]
        assert not free or chosen in free
        return chosen

    def step(self) -> None:
        """Something happens; the truth and what nodes say of it may differ."""
        rng, endpoints, epoch = self.rng, self.endpoints, self.endpoints.epoch
        self.now_ms += rng.choice([0.0, 1.0, 30.0, 400.0, 5_000.0])
        address = rng.choice([self.choose(), rng.choice(NODES + STRANGERS)])
        match rng.randrange(6):
            case 0:
                self.epoch += 1
                self.master = rng.choice(NODES)
            case 1:
                latency_ms = rng.choice([1.0, 600.0, 4_000.0, 60_000.0])
                endpoints.on_answer(address, self.now_ms, latency_ms)
            case 2:
                lost = rng.choice([errors.Unavailable(), errors.ShuttingDown(), errors.Timeout()])
                waited_ms = rng.choice([0.0, 700.0, 30_000.0])
                endpoints.on_failure(address, self.now_ms, lost, waited_ms)
            case 3 | 4:
                endpoints.on_failure(address, self.now_ms, self.make_redirect())
            case 5:
                listed = rng.sample(NODES + STRANGERS, rng.randrange(30))
                listed_epoch = max(0, self.epoch - rng.randrange(2))
                endpoints.on_nodes(listed, rng.choice([*NODES, ""]), listed_epoch)
        self.trace.append(f"{self.choose()} {endpoints.addresses}")
        assert set(self.configured) <= set(endpoints.addresses)
        assert len(endpoints.addresses) <= len(self.configured) + LEARNED_MAX
        assert endpoints.epoch >= epoch

    def make_redirect(self) -> errors.NotMaster:
        rng = self.rng
        epoch = max(0, self.epoch - rng.randrange(3))
        named = rng.choice([self.master, rng.choice(NODES + STRANGERS), "", "nonsense"])
        return errors.NotMaster(master_address=named, epoch=epoch)

    def ask(self, address: str, *, are_hints_given: bool) -> errors.HourwheelError | None:
        """The cluster is well: one master for good, and all its nodes can be reached."""
        if address not in NODES:
            return errors.Unavailable("no such node")
        if address == self.master:
            return None
        if are_hints_given:
            return errors.NotMaster(master_address=self.master, epoch=self.epoch)
        return errors.NotMaster()


@given(seed=st.integers(0, 2**32), configured=st.integers(1, 5), steps=st.integers(0, 60))
def test_endpoints_when_anything_happens(seed: int, configured: int, steps: int) -> None:
    first, second = World(seed, configured), World(seed, configured)
    for _ in range(steps):
        first.step()
        second.step()
    assert first.trace == second.trace


@given(
    seed=st.integers(0, 2**32),
    configured=st.integers(1, 5),
    steps=st.integers(0, 60),
    are_hints_given=st.booleans(),
)
@example(seed=0, configured=5, steps=0, are_hints_given=False)
def test_master_when_the_cluster_is_well_at_last(
    seed: int, configured: int, steps: int, *, are_hints_given: bool
) -> None:
    world = World(seed, configured)
    for _ in range(steps):
        world.step()
    if not are_hints_given:  # then it can be found only among those that are known
        world.master = world.rng.choice(world.configured)
    world.epoch = max(world.epoch, world.endpoints.epoch) + 1
    pace = Pace(Backoff(), world.rng.random)
    start_ms, asked, waits = world.now_ms, 0, 0
    while (
        error := world.ask(address := world.choose(), are_hints_given=are_hints_given)
    ) is not None:
        asked += 1
        move = world.endpoints.on_failure(address, world.now_ms, error)
        wait_ms = pace.on_failure(move)
        waits += wait_ms > 0
        world.now_ms += wait_ms
        assert world.now_ms - start_ms <= GONE_MS_MAX + SLACK_MS, f"seed {seed}"
        assert asked <= (AT_ONCE_MAX + 1) * (waits + 1), f"seed {seed}"
        if isinstance(error, errors.NotMaster) and are_hints_given:
            assert world.choose() == world.master
    assert address == world.master


@pytest.mark.parametrize("trouble", [Trouble.GONE, Trouble.NOT_MASTER])
def test_pace_when_all_nodes_stay_in_trouble(trouble: Trouble) -> None:
    world = World(7, 3)
    pace, tries, start_ms = Pace(Backoff(), world.rng.random), 0, world.now_ms
    error = errors.Unavailable() if trouble is Trouble.GONE else errors.NotMaster()
    while world.now_ms - start_ms < 10_000.0:
        tries += 1
        move = world.endpoints.on_failure(world.choose(), world.now_ms, error)
        assert move is not Move.STAY
        world.now_ms += pace.on_failure(move)
    # Waits are 125 to 250 ms when they have grown; while nodes are no longer avoided, up to
    # AT_ONCE_MAX tries go between two waits.
    assert 40 <= tries <= 400
