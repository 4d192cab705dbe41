"""What every `Disk` does: the same tests run on the real and on the simulated one.

A test class inherits `DiskConformance` and gives a fixture `disk`: an empty disk.
"""

import numpy as np
import pytest

from hourwheel import errors
from storage.files.disk import Disk


class DiskConformance:
    def test_pread_when_written_in_pieces(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"abc", memoryview(b"xdefx")[1:4], bytearray(b"g"), b""], 0)
        assert file.pread(100, 0) == b"abcdefg"
        assert file.pread(2, 2) == b"cd"
        assert file.pread(5, 7) == b""
        assert file.size() == 7
        assert file.path == "f"

    def test_pread_into_when_pieces_lie_apart_or_the_file_ends(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"abcdefg"], 0)
        memory = bytearray(b"." * 9)
        view = memoryview(memory)
        assert file.pread_into([view[:3], view[4:6]], [4, 1]) == 5
        assert memory == b"efg.bc..."
        assert file.pread_into([view[:3], view[3:6]], [5, 7]) == 2
        assert memory == b"fgg.bc..."

    def test_pwrite_when_more_pieces_than_one_call_takes(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        pieces = [b"%04d" % number for number in range(5_000)]
        file.pwrite(pieces, 0)
        assert file.pread(20_001, 0) == b"".join(pieces)

    def test_pwrite_when_behind_the_end_leaves_zeros(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"ab"], 4)
        assert file.pread(9, 0) == b"\0\0\0\0ab"

    def test_pwrite_when_inside_overwrites(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"abcdef"], 0)
        file.pwrite([b"XY"], 2)
        assert file.pread(9, 0) == b"abXYef"

    def test_pwrite_when_nothing_changes_nothing(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([], 10)
        file.pwrite([b""], 10)
        assert file.size() == 0

    def test_pwrite_when_a_piece_is_not_flat(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        with pytest.raises(errors.InvariantViolated, match="flat view"):
            file.pwrite([memoryview(b"12345678").cast("Q")], 0)

    def test_truncate_when_shorter_and_longer(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"abcdef"], 0)
        file.truncate(2)
        file.truncate(4)
        assert file.pread(9, 0) == b"ab\0\0"
        file.datasync()

    def test_open_when_opened_twice_sees_the_same_bytes(self, disk: Disk) -> None:
        one, two = disk.open("f", create=True), disk.open("f", create=True)
        one.pwrite([b"abc"], 0)
        assert two.pread(3, 0) == b"abc"
        one.close()
        one.close()
        two.will_need(0, 3)

    def test_open_when_missing(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.open("f")
        with pytest.raises(FileNotFoundError):
            disk.map("f", 4096)
        with pytest.raises(FileNotFoundError):
            disk.open("no/f", create=True)
        with pytest.raises(FileNotFoundError):
            disk.list("no")
        with pytest.raises(FileNotFoundError):
            disk.remove("f")
        with pytest.raises(FileNotFoundError):
            disk.rename("f", "g")
        with pytest.raises(FileNotFoundError):
            disk.sync_dir("no")

    def test_list_when_files_and_folders(self, disk: Disk) -> None:
        disk.make_dir("a/b/c")
        disk.make_dir("a/b")
        for name in ("a/z", "a/y", "a/b/x"):
            disk.open(name, create=True)
        assert disk.list("") == ["a"]
        assert disk.list("a") == ["b", "y", "z"]
        assert disk.list("a/b") == ["c", "x"]
        assert disk.exists("a/b/x")
        assert disk.exists("a/b/c")
        assert disk.exists("")
        assert not disk.exists("a/x")
        assert not disk.exists("no/x")

    def test_make_dir_when_it_need_not_be_durable_yet(self, disk: Disk) -> None:
        disk.make_dir("a/b", is_durable=False)
        disk.open("a/b/f", create=True).pwrite([b"abc"], 0)
        disk.make_dir("a/b")
        disk.sync_dir("a")
        assert disk.list("a/b") == ["f"]
        disk.remove("a/b/f")
        disk.remove("a/b")
        assert disk.list("a") == []

    def test_rename_when_the_new_name_is_taken(self, disk: Disk) -> None:
        disk.make_dir("a")
        old, new = disk.open("a/old", create=True), disk.open("a/new", create=True)
        old.pwrite([b"old"], 0)
        new.pwrite([b"new"], 0)
        disk.rename("a/old", "a/new")
        disk.sync_dir("a")
        assert disk.list("a") == ["new"]
        assert disk.open("a/new").pread(9, 0) == b"old"
        assert new.pread(9, 0) == b"new"

    def test_rename_when_into_another_folder(self, disk: Disk) -> None:
        disk.make_dir("a")
        disk.open("f", create=True)
        with pytest.raises(errors.InvariantViolated):
            disk.rename("f", "a/f")

    def test_rename_when_a_folder_takes_all_with_it(self, disk: Disk) -> None:
        disk.make_dir("a/b")
        disk.make_dir("ab")
        file = disk.open("a/b/f", create=True)
        disk.rename("a", "c")
        disk.sync_dir("")
        file.pwrite([b"abc"], 0)
        assert disk.list("") == ["ab", "c"]
        assert disk.open("c/b/f").pread(9, 0) == b"abc"
        assert not disk.exists("a/b/f")
        disk.make_dir("a")
        assert disk.list("a") == []

    def test_link_when_the_first_name_goes(self, disk: Disk) -> None:
        disk.make_dir("a")
        disk.make_dir("b")
        file = disk.open("a/f", create=True)
        file.pwrite([bytes(10_000)], 0)
        file.datasync()
        used = disk.used_bytes("a")
        disk.link("a/f", "b/g")
        file.pwrite([b"abc"], 0)
        assert disk.used_bytes("b") == used
        disk.remove("a/f")
        assert disk.open("b/g").pread(3, 0) == b"abc"
        assert disk.list("a") == []
        with pytest.raises(FileNotFoundError):
            disk.link("a/f", "b/h")

    def test_remove_when_open_leaves_the_file_usable(self, disk: Disk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"abc"], 0)
        disk.remove("f")
        assert not disk.exists("f")
        file.pwrite([b"d"], 3)
        assert file.pread(9, 0) == b"abcd"
        assert disk.open("f", create=True).size() == 0

    def test_remove_when_a_folder(self, disk: Disk) -> None:
        disk.make_dir("a")
        disk.open("a/f", create=True)
        with pytest.raises(errors.DiskFailed):
            disk.remove("a")
        disk.remove("a/f")
        disk.remove("a")
        assert disk.list("") == []

    def test_map_when_stored_is_read_by_everyone(self, disk: Disk) -> None:
        mapping = disk.map("m", 8192, create=True)
        assert len(mapping.view) == 8192
        assert not any(mapping.view)
        mapping.allocate(4096, 8192)
        column = np.frombuffer(mapping.view, "<u8")
        column[512:514] = (7, 8)
        assert disk.open("m").pread(16, 4096) == bytes([7, *bytes(7), 8, *bytes(7)])
        assert disk.open("m").size() == 8192
        assert mapping.path == "m"
        mapping.datasync()
        mapping.close()
        assert column[513] == 8

    def test_map_when_it_exists(self, disk: Disk) -> None:
        file = disk.open("m", create=True)
        file.pwrite([b"abcd"], 0)
        assert bytes(disk.map("m", 4).view) == b"abcd"
        assert bytes(disk.map("m", 4, create=True).view) == b"abcd"
        with pytest.raises(errors.CorruptFile, match="m has 4 bytes"):
            disk.map("m", 8192)

    def test_map_when_written_through_the_file(self, disk: Disk) -> None:
        mapping = disk.map("m", 4096, create=True)
        disk.open("m").pwrite([b"xyz"], 10)
        assert bytes(mapping.view[9:14]) == b"\0xyz\0"

    def test_used_bytes_when_files_grow_and_go(self, disk: Disk) -> None:
        disk.make_dir("a/b")
        file = disk.open("a/b/f", create=True)
        empty = disk.used_bytes("a")
        file.pwrite([bytes(100_000)], 0)
        file.datasync()
        assert 100_000 <= disk.used_bytes("a") - empty <= 140_000
        hole = disk.map("a/m", 1 << 20, create=True)
        assert disk.used_bytes("a") - empty <= 140_000
        hole.allocate(0, 1 << 20)
        assert disk.used_bytes("a") - empty >= 100_000 + (1 << 20)
        disk.remove("a/m")
        disk.remove("a/b/f")
        assert disk.used_bytes("a") == empty
        assert disk.free_bytes() > 1 << 20
