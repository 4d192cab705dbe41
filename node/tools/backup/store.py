"""Where backups lie, as a port: a folder, or an object store (object_store.py).

Paths are relative, with "/" between the parts. What a store must be able to do:

    a piece is there whole or not at all, whatever dies while it is written
    what `settle` has seen, a power cut leaves
    `write_new` never replaces
    what one command adds, no other removes meanwhile
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final, Protocol

from hourwheel import errors
from storage.files.disk import Disk, parent_of

_TMP: Final = ".tmp"


class BackupStore(Protocol):
    """See the top of this file. All may raise Unavailable or DiskFailed, what writes DiskFull."""

    writer_count: int
    """In so many threads at one time `keep` and `write` are worth calling."""

    def adding(self) -> AbstractContextManager[object]:
        """Within it this process adds backups: none is removed meanwhile.

        Raises:
            DirectoryLocked, Unavailable: another command is at work.
        """
        ...

    def removing(self) -> AbstractContextManager[object]:
        """Within it this process removes backups: none is added meanwhile. Raises as `adding`."""
        ...

    def keep(self, path: str, size_bytes: int) -> bool:
        """Whether a file of this size is there; `settle` sees to it, too."""
        ...

    def write(self, path: str, raw: bytes) -> None:
        """Write a file, whose name says what is in it, over one that is there."""
        ...

    def write_new(self, path: str, raw: bytes) -> None:
        """Write a file. Durable when this returns.

        Raises:
            AlreadyExists: there is one, with something else in it.
        """
        ...

    def settle(self) -> None:
        """Returns when all that was kept or written is durable."""
        ...

    def read(self, path: str, most_bytes: int) -> bytes:
        """The bytes of a file, the first `most_bytes` of them and one more where it is longer.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Of files and folders in a folder, sorted; empty where there is none."""
        ...

    def remove(self, path: str) -> int:
        """Remove a file; how many bytes it had, 0 where there is none."""
        ...


class FolderStore:
    """A folder of a disk. A file is written beside its name, made durable and renamed."""

    writer_count = 1

    def __init__(
        self,
        disk: Disk,
        lock: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """On a disk whose root is the folder. Nothing is made before something is written.

        Args:
            disk: see there.
            lock: taken by what adds or removes, so that it is alone.
        """
        self._disk, self._lock = disk, lock
        self._touched: set[str] = set()
        """Folders with names that are not durable yet."""

    def adding(self) -> AbstractContextManager[object]:
        """See `BackupStore`."""
        return self._lock()

    def removing(self) -> AbstractContextManager[object]:
        """See `BackupStore`."""
        return self._lock()

    def keep(self, path: str, size_bytes: int) -> bool:
        """See `BackupStore`."""
        if self._find_size(path) != size_bytes:
            return False
        self._touched.add(parent_of(path))  # its writer may have died before the sync
        return True

    def write(self, path: str, raw: bytes) -> None:
        """See `BackupStore`."""
        self._disk.make_dir(parent_of(path))
        beside = path + _TMP
        with closing(self._disk.open(beside, create=True)) as file:
            try:
                file.truncate(0)
                file.pwrite((raw,), 0)
                file.datasync()
            except errors.DiskFull:
                self._disk.remove(beside)
                raise
        self._disk.rename(beside, path)
        self._touched.add(parent_of(path))

    def write_new(self, path: str, raw: bytes) -> None:
        """See `BackupStore`. Who adds is alone here."""
        if self._find_size(path) is not None and self.read(path, len(raw)) != raw:
            raise errors.AlreadyExists(f"{path} is there already")
        self.write(path, raw)
        self.settle()

    def settle(self) -> None:
        """See `BackupStore`."""
        for folder in sorted(self._touched):
            self._disk.sync_dir(folder)
        self._touched.clear()

    def read(self, path: str, most_bytes: int) -> bytes:
        """See `BackupStore`."""
        with closing(self._disk.open(path)) as file:
            return file.pread(most_bytes + 1, 0)

    def names(self, folder: str) -> list[str]:
        """See `BackupStore`."""
        return self._disk.list(folder) if self._disk.exists(folder) else []

    def remove(self, path: str) -> int:
        """See `BackupStore`."""
        size_bytes = self._find_size(path)
        if size_bytes is None:
            return 0
        self._disk.remove(path)
        self._touched.add(parent_of(path))
        return size_bytes

    def _find_size(self, path: str) -> int | None:
        try:
            with closing(self._disk.open(path)) as file:
                return file.size()
        except FileNotFoundError:
            return None
