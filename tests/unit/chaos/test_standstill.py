"""Who is stopped does nothing more, from the moment that the call returns."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.standstill import stop_at_once
from tests.support.eventually import until

COUNT = """
import sys, threading
def count(name):
    with open(name, "wb", buffering=0) as file:
        while True:
            file.write(b"x")
for name in sys.argv[1:]:
    threading.Thread(target=count, args=[name]).start()
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two")]


@pytest.fixture
def counting(files: list[Path]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", COUNT, *files]) as process:
        yield process
        process.kill()


async def test_threads_of_a_stopped_process_write_nothing_more(
    files: list[Path], counting: subprocess.Popen[bytes]
) -> None:
    await until(lambda: all(file.exists() and file.stat().st_size for file in files))
    stop_at_once([counting.pid])
    sizes = [file.stat().st_size for file in files]
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    assert await other.wait() == 0  # time enough for it to go on
    assert [file.stat().st_size for file in files] == sizes


def test_process_that_has_ended_is_still() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    stop_at_once([process.pid])
