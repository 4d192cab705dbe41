import os
import subprocess
import sys
from pathlib import Path

import pytest

from hourwheel import errors
from storage.files.directory_lock import LOCK_NAME, DirectoryLock

ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from storage.files.directory_lock import DirectoryLock
with DirectoryLock.acquire(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_acquire_when_free_names_this_process(tmp_path: Path) -> None:
    with DirectoryLock.acquire(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    assert (tmp_path / LOCK_NAME).exists()


def test_acquire_when_held_in_this_process(tmp_path: Path) -> None:
    lock = DirectoryLock.acquire(tmp_path)
    with pytest.raises(errors.DirectoryLocked, match=f"in use by process {os.getpid()}"):
        DirectoryLock.acquire(tmp_path)
    lock.release()
    lock.release()
    DirectoryLock.acquire(tmp_path).release()


def test_acquire_when_another_process_holds_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(errors.DirectoryLocked) as raised:
            DirectoryLock.acquire(tmp_path)
        assert raised.value.params == {"directory": str(tmp_path), "pid": str(holder.pid)}
        holder.kill()
        holder.wait()
        with DirectoryLock.acquire(tmp_path):
            assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_acquire_when_a_long_number_was_left_over(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text("123456789012\n")
    with DirectoryLock.acquire(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_acquire_when_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock.acquire(tmp_path / "no")


def test_acquire_when_the_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(errors.DiskFailed, match="LOCK"):
        DirectoryLock.acquire(tmp_path)
