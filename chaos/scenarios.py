"""The table of scenarios: what goes wrong in a round, and where it can."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from chaos import faults
from chaos.decay import KINDS, Decay
from chaos.faults import (
    alone,
    control_killed,
    cut,
    decaying,
    frozen,
    frozen_unwatched,
    full_disk,
    full_disks,
    inwards,
    killed,
    low_disks,
    outwards,
    power_failure,
    stepped_clock,
    stopped,
)
from chaos.stage import Stage
from chaos.voters import grow, replace, revoke

Round = Callable[[Stage], Awaitable[None]]
ROOMLESS: Final = "n1"
"""The node whose disk is small in scenarios that need `room`."""
ROOM_MIB: Final = 64
LEFT_MIB: Final = 12
WITH_WATERMARK: Final = {"disk": {"free_bytes_min": 4 << 20, "reserve_bytes": 2 << 20}}
WITH_HIGH_WATERMARK: Final = {"disk": {"free_bytes_min": 20 << 20, "reserve_bytes": 2 << 20}}
_FULL: Final = "full disks"
_AHEAD_MESSAGES: Final = 50
_AHEAD_MS: Final = 6_000


@dataclass(frozen=True)
class Scenario:
    """One row."""

    name: str
    what: str
    play: Round
    """One round."""
    rounds: int
    """The default number."""
    needs: Literal["", "cuts", "clocks", "power", "room", "rooms", "newcomers"] = ""
    """What the machine or the harness must offer."""
    clock_ms: float = 5.0
    """How far clocks may be apart, as the checker sees it."""
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configuration of the nodes."""
    is_guarded: bool = False
    """With TLS, users and grants."""


async def calm(stage: Stage) -> None:
    """Only load."""
    await stage.some_load(100)


async def kill_master(stage: Stage) -> None:
    """Broker and control process of the master die."""
    node = await stage.master()
    await stage.a_moment()
    await stage.ends_mastership("kill -9, whole", [node], killed([node]))


async def kill_broker(stage: Stage) -> None:
    """The master's broker dies; its control process tells the others."""
    node = await stage.master()
    await stage.a_moment()
    await stage.ends_mastership("kill -9, broker", [node], killed([node], whole=False))


async def kill_follower(stage: Stage) -> None:
    """A follower dies."""
    node = await stage.a_follower()
    await stage.a_moment()
    await stage.bothers("kill -9, whole", [node], killed([node]), hold_ms=500)


async def kill_two(stage: Stage) -> None:
    """The master and a follower die: no node can serve until one is back."""
    nodes = [await stage.master(), await stage.a_follower()]
    await stage.a_moment()
    await stage.ends_mastership("kill -9, two", nodes, killed(nodes), hold_ms=500, heals_first=True)


async def kill_all(stage: Stage) -> None:
    """All die in one moment."""
    nodes = list(stage.cluster.nodes.values())
    await stage.a_moment()
    await stage.ends_mastership("kill -9, all", nodes, killed(nodes), heals_first=True)


async def master_last(stage: Stage) -> None:
    """All die in one moment, and the master comes back long after the others."""
    master = await stage.master()
    others = stage.cluster.followers(master)
    await stage.a_moment()
    async with killed([master]):
        await stage.ends_mastership(
            "kill -9, all", others, killed(others), heals_first=True, whole=False
        )
    await stage.cluster.whole()


async def power(stage: Stage) -> None:
    """The disk of all nodes forgets what was not durable."""
    nodes = list(stage.cluster.nodes.values())
    await stage.a_moment()
    if stage.disk is None:
        raise TypeError
    fault = power_failure(nodes, stage.disk)
    await stage.ends_mastership("power failure, all", nodes, fault, heals_first=True)


async def no_room(stage: Stage) -> None:
    """One node's disk is full: the master hands over, a follower leaves the in-sync set."""
    node, room = stage.cluster.nodes[ROOMLESS], stage.rooms[ROOMLESS]
    room.resize(ROOM_MIB)
    fault = full_disk(node, room, 2 * ROOM_MIB)
    if node is await stage.master():
        await stage.ends_mastership("full disk, master", [node], fault, hold_ms=1_000)
        return
    begun_ms = stage.clock.wall_ms()
    async with fault:
        await stage.cluster.in_sync_without(ROOMLESS)
        await stage.some_load()
        await stage.pass_ms(1_000)
    stage.note("full disk, follower", [node], begun_ms)
    await stage.cluster.whole()
    while node is not await stage.master():  # in the next round it is the master's disk
        former = await stage.master()
        epoch = stage.cluster.epoch()
        async with killed([former]):
            await stage.cluster.master(after_epoch=epoch)
            await stage.some_load()
        await stage.cluster.whole()


async def low_disk(stage: Stage) -> None:
    """All disks are low: what is durable is delivered, also by the next master."""
    nodes = list(stage.cluster.nodes.values())
    await stage.publish_ahead(_AHEAD_MESSAGES, _AHEAD_MS)
    begun_ms = stage.clock.wall_ms()
    async with low_disks(nodes, LEFT_MIB):
        await stage.cluster.refusing()
        master = await stage.master()
        # The publishers wait, so only consumers of these messages hear of the nodes.
        await stage.ends_mastership("kill -9, whole", [master], killed([master]), whole=False)
        await stage.cluster.refusing()
    stage.note("low disks, all", nodes, begun_ms)
    await stage.some_load()
    await stage.cluster.whole()


