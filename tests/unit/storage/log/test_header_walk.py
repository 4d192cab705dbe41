"""Walking the headers of a log."""

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES
from node.shard.recovery import ShardConfig
from storage.log.header_walk import walk_headers
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld


def test_walk_names_every_batch_of_a_log() -> None:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    for count in (1, 900, 3, 5_000, 2):
        world.publish([world.now_ms + 60_000] * count)
        world.commit()
    log = world.shard.log
    expected = [batch.header for batch in log.scan(0, log.end_offset)]
    assert [*walk_headers(log, 0, log.end_offset)] == expected
    second = expected[1].offset
    assert [*walk_headers(log, second, log.end_offset)] == expected[1:]
    assert [*walk_headers(log, log.end_offset, log.end_offset)] == []


@pytest.mark.parametrize("at", [0, 16])
def test_walk_ends_where_no_batch_is(at: int) -> None:
    world = ShardWorld(SimulatedDisk(), ShardConfig())
    for _ in range(2):
        world.publish([world.now_ms + 60_000])
        world.commit()
    log = world.shard.log
    *_, last = walk_headers(log, 0, log.end_offset)
    path, position = log.locate(last.offset)
    raw = log.read(last.offset + at, 1)
    world.disk.open(path).pwrite([bytes([raw[0] ^ 1])], position + at)
    with pytest.raises(errors.CorruptLog, match="no batch") as caught:
        list(walk_headers(log, 0, log.end_offset))
    assert caught.value.params["file"] == path
    assert last.total_bytes >= HEADER_BYTES
