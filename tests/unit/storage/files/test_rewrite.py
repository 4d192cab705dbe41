"""Files that are replaced by a repaired copy: what is in them, and after a crash at any step."""

from functools import partial
from random import Random
from typing import Any

import pytest

from hourwheel import errors
from storage.files.disk import File
from storage.files.rewrite import REPAIR_SUFFIX, Patch, remove_leftovers
from storage.files.rewrite import rewrite as rewrite_file
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import crash_everywhere

PATH = "folder/file"
OLD = bytes(range(256)) * 40
PATCHES = [Patch(9_000, b"second"), Patch(4_090, b"across two chunks")]
NEW = OLD[:4_090] + b"across two chunks" + OLD[4_107:9_000] + b"second" + OLD[9_006:]


rewrite = partial(rewrite_file, chunk_bytes=4_096, sync_bytes=8_192)


def prepare(disk: SimulatedDisk) -> None:
    disk.make_dir("folder")
    file = disk.open(PATH, create=True)
    file.pwrite([OLD], 0)
    file.datasync()
    disk.sync_dir("folder")


def content(disk: SimulatedDisk, path: str = PATH) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def made() -> SimulatedDisk:
    disk = SimulatedDisk()
    prepare(disk)
    return disk


def test_patches_are_put_in_and_who_reads_goes_on_with_the_old_file() -> None:
    disk, pauses = made(), []
    reader = disk.open(PATH)
    rewrite(disk, PATH, PATCHES, pause=lambda: pauses.append(1))
    assert content(disk) == NEW
    assert reader.pread(len(OLD), 0) == OLD
    assert disk.list("folder") == ["file"]
    assert len(pauses) == 3


def test_file_that_is_missing_is_made_of_zeros_when_that_is_wanted() -> None:
    disk = made()
    disk.remove(PATH)
    with pytest.raises(FileNotFoundError):
        rewrite(disk, PATH, PATCHES)
    rewrite(disk, PATH, PATCHES, bytes_min=10_000)
    assert len(content(disk)) == 10_000
    assert content(disk).replace(b"\0", b"") == b"across two chunkssecond"
    rewrite(disk, PATH, [], bytes_min=5)
    assert len(content(disk)) == 10_000


def test_file_that_was_cut_gets_its_length_back() -> None:
    disk = made()
    rewrite(disk, PATH, [Patch(len(OLD) + 5_000, b"end")])
    assert content(disk) == OLD + bytes(5_000) + b"end"


def test_there_is_the_old_file_or_the_new_one_when_the_power_fails_at_any_step() -> None:
    seen = set()

    def check(disk: SimulatedDisk, _: Random) -> None:
        found = content(disk)
        assert found in {OLD, NEW}
        seen.add(found)
        remove_leftovers(disk, "folder")
        assert disk.list("folder") == ["file"]
        rewrite(disk, PATH, PATCHES)
        assert content(disk) == NEW

    crash_everywhere(lambda disk: rewrite(disk, PATH, PATCHES), check, prepare)
    assert seen == {OLD, NEW}


def test_copy_never_gets_the_name_when_it_is_not_right() -> None:
    disk = made()

    def check(copy: File) -> None:
        assert copy.pread(len(NEW), 0) == NEW
        raise errors.CorruptFile("not right")

    with pytest.raises(errors.CorruptFile):
        rewrite(disk, PATH, PATCHES, check=check)
    assert content(disk) == OLD
    assert disk.list("folder") == ["file"]


def test_old_file_stays_when_there_is_no_room() -> None:
    disk = made()
    disk.capacity_bytes = disk.used_bytes("") + 5_000
    with pytest.raises(errors.DiskFull):
        rewrite(disk, PATH, PATCHES)
    assert content(disk) == OLD
    assert disk.list("folder") == ["file"]


def test_left_over_copy_is_written_anew() -> None:
    disk = made()
    disk.open(PATH + REPAIR_SUFFIX, create=True).pwrite([bytes(len(OLD) + 77)], 0)
    rewrite(disk, PATH, PATCHES)
    assert content(disk) == NEW


class Unreadable:
    """A file of which the disk cannot read one sector."""

    def __init__(self, file: File, at: int) -> None:
        self._file, self._at = file, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        if position <= self._at < position + length:
            raise errors.DiskFailed("a sector cannot be read")
        return self._file.pread(length, position)


def test_sector_that_cannot_be_read_takes_no_others_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = made()
    opened = disk.open

    def open_file(path: str, *, create: bool = False) -> Any:
        file = opened(path, create=create)
        return file if create else Unreadable(file, 5_000)

    monkeypatch.setattr(disk, "open", open_file)
    rewrite(disk, PATH, [Patch(4_990, b"twenty bytes of good")], chunk_bytes=1 << 20)
    monkeypatch.setattr(disk, "open", opened)
    expected = bytearray(OLD)
    expected[4_096:8_192] = bytes(4_096)
    expected[4_990:5_010] = b"twenty bytes of good"
    assert content(disk) == expected
