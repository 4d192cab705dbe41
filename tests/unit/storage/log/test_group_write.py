import errno
import os
from pathlib import Path
from random import Random

import pytest

from hourwheel import errors
from storage.files.disk import RealDisk
from storage.log.commit_log import CommitLog, LogWrite
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import (
    BATCH_BYTES,
    FIRST,
    LOG,
    fill,
    flush,
    open_log,
    publish,
    read_all,
    recovered,
)


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
