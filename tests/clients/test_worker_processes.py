"""Children of a worker that are killed: what becomes of what they had begun, and of the rest."""

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message
from hourwheel.workers.app import load_app
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.processes import Child, Processes
from hourwheel.workers.program import Program
from hourwheel.workers.results import Result, ResultKind
from node.process.subprocess_node import ChildNode
from tests.clients.test_workers import LONG_LEASE_MS, RunningWorker, children_of
from tests.support.addresses import free_address
from tests.support.eventually import until

PROGRAM = """
    import contextlib
    import os
    import signal
    import subprocess
    import time
    from pathlib import Path

    from hourwheel import App, MessageContext

    app = App(group="shop")

    def note(context, what):
        with Path("runs.txt").open("a") as file:
            now_ms = time.time_ns() // 1_000_000
            file.write(f"{context.message_id} {what} {os.getpid()} {context.attempt} {now_ms}\\n")

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

    def split(context: MessageContext) -> None:
        if child := os.fork():
            note(context, "begun")
            os.waitpid(child, 0)
            note(context, "done")
        with contextlib.suppress(OSError):  # it is closed already
            os.close(0)

    app.handler("splits")(split)

    @app.handler("splits_in_tasks")
    async def split_in_task(context: MessageContext) -> None:
        split(context)

    @app.handler("ends")
    def end_others(context: MessageContext) -> None:
        its, ours = os.pipe()
        child = os.fork()
        if not child:
            os.write(ours, b"x")
            time.sleep(1_000)
        os.read(its, 1)
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == signal.SIGTERM
        other = subprocess.Popen(["sleep", "1000"])
        other.terminate()
        assert other.wait() == -signal.SIGTERM
        note(context, "done")

    @app.handler("alone", concurrency=1)
    def alone(how: str, context: MessageContext) -> None:
        note(context, "begun")
        time.sleep(1_000 if how == "hang" and context.attempt == 1 else 0.005)
        note(context, "done")

    @app.handler("short", concurrency=4)
    def short(context: MessageContext) -> None:
        note(context, "begun")
        time.sleep(0.03)
        note(context, "done")
"""

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SEEDS: Final = range(17, 21 if IS_SOAK else 18)
TOPICS = ("short", "threads", "tasks", "forks", "splits", "splits_in_tasks", "ends", "alone")
SLOW_PROGRAM = """
    import os
    import sys
    import time
    from pathlib import Path

    from hourwheel import App

    app = App(group="shop")

    @app.handler("orders")
    def handle() -> None:
        pass

    if sys.argv[0].endswith("child.py"):
        Path("importing.part").write_text(str(os.getpid()))
        Path("importing.part").rename("importing.txt")
        time.sleep(1_000)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop.py").write_text(textwrap.dedent(PROGRAM))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("shop", None)
    yield tmp_path
    sys.modules.pop("shop", None)


def message(name: str) -> MessageContext:
    return MessageContext(name, "topic", "shop", b"17", 1, 5, 6, (), (), {}, "", "")


def runs(folder: Path) -> list[list[str]]:
    """[message, begun or done, process, attempt, milliseconds since the epoch]."""
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
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
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
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
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
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
        result = await processes.run(handler, message("fork"))
    os.kill(int((folder / "forked.txt").read_text()), signal.SIGKILL)
    assert (result.kind, "exit code 3" in result.error) == (ResultKind.FAILED, True)


async def test_what_a_handler_has_forked_ends_where_the_handler_does(folder: Path) -> None:
    """And without a standard input the child goes on, too."""
    app = load_app("shop:app")
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
        for handler in app.handlers[3:5]:
            for name in ("first", "second"):
                result = await processes.run(handler, message(f"{name}-{handler.topic}"))
                assert result.kind is ResultKind.DONE
        assert processes.restart_count == 0
    assert [one[1] for one in runs(folder)] == ["begun", "done"] * 4
    assert len({one[2] for one in runs(folder)}) == 1


async def test_a_signal_to_all_processes_of_a_service_is_the_workers_business(
    folder: Path,
) -> None:
    """And what handlers start is ended by SIGTERM, as ever."""
    app = load_app("shop:app")
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
        running = Running(processes, app.handlers[0])
        running.start("a", "b")
        await until(lambda: begun(folder) == {"a": 1, "b": 1})
        os.kill(int(runs(folder)[0][2]), signal.SIGTERM)
        result = await processes.run(app.handlers[5], message("ends"))
        assert result.kind is ResultKind.DONE, result.error
        (folder / "go.txt").touch()
        assert await running.kinds() == [ResultKind.DONE] * 2
        assert processes.restart_count == 0
    assert len({one[2] for one in runs(folder)}) == 1


async def test_messages_are_given_back_when_their_handlers_have_ended_and_not_before(
    folder: Path,
) -> None:
    """Those that are tried alone, and those that have no place yet, too."""
    app = load_app("shop:app")
    async with Processes(Program("shop:app"), app.handlers, 1) as processes:
        running = Running(processes, app.handlers[0])
        running.start("a", "b", "c")
        await until(lambda: begun(folder) == {"a": 1, "b": 1})
        os.kill(int(runs(folder)[0][2]), signal.SIGKILL)
        await until(lambda: begun(folder) == {"a": 2, "b": 2, "c": 1}), "all at one time"
        processes.end_handlers()
        running.start("d")
        assert await running.kinds() == [ResultKind.RETRY] * 4
        for child in {int(one[2]) for one in runs(folder)}:
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
    assert begun(folder) == {"a": 2, "b": 2, "c": 1}


def open_count() -> int:
    """Descriptors of this process."""
    return len([*Path("/proc/self/fd").iterdir()])


async def test_a_start_that_is_cancelled_leaves_nothing_behind(folder: Path) -> None:
    (folder / "shop.py").write_text(textwrap.dedent(SLOW_PROGRAM))
    open_before = open_count()
    starting = asyncio.create_task(Child.start(Program("shop:app")))
    await until((folder / "importing.txt").exists)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "importing.txt").read_text()), 0)
    await until(lambda: open_count() == open_before)


async def test_a_worker_whose_program_is_still_being_imported_stops_at_once(
    tmp_path: Path,
) -> None:
    worker = RunningWorker(tmp_path, "127.0.0.1:1", "-p", "2", program=SLOW_PROGRAM)
    async with worker, asyncio.timeout(45):  # a child has 60 s to begin
        await until((tmp_path / "importing.txt").exists)
        assert await worker.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "importing.txt").read_text()), 0)


class Workers:
    """Three workers of one program, each with a child, that are killed and replaced."""

    def __init__(self, folder: Path, server: str, ending: AsyncExitStack) -> None:
        self._folder, self._server, self._ending = folder, server, ending
        self._workers: list[RunningWorker] = []
        self.killed: set[str] = set()
        """Children of workers that were killed."""

    async def start(self) -> None:
        for _ in range(3):
            await self._start()

    async def _start(self) -> None:
        worker = RunningWorker(self._folder, self._server, program=PROGRAM)
        self._workers.append(await self._ending.enter_async_context(worker))

    async def replace(self, at: int) -> None:
        worker = self._workers.pop(at)
        self.killed.update(children_of(worker.process.pid))
        worker.process.kill()
        await worker.process.wait()
        await self._start()

    async def replace_that_of(self, child: str) -> None:
        places = [children_of(one.process.pid) for one in self._workers]
        await self.replace(next(at for at, one in enumerate(places) if child in one))

    async def stop(self) -> None:
        for worker in self._workers:
            await worker.stop()  # one that has just been started ends by the signal


def count_repeats(found: list[list[str]], killed: set[str], lease_ms: int) -> int:
    """How many messages were begun again: after their lease, which a killed worker had.

    A worker with one place leases a message when its last one is done, and not before.
    """
    repeats = 0
    free_ms: dict[str, int] = {}
    leased: dict[str, tuple[str, int]] = {}
    """Of a message: the child that had it, and from when on at the earliest."""
    for name, what, child, _, at_ms in found:
        if what == "done":
            free_ms[child] = int(at_ms)
            continue
        if name in leased:
            earlier, from_ms = leased[name]
            assert earlier in killed
            assert int(at_ms) >= from_ms + lease_ms
            repeats += 1
        leased[name] = (child, free_ms.get(child, 0))
    return repeats


@pytest.mark.parametrize("seed", SEEDS)
async def test_workers_are_killed_under_load_and_what_they_had_comes_again_after_its_lease(
    tmp_path: Path, seed: int
) -> None:
    count, kills = (1_200, 15) if IS_SOAK else (120, 2)
    lease_ms, hows = 1_500, ["hang" if at % 40 == 20 else "work" for at in range(count)]
    random = Random(seed)
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        await prepare(node.address, invisible_ms=lease_ms)
        async with AsyncProducer(node.address) as producer:
            ids = await producer.publish_many("alone", [Message(how.encode()) for how in hows])
        names = [str(one) for one in ids]
        hanging = {name for name, how in zip(names, hows, strict=True) if how == "hang"}

        def is_done() -> bool:
            return {one[0] for one in runs(tmp_path) if one[1] == "done"} == set(names)

        def find_hanging() -> str | None:
            """A child in which a message hangs."""
            last = {one[2]: one for one in runs(tmp_path)}
            found = (pid for pid, one in last.items() if one[0] in hanging and one[3] == "1")
            return next((pid for pid in found if pid not in workers.killed), None)

        async with AsyncExitStack() as ending:
            workers = Workers(tmp_path, node.address, ending)
            await workers.start()
            for _ in range(kills):
                seen = len(runs(tmp_path))
                await until(lambda seen=seen: len(runs(tmp_path)) > seen + 20)  # type: ignore[misc]
                await workers.replace(random.randrange(3))
            while not is_done():
                await until(lambda: is_done() or find_hanging() is not None)
                if (child := find_hanging()) is not None:
                    await workers.replace_that_of(child)
            await workers.stop()
    assert count_repeats(runs(tmp_path), workers.killed, lease_ms) >= len(hanging)


async def prepare(server: str, invisible_ms: int = LONG_LEASE_MS) -> None:
    async with AsyncAdmin(server) as admin:
        await admin.put_group("shop", retry_delay_ms=1, attempts_max=50, invisible_ms=invisible_ms)
        for topic in TOPICS:
            await admin.create_topic(topic)


async def test_a_broker_that_is_gone_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """A worker goes on with what it has, says what it waits for, and receives again."""
    values = {"node": {"listen": free_address()}}
    async with AsyncExitStack() as ending:
        node = ChildNode(tmp_path / "data", values, log_file=tmp_path / "node.log")
        await ending.enter_async_context(node)
        await prepare(node.address)
        async with AsyncProducer(node.address) as producer:
            ids = list(await producer.publish_many("threads", [Message(b"17")] * 2))
            worker = RunningWorker(tmp_path, node.address, program=PROGRAM)
            await ending.enter_async_context(worker)
            await until(lambda: len(begun(tmp_path)) == 2)
            await node.kill()
            (tmp_path / "go.txt").touch()
            await until(lambda: sum(one[1] == "done" for one in runs(tmp_path)) == 2)
            await worker.until_said("cannot reach")
            await node.start()
            ids += await producer.publish_many("threads", [Message(b"17")] * 20)
        expected = {str(one) for one in ids}
        await until(lambda: {one[0] for one in runs(tmp_path) if one[1] == "done"} == expected)
        assert await worker.stop() == 0


async def test_children_are_killed_under_load_and_each_message_is_handled(tmp_path: Path) -> None:
    """Only messages that had been begun come again, or are run again."""
    count, kills = (2_000, 25) if IS_SOAK else (400, 5)
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        await prepare(node.address)
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
    for name, what, _, attempt, _ in runs(tmp_path):
        if what == "begun":
            attempts.setdefault(name, []).append(int(attempt))
    for found in attempts.values():
        assert set(found) == set(range(1, max(found) + 1)), "an attempt that was never begun"
    assert any(len(found) > 1 for found in attempts.values())