async def full(stage: Stage) -> None:
    """One, two or all disks are full to the last byte, and the master dies in one of three ways."""
    nodes = list(stage.cluster.nodes.values())
    count = 1 + sum(one.name == _FULL for one in stage.load.history.faults) % len(nodes)
    filled = stage.chooser.sample(nodes, count)
    await stage.publish_ahead(_AHEAD_MESSAGES, _AHEAD_MS)
    begun_ms = stage.clock.wall_ms()
    async with full_disks(filled):
        if count == len(nodes):
            await stage.cluster.refusing()
        master = await stage.master()
        name, fault = stage.chooser.choice(
            (
                ("kill -9, whole", killed([master])),
                ("kill -9, broker", killed([master], whole=False)),
                ("kill -9, control process", control_killed(master)),
            )
        )
        # The publishers wait, so only consumers of these messages hear of the nodes.
        await stage.ends_mastership(name, [master], fault, whole=False)
    stage.note(_FULL, filled, begun_ms)
    await stage.some_load()
    await stage.cluster.whole()


async def freeze_master(stage: Stage) -> None:
    """Broker and control process of the master stand still for 5 s, and go on."""
    node = await stage.master()
    await stage.a_moment()
    await stage.ends_mastership("SIGSTOP, whole", [node], frozen([node]), hold_ms=3_000)


async def freeze_broker(stage: Stage) -> None:
    """The master's broker stands still; its control process notices."""
    node = await stage.master()
    await stage.a_moment()
    fault = frozen([node], whole=False)
    await stage.ends_mastership("SIGSTOP, broker", [node], fault, hold_ms=3_000)


async def freeze_unwatched(stage: Stage) -> None:
    """The master's broker stands still, and its control process dies.

    All connections of that one end, and the broker has not: it goes on while its successor serves.
    """
    node = await stage.master()
    await stage.a_moment()
    fault = frozen_unwatched(node)
    await stage.ends_mastership("SIGSTOP, unwatched", [node], fault, hold_ms=1_000)


async def freeze_follower(stage: Stage) -> None:
    """A follower stands still for a while."""
    node = await stage.a_follower()
    await stage.bothers("SIGSTOP, whole", [node], frozen([node]), hold_ms=3_000)


async def freeze_two(stage: Stage) -> None:
    """The master and a follower stand still: no node can serve."""
    nodes = [await stage.master(), await stage.a_follower()]
    begun_ms = stage.clock.wall_ms()
    async with frozen(nodes):
        await stage.pass_ms(3_000)
    stage.note("SIGSTOP, two", nodes, begun_ms)
    await stage.some_load()
    await stage.cluster.whole()


async def hand_over(stage: Stage) -> None:
    """The master gets SIGTERM, as for an upgrade."""
    node = await stage.master()
    await stage.ends_mastership("SIGTERM", [node], stopped([node]))


async def master_alone(stage: Stage) -> None:
    """The master hears and is heard by clients only."""
    node = await stage.master()
    others = stage.cluster.followers(node)
    await stage.a_moment()
    fault = cut(stage.cluster.network, alone(node, others))
    await stage.ends_mastership("partition, master alone", [node], fault, hold_ms=2_000)


async def master_unheard(stage: Stage) -> None:
    """What the master says to the others is lost."""
    node = await stage.master()
    fault = cut(stage.cluster.network, outwards(node, stage.cluster.followers(node)))
    await stage.a_moment()
    await stage.ends_mastership("partition, from the master", [node], fault, hold_ms=2_000)


async def master_deaf(stage: Stage) -> None:
    """What the others say to the master is lost."""
    node = await stage.master()
    fault = cut(stage.cluster.network, inwards(node, stage.cluster.followers(node)))
    await stage.a_moment()
    await stage.ends_mastership("partition, to the master", [node], fault, hold_ms=2_000)


async def halves(stage: Stage) -> None:
    """The master and one follower here, the other there: service goes on."""
    node = await stage.a_follower()
    fault = cut(stage.cluster.network, alone(node, stage.cluster.followers(node)))
    await stage.bothers("partition, a follower alone", [node], fault, hold_ms=3_000)


async def step_clocks(stage: Stage) -> None:
    """One node's wall clock is set ten minutes forward or back."""
    node = stage.chooser.choice(list(stage.cluster.nodes.values()))
    step_ms = stage.chooser.choice((600_000.0, -600_000.0, 3_000.0, -3_000.0))
    await stage.bothers(
        f"clock, {step_ms / 1_000:+.0f} s", [node], stepped_clock([node], step_ms), hold_ms=2_000
    )
    # Right after a step, another one leads.
    async with stepped_clock([node], step_ms):
        master = await stage.master()
        await stage.ends_mastership("kill -9, whole", [master], killed([master]))


