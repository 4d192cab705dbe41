"""One process per data directory, by the kernel's lock on the file LOCK in it.

The kernel lets go of the lock when the process dies, however it dies. The number of the process is
written into the file only for people.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hourwheel import errors
from storage.files.real_file import NO_ROOM, fail

LOCK_NAME: Final = "LOCK"
_PID_BYTES_MAX: Final = 32


class DirectoryLock:
    """A held lock; a context manager that releases it."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        """Own an open file that is locked. See `acquire`."""
        self._fd = fd

    @classmethod
    def acquire(cls, directory: str | Path) -> "DirectoryLock":
        """Lock a directory of the machine's file system, which must exist.

        Raises:
            DirectoryLocked: another process has it, named by `params["pid"]` (or this one has it
                already).
            FileNotFoundError: there is no such directory.
            DiskFull: there is no room for the file. See storage.files.disk.
            DiskFailed: see there.
        """
        path = Path(directory) / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            fail(error, "open", str(path))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise errors.DirectoryLocked(
                f"{directory} is in use by process {pid or '(unknown)'}",
                directory=directory,
                pid=pid,
            ) from None
        except OSError as error:
            os.close(fd)
            fail(error, "lock", str(path))
        lock = cls(fd)
        try:
            # Over what is there, and then cut: a full disk has no room for the same again.
            os.ftruncate(fd, os.pwrite(fd, f"{os.getpid()}\n".encode(), 0))
        except OSError as error:
            if error.errno not in NO_ROOM:  # it is held all the same
                lock.release()
                fail(error, "write", str(path))
        return lock

    def release(self) -> None:
        """Let go. Harmless when it is done twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            # The file stays: removing it would let two processes lock two files of the same name.
            # Unlocked by hand because a forked child may still have the descriptor.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
