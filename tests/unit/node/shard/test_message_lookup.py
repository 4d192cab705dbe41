"""A replica finds a message by what it is, in its queue, its wheel or its log."""

from pathlib import Path

import numpy as np
import pytest

from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.replication_pb2 import WantedMessage
from node.shard.message_lookup import MessageLookup, Wanted
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
