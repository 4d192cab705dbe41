"""File systems of a harness's own: one that can become full, and one that can lose power.

Both need root (and a kernel that lets it mount); `can_mount` and `can_lose_power` try it out. Tests
use what there is, and say what they used: nothing is left out in silence.
"""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event
from typing import Final

from chaos.standstill import stop_at_once

_SHUTDOWN: Final = 0x8004587D
"""ioctl of ext4 and XFS: from now on nothing reaches the disk any more, not even its journal."""
_WITHOUT_FLUSH: Final = (2).to_bytes(4, "little")
_MIB: Final = 1 << 20
BUSY_TRIES: Final = 50
BUSY_S: Final = 0.1
_PATH: Final = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


def _run(*command: object) -> None:
    subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, env=_PATH, timeout=60
    )


def _take_out(path: Path) -> None:
    """Unmount what no process uses any more.

    Threads of one that was killed may still be in a write, though the process is said to be gone;
    so it is tried for a while.
    """
    for _ in range(BUSY_TRIES):
        with suppress(subprocess.CalledProcessError):
            _run("umount", path)
            return
        Event().wait(BUSY_S)
    _run("umount", path)


def _take_out_at_last(path: Path) -> None:
    """As `_take_out`, and in any case: its users keep it, and no other finds it.

    Raises:
        CalledProcessError: somebody uses it still.
    """
    try:
        _take_out(path)
    except subprocess.CalledProcessError:
        _run("umount", "--lazy", path)
        raise


class Tmpfs:
    """A file system in memory, of a size that can be changed. Use `tmpfs`."""

    def __init__(self, path: Path) -> None:
        """It is mounted at `path`."""
        self.path = path

    def resize(self, size_mib: int) -> None:
        """Make it larger or smaller; what is in it stays."""
        _run("mount", "-o", f"remount,size={size_mib}m", self.path)


@contextmanager
def tmpfs(path: Path, size_mib: int) -> Iterator[Tmpfs]:
    """Mount one at `path`, which is made, for as long as this lasts."""
    path.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", path)
    try:
        yield Tmpfs(path)
    finally:
        _take_out_at_last(path)


class PowerDisk:
    """An ext4 file system on an image of its own, whose power can be cut. Use `power_disk`."""

    def __init__(self, image: Path, path: Path) -> None:
        """The image has been formatted."""
        self._image, self.path = image, path
        self.is_mounted = False
        """Also while the power is off: the kernel has it, and answers with errors."""

    def power_on(self) -> None:
        """Mount it: what the cut left of it is repaired from its journal."""
        _run("mount", "-o", "loop", self._image, self.path)
        self.is_mounted = True

    def cut_power(self, pids: Iterable[int] = ()) -> None:
        """What is not durable by now will be gone. Writes fail until `power_on`.

        Args:
            pids: processes that use it. They are stopped before: a machine without power says
                nothing to anybody. Else, where the cut comes between a write and its fdatasync,
                ext4 reports success (it forgets that it could not mark the blocks as written), and
                what is acknowledged upon that is gone. They are for the caller to kill.
        """
        stop_at_once(pids)
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(fd)

    def take_out(self) -> None:
        """Unmount it; no process may use it any more."""
        _take_out(self.path)
        self.is_mounted = False


@contextmanager
def power_disk(folder: Path, size_mib: int) -> Iterator[PowerDisk]:
    """A disk at `folder`/mnt, with power."""
    image, path = folder / "disk.img", folder / "mnt"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(size_mib * _MIB)
    _run("mkfs.ext4", "-q", "-F", image)
    disk = PowerDisk(image, path)
    disk.power_on()
    try:
        yield disk
    finally:
        if disk.is_mounted:
            _take_out_at_last(path)


@cache
def can_mount() -> bool:
    """Whether `tmpfs` works here."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tmpfs(Path(folder) / "mnt", 1):
                return True
        except (OSError, subprocess.SubprocessError):
            return False


@cache
def can_lose_power() -> bool:
    """Whether `power_disk` works here, and forgets what was not made durable."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            with power_disk(folder, 16) as disk:
                (disk.path / "unsynced").write_bytes(b"x")
                disk.cut_power()
                disk.take_out()
                disk.power_on()
                return not (disk.path / "unsynced").exists()
        except (OSError, subprocess.SubprocessError):
            return False
