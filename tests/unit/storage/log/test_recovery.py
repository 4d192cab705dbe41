"""Torn tail or corruption? Each rule of storage.log.recovery, and the damage that no rule finds."""

from random import Random

import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import Offset
from storage.files.file_header import FileType, pack_file_header
from storage.log.commit_log import CommitLog, Identity, RecoveryReport
from storage.log.flushed_mark import FlushedMark
from storage.log.recovery import find_proof
from storage.log.segment import Segment
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import (
    BATCH_BYTES,
    CONFIG,
    FIRST,
    IDENTITY,
    LOG,
    MARK,
    SHARD,
    corrupt,
    fill,
    flush,
    open_log,
    publish,
    read_all,
    recovered,
    stamped,
)

SECOND = f"{LOG}/00000000000000004000.log"
THIRD = f"{LOG}/00000000000000008000.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def report_of(log: CommitLog) -> RecoveryReport:
    assert log.recovery_report is not None
    return log.recovery_report


def age_mark(disk: SimulatedDisk, offset: int) -> None:
    """The mark as an older write-back left it before the power was cut."""
    raw = (offset.to_bytes(8, "little") + (offset ^ (1 << 64) - 1).to_bytes(8, "little")) * 2
    disk.damage(MARK, 64, raw)


def tear(disk: SimulatedDisk, raw: bytes, path: str = FIRST) -> None:
    """Bytes that a write left behind the end without being acknowledged."""
    file = disk.open(path)
    file.pwrite([raw], file.size())


