"""Publishing through a real engine, whose clock a test moves."""

import asyncio
import itertools
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import Columns, build, draft_columns
from hourwheel.formats.record_batch import Kind, RecordBatch
from hourwheel.formats.tag_gene import GeneKind, GeneSpec
from node.broker.disk_guard import DiskGuard
from node.broker.settings import EngineConfig
from node.contracts.broker import NewTopic
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import ShardConfig, open_shard
from node.telemetry.failure import Failure
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.views.sequence_index import SlotState
from tests.support.engine_world import EngineWorld, within
from tests.support.log_batches import batches_of
from tests.support.lone_engine import GivenTime, make_alone

CLUSTER_ID = bytes(range(16))
START_MS = 1_800_000_000_000


async def test_delays_count_from_store_ms_when_the_clock_moves_on_meanwhile(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    ticks = itertools.count(START_MS)  # each look at the clock finds it a millisecond later
    opened = open_shard(ShardPlace(disk, "shard-0", Identity(CLUSTER_ID, 0)), ShardConfig())
    lone = make_alone(
        opened,
        EngineConfig(),
        GivenTime(lambda: next(ticks)),
        DiskGuard(disk, free_bytes_min=0, reserve_bytes=0),
        Failure(),
    )
    await lone.serve()
    draft = draft_columns(Columns(bodies=[b"a", b"b"], delay_ms=[3_600_000, 7_200_000]))
    result = await lone.engine.publish_batch("orders", RecordBatch(build(draft, 0, 0)))
    stored_ms, _ = opened.shard.views.sequences.read_many(np.arange(2, dtype=np.uint64))
    topics = [("bills", 1), ("notes", 1)]
    await lone.engine.publish_joined(topics, RecordBatch(build(draft, 0, 0)))
    records = [batch.header for batch in batches_of(opened.shard.log)]
    await lone.close()
    made = sum(one.kind == Kind.CONFIG for one in records)
    assert made == 3, "each topic is made by its first message"
    at_ms = [one.store_ms for one in records]
    assert at_ms == sorted(at_ms)
    assert (stored_ms - result.store_ms).tolist() == [3_600_000, 7_200_000]


async def received(world: EngineWorld, topic: str) -> list[int]:
    """Sequences of what a group gets from a topic."""
    delivery = await world.receive(topic=topic)
    return [] if delivery is None else delivery.units["sequence"].tolist()


async def test_batch_of_many_topics_reaches_each_of_them(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        result = await world.publish_joined(("orders", 2), ("bills", 1), ("orders", 1))
        assert (result.base_sequence, result.count, result.duplicate) == (1, 4, False)
        assert await received(world, "orders") == [0, 1, 2, 4]
        assert await received(world, "bills") == [3]
        await world.restart()
        assert await received(world, "bills") == [3]


async def test_parts_of_a_batch_of_many_topics_are_known_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_joined(("orders", 2), ("bills", 3), producer=7)
        await world.restart()
        again = await world.publish_joined(("orders", 2), ("bills", 3), producer=7)
        part = await world.publish_joined(("bills", 3), producer=7, first=2)
        assert [(one.base_sequence, one.duplicate) for one in (again, part)] == [
            (0, True),
            (2, True),
        ]
        with pytest.raises(errors.OutOfOrderSequence):
            await world.publish_joined(("bills", 2), ("orders", 2), producer=7, first=4)
        assert await received(world, "orders") == [0, 1]
        assert await received(world, "bills") == [2, 3, 4]


async def test_batch_of_many_topics_is_refused_as_a_whole(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        with pytest.raises(errors.InvalidTopic):
            await world.publish_joined(("orders", 1), ("%DLQ%billing", 1))
        batch = RecordBatch(build(draft_columns(Columns(bodies=[b"a", b"b"])), 0, 0))
        with pytest.raises(errors.InvalidBatch):
            await within(world.engine.publish_joined([("orders", 1)], batch))
        assert await received(world, "orders") == []


async def test_batch_of_many_topics_is_refused_when_they_want_other_genes(tmp_path: Path) -> None:
    spec = GeneSpec(GeneKind.HASH_SET)
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("other", 1, NewTopic(spec)))
        with pytest.raises(errors.InvalidBatch, match="genes"):
            await world.publish_joined(("orders", 1), ("other", 1), tags=("paid",))
        result = await world.publish_joined(("orders", 1), ("other", 1))  # without any to make
        assert result.count == 2


async def test_batch_of_many_topics_never_stands_behind_the_deletion_of_one(tmp_path: Path) -> None:
    """Apply asks for the first topic only; nothing may be put into one that is gone."""
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await world.publish(world.now_ms, topic="bills")
        deleting = asyncio.create_task(world.engine.delete_topic("bills"))
        await asyncio.sleep(0)
        deleting.cancel()  # its caller is gone, and the record stands in the log
        with pytest.raises(errors.InvalidBatch, match="deleted"):
            await world.publish_joined(("orders", 1), ("bills", 1))
        await asyncio.wait([deleting])
        published = await world.publish(world.now_ms)  # behind the deletion in the log
        with pytest.raises(errors.UnknownTopic):
            world.engine.topic("bills")
        result = await world.publish_joined(("orders", 1), ("bills", 1))
        assert result.base_sequence == published.base_sequence + 1
        _, states = world.engine.shard.views.sequences.read_many(np.arange(3, 5, dtype=np.uint64))
        assert SlotState.REJECTED not in states.tolist()
        assert await received(world, "bills") == [4]
