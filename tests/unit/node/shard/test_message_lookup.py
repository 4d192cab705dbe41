"""A replica finds a message by what it is, in its queue, its wheel or its log."""

from pathlib import Path

import numpy as np
import pytest

from hourwheel.crc32c import crc32c
from hourwheel.errors import OutOfOrderSequence
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.internal.v1.replication_pb2 import WantedMessage
from node.contracts.broker import IncomingMessages
from node.shard.message_lookup import MessageLookup, Wanted, check_repetition
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from storage.views.unit import Units
from tests.support.damaging import Flip
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until
from timewheel.wheel import WheelConfig

QUEUE = 1 << 8


def lookup_of(world: EngineWorld) -> MessageLookup:
    shard = world.engine.shard
    return MessageLookup(shard.views, shard.log, shard.bodies)


async def released(world: EngineWorld, count: int = 5) -> Units:
    """Messages that stand in their queue; their units."""
    now = world.now_ms
    await world.publish(*range(now - count, now))
    await until(lambda: world.engine.status().released_count == count)
    return world.engine.shard.views.queues.get(QUEUE).read(0, count)


def test_identity_survives_the_wire() -> None:
    for position in (None, 0, 7):
        wanted = Wanted(-5, 1 << 63, QUEUE, position, 0xFFFFFFFF, 3, 4)
        raw = wanted.to_wire().SerializeToString()
        assert Wanted.from_wire(WantedMessage.FromString(raw)) == wanted
    assert wanted.size_bytes == 7


async def test_message_is_found_with_and_without_its_position(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        units, lookup = await released(world), lookup_of(world)
        for position, unit in enumerate(units):
            raw = b"%d" % unit["due_ms"]
            for hint in (position, None, (position + 1) % 5, 99):
                assert lookup.find(Wanted.of(unit, hint)) == raw


async def test_nothing_else_is_taken_for_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        units, lookup = await released(world), lookup_of(world)
        wanted = Wanted.of(units[2], 2)
        for other in (
            wanted._replace(crc=wanted.crc ^ 1),
            wanted._replace(body_bytes=wanted.body_bytes - 1),
            wanted._replace(sequence=99),
            wanted._replace(sequence=0),
        ):
            assert lookup.find(other) is None
        for queue in (QUEUE + 5, 99 << 8):
            moved = wanted._replace(topic_queue=queue)
            assert lookup.find(moved) == b"%d" % wanted.due_ms, "the log has it"


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_pending_message_is_found_though_the_log_has_lost_it(
    tmp_path: Path, *, is_flushed: bool
) -> None:
    wheel = WheelConfig(memtable_units_max=4 if is_flushed else 1 << 20)
    async with EngineWorld(tmp_path, shard=ShardConfig(wheel=wheel)) as world:
        due = [world.now_ms + 3_600_000 + n for n in range(8)]
        await world.publish(*due)
        if is_flushed:
            await until(lambda: world.engine.stats.checkpoints)
            Flip(tmp_path, b"%d" % due[0])
        lookup = lookup_of(world)
        for sequence, at in enumerate(due):
            raw = b"%d" % at
            wanted = Wanted(at, sequence, QUEUE, None, int(crc32c(raw)), 0, len(raw))
            assert lookup.find(wanted) == raw


async def test_damaged_message_is_not_found(tmp_path: Path) -> None:
    config = ShardConfig(log=LogConfig(index_interval_bytes=64))
    async with EngineWorld(tmp_path, shard=config) as world:
        for _ in range(3):
            await world.publish(world.now_ms - 1)
        await until(lambda: world.engine.status().released_count == 3)
        units, lookup = world.engine.shard.views.queues.get(QUEUE).read(0, 3), lookup_of(world)
        Flip(tmp_path, b"%d" % (world.now_ms - 1))
        found = [lookup.find(Wanted.of(unit, at)) for at, unit in enumerate(units)]
        assert found == [None, b"%d" % (world.now_ms - 1), b"%d" % (world.now_ms - 1)]
        assert np.unique(units["sequence"]).tolist() == [0, 1, 2]


# --- what is published again --------------------------------------------------------------------

FIRST, LAST = MessageMeta(properties=(("a", "1"), ("b", "2"))), MessageMeta(keys=("k",))
BODIES = [b"one", b"", b"three"]


def raw(*metas: MessageMeta) -> list[bytes]:
    return [encode(one).raw for one in metas]


METAS = raw(FIRST, MessageMeta(), LAST)


async def published(world: EngineWorld) -> MessageLookup:
    """These three, as sequences 2 to 4: behind others, which may be in the same record."""
    await world.publish(world.now_ms, world.now_ms)
    incoming = IncomingMessages(
        "orders", [world.now_ms] * 3, BODIES, METAS, [0] * 3, [0] * 3, producer_id=7
    )
    await world.engine.publish_messages(incoming)
    return lookup_of(world)


async def test_messages_are_the_same_as_a_whole_and_in_part(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        lookup = await published(world)
        check_repetition(lookup, 2, METAS, BODIES)
        check_repetition(lookup, 3, METAS[1:], BODIES[1:])
        swapped = MessageMeta(properties=FIRST.properties[::-1])
        check_repetition(lookup, 2, raw(swapped), BODIES[:1])


@pytest.mark.parametrize(
    ("metas", "bodies"),
    [
        (METAS, [b"one", b"", b"other"]),
        (METAS, [b"one", b"t", b"hree"]),
        ([METAS[0], METAS[0], METAS[2]], BODIES),
        (raw(MessageMeta(properties=(("a", "2"), ("b", "1")))), BODIES[:1]),
        (raw(MessageMeta()), BODIES[:1]),
    ],
)
async def test_other_messages_are_refused(
    tmp_path: Path, metas: list[bytes], bodies: list[bytes]
) -> None:
    async with EngineWorld(tmp_path) as world:
        lookup = await published(world)
        with pytest.raises(OutOfOrderSequence, match="other messages"):
            check_repetition(lookup, 2, metas, bodies)


async def test_instants_are_compared_and_delays_are_not(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        lookup, due_ms = await published(world), world.now_ms
        for same in ((due_ms,) * 3, (None, due_ms, None), ()):
            check_repetition(lookup, 2, METAS, BODIES, same)
        with pytest.raises(OutOfOrderSequence, match="other messages"):
            check_repetition(lookup, 2, METAS, BODIES, (None, None, due_ms + 1))


async def test_nobody_can_tell_when_the_log_has_them_not_or_is_damaged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        lookup = await published(world)
        check_repetition(lookup, 99, METAS, BODIES)
        Flip(tmp_path, b"three")
        check_repetition(lookup, 2, METAS, [b"other"] * 3)
