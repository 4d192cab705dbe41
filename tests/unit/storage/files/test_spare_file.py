import random
from contextlib import suppress

import pytest

from hourwheel import errors
from storage.files.disk import Disk
from storage.files.spare_file import exchange, keep_spare, open_spare, room_for
from tests.sim.disk import SimulatedCrash, SimulatedDisk

PATH = "file"


def contents(disk: Disk, path: str = PATH) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def replace(disk: Disk, raw: bytes) -> None:
    file = open_spare(disk, PATH)
    file.pwrite((raw,), 0)
    file.truncate(len(raw))
    file.datasync()
    exchange(disk, PATH)


def store(disk: Disk, raw: bytes) -> None:
    replace(disk, raw)
    keep_spare(disk, PATH, room_for(len(raw)))


def test_versions_take_turns_with_the_spare_and_need_no_room() -> None:
    disk = SimulatedDisk()
    keep_spare(disk, PATH, room_for(10))
    store(disk, b"first")
    disk.capacity_bytes = disk.used_bytes("")
    for number in range(50):
        store(disk, b"%d" % number)
        assert contents(disk) == b"%d" % number
    assert disk.list("") == ["file", "file.spare"]


def test_next_version_needs_no_room_when_the_spare_is_not_kept_yet() -> None:
    disk = SimulatedDisk()
    store(disk, b"first")
    disk.capacity_bytes = disk.used_bytes("")
    for number in range(5):
        replace(disk, b"%d" % number)
        assert contents(disk) == b"%d" % number
    keep_spare(disk, PATH, room_for(10))
    assert disk.list("") == ["file", "file.spare"]


class CountingDisk(SimulatedDisk):
    syncs = 0

    def sync_dir(self, path: str) -> None:
        self.syncs += 1
        super().sync_dir(path)


def test_version_is_durable_with_one_sync_of_the_folder() -> None:
    """A takeover waits for it, on each node: the rest is done when nobody waits."""
    disk = CountingDisk()
    store(disk, b"first")
    disk.syncs = 0
    replace(disk, b"second")
    assert disk.syncs == 1
    disk.crash(random.Random(1))
    assert contents(disk) == b"second"


def test_first_version_and_the_next_need_no_room_when_it_was_kept() -> None:
    disk = SimulatedDisk()
    keep_spare(disk, PATH, room_for(10))
    disk.capacity_bytes = disk.used_bytes("")
    for number in range(5):
        store(disk, b"%d" % number)
        disk.capacity_bytes = disk.used_bytes("")
        assert contents(disk) == b"%d" % number


def test_file_may_grow_by_a_block_when_the_disk_is_full() -> None:
    disk = SimulatedDisk()
    store(disk, bytes(4_000))
    disk.capacity_bytes = disk.used_bytes("")
    store(disk, b"x" * 5_000)
    assert contents(disk) == b"x" * 5_000


def test_spare_has_what_there_is_room_for() -> None:
    disk = SimulatedDisk(capacity_bytes=3 * 4_096)
    keep_spare(disk, PATH, 1 << 20)
    assert disk.used_bytes("") <= disk.capacity_bytes
    disk.capacity_bytes = 1 << 30
    keep_spare(disk, PATH, 1 << 20)
    assert disk.used_bytes("") == 2 << 20, "for the file that is not there yet, and for its spare"


def test_version_after_a_power_cut_is_the_last_or_the_one_that_was_being_written() -> None:
    for seed in range(400):
        rng, disk = random.Random(seed), SimulatedDisk()
        if seed % 2:
            keep_spare(disk, PATH, 4_096)
        store(disk, b"0")
        done = 0
        disk.fail_after(rng.randint(1, 12), takes_effect=rng.random() < 0.5)
        with suppress(SimulatedCrash):
            for number in range(1, 10):
                (store if rng.random() < 0.5 else replace)(disk, b"%d" % number)
                done = number
        disk.crash(rng)
        assert contents(disk) in (b"%d" % done, b"%d" % (done + 1)), f"seed {seed}"
        for number in range(20, 24):  # whatever is left of the exchange, the next ones are sound
            before = contents(disk)
            spare = open_spare(disk, PATH)
            spare.pwrite((b"garbage",), 0)
            assert contents(disk) == before, f"seed {seed}: file and spare are one"
            store(disk, b"%d" % number)
            assert contents(disk) == b"%d" % number, f"seed {seed}"


def test_room_is_kept_when_power_cuts_come_on_a_full_disk() -> None:
    for seed in range(200):
        rng, disk = random.Random(seed), SimulatedDisk()
        store(disk, b"0")
        disk.capacity_bytes = disk.used_bytes("")
        for number in range(1, 8):
            disk.fail_after(rng.randint(1, 6), takes_effect=rng.random() < 0.5)
            with suppress(SimulatedCrash):
                store(disk, b"%d" % number)
            disk.disarm()
            disk.crash(rng)
            store(disk, b"x%d" % number)
            assert contents(disk) == b"x%d" % number, f"seed {seed}"


def test_nothing_has_changed_when_there_is_no_room_for_a_spare() -> None:
    disk = SimulatedDisk(capacity_bytes=4_096)
    store(disk, b"first")
    with pytest.raises(errors.DiskFull):
        store(disk, b"second")
    assert contents(disk) == b"first"


class NoLinks(SimulatedDisk):
    def link(self, old: str, new: str) -> None:
        raise errors.DiskFull(f"no room to link {old}", file=new)


def test_file_is_replaced_when_there_is_no_room_for_another_name() -> None:
    disk = NoLinks()
    store(disk, b"first")
    store(disk, b"second")
    assert contents(disk) == b"second"
    assert disk.list("") == ["file", "file.spare"]
