import errno
import os
from pathlib import Path
from random import Random

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from hourwheel.types import Offset
from storage.files.disk import RealDisk
from storage.log import tail as log_tail
from storage.log.commit_log import CommitLog, LogWrite
from storage.log.segment import Segment
from storage.log.sparse_index import SparseIndex
from storage.log.tail import LogConfig, LogTail
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import (
    BATCH_BYTES,
    FIRST,
    IDENTITY,
    LOG,
    fill,
    flush,
    open_log,
    publish,
    read_all,
    recovered,
    stamped,
)

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=250)


def tail_of(last_bytes: int | None = None) -> LogTail:
    """An open tail behind a last segment [3000, 3000 + last_bytes), or of an empty log."""
    disk = SimulatedDisk()
    tail = LogTail(disk, "log", CONFIG, IDENTITY)
    if last_bytes is not None:
        last = Segment(disk, "log", Offset(3000), IDENTITY)
        last.end_offset = Offset(3000 + last_bytes)
        last.adopt_index(SparseIndex(3000, 250))
        assert last.index is not None
        last.index.end_offset = last.end_offset
        tail.reset(last)
    tail.is_open = True
    return tail


def append(tail: LogTail, size: int) -> None:
    tail.append([stamped(tail.end_offset, 0, bytes(size - 96))])


def layout(tail: LogTail) -> list[tuple[int, int, int, bool]]:
    return [
        (part.segment.start_offset, part.position, part.bytes, part.is_new)
        for part in tail.take()[0]
    ]


def test_append_when_the_log_is_empty_begins_a_segment() -> None:
    tail = tail_of()
    append(tail, 200)
    append(tail, 200)
    assert tail.end_offset == 400
    assert layout(tail) == [(0, 64, 400, True)]
    assert tail.take() == ([], 0)


def test_append_when_taken_goes_on_behind_it() -> None:
    tail = tail_of(200)
    append(tail, 200)
    assert layout(tail) == [(3000, 264, 200, False)]
    append(tail, 200)
    append(tail, 200)
    parts, count = tail.take()
    assert count == 2
    assert [(part.position, part.bytes, part.is_new) for part in parts] == [(464, 400, False)]
    assert parts[0].index.start_offset == 3400


@pytest.mark.parametrize(
    ("used", "sizes", "expected"),
    [
        (800, [200, 200], [(3000, 864, 200, False), (4000, 64, 200, True)]),
        (808, [200], [(3808, 64, 200, True)]),
        (0, [2000, 200], [(3000, 64, 2000, False), (5000, 64, 200, True)]),
        (200, [2000, 2000], [(3200, 64, 2000, True), (5200, 64, 2000, True)]),
        (1000, [104] * 10, [(4000, 64, 936, True), (4936, 64, 104, True)]),
    ],
)
def test_append_when_a_segment_is_full(
    used: int, sizes: list[int], expected: list[tuple[int, int, int, bool]]
) -> None:
    tail = tail_of(used)
    for size in sizes:
        append(tail, size)
    assert layout(tail) == expected


def test_append_when_rolling_between_two_writes() -> None:
    tail = tail_of(0)
    append(tail, 1000)
    tail.take()
    append(tail, 200)
    assert layout(tail) == [(4000, 64, 200, True)]


def test_append_when_given_in_pieces_keeps_them() -> None:
    tail = tail_of()
    raw = stamped(0, 0, bytes(104))
    pieces: list[Buffer] = [raw[:96], memoryview(raw)[96:150], memoryview(raw)[150:]]
    assert tail.append(pieces) == 0
    part = tail.take()[0][0]
    assert all(kept is piece for kept, piece in zip(part.pieces, pieces, strict=True))


def test_append_when_indexed_once_an_interval() -> None:
    tail = tail_of()
    offsets = []
    for _ in range(3):
        append(tail, 104)
        append(tail, 104)
        offsets += tail.take()[0][0].index.entries["offset"].tolist()
    assert offsets == [0, 312]


def test_append_when_refused() -> None:
    tail = tail_of()
    raw = stamped(0, 0, bytes(104))
    with pytest.raises(errors.InvariantViolated, match="another place"):
        tail.append([stamped(8, 0, b"")])
    with pytest.raises(errors.InvariantViolated, match="not one batch"):
        tail.append([raw, b"more"])
    with pytest.raises(errors.InvariantViolated, match="not one batch"):
        tail.append([raw[:96]])
    tail.is_open = False
    with pytest.raises(errors.InvariantViolated, match="before recovery"):
        tail.append([raw])
    assert tail.take() == ([], 0)


def test_append_when_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "LOG_BATCH_BYTES_MAX", 500)
    tail = tail_of()
    append(tail, 496)
    with pytest.raises(errors.InvariantViolated, match="too large"):
        append(tail, 504)


def test_reset_when_not_taken_forgets() -> None:
    tail = tail_of(200)
    append(tail, 200)
    tail.reset(None)
    assert tail.end_offset == 0
    assert tail.take() == ([], 0)


def test_append_when_rolling_behind_an_offset() -> None:
    tail = tail_of(300)
    append(tail, 200)
    tail.roll_behind(3_100)
    append(tail, 200)
    append(tail, 200)
    assert layout(tail) == [(3_000, 364, 200, False), (3_500, 64, 400, True)]
    tail.roll_behind(3_100)  # it is closed already
    append(tail, 200)
    assert layout(tail) == [(3_500, 464, 200, False)]