async def crash_at_fsync(stage: Stage) -> None:
    """A node dies at a call that makes something durable, sooner or later after its start."""
    node = stage.chooser.choice(list(stage.cluster.nodes.values()))
    first = 1 + int(60 * stage.chooser.random() ** 2)
    effect = stage.chooser.choice(("kill before", "kill after"))
    begun_ms = stage.clock.wall_ms()
    async with killed([node]):
        node.plan = faults.crash_plan(("fdatasync", "fsync"), first, effect)
        await node.spawn()
        await stage.load.wait_for(lambda: not node.is_running)
    stage.note(f"crash {effect.split()[1]} fsync {first}", [node], begun_ms)
    await stage.cluster.whole()


async def decay_master(stage: Stage) -> None:
    """Bits flip in all kinds of files of the master, while it serves and when it is elected again.

    Another node has all of it: clients may notice by waiting only.
    """
    node = await stage.master()
    await stage.a_moment()
    fault = decaying([node], Decay(stage.chooser), KINDS, 60)
    await stage.bothers("bits flip, master", [node], fault, hold_ms=2_000)


async def decay_follower(stage: Stage) -> None:
    """Bits flip in files of a follower, which then becomes the master."""
    master, node = await stage.master(), await stage.a_follower()
    begun_ms = stage.clock.wall_ms()
    async with decaying([node], Decay(stage.chooser), KINDS, 60):
        await stage.some_load()
        async with killed([master]):
            await stage.some_load()
        await stage.pass_ms(1_000)
    stage.note("bits flip, follower, and the master dies", [node, master], begun_ms)
    await stage.cluster.whole()


async def decay_two(stage: Stage) -> None:
    """Bits flip on two nodes, at different places; one of the two dies meanwhile."""
    nodes = [await stage.master(), await stage.a_follower()]
    begun_ms = stage.clock.wall_ms()
    async with decaying(nodes, Decay(stage.chooser), ("log", "delay log"), 60):
        await stage.some_load()
        async with killed([stage.chooser.choice(nodes)]):
            await stage.pass_ms(500)
        await stage.some_load()
    stage.note("bits flip, two nodes", nodes, begun_ms)
    await stage.cluster.whole()


SCENARIOS: Final[dict[str, Scenario]] = {
    one.name: one
    for one in (
        Scenario("calm", "nothing goes wrong", calm, 1),
        Scenario("kill-master", "kill -9 of the master", kill_master, 3),
        Scenario("kill-broker", "kill -9 of the master's broker", kill_broker, 2),
        Scenario("kill-follower", "kill -9 of a follower", kill_follower, 2),
        Scenario("kill-two", "kill -9 of master and follower", kill_two, 1),
        Scenario("kill-all", "kill -9 of all nodes at once", kill_all, 1),
        Scenario("master-last", "kill -9 of all; the master returns last", master_last, 1),
        Scenario("power", "power failure of all nodes", power, 1, "power"),
        Scenario("no-room", "a full disk", no_room, 2, "room", values=WITH_WATERMARK),
        Scenario(
            "low-disks", "all disks are low", low_disk, 1, "rooms", values=WITH_HIGH_WATERMARK
        ),
        Scenario("full-disks", "full to the last byte", full, 3, "rooms", values=WITH_WATERMARK),
        Scenario("freeze-master", "SIGSTOP of the master", freeze_master, 1),
        Scenario("freeze-broker", "SIGSTOP of the master's broker", freeze_broker, 1),
        Scenario(
            "freeze-unwatched",
            "SIGSTOP of the master's broker, kill -9 of its control process",
            freeze_unwatched,
            2,
        ),
        Scenario("freeze-follower", "SIGSTOP of a follower", freeze_follower, 1),
        Scenario("freeze-two", "SIGSTOP of master and follower", freeze_two, 1),
        Scenario("hand-over", "SIGTERM of the master", hand_over, 1),
        Scenario("master-alone", "the master is cut off", master_alone, 1, "cuts"),
        Scenario("master-unheard", "the master is not heard", master_unheard, 1, "cuts"),
        Scenario("master-deaf", "the master hears no other node", master_deaf, 1, "cuts"),
        Scenario("halves", "a follower is cut off", halves, 1, "cuts"),
        Scenario("clocks", "wall clocks are set", step_clocks, 1, "clocks", 50.0),
        Scenario("fsync", "death at an fsync", crash_at_fsync, 2),
        Scenario("decay-master", "bits flip under the master", decay_master, 3),
        Scenario("decay-two", "bits flip under two nodes", decay_two, 2),
        Scenario("decay-follower", "bits flip under the next master", decay_follower, 2),
        Scenario("revoke", "a grant goes as the master dies", revoke, 2, is_guarded=True),
        Scenario("replace", "a lost member is replaced", replace, 2, "newcomers"),
        Scenario(
            "grow", "three members become five, and three", grow, 1, "newcomers", is_guarded=True
        ),
    )
}

SHORT: Final = (
    "kill-master",
    "kill-all",
    "freeze-master",
    "hand-over",
    "master-alone",
    "clocks",
    "fsync",
    "revoke",
    "replace",
    "grow",
)
"""One scenario of each kind."""