# --- good logs


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 60])
def test_recover_when_killed_finds_everything(disk: SimulatedDisk, count: int) -> None:
    raw = fill(open_log(disk), count)
    disk.kill()
    log, found = recovered(disk)
    assert found == raw
    assert log.end_offset == log.flushed_end_offset == log.durable_end_offset == len(raw)
    assert report_of(log) == (0, len(raw), count, len(raw), False, -(-count // 20), None)


@pytest.mark.parametrize("from_", range(0, 8001, 1000))
def test_recover_when_from_a_checkpoint(disk: SimulatedDisk, from_: int) -> None:
    raw = fill(open_log(disk), 40)
    log, found = recovered(disk, from_)
    assert found == raw[from_:]
    assert report_of(log).batch_count == (8000 - from_) // BATCH_BYTES


def test_recover_when_written_and_never_synced_makes_it_durable(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 3) + publish(log)
    flush(log, durable=False)
    disk.kill()
    log = CommitLog.open(disk, SHARD, CONFIG, IDENTITY)
    first = next(log.recover(len(raw) - BATCH_BYTES))
    assert first.header.offset == len(raw) - BATCH_BYTES
    for seed in range(10):
        disk.crash(Random(seed))  # in the middle of recovery
        assert recovered(disk)[1] == raw


def test_recover_when_indexes_are_missing_makes_them_again(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 60)
    log.close()
    log = open_log(disk)
    assert report_of(log).indexes_rebuilt == 0
    infos = log.segments()
    disk.remove(SECOND.replace(".log", ".index"))
    disk.flip_bit(FIRST.replace(".log", ".index"), 90)
    log = open_log(disk, 12_000)
    assert report_of(log).indexes_rebuilt == 2
    assert log.segments() == infos
    assert [info.store_ms_max for info in infos] == [1019, 1039, 1059]


def test_recover_when_done_twice_or_not_yet(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    with pytest.raises(errors.InvariantViolated, match="already"):
        list(log.recover(0))
    log = CommitLog.open(disk, SHARD, CONFIG, IDENTITY)
    with pytest.raises(errors.InvariantViolated, match="before recovery"):
        publish(log)


# --- torn tails


@pytest.mark.parametrize("torn", [1, 8, 95, 96, 97, 104, 199])
def test_recover_when_the_tail_is_torn(disk: SimulatedDisk, torn: int) -> None:
    raw = fill(open_log(disk), 5)
    tear(disk, stamped(1000, 1000, bytes(104))[:torn])
    log, found = recovered(disk)
    assert found == raw
    cut = report_of(log).cut
    assert cut is not None
    assert cut[:4] == (FIRST, 1000, 1064, torn)
    assert cut.why
    for seed in range(5):
        disk.crash(Random(seed))
        log, found = recovered(disk)
        assert (found, report_of(log).cut) == (raw, None)
    assert fill(log, 1) == stamped(1000, 1000, bytes(104), 0, 1000)


@pytest.mark.parametrize("size", [1, 8, 200, 10_000])
def test_recover_when_the_tail_is_zeros(disk: SimulatedDisk, size: int) -> None:
    raw = fill(open_log(disk), 5)
    tear(disk, bytes(size))
    log, found = recovered(disk)
    assert found == raw
    cut = report_of(log).cut
    assert cut is not None
    assert cut.bytes == size


def test_recover_when_intact_batches_follow_in_the_same_write(disk: SimulatedDisk) -> None:
    """One write of four batches, of which the disk had written the last two."""
    raw = fill(open_log(disk), 5)
    tear(disk, bytes(400) + stamped(1400, 1000, b"c" * 104) + stamped(1600, 1000, b"d" * 104))
    log, found = recovered(disk)
    assert found == raw
    cut = report_of(log).cut
    assert cut is not None
    assert (cut.offset, cut.bytes) == (1000, 800)


@pytest.mark.parametrize("left", [0, 1, 63, 64])
def test_recover_when_the_making_of_a_segment_was_interrupted(
    disk: SimulatedDisk, left: int
) -> None:
    raw = fill(open_log(disk), 20)
    header = pack_file_header(FileType.LOG_SEGMENT, IDENTITY, 4000)
    disk.open(SECOND, create=True).pwrite([header[:left]], 0)
    log, found = recovered(disk)
    assert found == raw
    cut = report_of(log).cut
    assert (cut is None) == (left == 64)
    assert cut is None or cut[:4] == (SECOND, 4000, 0, left)
    more = publish(log)
    flush(log)
    assert recovered(disk)[1] == raw + more


def test_recover_when_the_very_first_segment_was_interrupted(disk: SimulatedDisk) -> None:
    open_log(disk)
    disk.open(FIRST, create=True).pwrite([bytes(40)], 0)
    log, found = recovered(disk)
    assert found == b""
    assert len(fill(log, 1)) == BATCH_BYTES


# --- corruption


def test_recover_when_any_bit_is_flipped_below_the_mark(disk: SimulatedDisk) -> None:
    raw = fill(open_log(disk), 21)
    for position in range(64, 64 + 4000, 7):
        disk.flip_bit(FIRST, position, position % 8)
        error = corrupt(disk)
        offset = (position - 64) // BATCH_BYTES * BATCH_BYTES
        assert error.params == {"file": FIRST, "offset": f"{offset}", "position": f"{64 + offset}"}
        assert FIRST in error.message
        disk.flip_bit(FIRST, position, position % 8)
    assert recovered(disk)[1] == raw


@pytest.mark.parametrize("end", [64, 65, 264, 263, 1063])
def test_recover_when_cut_below_the_mark(disk: SimulatedDisk, end: int) -> None:
    fill(open_log(disk), 5)
    disk.open(FIRST).truncate(end)
    error = corrupt(disk)
    assert error.params["file"] == FIRST
    assert "durable up to 1000" in error.message


def test_recover_when_damaged_before_what_a_checkpoint_applied(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 5)
    age_mark(disk, 0)
    disk.damage(FIRST, 64 + 400, bytes(600))
    assert corrupt(disk, 600).params["offset"] == "400"
    disk.open(FIRST).truncate(64 + 200)
    assert "where 600 was applied" in corrupt(disk, 600).message


def test_recover_when_damaged_in_what_the_index_covers(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 5)
    log.close()
    age_mark(disk, 0)
    disk.damage(FIRST, 64 + 400, bytes(600))
    assert corrupt(disk).params["offset"] == "400"
    disk.open(FIRST).truncate(64 + 400)
    assert "index covers up to 1000" in corrupt(disk).message


def test_recover_when_damaged_in_a_segment_before_the_last(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 21, writes_of=21)
    age_mark(disk, 0)
    disk.flip_bit(FIRST, 64 + 3900)
    assert corrupt(disk).params["offset"] == "3800"


def test_recover_when_damaged_before_a_segment_that_was_begun(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 20, writes_of=20)
    age_mark(disk, 0)
    disk.flip_bit(FIRST, 64 + 3900)
    disk.open(SECOND, create=True)
    assert corrupt(disk).params["offset"] == "3800"


def test_recover_when_a_later_batch_proves_that_it_was_durable(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 10)
    age_mark(disk, 0)
    disk.flip_bit(FIRST, 64 + 450)
    error = corrupt(disk)
    assert error.params["offset"] == "400"
    assert "durable when 600 was appended" in error.message


def test_recover_when_the_proof_has_a_torn_payload(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 3)
    age_mark(disk, 0)
    disk.damage(FIRST, 64 + 200, bytes(200))
    disk.damage(FIRST, 64 + 400 + 96, b"torn")
    assert corrupt(disk).params["offset"] == "200"


def test_recover_when_only_the_last_writes_are_damaged_cannot_know(disk: SimulatedDisk) -> None:
    """The limit that storage.log.recovery states: an old mark, and the damage in the last write."""
    raw = fill(open_log(disk), 5)
    age_mark(disk, 0)
    disk.flip_bit(FIRST, 64 + 950)
    log, found = recovered(disk)
    assert found == raw[:800]
    assert report_of(log).cut is not None


@pytest.mark.parametrize(
    "fake",
    [
        stamped(1200, 1008, b"")[:95],  # cut off
        stamped(1208, 1008, b""),  # not at home
        stamped(1200, 1000, b""),  # says nothing about what is bad
        stamped(1200, 1208, b""),  # says what it cannot know
        stamped(1200, 1008, b"")[:92] + bytes(4),  # fails its CRC
        stamped(1200, 1008, b"")[:52] + b"\xff\xff\xff\x7f" + bytes(40),  # absurd sizes
        b"1234" + stamped(1204, 1008, b"")[:92],  # not aligned
    ],
)
def test_find_proof_when_it_only_looks_like_one(disk: SimulatedDisk, fake: bytes) -> None:
    raw = fill(open_log(disk), 5)
    tear(disk, bytes(200) + fake)
    assert recovered(disk)[1] == raw


def test_find_proof_when_it_lies_far_behind(disk: SimulatedDisk) -> None:
    disk.make_dir(LOG)
    segment = Segment(disk, LOG, Offset(0), IDENTITY)
    segment.create()
    far = 9 << 20
    segment.open_file().pwrite([stamped(far, 8, bytes(100))], 64 + far)
    segment.end_offset = Offset(far + BATCH_BYTES)
    assert find_proof(segment, segment.start_offset) == far


# --- missing and foreign files


def test_open_when_a_middle_segment_is_missing(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 60)
    disk.remove(SECOND)
    error = corrupt(disk)
    assert error.params == {"file": FIRST, "offset": "4000", "position": "4064"}
    assert THIRD in error.message


@pytest.mark.parametrize("size", [64, 3000, 4063, 4065, 9999])
def test_open_when_a_middle_segment_has_another_size(disk: SimulatedDisk, size: int) -> None:
    fill(open_log(disk), 60)
    disk.open(SECOND).truncate(size)
    error = corrupt(disk)
    assert error.params["file"] == SECOND
    assert error.params["offset"] == str(min(4000 + size - 64, 8000))


def test_open_when_the_last_segments_are_missing(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 60)
    disk.remove(THIRD)
    assert "durable up to 12000" in corrupt(disk).message
    disk.remove(SECOND)
    disk.remove(FIRST)
    assert "no segment is left" in corrupt(disk).message


def test_recover_when_the_first_segments_are_missing(disk: SimulatedDisk) -> None:
    raw = fill(open_log(disk), 60)
    disk.remove(FIRST)
    assert "missing from 0 on" in corrupt(disk).message
    log, found = recovered(disk, 4000)
    assert found == raw[4000:] == read_all(log)
    assert log.start_offset == 4000


def test_recover_when_the_log_is_gone_and_a_checkpoint_is_not(disk: SimulatedDisk) -> None:
    open_log(disk)
    assert "where 600 was applied" in corrupt(disk, 600).message


def test_recover_when_no_batch_begins_where_it_should(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 5)
    assert corrupt(disk, 208).params["offset"] == "208"


@pytest.mark.parametrize("path", [FIRST, SECOND, THIRD])
def test_open_when_a_header_is_damaged(disk: SimulatedDisk, path: str) -> None:
    fill(open_log(disk), 60)
    age_mark(disk, 0)
    disk.flip_bit(path, 30)
    error = corrupt(disk)
    assert (error.params["file"], error.params["position"]) == (path, "0")


def test_open_when_a_header_is_damaged_and_nothing_else_is_left(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 60)
    age_mark(disk, 0)
    disk.remove(FIRST)
    disk.remove(SECOND)
    disk.open(THIRD).truncate(10)
    assert corrupt(disk, 8000).params["file"] == THIRD


@pytest.mark.parametrize("other", [Identity(bytes(16), 3), Identity(IDENTITY.cluster_id, 4)])
def test_open_when_foreign(disk: SimulatedDisk, other: Identity) -> None:
    fill(open_log(disk), 1)
    with pytest.raises(errors.ForeignDirectory, match=MARK):
        CommitLog.open(disk, SHARD, CONFIG, other)
    disk.remove(MARK)
    with pytest.raises(errors.ForeignDirectory, match=FIRST):
        CommitLog.open(disk, SHARD, CONFIG, other)


def test_open_when_a_segment_is_of_another_version(disk: SimulatedDisk) -> None:
    fill(open_log(disk), 1)
    raw = disk.open(FIRST).pread(60, 0)
    raw = raw[:8] + b"\x63\0" + raw[10:]
    disk.damage(FIRST, 0, raw + crc32c(raw).to_bytes(4, "little"))
    with pytest.raises(errors.IncompatibleFormat, match="version 99"):
        CommitLog.open(disk, SHARD, CONFIG, IDENTITY)


def test_open_when_other_files_lie_there(disk: SimulatedDisk) -> None:
    raw = fill(open_log(disk), 5)
    for name in ("notes.txt", "1.log", "00000000000000009000.index", "a.index.tmp"):
        disk.open(f"{LOG}/{name}", create=True)
    assert recovered(disk)[1] == raw
    assert disk.list(LOG) == ["00000000000000000000.log", "1.log", "a.index.tmp", "notes.txt"]


def test_open_when_the_mark_is_damaged_says_so(disk: SimulatedDisk) -> None:
    raw = fill(open_log(disk), 5)
    disk.damage(MARK, 64, bytes(32))
    log, found = recovered(disk)
    assert found == raw
    assert report_of(log).mark_was_lost
    assert FlushedMark.open(disk, MARK, IDENTITY).offset == len(raw)
