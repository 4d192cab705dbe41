"""Files and mappings of the operating system: what `storage.files.disk.RealDisk` hands out.

With `storage.files.disk` and `storage.files.directory_lock` the only code of this room that talks
to it.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Final, NoReturn

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the operating system calls a full disk, or a quota that is used up."""
_IOV_COUNT_MAX: Final = os.sysconf("SC_IOV_MAX")
"""Most pieces that one call of the operating system takes."""


def fail(error: OSError, what: str, path: str) -> NoReturn:
    """Raise an error of the operating system in our words (see storage.files.disk)."""
    if error.errno in NO_ROOM:
        raise errors.DiskFull(f"no room to {what} {path}", file=path) from error
    if isinstance(error, FileNotFoundError):
        raise error
    raise errors.DiskFailed(
        f"cannot {what} {path}: {error.strerror}", file=path, errno=error.errno
    ) from error


def sync(fd: int, path: str, *, data_only: bool) -> None:
    """Make an open file or folder durable, or raise FsyncFailed."""
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync stops at the drive's cache
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        elif data_only:
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    except OSError as error:
        # Also "no room", which some file systems find out this late: the bytes were promised.
        raise errors.FsyncFailed(
            f"cannot make {path} durable: {error.strerror}", file=path, errno=error.errno
        ) from error


def _write_all(fd: int, pieces: Sequence[Buffer], position: int) -> None:
    """Write without joining the pieces; the kernel may take fewer bytes than it was given."""
    first = 0
    while first < len(pieces):
        group = pieces[first : first + _IOV_COUNT_MAX]
        expected = sum(map(len, group))
        written = os.pwritev(fd, group, position) if expected else 0
        position += written
        if written == expected:
            first += len(group)
            continue
        errors.invariant(written < expected, "a piece is not a flat view of bytes")
        if written == 0:
            raise OSError(errno.EIO, "the kernel takes no bytes")
        pieces = [*_skip(group, written), *pieces[first + len(group) :]]
        first = 0


def _skip(pieces: Sequence[Buffer], skipped: int) -> list[Buffer]:
    """`pieces` without their first bytes."""
    for index, piece in enumerate(pieces):
        if skipped < len(piece):
            return [memoryview(piece)[skipped:], *pieces[index + 1 :]]
        skipped -= len(piece)
    return []


class RealFile:
    """See `storage.files.disk.File`. Closed at the latest when nothing refers to it any more."""

    __slots__ = ("_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        """Own an open file descriptor."""
        self._fd = fd
        self.path = path

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        """See `storage.files.disk.File.pwrite`."""
        try:
            before = os.fstat(self._fd).st_size
            try:
                _write_all(self._fd, pieces, position)
            except OSError:
                if os.fstat(self._fd).st_size > before:
                    os.ftruncate(self._fd, before)
                raise
        except OSError as error:
            fail(error, "write", self.path)

    def pread(self, length: int, position: int) -> bytes:
        """See `storage.files.disk.File.pread`."""
        try:
            got = os.pread(self._fd, length, position)
            while 0 < len(got) < length:  # a short read is not yet the end of the file
                more = os.pread(self._fd, length - len(got), position + len(got))
                if not more:
                    break
                got += more
        except OSError as error:
            fail(error, "read", self.path)
        return got

    def pread_many(self, lengths: Sequence[int], positions: Sequence[int]) -> list[bytes]:
        """See `storage.files.disk.File.pread_many`."""
        pread, fd = os.pread, self._fd
        try:
            got = [pread(fd, size, at) for size, at in zip(lengths, positions, strict=True)]
        except OSError as error:
            fail(error, "read", self.path)
        if sum(map(len, got)) != sum(lengths):
            got = [self.pread(size, at) for size, at in zip(lengths, positions, strict=True)]
        return got

    def pread_into(self, pieces: Sequence[memoryview], positions: Sequence[int]) -> int:
        """See `storage.files.disk.File.pread_into`."""
        preadv, fd = os.preadv, self._fd
        try:
            got = [preadv(fd, (piece,), at) for piece, at in zip(pieces, positions, strict=True)]
        except OSError as error:
            fail(error, "read", self.path)
        if sum(got) != sum(map(len, pieces)):
            return sum(map(self._fill, pieces, positions))
        return sum(got)

    def _fill(self, piece: memoryview, position: int) -> int:
        raw = self.pread(len(piece), position)
        piece[: len(raw)] = raw
        return len(raw)

    def size(self) -> int:
        """See `storage.files.disk.File.size`."""
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        """See `storage.files.disk.File.truncate`."""
        try:
            os.ftruncate(self._fd, size_bytes)
        except OSError as error:
            fail(error, "truncate", self.path)

    def datasync(self) -> None:
        """See `storage.files.disk.File.datasync`."""
        sync(self._fd, self.path, data_only=True)

    def will_need(self, position: int, length: int) -> None:
        """See `storage.files.disk.File.will_need`."""
        if hasattr(os, "posix_fadvise"):  # not on macOS
            os.posix_fadvise(self._fd, position, length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """See `storage.files.disk.File.close`."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealMapping:
    """See `storage.files.disk.Mapping`."""

    __slots__ = ("_file", "_map", "path", "view")

    def __init__(self, file: RealFile, size_bytes: int, *, writable: bool) -> None:
        """Map an open file, which this object owns from now on."""
        self._file = file
        self.path = file.path
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            self._map = mmap.mmap(file._fd, size_bytes, access=access)  # noqa: SLF001
        except OSError as error:
            fail(error, "map", self.path)
        self.view = memoryview(self._map)

    def allocate(self, from_bytes: int, to_bytes: int) -> None:
        """See `storage.files.disk.Mapping.allocate`."""
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file._fd, from_bytes, to_bytes - from_bytes)  # noqa: SLF001
            else:  # macOS: what was never stored into is zeros, and writing them gives it room
                self._file.pwrite([bytes(self.view[from_bytes:to_bytes])], from_bytes)
        except OSError as error:
            fail(error, "allocate room in", self.path)

    def datasync(self) -> None:
        """See `storage.files.disk.Mapping.datasync`."""
        # Not mmap.flush: CPython holds the GIL in it. For a shared mapping Linux does the same.
        self._file.datasync()

    def close(self) -> None:
        """See `storage.files.disk.Mapping.close`."""
        self._file.close()
        try:
            self.view.release()
            self._map.close()
        except BufferError:
            # A column still looks at the memory. It is unmapped when the last such view goes.
            return
