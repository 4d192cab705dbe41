"""Where backups lie, as it is written on the command line: a folder, `file://` or `s3://`."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from hourwheel import errors
from hourwheel.clock import SystemClock
from node.tools.backup.store import BackupStore, FolderStore
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk

_LOCAL: Final = frozenset({"", "localhost"})


def open_place(text: str) -> BackupStore:
    """What is there, to be read.

    Raises:
        NotFound: there is no such folder.
        InvalidArgument: that is no address.
        ConfigError: the package for object stores is not installed.
    """
    folder = _find_folder(text)
    if folder is None:
        return _object_store(text)
    if not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder}")
    return FolderStore(RealDisk(folder, read_only=True))


def open_to_write(text: str, *, make: bool = False) -> BackupStore:
    """Likewise, to be added to or removed from.

    Raises:
        As `open_place`; OSError: the folder cannot be made.
    """
    folder = _find_folder(text)
    if folder is None:
        return _object_store(text)
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder}")
    return FolderStore(RealDisk(folder, is_private=True), _lock_of(folder))


def _lock_of(folder: Path) -> Callable[[], AbstractContextManager[object]]:
    return lambda: DirectoryLock.acquire(folder)


def _find_folder(text: str) -> Path | None:
    """None: an object store's address."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    if scheme != "file":
        return None
    parts = urlsplit(text)
    if parts.netloc not in _LOCAL or not parts.path or parts.query or parts.fragment:
        raise errors.InvalidArgument(f"{text} is not file:///FOLDER")
    return Path(unquote(parts.path))


def _object_store(text: str) -> BackupStore:
    try:
        from node.tools.backup.object_store import ObjectStore  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise errors.ConfigError(
            f"{text}: object stores need another package: pip install 'hourwheel[s3]'"
        ) from error
    return ObjectStore.open(text, SystemClock())
