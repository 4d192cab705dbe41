"""A large file becomes durable while it is written."""

import pytest

from storage.files.piecewise_sync import PIECE_BYTES, PiecewiseSync
from storage.views.unit import UNIT_BYTES
from tests.sim.disk import SimulatedDisk
from tests.support.runs import DIRECTORY, IDENTITY, keyed
from timewheel.delay_log import DelayLogWriter
from timewheel.levels import HOUR_LEVEL
from timewheel.run_writer import RunWriter

MEBIBYTE = 1 << 20


def durable_bytes(disk: SimulatedDisk) -> int:
    disk.sync_dir(DIRECTORY)
    return sum(map(len, disk.durable(DIRECTORY).values()))


def disk_with_folder() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dir(DIRECTORY)
    return disk


def test_each_piece_is_synced_when_it_is_whole() -> None:
    disk = disk_with_folder()
    file = disk.open(f"{DIRECTORY}/large", create=True)
    sync = PiecewiseSync(file)
    for written in range(0, 10 * MEBIBYTE, MEBIBYTE):
        file.pwrite([bytes(MEBIBYTE)], written)
        sync.on_written(MEBIBYTE)
        unsynced = written + MEBIBYTE - durable_bytes(disk)
        assert unsynced == (written + MEBIBYTE) % PIECE_BYTES


@pytest.mark.parametrize("is_run", [True, False])
def test_what_background_work_writes_is_synced_on_the_way(is_run: bool) -> None:
    disk = disk_with_folder()
    count = PIECE_BYTES // UNIT_BYTES // 4
    if is_run:
        writer = RunWriter(
            *(disk, DIRECTORY, IDENTITY),
            level=HOUR_LEVEL,
            covers_first=1,
            run_id=1,
            heads=lambda _: 0,
        )
        for part in range(9):
            writer.append(keyed([(part * count + n, n) for n in range(count)]))
    else:
        delay_log = DelayLogWriter(disk, DIRECTORY, IDENTITY, 1)
        for _ in range(9):
            units = keyed([(1, 1)])
            units["body_len"] = PIECE_BYTES // 4
            delay_log.append_blobs(units, [bytes(PIECE_BYTES // 4)], [])
    assert 2 * PIECE_BYTES <= durable_bytes(disk) <= 2 * PIECE_BYTES + MEBIBYTE
