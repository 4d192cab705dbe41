"""Tasks of Celery and dramatiq with Hourwheel as the broker, beside Redis where there is one.

In the same run handlers of Hourwheel do the same, in the ways in which they can be run.
"""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from hourwheel.workers.app import App
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster.nodes import find_free_ports
from tests.bench import workers
from tests.bench.progress import say, stop
from tests.bench.results import Report, number
from tests.bench.sizes import Size
from tests.support.eventually import before_the_next_look

_PROGRAM: Final = """
import os, sys

BROKER, LIBRARY = os.environ["BROKER"], os.environ["LIBRARY"]
DONE = os.open("done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def nothing(number):
    os.write(DONE, b".")

if LIBRARY == "celery":
    from celery import Celery
    import hourwheel.integrations.kombu
    app = Celery("work", broker=BROKER)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64)
    task = app.task(nothing)
    def send(number, delay_s):
        task.apply_async((number,), countdown=delay_s)
else:
    import dramatiq
    if BROKER.startswith("redis"):
        from dramatiq.brokers.redis import RedisBroker
        broker = RedisBroker(url=BROKER)
    else:
        from hourwheel.integrations.dramatiq import HourwheelBroker
        broker = HourwheelBroker(BROKER)
    dramatiq.set_broker(broker)
    task = dramatiq.actor(nothing)
    def send(number, delay_s):
        delay = None if delay_s is None else delay_s * 1_000
        task.send_with_options(args=(number,), delay=delay)

if __name__ == "__main__":
    import time
    from concurrent.futures import ThreadPoolExecutor
    count, delay_s = int(sys.argv[1]), int(sys.argv[2]) or None
    send(0, delay_s)
    begun = time.perf_counter()
    with ThreadPoolExecutor(8) as senders:
        list(senders.map(lambda number: send(number, delay_s), range(1, count)))
    print((count - 1) / (time.perf_counter() - begun))
"""
_COMMANDS: Final = {
    "celery": ("celery", "-A", "work", "worker", "-c", "2", "--loglevel", "ERROR"),
    "dramatiq": ("dramatiq", "work", "--processes", "2", "--threads", "8"),
}
_SENDERS: Final = 8
tasks, threads = App(group="tasks"), App(group="threads")
"""Handlers of Hourwheel that do what the tasks do; children load them from here."""
_KINDS: Final = (
    workers.Kind("coroutines, 1 process", tasks, "tests.bench.task_queues:tasks", 0),
    workers.Kind("threads, 1 process", threads, "tests.bench.task_queues:threads", 0),
    workers.Kind("coroutines, 2 children", tasks, "tests.bench.task_queues:tasks", 2),
    workers.Kind("threads, 2 children", threads, "tests.bench.task_queues:threads", 2),
)
_DONE: Final = "BENCH_DONE"
"""The file that these handlers write to, as a variable of the environment."""
_STEADY_BYTES: Final = 1 << 20
"""A worker that grows by less in that time is not fetching."""
_WAIT_S: Final = 600.0


@tasks.handler(workers.TOPIC, concurrency=workers.CONCURRENCY)
async def write_in_task(body: bytes) -> None:
    """One byte."""
    os.write(_done(), b".")


@threads.handler(workers.TOPIC, concurrency=workers.CONCURRENCY)
def write_in_thread(body: bytes) -> None:
    """One byte."""
    os.write(_done(), b".")


