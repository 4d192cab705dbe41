"""The disk, as a port: all that storage and the wheel may ask of one, and the real thing.

A second implementation, `tests/sim/disk.py`, loses power on demand. One suite of tests,
`tests/support/disk_conformance.py`, runs on both: what it asserts is what we rely on.

Paths are relative to the disk's root, with "/" between the parts. What is durable when:

    bytes of a file         after its `datasync`, sizes included
    its name                after `sync_dir` of the folder, where it was created, renamed or removed
    a folder                when `make_dir` returns
    before that             any part of it may survive a power cut, or none, in any order

Errors, the same in both implementations:

    DiskFull            no room (or quota); the operation took back what it had begun
    FsyncFailed         a sync failed. What the disk holds is unknown from now on, and asking again
                        would answer "all is well" (Linux forgets the failure): stop the process
    DiskFailed          any other failure of the device or the operating system
    FileNotFoundError   the path does not exist (and `create` was not given)

A `File` and a `Mapping` may be used by several threads at once where they touch different bytes;
`close` only when no other thread uses the object. All reads and writes release the GIL.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hourwheel import errors
from hourwheel.formats.record_batch import Buffer
from storage.files.real_file import RealFile, RealMapping, fail, sync


class File(Protocol):
    """An open file."""

    @property
    def path(self) -> str:
        """Its path on the disk, for messages."""
        ...

    def pwrite(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write all `pieces`, one behind the other, from byte `position` on, or raise.

        Pieces are flat views of bytes. A gap before `position` reads as zeros. After DiskFull the
        file has the size that it had before (bytes that were overwritten inside are not restored).
        """
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position` on; fewer only where the file ends."""
        ...

    def pread_many(self, lengths: Sequence[int], positions: Sequence[int]) -> list[bytes]:
        """As so many `pread`s, with a fraction of their overhead: for small scattered pieces."""
        ...

    def pread_into(self, pieces: Sequence[memoryview], positions: Sequence[int]) -> int:
        """As `pread_many`, into memory of the caller's: fill each piece from a position on.

        Returns how many bytes came, fewer only where the file ends.
        """
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or extend it with zeros that take no room. Durable after `datasync`."""
        ...

    def datasync(self) -> None:
        """Make all bytes and the size durable, by whichever handle they were written."""
        ...

    def will_need(self, position: int, length: int) -> None:
        """Hint that these bytes are read soon."""
        ...

    def close(self) -> None:
        """Let go of the file. Makes nothing durable."""
        ...


class Mapping(Protocol):
    """A file of fixed size, mapped into memory."""

    @property
    def path(self) -> str:
        """Its path on the disk, for messages."""
        ...

    @property
    def view(self) -> memoryview:
        """The whole file as writable bytes. Store only into what `allocate` covered."""
        ...

    def allocate(self, from_bytes: int, to_bytes: int) -> None:
        """Give bytes [from_bytes, to_bytes) real room, so that storing there cannot fail.

        Storing into a hole of a full disk kills the process (SIGBUS): nothing could catch that.
        """
        ...

    def datasync(self) -> None:
        """Make all stored bytes durable."""
        ...

    def close(self) -> None:
        """Let go of the mapping. The memory goes when the last view of it is gone."""
        ...


class Disk(Protocol):
    """Where files are."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; with `create`, make an empty one where there is none."""
        ...

    def map(self, path: str, size_bytes: int, *, create: bool = False) -> Mapping:
        """Map a file of `size_bytes`; with `create`, make one of zeros that take no room.

        Raises:
            CorruptFile: the file has another size.
        """
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this path."""
        ...

    def list(self, path: str) -> list[str]:
        """Names of all files and folders in a folder, sorted."""
        ...

    def make_dir(self, path: str, *, is_durable: bool = True) -> None:
        """Make a folder, with those above it, durably. Nothing to do where it exists.

        Not `is_durable`: the folder itself may be lost, with all in it, until the one above it is
        synced. That takes no time.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name in the same folder, replacing a file of that name, in one step.

        Or a folder, with all that is in it; nothing may have the new name then.
        """
        ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, in any folder: its bytes stay until both are removed.

        Nothing may have the new name.
        """
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable: what was created, renamed and removed there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder. Open files stay usable."""
        ...

    def free_bytes(self) -> int:
        """Room that is left to us."""
        ...

    def used_bytes(self, path: str) -> int:
        """Room that all files under a folder take. Holes take none."""
        ...


def parent_of(path: str) -> str:
    """The folder that a path lies in; "" is the root."""
    return path.rpartition("/")[0]


def join(*parts: str) -> str:
    """A path of its parts; empty ones ("" is the root) leave no trace."""
    return "/".join(part for part in parts if part)


class RealDisk:
    """See `Disk`. A folder of the machine's file system."""

    def __init__(
        self, root: str | Path, *, read_only: bool = False, is_private: bool = False
    ) -> None:
        """Use the folder `root`, which must exist.

        Args:
            root: the folder.
            read_only: for inspecting a live node's.
            is_private: what is made here is for the user alone, and not for the group.
        """
        self._root = Path(root)
        self._read_only = read_only
        self._file_mode, self._folder_mode = (0o600, 0o700) if is_private else (0o640, 0o750)

    def _real(self, path: str) -> Path:
        return self._root / path

    def _open(self, path: str, *, create: bool) -> RealFile:
        flags = os.O_RDONLY if self._read_only else os.O_RDWR
        if create:
            errors.invariant(not self._read_only, "creating a file while inspecting", file=path)
            flags |= os.O_CREAT
        try:
            return RealFile(os.open(self._real(path), flags | os.O_CLOEXEC, self._file_mode), path)
        except OSError as error:
            fail(error, "open", path)

    def open(self, path: str, *, create: bool = False) -> File:
        """See `Disk.open`."""
        return self._open(path, create=create)

    def map(self, path: str, size_bytes: int, *, create: bool = False) -> Mapping:
        """See `Disk.map`."""
        file = self._open(path, create=create)
        if create and file.size() == 0:
            file.truncate(size_bytes)
        if file.size() != size_bytes:
            raise errors.CorruptFile(
                f"{path} has {file.size()} bytes instead of {size_bytes}", file=path
            )
        return RealMapping(file, size_bytes, writable=not self._read_only)

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return self._real(path).exists()

    def list(self, path: str) -> list[str]:
        """See `Disk.list`."""
        try:
            return sorted(entry.name for entry in self._real(path).iterdir())
        except OSError as error:
            fail(error, "list", path)

    def make_dir(self, path: str, *, is_durable: bool = True) -> None:
        """See `Disk.make_dir`."""
        if not path or self.exists(path):
            return
        parent = parent_of(path)
        self.make_dir(parent)
        try:
            self._real(path).mkdir(self._folder_mode)
        except OSError as error:
            fail(error, "make folder", path)
        if is_durable:
            self.sync_dir(parent)

    def rename(self, old: str, new: str) -> None:
        """See `Disk.rename`."""
        errors.invariant(parent_of(old) == parent_of(new), "renaming into another folder", old=old)
        try:
            self._real(old).replace(self._real(new))
        except OSError as error:
            fail(error, "rename", old)

    def link(self, old: str, new: str) -> None:
        """See `Disk.link`."""
        try:
            self._real(new).hardlink_to(self._real(old))
        except OSError as error:
            fail(error, "link", old)

    def sync_dir(self, path: str) -> None:
        """See `Disk.sync_dir`."""
        try:
            fd = os.open(self._real(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            fail(error, "open folder", path)
        try:
            sync(fd, path, data_only=False)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        """See `Disk.remove`."""
        real = self._real(path)
        try:
            if real.is_dir():
                real.rmdir()
            else:
                real.unlink()
        except OSError as error:
            fail(error, "remove", path)

    def free_bytes(self) -> int:
        """See `Disk.free_bytes`."""
        found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize

    def used_bytes(self, path: str) -> int:
        """See `Disk.used_bytes`."""
        block_bytes = 512  # what st_blocks counts in, whatever the file system's blocks are
        used = 0
        for folder, _, names in os.walk(self._real(path)):
            for name in names:
                try:
                    used += os.lstat(f"{folder}/{name}").st_blocks * block_bytes
                except FileNotFoundError:
                    continue  # removed by another thread since it was listed
        return used
