from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from hourwheel import errors
from storage.files.disk import RealDisk
from storage.log.commit_log import CommitLog, LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import (
    BATCH_BYTES,
    FIRST,
    LOG,
    contents,
    crash_everywhere,
    delete_below,
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


def ends(log: CommitLog) -> tuple[int, int, int, int]:
    log.check()
    return log.start_offset, log.durable_end_offset, log.flushed_end_offset, log.end_offset


def test_log_when_empty(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    assert ends(log) == (0, 0, 0, 0)
    assert log.segments() == []
    assert log.take_write() is None
    assert log.read(0, 0) == b""
    assert list(log.scan(0, 0)) == []
    assert log.find_offset(5) == 0
    assert log.locate(0) == (LOG, 0)
    log.truncate(0)
    assert delete_below(log, 100) == 0


def test_offsets_when_a_batch_goes_its_way(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    publish(log)
    assert ends(log) == (0, 0, 0, 200)
    write = log.take_write()
    assert write is not None
    publish(log)
    assert log.take_write() is None
    write.run(durable=True)
    assert ends(log) == (0, 0, 0, 400)
    log.finish_write(write)
    assert ends(log) == (0, 200, 200, 400)
    flush(log, durable=False)
    assert ends(log) == (0, 200, 400, 400)
    publish(log)
    flush(log)
    assert ends(log) == (0, 600, 600, 600)


def test_finish_write_when_it_is_not_the_running_one(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    publish(log)
    write = log.take_write()
    assert write is not None
    with pytest.raises(errors.InvariantViolated):
        log.finish_write(write)
    write.run(durable=True)
    with pytest.raises(errors.InvariantViolated):
        log.abandon_write(write)
    log.finish_write(write)
    with pytest.raises(errors.InvariantViolated):
        log.finish_write(write)


def test_abandon_write_when_more_was_appended_drops_all_of_it(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 3)
    for _ in range(30):
        publish(log)
    write = log.take_write()
    assert write is not None
    publish(log)
    log.abandon_write(write)
    assert ends(log) == (0, 600, 600, 600)
    assert log.take_write() is None
    raw += publish(log, b"next")
    flush(log)
    assert recovered(disk)[1] == raw == read_all(log)


def test_read_when_it_spans_segments(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    rng = Random(1)
    for _ in range(200):
        from_, to = sorted(rng.choices(range(len(raw) + 1), k=2))
        assert log.read(from_, to - from_) == raw[from_:to]


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (0, 1001), (1000, 1), (5000, 1)])
def test_read_when_it_is_not_there(disk: SimulatedDisk, offset: int, length: int) -> None:
    log = open_log(disk)
    fill(log, 5)
    publish(log)
    with pytest.raises(errors.InvariantViolated, match="not in the log"):
        log.read(offset, length)


def test_read_batch_when_good_and_damaged(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    for offset in range(0, len(raw), BATCH_BYTES):
        assert contents(log.read_batch(offset)) == raw[offset : offset + BATCH_BYTES]
    disk.flip_bit(FIRST, 64 + 450)
    with pytest.raises(errors.CorruptLog, match=FIRST) as raised:
        log.read_batch(400)
    assert raised.value.params["offset"] == "400"
    with pytest.raises(errors.InvariantViolated):
        log.read_batch(len(raw))


def test_scan_when_it_spans_segments(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    for from_, to in ((0, 12_000), (200, 11_800), (3800, 4200), (4000, 8000), (400, 400)):
        assert b"".join(map(contents, log.scan(from_, to))) == raw[from_:to]
    disk.flip_bit(FIRST, 64 + 3900)
    with pytest.raises(errors.CorruptLog, match="offset 3800"):
        list(log.scan(0, 12_000))


def test_locate_and_segments(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 45)
    second, third = FIRST.replace("0000.log", "4000.log"), FIRST.replace("0000.log", "8000.log")
    assert log.locate(0) == (FIRST, 64)
    assert log.locate(3999) == (FIRST, 4063)
    assert log.locate(4000) == (second, 64)
    assert log.locate(9000) == (third, 1064)
    assert log.segments() == [
        (FIRST, 0, 4000, 1019),
        (second, 4000, 8000, 1039),
        (third, 8000, 9000, 1044),
    ]


@pytest.mark.parametrize("saved", [False, True])
def test_find_offset(disk: SimulatedDisk, *, saved: bool) -> None:
    log = open_log(disk)
    fill(log, 60)
    if saved:
        log.close()
        log = open_log(disk, 12_000)
    for sequence in range(60):
        offset = log.find_offset(sequence)
        assert sequence * BATCH_BYTES - 600 < offset <= sequence * BATCH_BYTES
        assert log.read_batch(offset).header.offset == offset


@pytest.mark.parametrize("saved", [False, True])
def test_sequence_before_an_instant_is_found(disk: SimulatedDisk, *, saved: bool) -> None:
    log = open_log(disk)
    assert log.find_sequence_before(1 << 60) == 0
    fill(log, 60)
    stored = [batch.header.store_ms for batch in log.scan(0, 12_000)]
    assert stored == sorted(stored)
    if saved:
        log.close()
        log = open_log(disk, 12_000)
    found = [log.find_sequence_before(at) for at in range(stored[0], stored[-1] + 1)]
    assert found == sorted(found)
    for at, sequence in zip(range(stored[0], stored[-1] + 1), found, strict=True):
        assert all(one < at for one in stored[:sequence]), "nothing younger is below it"
    assert found[-1] > 50
    assert log.find_sequence_before(stored[0] - 1) == 0


def test_checkpoint_when_done_makes_mark_and_indexes_durable(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 45)
    for work in log.begin_checkpoint():
        work()
    assert len(log.begin_checkpoint()) == 1
    for seed in range(10):
        disk.crash(Random(seed))
        log = open_log(disk, 9000)
        assert log.recovery_report is not None
        assert log.recovery_report.mark_offset == 9000
        assert log.recovery_report.indexes_rebuilt == 0


def test_checkpoint_when_the_log_goes_on_meanwhile(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 15)
    works = log.begin_checkpoint()
    raw += fill_more(log, 15, 30)
    for work in works:
        work()
    disk.crash(Random(7))
    log, found = recovered(disk, 3000)
    assert found == raw[3000:]
    assert log.find_offset(14) <= 2800


def fill_more(log: CommitLog, first: int, count: int) -> bytes:
    raw = b""
    for sequence in range(first, first + count):
        raw += publish(log, bytes(104), sequence, 1000 + sequence)
        flush(log)
    return raw


# --- truncating


@pytest.mark.parametrize("offset", [0, 200, 3800, 4000, 4200, 8000, 11_800, 12_000, 20_000])
def test_truncate(disk: SimulatedDisk, offset: int) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    publish(log)
    log.truncate(offset)
    kept = min(offset, 12_000)
    assert ends(log) == (0, kept, kept, kept)
    assert read_all(log) == raw[:kept]
    more = publish(log, b"more", 999)
    flush(log)
    for seed in range(5):
        disk.crash(Random(seed))
        again, found = recovered(disk)
        assert found == raw[:kept] + more
        assert again.recovery_report is not None
        assert again.recovery_report.cut is None


@pytest.mark.parametrize("is_saved", [False, True])
def test_truncate_when_power_is_cut_leaves_a_longer_log(*, is_saved: bool) -> None:
    whole = b""

    def prepare(disk: SimulatedDisk) -> None:
        nonlocal whole
        log = open_log(disk)
        whole = fill(log, 60)
        if is_saved:
            log.close()

    def use(disk: SimulatedDisk) -> None:
        open_log(disk, 12_000).truncate(2000)

    def check(disk: SimulatedDisk, rng: Random) -> None:
        log, found = recovered(disk)
        assert len(found) >= 2000
        assert whole.startswith(found)
        more = publish(log, b"more")
        flush(log)
        disk.crash(rng)
        assert recovered(disk)[1] == found + more

    crash_everywhere(use, check, prepare, range(3))


def test_truncate_when_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 60)
    delete_below(log, 4000)
    with pytest.raises(errors.InvariantViolated, match="below the log"):
        log.truncate(3800)
    publish(log)
    assert log.take_write() is not None
    with pytest.raises(errors.InvariantViolated, match="under way"):
        log.truncate(5000)


# --- deleting


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 0), (3999, 0), (4000, 4000), (8200, 8000), (99_999, 8000)]
)
def test_delete_below(disk: SimulatedDisk, offset: int, start: int) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    log.close()
    log = open_log(disk, 12_000)
    assert delete_below(log, offset) == start // 4000
    assert ends(log) == (start, 12_000, 12_000, 12_000)
    disk.crash(Random(offset))
    log, found = recovered(disk, start)
    assert found == raw[start:]
    assert len(disk.list(LOG)) == 2 * (3 - start // 4000)


def test_delete_below_when_power_is_cut_leaves_no_hole() -> None:
    whole = b""

    def prepare(disk: SimulatedDisk) -> None:
        nonlocal whole
        whole = fill(open_log(disk), 80)

    def use(disk: SimulatedDisk) -> None:
        delete_below(open_log(disk, 16_000), 12_000)

    def check(disk: SimulatedDisk, rng: Random) -> None:
        log = open_log(disk, 12_000)
        assert log.start_offset in {0, 4000, 8000, 12_000}
        assert read_all(log) == whole[log.start_offset :]

    crash_everywhere(use, check, prepare, range(3))


def test_delete_below_when_begun_hides_them_at_once(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 60)
    work = log.begin_delete_below(8000)
    assert log.start_offset == 8000
    assert len(disk.list(LOG)) == 3
    for step in work:
        step()
    assert len(disk.list(LOG)) == 1


# --- on a real disk, in threads


def test_log_when_written_by_another_thread(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    config = LogConfig(segment_bytes=200_000, index_interval_bytes=4096)
    log = open_log(disk, config=config)
    raw, rng = b"", Random(5)
    with ThreadPoolExecutor(1) as flusher:
        for _ in range(20):
            raw += b"".join(publish(log, rng.randbytes(rng.randrange(5000))) for _ in range(9))
            write = log.take_write()
            assert write is not None
            running = flusher.submit(write.run, durable=True)
            raw += publish(log, b"meanwhile")
            done = log.flushed_end_offset
            assert log.read(0, done) == raw[:done]
            running.result()
            log.finish_write(write)
    flush(log)
    assert len(log.segments()) > 2
    log.close()
    assert recovered(disk, config=config)[1] == raw
    assert disk.used_bytes(LOG) >= len(raw)


def test_read_when_it_is_deleted(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    fill(log, 60)
    delete_below(log, 5_000)
    deleted = log.start_offset - BATCH_BYTES
    assert deleted > 0
    for read in (
        lambda: log.read(deleted, 10),
        lambda: log.read_many([log.start_offset, deleted], [10, 10]),
        lambda: log.locate(deleted),
    ):
        with pytest.raises(errors.CorruptLog, match=f"{deleted} is deleted") as raised:
            read()
        assert raised.value.params["file"] == LOG


def test_close_when_the_disk_is_full(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    raw = fill(log, 60)
    disk.capacity_bytes = disk.used_bytes("")
    log.close()
    assert recovered(disk)[1] == raw


def test_segment_is_begun_without_a_batch_and_survives_a_crash_anywhere(
    disk: SimulatedDisk,
) -> None:
    raw = [b""]

    def write_some(disk: SimulatedDisk) -> None:
        log = open_log(disk)
        raw[0] = fill(log, 3)

    def begin_segment(disk: SimulatedDisk) -> None:
        log, _ = recovered(disk)
        log.roll_behind(log.end_offset - 1)
        assert flush(log).batch_count == 0
        assert [one.start_offset for one in log.segments()] == [0, len(raw[0])]
        assert log.take_write() is None
        log.close()

    def goes_on(disk: SimulatedDisk, _: Random) -> None:
        log, found = recovered(disk)
        assert found == raw[0]
        assert read_all(log) == raw[0]
        log.roll_behind(log.end_offset - 1)
        more = fill(log, 1)
        assert read_all(log) == raw[0] + more
        assert [one.start_offset for one in log.segments()] == [0, len(raw[0])]

    crash_everywhere(begin_segment, goes_on, write_some)
    write_some(disk)
    begin_segment(disk)
    goes_on(disk, Random(1))