@cache
def _done() -> int:
    return os.open(os.environ[_DONE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@dataclass
class _Broker:
    """One that runs."""

    name: str
    url: str
    pid: int
    read_used_bytes: Callable[[], Awaitable[int]] | None = None
    """What the broker itself says that it has allocated, if it does."""


async def run(size: Size, folder: Path) -> Report:
    """Tasks that do nothing, then tasks for in an hour, with each library at each broker."""
    count, later = _counts(size)
    report = Report(
        [
            f"{count:,} tasks that write one byte, sent by 8 threads before the workers start",
            f"handlers of Hourwheel: {workers.CONCURRENCY} at one time in each process",
            "sent: from the second one on, for the first one connects",
            "Celery: 2 children, acknowledged early; dramatiq: 2 processes of 8 threads",
            f"{later:,} tasks for in an hour; memory is what is resident more than before them",
            "Redis: append-only file, fsync every second; Hourwheel: fdatasync before the answer",
        ]
    )
    for make in (_hourwheel, _redis):
        for library in _COMMANDS:
            place = folder / f"{library}-{make.__name__}"
            place.mkdir()
            async with make(place) as broker:
                if broker is None:
                    report.conditions.append("Redis is left out: no server, or no client for it")
                    break
                name = f"{library} + {broker.name}"
                await _told(report, name, _measure(report, broker, library, place, size))
    place = folder / "handlers"
    place.mkdir()
    await _told(report, "handlers", _measure_handlers(report, place, count))
    return report


async def _told(report: Report, name: str, part: Coroutine[Any, Any, None]) -> None:
    """One part: what it found is told at once, and where it fails or hangs the others go on."""
    say(f"{name} begins")
    seen = len(report.rows)
    try:
        await part
    except (TimeoutError, RuntimeError, OSError, errors.HourwheelError) as error:
        report.failures.append(f"{name} has come to nothing: {error!r}")
        say(report.failures[-1])
    for row in report.rows[seen:]:
        say(f"{row.name}: {number(row.value)} {row.unit}")


async def _measure_handlers(report: Report, folder: Path, count: int) -> None:
    """Hourwheel's own: each way of running them works off the same messages."""
    os.environ[_DONE] = str(folder / "done")
    try:
        async with ChildNode(folder / "node", log_file=folder / "node.log") as node:
            sent = await asyncio.to_thread(_send_to_handlers, node.address, count)
            report.add("handlers + Hourwheel: sent", sent, "tasks/s")
            for kind in _KINDS:
                say(f"handlers, {kind.name}")
                async with asyncio.timeout(_WAIT_S):
                    found = await workers.measure(node.address, kind, count)
                name = f"handlers, {kind.name}: handled"
                report.add(name, count / found.seconds, "tasks/s", note="from the first poll on")
    finally:
        del os.environ[_DONE]
        _done.cache_clear()


def _send_to_handlers(server: str, count: int) -> float:
    """Tasks a second, as the programs of the libraries send them: the first one connects."""
    app = App(server)
    try:
        app.publish(workers.TOPIC, b"0")
        begun = time.perf_counter()
        with ThreadPoolExecutor(_SENDERS) as senders:
            publish = partial(app.publish, workers.TOPIC)
            list(senders.map(publish, (b"%d" % number for number in range(1, count))))
        return (count - 1) / (time.perf_counter() - begun)
    finally:
        app.close()


def _counts(size: Size) -> tuple[int, int]:
    """(tasks for now, tasks for later)."""
    return size.pick((20, 20), (500, 1_000), (5_000, 100_000))


async def _measure(report: Report, broker: _Broker, library: str, folder: Path, size: Size) -> None:
    count, later = _counts(size)
    name = f"{library} + {broker.name}"
    (folder / "work.py").write_text(_PROGRAM)
    environ = {**os.environ, "BROKER": broker.url, "LIBRARY": library, "PYTHONWARNINGS": "ignore"}
    report.add(f"{name}: sent", await _send(folder, environ, count, 0), "tasks/s")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *_COMMANDS[library]),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        done = folder / "done"
        await until_size(done, 1)
        first, first_s = _size_of(done), time.perf_counter()
        await until_size(done, count)
        handled = max(1, count - first) / max(1e-9, time.perf_counter() - first_s)
        report.add(f"{name}: handled", handled, "tasks/s", note="from the first one on")
        say(f"{name}: {later:,} for later")
        before = await _memory(broker, worker.pid)
        await _send(folder, environ, later, 3_600)
        after = await _settled_memory(broker, worker.pid, size.pick(0.0, 2.0, 5.0))
        for what, old_bytes in before.items():
            per_task = (after[what] - old_bytes) / later
            report.add(f"{name}: {what}, for each later task", per_task, "bytes")
    finally:
        await stop(worker)


async def _memory(broker: _Broker, worker_pid: int) -> dict[str, int]:
    """Bytes of a worker and of the broker."""
    found = {"worker": resident_bytes(worker_pid), "broker": resident_bytes(broker.pid)}
    if broker.read_used_bytes is not None:
        found["used_memory"] = await broker.read_used_bytes()
    return found


async def _settled_memory(broker: _Broker, worker_pid: int, wait_s: float) -> dict[str, int]:
    """When it does not grow any more: a worker may still be fetching what is for later."""
    found = await _memory(broker, worker_pid)
    async with asyncio.timeout(_WAIT_S):
        while True:
            await asyncio.sleep(wait_s)
            before, found = found, await _memory(broker, worker_pid)
            if found["worker"] - before["worker"] < _STEADY_BYTES:
                return found


async def _send(folder: Path, environ: dict[str, str], count: int, delay_s: int) -> float:
    """Tasks a second, by the program that sends them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "work.py", str(count), str(delay_s)),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_WAIT_S):
            said, _ = await process.communicate()
    finally:
        await stop(process)
    if process.returncode:
        raise RuntimeError("sending has failed")
    return float(said)


async def until_size(path: Path, count: int) -> None:
    async with asyncio.timeout(_WAIT_S):
        while _size_of(path) < count:
            await before_the_next_look()


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def resident_bytes(pid: int) -> int:
    """Of a process and all below it, what they share counted once (Pss)."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    total = 0
    for one in family:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1_024
    return total


@contextlib.asynccontextmanager
async def _hourwheel(folder: Path) -> AsyncIterator[_Broker | None]:
    async with ChildNode(folder / "node", log_file=folder / "node.log") as node:
        yield _Broker("Hourwheel", f"hourwheel://{node.address}", node.pid)


@contextlib.asynccontextmanager
async def _redis(folder: Path) -> AsyncIterator[_Broker | None]:
    if shutil.which("redis-server") is None or importlib.util.find_spec("redis") is None:
        yield None
        return
    port = find_free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    server = await asyncio.create_subprocess_exec(
        *(*command, "--save", "", "--appendonly", "yes"), stdout=subprocess.DEVNULL
    )
    try:
        await _until_listening(port)
        used = partial(_used_bytes_of_redis, port)
        yield _Broker("Redis", f"redis://127.0.0.1:{port}", server.pid, used)
    finally:
        await stop(server)


async def _used_bytes_of_redis(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"INFO memory\r\n")
    try:
        while not (line := await reader.readline()).startswith(b"used_memory:"):
            if not line:
                raise RuntimeError("Redis does not say how much memory it uses")
        return int(line.split(b":")[1])
    finally:
        writer.close()
        await writer.wait_closed()


async def _until_listening(port: int) -> None:
    async with asyncio.timeout(_WAIT_S):
        while True:
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                return
            await before_the_next_look()
