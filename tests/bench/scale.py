"""Scale: memory, disk, restarts and the cost of publishing while very many messages are pending."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import StreamBroken
from tests.bench import load, machine, subject
from tests.bench.lateness import receive_late_ms
from tests.bench.machine import Memory
from tests.bench.results import Report, add_lateness, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Subject

MEMORY_TARGET_MIB = at_most(300)
CLEAN_TARGET_S = at_most(2)
KILLED_TARGET_S = at_most(3)
COST_TARGET = at_most(1.3)
WRITTEN_TARGET = at_most(2)
LATE_P99_TARGET_MS = at_most(20)
_SOON_PER_S: Final = 2_000
"""Messages due each second, just after the node was killed and has started again."""
_SPAN_MS: Final = 365 * load.DAY_MS
_CHUNK: Final = 200_000
_MIB: Final = 1024 * 1024
_SAMPLE_S: Final = 0.1
_COST_ROUNDS: Final = 5


async def run(size: Size, folder: Path) -> Report:
    """Load, measure, stop, start, kill, start.

    `SCALE_PENDING` in the environment is another number of messages; with `SCALE_LOG_BYTES`, the
    node keeps only about so much of its log (`log.retention_bytes`).
    """
    few = size.pick(2_000, 100_000, 100_000)
    many = int(os.environ.get("SCALE_PENDING", size.pick(10_000, 2_000_000, 20_000_000)))
    log_bytes = int(os.environ.get("SCALE_LOG_BYTES", "0"))
    cost_count = size.pick(2_000, 100_000, 200_000)
    report = Report(
        [
            f"{many:,} messages of {load.BODY_BYTES} bytes pending, due over the next 365 days",
            (
                "memory: resident, above that of the empty node when it has just started; with the "
                "mapped pages of files, and split"
            ),
            "restart: from the start of the process until it has answered a status call",
            (
                f"cost: time to publish {cost_count:,} messages in batches of {load.BATCH:,}, "
                f"median of {_COST_ROUNDS}, node quiet before"
            ),
            "kill -9: while publishing goes on; lateness from the moment when it serves again on",
            f"log.retention_bytes: {log_bytes:,} (0: all of the log is kept)",
        ]
    )
    directory = folder / "scale"
    async with subject.running(directory, {"log": {"retention_bytes": log_bytes}}) as node:
        empty = machine.memory(node.pid)
        async with AsyncProducer(node.channel) as producer:
            await _load(producer, few)
            cost_few = await _cost(node, producer, cost_count, size)
            loaded = (await node.status()).pending_count
            written = machine.written_bytes(node.pid)
            async with _watched(node) as peak:
                begun = time.perf_counter()
                await _load(producer, max(0, many - loaded))
                took = time.perf_counter() - begun
            settled_s = await node.settle() if size is not Size.TINY else 0.0
            full = machine.memory(node.pid)
            bodies = max(1, many - loaded) * load.BODY_BYTES
            written = machine.written_bytes(node.pid) - written
            disk = machine.disk_bytes(directory)
            cost_many = await _cost(node, producer, cost_count, size)
        _add_memory(report, "while loading, highest", peak[0], empty)
        _add_memory(report, "all pending, quiet", full, empty)
        report.add("loading", max(0, many - loaded) / took, "msg/s")
        report.add("quiet after loading", settled_s, "s")
        report.add("disk for each pending message", disk / max(many, loaded), "bytes")
        report.add("written for each byte of bodies", written / bodies, "bytes", WRITTEN_TARGET)
        ratios = [
            own / other for own, other in zip(sorted(cost_many), sorted(cost_few), strict=True)
        ]
        report.add_median(
            f"publishing with {many:,} pending, against {few:,}",
            ratios,
            "times",
            COST_TARGET,
            f"{_speed(cost_few, cost_count)} and {_speed(cost_many, cost_count)} msg/s",
        )
        await _restarts(node, report, empty, size)
        late = await _late_soon(node, size.pick(0.3, 3.0, 10.0))
        add_lateness(report, "just after kill -9", late, p99_target=LATE_P99_TARGET_MS)
        await _list(node, report, size)
    return report


async def _list(node: Subject, report: Report, size: Size) -> None:
    """How long an operator waits for the first of what is scheduled, and for how many there are."""
    spent = list[float]()
    async with AsyncAdmin(node.channel) as admin:
        for _ in range(size.pick(1, _COST_ROUNDS, _COST_ROUNDS)):
            begun = time.perf_counter()
            async with contextlib.aclosing(admin.list_pending(load.TOPIC)) as listed:
                await anext(listed)
            spent.append((time.perf_counter() - begun) * 1e3)
        begun = time.perf_counter()
        found = await admin.count_pending(load.TOPIC)
        took = time.perf_counter() - begun
    report.add_median("list_pending: the first page", spent, "ms")
    note = f"{found.matched_count:,} messages"
    report.add("count_pending: all of the topic", took, "s", note=note)


async def _late_soon(node: Subject, seconds: float) -> NDArray[np.float64]:
    """Lateness in ms of messages that are published now and due evenly over `seconds`."""
    count = int(seconds * _SOON_PER_S)
    start_ms = time.time_ns() // 1_000_000 + 300
    dues = start_ms + np.arange(count) * 1_000 // _SOON_PER_S
    async with (
        AsyncProducer(node.channel) as producer,
        AsyncConsumer(node.channel, group="soon", topic=load.TOPIC) as consumer,
    ):
        await load.publish_columns(
            producer, load.cut_columns(dues, load.make_bodies(), are_instants=True)
        )
        with subject.frozen_garbage(is_off=True):
            return await receive_late_ms(consumer, count)


def _speed(seconds: list[float], count: int) -> str:
    return f"{count / sorted(seconds)[len(seconds) // 2]:,.0f}"


def _add_memory(report: Report, name: str, found: Memory, empty: Memory) -> None:
    report.add(
        f"memory {name}",
        (found.total - empty.total) / _MIB,
        "MiB",
        MEMORY_TARGET_MIB,
        f"anonymous {(found.anonymous - empty.anonymous) / _MIB:.0f}, files "
        f"{(found.file - empty.file) / _MIB:.0f}; empty node {empty.total / _MIB:.0f} MiB",
    )


async def _load(producer: AsyncProducer, count: int) -> None:
    """Publish `count` messages; columns are made in pieces, so that this process stays small."""
    bodies = load.make_bodies()
    for at in range(0, count, _CHUNK):
        part = min(_CHUNK, count - at)
        delays = load.spread_delays(part, seed=load.SEED + at, span_ms=_SPAN_MS)
        await load.publish_columns(producer, load.cut_columns(delays, bodies))


async def _cost(node: Subject, producer: AsyncProducer, count: int, size: Size) -> list[float]:
    """Seconds to publish `count` messages, several times."""
    spent = []
    work = load.cut_columns(load.spread_delays(count, span_ms=_SPAN_MS), load.make_bodies())
    for _ in range(size.pick(1, _COST_ROUNDS, _COST_ROUNDS)):
        if size is not Size.TINY:
            await node.settle()
        with subject.frozen_garbage(), node.span() as span:
            await load.publish_columns(producer, work)
        spent.append(span.seconds)
    return spent


@contextlib.asynccontextmanager
async def _watched(node: Subject) -> AsyncIterator[list[Memory]]:
    """The highest memory of the node while inside, in a list of one."""
    peak = [machine.memory(node.pid)]

    async def watch() -> None:
        while True:
            peak[0] = max(peak[0], machine.memory(node.pid), key=lambda found: found.total)
            await asyncio.sleep(_SAMPLE_S)

    watching = asyncio.create_task(watch())
    try:
        yield peak
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        if not watching.cancelled():
            watching.result()


async def _restarts(node: Subject, report: Report, empty: Memory, size: Size) -> None:
    pending = (await node.status()).pending_count
    stop_s = await node.stop()
    start_s = await node.start()
    found = (await node.status()).pending_count
    if found != pending:
        raise RuntimeError(f"{pending} messages were pending, now {found} are")
    report.add("restart after a clean stop", start_s, "s", CLEAN_TARGET_S, f"stop {stop_s:.1f} s")
    _add_memory(report, "after the restart", machine.memory(node.pid), empty)
    work = load.cut_columns(load.spread_delays(20_000, span_ms=_SPAN_MS), load.make_bodies())
    requests = load.prebuild(work)
    publishing = asyncio.create_task(load.write_prebuilt(node.channel, requests, 1 << 40))
    await asyncio.sleep(size.pick(0.3, 3.0, 10.0))
    taken = (await node.status()).published_count
    await node.kill()
    try:
        await publishing
    except* StreamBroken:
        pass
    start_s = await node.start()
    after = await node.status()
    if after.published_count < taken:
        raise RuntimeError(f"{taken - after.published_count} published messages are gone")
    note = (
        f"killed with {after.log_end_offset - after.checkpoint_offset:,} bytes not in a checkpoint"
    )
    report.add("restart after kill -9", start_s, "s", KILLED_TARGET_S, note)
