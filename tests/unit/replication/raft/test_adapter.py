import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pysyncobj import FAIL_REASON

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.state import ControlState
from replication.raft.adapter import STALL_MS, ControlMachine, RaftAdapter
from replication.raft.codec import REGULAR
from replication.raft.raft_node import RaftStatus
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock
from tests.support.raft_world import RaftWorld

NOOP = pb.ControlCommand(
    codec_version=1, request_id=os.urandom(16), noop=pb.NoopCommand()
).SerializeToString()


class FakeNode:
    """Answers proposals as a test says, in the calling thread."""

    def __init__(self, *answers: tuple[bytes | None, int] | None) -> None:
        self.answers = list(answers)
        self.submitted: list[bytes] = []
        self.on_tick: Callable[[], None] = lambda: None
        self.before_wait: Callable[[], None] | None = None
        self.is_destroyed = False
        self.wait_s = 0.0

    def submit(self, command: bytes, callback: Any) -> None:
        self.submitted.append(command)
        answer = self.answers.pop(0)
        if answer is not None:
            callback(*answer)

    def doTick(self, wait_s: float) -> None:  # noqa: N802
        assert self.before_wait is not None
        self.before_wait()
        self.on_tick()

    def status(self) -> RaftStatus:
        return RaftStatus(term=3)

    def find_wait_s(self, tick_s: float) -> float:
        return min(tick_s, self.wait_s)

    def hand_over(self, ticks: int, tick_s: float) -> None: ...

    def destroy(self) -> None:
        self.is_destroyed = True

    def close_pipe(self) -> None:
        self.is_closed = True


class World:
    def __init__(
        self, node: FakeNode, clock: Any = None, *, tick_s: float = 0.0, **limits: float
    ) -> None:
        self.node = node
        self.machine = ControlMachine()
        self.states: list[ControlState] = []
        self.statuses: list[RaftStatus] = []
        self.deaths: list[BaseException] = []
        self.adapter = RaftAdapter(
            node,  # type: ignore[arg-type]
            self.machine,
            clock or SystemClock(),
            tick_s,
            on_state=self.states.append,
            on_status=self.statuses.append,
            on_death=self.deaths.append,
            **limits,
        )


UNKNOWN = (None, FAIL_REASON.LEADER_CHANGED)
REFUSED = (None, FAIL_REASON.MISSING_LEADER)
DONE = (b"done", FAIL_REASON.SUCCESS)


async def test_answer_comes_back() -> None:
    assert await World(FakeNode(DONE)).adapter.propose(b"x", 5) == b"done"


async def test_definite_failure_is_told_at_once() -> None:
    node = FakeNode(REFUSED, DONE)
    with pytest.raises(errors.Unavailable, match="no leader"):
        await World(node).adapter.propose(b"x", 5)
    assert len(node.submitted) == 1


async def test_unknown_outcome_is_tried_again_with_the_same_bytes() -> None:
    node = FakeNode(UNKNOWN, (None, FAIL_REASON.UNKNOWN_OUTCOME), DONE)
    assert await World(node).adapter.propose(b"x", 5) == b"done"
    assert node.submitted == [b"x"] * 3


async def test_failure_is_not_definite_any_more_when_an_earlier_try_may_have_been_applied() -> None:
    node = FakeNode(UNKNOWN, REFUSED, REFUSED, DONE)
    assert await World(node).adapter.propose(b"x", 5) == b"done"
    assert len(node.submitted) == 4


async def test_lost_callback_is_an_unknown_outcome() -> None:
    node = FakeNode(None, DONE)
    assert await World(node, attempt_s=0.01).adapter.propose(b"x", 5) == b"done"


async def test_timeout_says_that_nobody_knows() -> None:
    with pytest.raises(errors.Timeout):
        await World(FakeNode(*[UNKNOWN] * 100)).adapter.propose(b"x", 0.05)


async def test_states_and_statuses_are_told_and_the_end_lets_go() -> None:
    world = World(FakeNode())
    world.adapter.start()
    await until(lambda: world.states and world.statuses)
    assert world.adapter.status == RaftStatus(term=3)
    world.machine.apply(NOOP)
    await until(lambda: len(world.states) == 2)
    assert world.states[-1] is world.adapter.state
    await world.adapter.stop()
    assert world.node.is_destroyed
    assert world.deaths == []


async def test_states_are_told_before_the_tick_that_applied_them_waits() -> None:
    world, goes_on = World(FakeNode()), threading.Event()
    world.node.on_tick = goes_on.wait  # type: ignore[assignment]
    world.adapter.start()
    await until(lambda: world.states and world.statuses)
    goes_on.set()
    await world.adapter.stop()


async def test_death_of_the_thread_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FakeNode())

    def die() -> None:
        raise errors.FsyncFailed

    world.node.on_tick = die
    with caplog.at_level(logging.CRITICAL + 1):
        world.adapter.start()
        await until(lambda: world.deaths)
    assert isinstance(world.deaths[0], errors.FsyncFailed)
    await world.adapter.stop()


async def test_stall_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock, gaps = FakeClock(), [50.0, STALL_MS + 100, STALL_MS + 10]
    world = World(FakeNode(), clock)

    def tick() -> None:
        if gaps:
            clock.pass_ms(gaps.pop(0))

    world.node.on_tick = tick
    with caplog.at_level(logging.CRITICAL):
        world.adapter.start()
        await until(lambda: world.adapter.stats.stall_count == 2)
        await world.adapter.stop()
    assert (world.adapter.stats.stall_count, world.adapter.stats.stall_ms_max) == (2, 350.0)


async def test_tick_that_waits_is_no_stall() -> None:
    clock, gaps = FakeClock(), [STALL_MS + 900, 2 * STALL_MS + 900]
    world = World(FakeNode(), clock, tick_s=60.0)
    world.node.wait_s = 0.9

    def tick() -> None:
        if gaps:
            clock.pass_ms(gaps.pop(0))

    world.node.on_tick = tick
    world.adapter.start()
    await until(lambda: world.adapter.stats.stall_count == 1)
    await world.adapter.stop()
    assert world.adapter.stats.stall_ms_max == 2 * STALL_MS


def test_machine_is_restored_from_its_snapshot() -> None:
    machine, again = ControlMachine(), ControlMachine()
    machine.apply(NOOP)
    again.restore(machine.snapshot())
    assert again.state == machine.state


def test_node_without_memory_applies_nothing_and_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others have applied the entry: the process ends, and applies it at its next start."""

    def broken(_: bytes) -> bytes:
        raise MemoryError

    world = RaftWorld(monkeypatch)
    world.elect()
    node = world.lives["a"].node
    monkeypatch.setattr(world.lives["a"].machine, "apply", broken)
    with pytest.raises(MemoryError):
        node.apply_command(REGULAR + b"x")
