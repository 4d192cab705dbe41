"""Files that need not be durable: for tests that are about other things and write very much."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

_MEMORY: Final = Path("/dev/shm")


@contextmanager
def unsynced() -> Iterator[None]:
    """Within this, nothing waits until the disk has it. On a busy disk that would take minutes."""
    with mock.patch.object(os, "fsync"), mock.patch.object(os, "fdatasync"):
        yield


@contextmanager
def folder_in_memory(size_bytes: int, otherwise: Path) -> Iterator[Path]:
    """A folder whose files cost no disk; where this machine has no room for them, `otherwise`.

    To make and to delete thousands of files takes minutes of a busy disk, synced or not.
    """
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < size_bytes:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="hourwheel-test-") as folder:
        yield Path(folder)
