"""What is pending, listed and cancelled by filter: messages looked at per second, and who waits."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import numpy as np

from hourwheel.client import batch_builder
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.filter_language.inputs import Sql
from hourwheel.v1 import broker_pb2
from tests.bench import load, subject
from tests.bench.results import Report
from tests.bench.sizes import Size
from tests.bench.subject import Subject

RARE: Final = 1_000
"""Every so many-th message has the tag "rare"."""
_BATCHES: Final = 97
_PROBE_EVERY_S: Final = 0.01
_ROUNDS: Final = 3


async def run(size: Size, folder: Path) -> Report:
    """Fill a topic with messages due over 24 hours, then ask for some of them."""
    count = size.pick(5_000, 500_000, 5_000_000)
    report = Report(
        [
            f"{count:,} messages of {load.BODY_BYTES} bytes pending, due over 24 hours",
            f"1 in {RARE:,} has the tag that is asked for; the topic's genes are the default",
            "AsyncAdmin in this process, pages as they are; a child process serves",
            f"medians of {_ROUNDS}; files in the page cache",
            "meanwhile: one message is published every 10 ms, durably; how long that takes",
        ]
    )
    async with subject.running(folder / "pending") as node, AsyncAdmin(node.channel) as admin:
        await load.write_prebuilt(node.channel, pending_requests(), count // load.BATCH)
        if size is not Size.TINY:
            await node.settle()
        _add_probe(report, "nothing is asked", await _probed(node, asyncio.sleep(1.0)))
        for name, wanted, matching in (
            ("count 1 in 1,000", "rare", count // RARE),
            ("count all, unread", "*", count),
        ):
            speeds = []
            for _ in range(_ROUNDS):
                with node.span() as span:
                    found = await admin.count_pending(load.TOPIC, wanted)
                if (found.matched_count, found.scanned_count) != (matching, count):
                    raise RuntimeError(f"{name}: {found}")
                speeds.append(count / span.seconds)
            report.add_median(name, speeds, "messages looked at/s", None, span.cores)
        clock_ms = (await admin.status()).nodes[0].clock_ms
        part = {"from_ms": clock_ms + 3 * load.HOUR_MS, "to_ms": clock_ms + 4 * load.HOUR_MS}
        question = Sql("share = 'rare'")
        expected = await admin.count_pending(load.TOPIC, "rare", **part)
        with node.span() as span:
            found = await admin.count_pending(load.TOPIC, question, **part)
        if found != expected:
            raise RuntimeError(f"{found} by SQL, and {expected} by tags")
        name = "count by SQL, no gene of it, 1 hour of the 24"
        report.add(name, found.scanned_count / span.seconds, "messages read/s", None, span.cores)
        speeds = []
        for _ in range(_ROUNDS):
            with node.span() as span:
                listed = [one async for one in admin.list_pending(load.TOPIC, "rare")]
            if len(listed) != count // RARE:
                raise RuntimeError(f"{len(listed)} listed")
            speeds.append(count / span.seconds)
        report.add_median("list 1 in 1,000", speeds, "messages looked at/s", None, span.cores)
        for name, asked in (
            ("counting 1 in 1,000", admin.count_pending(load.TOPIC, "rare")),
            ("counting by SQL", admin.count_pending(load.TOPIC, question, **part)),
        ):
            _add_probe(report, name, await _probed(node, asked))
        with node.span() as span:
            done = await admin.cancel_pending(load.TOPIC, "rare")
        if done.cancelled_count != count // RARE:
            raise RuntimeError(f"{done}")
        report.add("cancel 1 in 1,000", count / span.seconds, "messages looked at/s", None)
        with node.span() as span:
            done = await admin.cancel_pending(load.TOPIC, "all")
        left = count - count // RARE
        if done.cancelled_count != left:
            raise RuntimeError(f"{done}")
        report.add("cancel the rest", left / span.seconds, "cancelled/s", None, span.cores)
    return report


def pending_requests() -> list[broker_pb2.PublishStreamRequest]:
    """Some batches, to be published again and again."""
    bodies, requests = load.make_bodies(), []
    for number in range(_BATCHES):
        delays = load.spread_delays(load.BATCH, seed=number).tolist()
        messages = [
            Message(
                bodies[at],
                delay_ms=delays[at],
                tags=("all", "rare") if at % RARE == 0 else ("all",),
                properties={"share": "rare" if at % RARE == 0 else "other"},
            )
            for at in range(load.BATCH)
        ]
        draft = batch_builder.draft_messages(messages)[0][0]
        raw = batch_builder.build(draft, 0, 0)
        requests.append(broker_pb2.PublishStreamRequest(topic=load.TOPIC, record_batch=raw))
    return requests


async def _probed(node: Subject, asked: Coroutine[Any, Any, object]) -> list[float]:
    """Milliseconds that single publishes take while something is asked."""
    taken: list[float] = []
    async with AsyncProducer(node.channel, linger_ms=0.0) as producer:
        await producer.publish("probe", Message(b"", delay_ms=load.DAY_MS))

        async def probe() -> None:
            while True:
                begun = time.perf_counter()
                await producer.publish("probe", Message(b"", delay_ms=load.DAY_MS))
                taken.append(1_000 * (time.perf_counter() - begun))
                await asyncio.sleep(_PROBE_EVERY_S)

        probing = asyncio.create_task(probe())
        try:
            await asked
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
    return taken


def _add_probe(report: Report, name: str, taken: list[float]) -> None:
    if taken:
        middle, high = np.percentile(taken, [50, 99])
        note = f"median {middle:.1f}, highest {max(taken):.1f}, {len(taken):,} publishes"
        report.add(f"a publish while {name}, 99 %", float(high), "ms", None, note)
