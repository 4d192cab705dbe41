"""Files of the log that version 1 wrote: written the same today, byte for byte, and read."""

import pytest

from hourwheel.formats.record_batch import Kind
from node.shard.checkpoint import ShardPlace
from node.shard.snapshot_files import read_lost_end, unpack_marker
from storage.files import atomic_file
from storage.files.file_header import FileType
from storage.log.commit_log import CommitLog
from storage.log.epochs import EpochFile
from tests.support.golden import golden
from tests.support.log_world import CONFIG, IDENTITY, SHARD
from tests.support.storage_golden import EPOCHS, MARKED, PATHS, build, restore


@pytest.mark.parametrize("name", PATHS)
def test_file_when_written_is_the_golden_one(name: str) -> None:
    assert build()[name].hex(" ", 8) == golden(name).hex(" ", 8)


def test_log_when_read_from_golden_files() -> None:
    disk = restore({name: golden(name) for name in PATHS})
    log = CommitLog.open(disk, SHARD, CONFIG, IDENTITY)
    batches = list(log.recover(0))
    assert [batch.header.kind for batch in batches] == [
        Kind.EPOCH_START,
        Kind.PUBLISH,
        Kind.EPOCH_START,
    ]
    assert batches[1].due_ms.tolist() == [1_700_000_000_123, 1_800_000_000_456]
    assert bytes(batches[1].blobs) == b"first body\x0a\x03tagsecond"
    report = log.recovery_report
    assert report is not None
    assert report.mark_offset == report.end_offset == log.end_offset
    assert report.indexes_rebuilt == 0
    assert log.segments()[0].store_ms_max == 1_690_000_000_000
    epochs = EpochFile.open(disk, EPOCHS, IDENTITY)
    assert epochs.entries == ((1, 0), (4, batches[2].header.offset))
    assert read_lost_end(ShardPlace(disk, SHARD, IDENTITY)) == 0x1234
    marker = atomic_file.read(disk, PATHS["snapshot_marker"], FileType.SNAPSHOT, IDENTITY)
    assert unpack_marker(marker.payload, "") == MARKED
