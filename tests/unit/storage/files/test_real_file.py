"""What the operating system does seldom. What it does always is in test_disk.py."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hourwheel import errors
from storage.files.disk import RealDisk


def short_writes(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], then: OSError | None = None
) -> None:
    """Let pwritev take only so many bytes call by call; then all, or raise."""
    real = os.pwritev

    def pwritev(fd: int, pieces: list[bytes], position: int) -> int:
        if lengths:
            return real(fd, [b"".join(pieces)[: lengths.pop(0)]], position)
        if then is not None:
            raise then
        return real(fd, pieces, position)

    monkeypatch.setattr(os, "pwritev", pwritev)


def test_pwrite_when_the_kernel_takes_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    short_writes(monkeypatch, [1, 4, 3])
    file.pwrite([b"ab", b"cde", b"", b"fghij", b"kl"], 0)
    assert file.pread(99, 0) == b"abcdefghijkl"


def test_pwrite_when_the_kernel_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    short_writes(monkeypatch, [2, 0])
    with pytest.raises(errors.DiskFailed, match="takes no bytes"):
        file.pwrite([b"abc"], 0)
    assert file.size() == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_pwrite_when_the_disk_fills_cuts_back(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    file.pwrite([b"old"], 0)
    short_writes(monkeypatch, [2], OSError(code, os.strerror(code)))
    with pytest.raises(errors.DiskFull) as raised:
        file.pwrite([b"new", b"er"], 3)
    assert raised.value.params["file"] == "f"
    assert file.pread(9, 0) == b"old"


def test_pwrite_when_the_device_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    short_writes(monkeypatch, [2], OSError(errno.EIO, "broken"))
    with pytest.raises(errors.DiskFailed) as raised:
        file.pwrite([b"abc"], 0)
    assert raised.value.params == {"file": "f", "errno": str(errno.EIO)}


def test_pread_when_the_kernel_gives_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    file.pwrite([b"abcdefgh"], 0)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 3), at))
    assert file.pread(8, 0) == b"abcdefgh"
    assert file.pread(99, 1) == b"bcdefgh"


def raising(code: int) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def test_datasync_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk(tmp_path)
    file, mapping = disk.open("f", create=True), disk.map("m", 4096, create=True)
    monkeypatch.setattr(os, "fdatasync", raising(errno.EIO))
    monkeypatch.setattr(os, "fsync", raising(errno.ENOSPC))
    with pytest.raises(errors.FsyncFailed):
        file.datasync()
    with pytest.raises(errors.FsyncFailed):
        mapping.datasync()
    with pytest.raises(errors.FsyncFailed):
        disk.sync_dir("")


def test_allocate_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = RealDisk(tmp_path).map("m", 4096, create=True)
    monkeypatch.setattr(os, "posix_fallocate", raising(errno.ENOSPC))
    with pytest.raises(errors.DiskFull):
        mapping.allocate(0, 4096)


def open_file_count() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_close_when_forgotten(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    before = open_file_count()
    for _ in range(10):
        disk.open("f", create=True)
        disk.map("m", 4096, create=True)
    assert open_file_count() == before


def test_pread_into_when_the_kernel_gives_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk(tmp_path).open("f", create=True)
    file.pwrite([b"abcdef"], 0)
    real = os.preadv

    def preadv(fd: int, pieces: tuple[memoryview, ...], position: int) -> int:
        return real(fd, (pieces[0][:1],), position)

    monkeypatch.setattr(os, "preadv", preadv)
    memory = bytearray(5)
    assert file.pread_into([memoryview(memory)[:2], memoryview(memory)[2:]], [4, 1]) == 5
    assert memory == b"efbcd"


def test_pread_into_when_the_device_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealDisk(tmp_path).open("f", create=True)

    def preadv(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(errors.DiskFailed, match="cannot read f"):
        file.pread_into([memoryview(bytearray(2))], [0])
