"""Many recurrences: making them, what they cost, a burst of all at one moment, and a start."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Times
from tests.bench import subject
from tests.bench.results import Report
from tests.bench.sizes import Size
from tests.bench.subject import Subject

_CALLERS: Final = 64
_BODY: Final = Message(b"x" * 100)
_AHEAD_S: Final = 5


async def run(size: Size, folder: Path) -> Report:
    """All fall due together, once, and then daily."""
    count = size.pick(100, 20_000, 100_000)
    report = Report(
        [
            f"{count:,} recurrences with bodies of 100 bytes, {_CALLERS} calls under way",
            "a burst: all are due at one moment; until the next occurrence of each is planned",
            "one node, a child process; memory is resident",
        ]
    )
    async with (
        subject.running(folder / "recurring") as node,
        AsyncAdmin(node.channel) as admin,
    ):
        await admin.create_topic("reports")
        before = await node.metric("process_resident_memory_bytes")
        # Late enough for all to be made; one that is made later than that has its first a day on.
        seconds = _AHEAD_S + count / 800
        start = datetime.now(UTC) + timedelta(seconds=seconds)
        times = Times(every=timedelta(days=1), start=start)
        with node.span() as span:
            await _put(admin, count, times)
        report.add("made", count / span.seconds, "recurrences/s", note=span.cores)
        memory = await node.metric("process_resident_memory_bytes") - before
        report.add("memory", memory / count, "bytes each")
        await _published(node, count)
        await asyncio.sleep(max(0.0, start.timestamp() - time.time()))
        with node.span() as span:
            await _published(node, 2 * count)
        report.add("burst", count / span.seconds, "occurrences/s", note=span.cores)
        report.add("burst: node", span.node_cpu_s / count * 1e6, "us of processor each")
        await _restart(node, report)
    return report


async def _put(admin: AsyncAdmin, count: int, times: Times) -> None:
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await admin.put_recurrence("reports", f"r{number}", _BODY, times)

    await asyncio.gather(*(some() for _ in range(_CALLERS)))


async def _published(node: Subject, count: int) -> None:
    """Wait until so many occurrences are."""
    while True:
        if await node.metric("hourwheel_occurrences_total") >= count:
            return
        await asyncio.sleep(0.1)


async def _restart(node: Subject, report: Report) -> None:
    """A node alone elects itself: its start is a takeover, too."""
    report.add("stop, with a checkpoint", await node.stop(), "s")
    report.add("start until it answers", await node.start(), "s")
    with node.span() as span:
        await node.settle()
    report.add("start: processor until quiet", span.node_cpu_s, "s")