def test_take_when_rolling_and_nothing_is_appended() -> None:
    tail = tail_of(300)
    tail.roll_behind(3_300)
    assert not tail.has_parts, "it is not there yet"
    tail.roll_behind(3_299)
    assert tail.has_parts
    tail.roll_behind(3_100)
    assert layout(tail) == [(3_300, 64, 0, True)]
    assert not tail.has_parts
    append(tail, 200)
    assert layout(tail) == [(3_300, 64, 200, False)]


def test_append_when_rolling_and_what_was_written_is_dropped() -> None:
    tail = tail_of(300)
    last = tail._segment
    tail.roll_behind(3_100)
    append(tail, 200)
    tail.reset(last)
    append(tail, 200)
    assert layout(tail) == [(3_300, 64, 200, True)]


# --- the write


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def spanning(log: CommitLog, count: int = 60) -> LogWrite:
    """A write of so many batches: 20 fill a segment."""
    for number in range(count):
        publish(log, bytes([number]) * 104)
    write = log.take_write()
    assert write is not None
    return write


def test_run_when_it_spans_segments(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    write = spanning(log)
    assert (write.start_offset, write.end_offset) == (0, 60 * BATCH_BYTES)
    assert (write.bytes, write.batch_count) == (60 * BATCH_BYTES, 60)
    assert [part.is_new for part in write.parts] == [True, True, True]
    write.run(durable=True)
    assert write.is_run
    assert write.is_durable
    log.finish_write(write)
    log.check()
    assert [info.start_offset for info in log.segments()] == [0, 4000, 8000]
    assert recovered(disk)[1] == read_all(log)


def test_run_when_durable_survives_a_power_cut(disk: SimulatedDisk) -> None:
    for seed in range(10):
        log = open_log(disk, log_start(disk))
        raw = read_all(log)
        write = spanning(log, 25)
        write.run(durable=True)
        disk.crash(Random(seed))
        again = recovered(disk)[1]
        assert again.startswith(raw)
        assert len(again) == len(raw) + 25 * BATCH_BYTES


def log_start(disk: SimulatedDisk) -> int:
    return open_log(disk).start_offset


def test_run_when_not_durable_makes_no_sync(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 1)
    before = disk.durability_op_count
    publish(log)
    write = flush(log, durable=False)
    assert not write.is_durable
    assert disk.durability_op_count == before
    publish(log)
    flush(log)
    assert disk.durability_op_count == before + 1


def test_run_when_not_durable_and_rolling_syncs_what_it_leaves(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    publish(log)
    flush(log, durable=False)
    spanning(log, 30).run(durable=False)
    for seed in range(20):
        disk.crash(Random(seed))
        assert disk.open(FIRST).size() == 64 + 20 * BATCH_BYTES


def test_run_when_run_twice(disk: SimulatedDisk) -> None:
    write = spanning(open_log(disk), 1)
    write.run(durable=True)
    with pytest.raises(errors.InvariantViolated, match="twice"):
        write.run(durable=True)


def test_run_when_a_sync_fails(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 1)
    write = spanning(log, 1)
    disk.fail_sync(FIRST)
    with pytest.raises(errors.FsyncFailed):
        write.run(durable=True)
    assert not write.is_run
    with pytest.raises(errors.InvariantViolated):
        log.finish_write(write)


@pytest.mark.parametrize("room_blocks", range(5))
@pytest.mark.parametrize("first_count", [0, 5, 20])
def test_run_when_the_disk_fills_up_takes_everything_back(
    disk: SimulatedDisk, room_blocks: int, first_count: int
) -> None:
    log = open_log(disk)
    raw = fill(log, first_count)
    disk.capacity_bytes = disk.used_bytes("") + 4096 * room_blocks
    names = disk.list(LOG)
    write = spanning(log, 130)
    publish(log)
    with pytest.raises(errors.DiskFull):
        write.run(durable=True)
    assert disk.list(LOG) == names
    assert log.end_offset > log.flushed_end_offset
    log.abandon_write(write)
    assert log.end_offset == log.flushed_end_offset == len(raw)
    log.check()

    disk.capacity_bytes = 1 << 30
    raw += publish(log, b"after")
    flush(log)
    disk.crash(Random(room_blocks))
    assert recovered(disk)[1] == raw


def test_run_when_the_disk_fills_up_leaves_nothing_to_come_back(disk: SimulatedDisk) -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        log = open_log(disk)
        raw = fill(log, 5)
        disk.capacity_bytes = disk.used_bytes("") + 4096
        write = spanning(log, 90)
        with pytest.raises(errors.DiskFull):
            write.run(durable=True)
        disk.crash(Random(seed))
        assert recovered(disk)[1] == raw


def test_run_when_a_real_disk_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(tmp_path)
    log = open_log(disk)
    raw = fill(log, 5)
    write = spanning(log, 50)
    real, left = os.pwritev, 5000

    def pwritev(fd: int, pieces: list[bytes], position: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        given = b"".join(pieces)[:left]
        left -= len(given)
        return real(fd, [given], position)

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(errors.DiskFull):
        write.run(durable=True)
    log.abandon_write(write)
    assert [path.name for path in (tmp_path / LOG).iterdir()] == [FIRST.rpartition("/")[2]]
    assert (tmp_path / FIRST).stat().st_size == 64 + len(raw)

    monkeypatch.setattr(os, "pwritev", real)
    raw += publish(log, b"after")
    flush(log)
    log.close()
    assert recovered(disk)[1] == raw
