"""What runs a worker for development, with a program of the test's as the worker."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hourwheel.workers.reload import Reloader
from tests.support.eventually import until

WORKER = """
import os, signal, sys, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_IGN)
asked = 0

def on_term(*_):
    global asked
    asked += 1
    note("asked")

def note(what):
    with Path("said.txt").open("a") as file:
        file.write(f"{os.getpid()} {what}\\n")

signal.signal(signal.SIGTERM, on_term)
note("begun")
while not (asked and Path("may-end").exists()) and asked < 2:
    time.sleep(0.002)
note("ended")
sys.exit(asked - 1)
"""


class Session:
    """A reloader whose changes a test makes."""

    def __init__(self, folder: Path, stop_ms: int = 60_000, program: str = WORKER) -> None:
        self._folder = folder
        self.changes: asyncio.Queue[None] = asyncio.Queue()
        self.reloader = Reloader([sys.executable, "-c", program], stop_ms)
        self.running = asyncio.create_task(self.reloader.run(self._changes()))

    async def _changes(self) -> AsyncIterator[None]:
        while True:
            await self.changes.get()
            yield

    def said(self) -> list[str]:
        path = self._folder / "said.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1] for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_change_waits_for_the_graceful_end_of_the_worker(folder: Path) -> None:
    """And the change of a moment later is done with by the same new beginning."""
    session = Session(folder)
    await until(lambda: session.said() == ["begun"])
    session.changes.put_nowait(None)
    await until(lambda: session.said() == ["begun", "asked"])
    session.changes.put_nowait(None)
    (folder / "may-end").touch()
    await until(lambda: session.said() == ["begun", "asked", "ended", "begun"])
    os.kill(os.getpid(), signal.SIGINT)
    assert await session.running == 0
    assert session.said() == ["begun", "asked", "ended"] * 2


async def test_one_interrupt_ends_it_and_a_second_one_is_the_workers_too(folder: Path) -> None:
    """Also where it has been asked to end already, by a change."""
    session = Session(folder)
    await until(lambda: session.said() == ["begun"])
    session.changes.put_nowait(None)
    await until(lambda: session.said() == ["begun", "asked"])
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0)
    assert session.said() == ["begun", "asked"], "one was enough"
    os.kill(os.getpid(), signal.SIGTERM)
    assert await session.running == 1
    assert session.said() == ["begun", "asked", "asked", "ended"]


async def test_a_worker_that_does_not_end_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.workers.reload.MARGIN_S", 0.001)
    session = Session(folder, stop_ms=1)
    await until(lambda: session.said() == ["begun"])
    session.changes.put_nowait(None)
    await until(lambda: session.said()[-1] == "begun" and len(session.said()) > 1)
    (folder / "may-end").touch()
    session.reloader.on_signal()
    await session.running
    assert "ended" not in session.said()[:-1]


async def test_a_worker_that_has_ended_by_itself_begins_again_with_a_change(folder: Path) -> None:
    program = "from pathlib import Path; Path('said.txt').open('a').write('1 begun\\n'); exit(3)"
    session = Session(folder, program=program)
    await until(lambda: session.said() == ["begun"])
    session.changes.put_nowait(None)
    await until(lambda: session.said() == ["begun"] * 2)
    session.reloader.on_signal()
    await session.running
