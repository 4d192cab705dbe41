"""Children of a worker that are killed: what becomes of what they had begun, and of the rest."""

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message
from hourwheel.workers.app import load_app
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.processes import Processes
from hourwheel.workers.results import Result, ResultKind
from node.process.subprocess_node import ChildNode
from tests.clients.test_workers import RunningWorker
from tests.support.eventually import until

PROGRAM = """
    import os
    import time
    from pathlib import Path

    from hourwheel import App, MessageContext

    app = App(group="shop")

    def note(context, what):
        with Path("runs.txt").open("a") as file:
            file.write(f"{context.message_id} {what} {os.getpid()} {context.attempt}\\n")

    def hold():
        while not Path("go.txt").exists():
            time.sleep(0.001)

    @app.handler("threads", concurrency=2)
    def in_thread(context: MessageContext) -> None:
        note(context, "begun")
        hold()
        note(context, "done")

    @app.handler("tasks", concurrency=8)
    async def in_task(context: MessageContext) -> None:
        note(context, "begun")
        hold()  # and with it the loop of the child
        note(context, "done")

    @app.handler("forks")
    def fork(context: MessageContext) -> None:
        child = os.fork()
        if not child:
            time.sleep(1_000)
        Path("forked.txt").write_text(str(child))
        os._exit(3)

    @app.handler("short", concurrency=4)
    def short(context: MessageContext) -> None:
        note(context, "begun")
        time.sleep(0.03)
        note(context, "done")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.py").write_text(textwrap.dedent(PROGRAM))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return tmp_path


def message(name: str) -> MessageContext:
    return MessageContext(name, "topic", "shop", b"17", 1, 5, 6, (), (), {}, "", "")


def runs(folder: Path) -> list[list[str]]:
    """[message, begun or done, process, attempt]."""
    path = folder / "runs.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def begun(folder: Path) -> Counter[str]:
    return Counter(one[0] for one in runs(folder) if one[1] == "begun")


class Running:
    """Messages of a handler in one child."""

    def __init__(self, processes: Processes, handler: Any) -> None:
        self._processes, self._handler = processes, handler
        self._tasks: list[asyncio.Task[Result]] = []

    def start(self, *names: str) -> None:
        for name in names:
            work = self._processes.run(self._handler, message(name))
            self._tasks.append(asyncio.create_task(work))

    async def kinds(self) -> list[ResultKind]:
        return [one.kind for one in await asyncio.gather(*self._tasks)]


async def test_what_a_killed_child_had_not_begun_runs_once_and_at_once(folder: Path) -> None:
    """The only message that was begun has cost an attempt: nothing is tried alone."""
    app = load_app("shop:app")
    handler = app.handlers[1]
    async with Processes("shop:app", app.handlers, 1) as processes:
        running = Running(processes, handler)
        running.start("first")
        await until(lambda: begun(folder) == {"first": 1})
        running.start("second", "third", "fourth")
        await asyncio.sleep(0)  # they are written to the child, which does not read
        child = int(runs(folder)[0][2])
        os.kill(child, signal.SIGSTOP)
        (folder / "go.txt").touch()
        (folder / "runs.txt").unlink()
        os.kill(child, signal.SIGKILL)
        failed, done = ResultKind.FAILED, ResultKind.DONE
        assert await running.kinds() == [failed, done, done, done]
        assert begun(folder) == {"second": 1, "third": 1, "fourth": 1}
        assert len({one[2] for one in runs(folder)}) == 1, "in one child, together"
        assert processes.restart_count == 1


async def test_only_what_was_begun_is_tried_alone(folder: Path) -> None:
    app = load_app("shop:app")
    handler = app.handlers[0]
    names = ["a", "b", "c", "d"]
    async with Processes("shop:app", app.handlers, 1) as processes:
        running = Running(processes, handler)
        running.start(*names)
        await until(lambda: begun(folder) == {"a": 1, "b": 1})
        (child,) = {one[2] for one in runs(folder)}
        os.kill(int(child), signal.SIGKILL)
        await until(lambda: set(begun(folder)) == set(names))
        (folder / "go.txt").touch()
        assert await running.kinds() == [ResultKind.DONE] * 4
        assert begun(folder) == {"a": 2, "b": 2, "c": 1, "d": 1}
        places = {name: {one[2] for one in runs(folder) if one[0] == name} for name in names}
        assert places["c"] == places["d"], "the others run together"
        assert not (places["a"] - {child}) & (places["b"] | places["c"])


async def test_what_a_handler_has_forked_does_not_hide_the_end_of_its_child(folder: Path) -> None:
    app = load_app("shop:app")
    handler = app.handlers[2]
    async with Processes("shop:app", app.handlers, 1) as processes:
        result = await processes.run(handler, message("fork"))
    os.kill(int((folder / "forked.txt").read_text()), signal.SIGKILL)
    assert (result.kind, "exit code 3" in result.error) == (ResultKind.FAILED, True)


async def test_children_are_killed_under_load_and_each_message_is_handled(tmp_path: Path) -> None:
    """Only messages that had been begun come again, or are run again."""
    count, kills = 400, 5
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        async with AsyncAdmin(node.address) as admin:
            await admin.put_group("shop", retry_delay_ms=1, attempts_max=50)
            for topic in ("short", "threads", "tasks", "forks"):
                await admin.create_topic(topic)
        async with AsyncProducer(node.address) as producer:
            ids = await producer.publish_many("short", [Message(b"17")] * count)
        worker = RunningWorker(tmp_path, node.address, "--processes", "3", program=PROGRAM)
        async with worker:
            killed: set[str] = set()
            while len(killed) < kills:
                seen = len(runs(tmp_path))
                await until(lambda seen=seen: len(runs(tmp_path)) > seen + 20)  # type: ignore[misc]
                child = runs(tmp_path)[-1][2]
                with contextlib.suppress(ProcessLookupError):  # it was there for one message only
                    os.kill(int(child), signal.SIGKILL)
                    killed.add(child)
            expected = {str(one) for one in ids}
            await until(lambda: {one[0] for one in runs(tmp_path) if one[1] == "done"} == expected)
            assert await worker.stop() == 0
    attempts: dict[str, list[int]] = {}
    for name, what, _, attempt in runs(tmp_path):
        if what == "begun":
            attempts.setdefault(name, []).append(int(attempt))
    for found in attempts.values():
        assert set(found) == set(range(1, max(found) + 1)), "an attempt that was never begun"
    assert any(len(found) > 1 for found in attempts.values())
