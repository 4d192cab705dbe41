"""Publishing through a real engine, whose clock a test moves."""

import itertools
from pathlib import Path

import numpy as np

from hourwheel.client.batch_builder import Columns, build, draft_columns
from hourwheel.formats.record_batch import RecordBatch
from node.broker.disk_guard import DiskGuard
from node.broker.settings import EngineConfig
from node.contracts.broker import Failure
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import ShardConfig, open_shard
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
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
    await lone.close()
    assert (stored_ms - result.store_ms).tolist() == [3_600_000, 7_200_000]
