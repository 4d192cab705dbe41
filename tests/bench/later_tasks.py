"""A million of Celery's tasks for later: what they cost a running worker, and the broker."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Final

from node.process.subprocess_node import ChildNode
from tests.bench.progress import say, stop
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size
from tests.bench.task_queues import resident_bytes, until_size

_PROGRAM: Final = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

from celery import Celery
import hourwheel.integrations.kombu

app = Celery("work", broker=os.environ["BROKER"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64)
DONE = os.open("done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.task
def note(due_s):
    os.write(DONE, b"%17.3f\\n" % ((time.time() - due_s) * 1_000))

def send(due_s):
    note.apply_async((due_s,), eta=datetime.fromtimestamp(due_s, timezone.utc))

if __name__ == "__main__":
    count, first_s, spread_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    send(first_s)
    begun = time.perf_counter()
    with ThreadPoolExecutor(8) as senders:
        for _ in senders.map(send, (first_s + spread_s * n / count for n in range(1, count))):
            pass
    print((count - 1) / max(1e-9, time.perf_counter() - begun))
"""
_LINE_BYTES: Final = 18
"""Of what a task writes."""
_SENDERS: Final = 2
_PART: Final = 20_000
"""Tasks that a process sends before another one does."""
_LATER_S: Final = 86_400.0
_SPREAD_S: Final = 86_400.0
_STEADY_BYTES: Final = 1 << 20
_STEADY_LOOKS_MAX: Final = 60
_SEND_S: Final = 600.0
"""A part that takes longer hangs."""
_GROWTH_MIB_MAX: Final = 16.0
"""Of a worker, however many tasks wait: with Redis they would be in its memory."""


async def run(size: Size, folder: Path, count: int = 0) -> Report:
    """Send `count` tasks for later (0: as many as the size says), then some for one instant soon.

    The worker runs before, and handles the latter beside all that wait.
    """
    count = count or size.pick(60, 50_000, 1_000_000)
    soon = size.pick(10, 1_000, 1_000)
    report = Report(
        [
            f"{count:,} tasks, due over a day that begins tomorrow; then {soon:,} of one instant",
            f"apply_async by {_SENDERS} processes of 8 threads; a worker of 2 children runs before",
            "memory: shared pages counted once (Pss), when steady; a worker has its bridge process",
            "sent: the sum of what each process found, without its start",
        ]
    )
    (folder / "work.py").write_text(_PROGRAM)
    async with ChildNode(folder / "node", log_file=folder / "node.log") as node:
        environ = {
            **os.environ,
            "BROKER": f"hourwheel://{node.address}",
            "PYTHONWARNINGS": "ignore",
        }
        worker = await _start(folder, environ, "celery", "-A", "work", "worker", "-c", "2")
        try:
            await _measure(report, folder, environ, (worker.pid, node.pid), (count, soon))
        finally:
            await stop(worker)
    return report


async def _measure(
    report: Report,
    folder: Path,
    environ: dict[str, str],
    pids: tuple[int, int],
    counts: tuple[int, int],
) -> None:
    count, soon = counts
    done, now_s = folder / "done", time.time()
    await _send(folder, environ, 1, now_s, 0.0)  # the worker has come up, and handled one
    await until_size(done, _LINE_BYTES)
    before = await _steady(pids)
    used_before = _disk_bytes(folder / "node")
    begun = time.perf_counter()
    rates = await _send_in_parts(folder, environ, count, now_s + _LATER_S)
    report.add("sent in", time.perf_counter() - begun, "s")
    report.add("sent", sum(rates) / len(rates) * _SENDERS, "tasks/s")
    after = await _steady(pids)
    for name, old, new in zip(("worker", "broker"), before, after, strict=True):
        report.add(f"{name}: before", old / 2**20, "MiB")
        target = at_most(_GROWTH_MIB_MAX) if name == "worker" else None
        report.add(f"{name}: grown by", (new - old) / 2**20, "MiB", target)
        report.add(f"{name}: for each task", (new - old) / count, "bytes")
    used = _disk_bytes(folder / "node") - used_before
    report.add("disk: for each task", used / count, "bytes", note="what is written in advance, too")
    say(f"{soon:,} tasks of one instant, beside those that wait")
    await _send(folder, environ, soon, due_s := time.time() + 5.0 + soon / 100, 0.0)
    await until_size(done, _LINE_BYTES * (1 + soon))
    late_ms = sorted(float(line) for line in done.read_text().split()[1:])
    sent_late = " (sent too late, some of them)" if time.time() > due_s + 60 else ""
    report.add("soon: first handled after its due time", late_ms[0], "ms", note=sent_late)
    report.add("soon: median", late_ms[len(late_ms) // 2], "ms")
    report.add("soon: last", late_ms[-1], "ms")


async def _send_in_parts(
    folder: Path, environ: dict[str, str], count: int, first_s: float
) -> list[float]:
    """Tasks a second of each process that sent a part. Some send at one time, part after part."""
    parts = [min(_PART, count - at) for at in range(0, count, _PART)]
    if len(parts) < _SENDERS:
        parts = [count // _SENDERS] * _SENDERS
    places, sent = asyncio.Semaphore(_SENDERS), 0

    async def send(part: int) -> float:
        nonlocal sent
        async with places:
            rate = await _send(folder, environ, part, first_s, _SPREAD_S)
        sent += part
        say(f"{sent:,} of {count:,} sent")
        return rate

    return await asyncio.gather(*(send(part) for part in parts))


async def _send(
    folder: Path, environ: dict[str, str], count: int, first_s: float, spread_s: float
) -> float:
    """Tasks a second."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "work.py", str(count), str(first_s), str(spread_s)),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SEND_S):
            said, _ = await process.communicate()
    finally:
        await stop(process)
    if process.returncode:
        raise RuntimeError("sending has failed")
    return float(said)


async def _start(folder: Path, environ: dict[str, str], *command: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command, "--loglevel", "ERROR"),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _steady(pids: tuple[int, int]) -> list[int]:
    """Bytes of each process with its children, when they do not grow any more, or after a while."""
    found = [resident_bytes(pid) for pid in pids]
    for _ in range(_STEADY_LOOKS_MAX):
        await asyncio.sleep(2.0)
        before, found = found, [resident_bytes(pid) for pid in pids]
        if max(abs(new - old) for old, new in zip(before, found, strict=True)) < _STEADY_BYTES:
            break
    return found


def _disk_bytes(folder: Path) -> int:
    """That files below a folder take."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
