"""A hot second: very many messages due in one second, released and then drained by one consumer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

RELEASE_TARGET = at_most(1_000)
DRAIN_TARGET = at_least(400_000)
FIRST_TARGET = at_most(5)
_POLL_S: Final = 0.01
_GIVE_UP_S: Final = 120.0
_PREFETCH: Final = 49_152
_POLLS: Final = 3
_MOMENT_AHEAD_S: Final = 2.0


async def run(size: Size, folder: Path) -> Report:
    """Published long before (so that all lies in runs on disk), and just before (in memory)."""
    count = size.pick(3_000, 200_000, 1_000_000)
    report = Report(
        [
            f"{count:,} messages of {load.BODY_BYTES} bytes, due over the 1,000 ms of one second",
            (
                "release: from the last due time until the node's status counts all as released, "
                f"asked every {_POLL_S * 1e3:.0f} ms"
            ),
            (
                "drain: begins when all are released, ends when all acknowledgements are durable; "
                f"one AsyncConsumer, prefetch {_PREFETCH:,}, {_POLLS} polls"
            ),
            "a child process serves; client: live objects frozen for the collector",
            "early: published, then the node stopped and started, so that nothing is in memory",
        ]
    )
    for name, is_early in (("early", True), ("late", False)):
        async with subject.running(folder / name) as node:
            await _measure(node, report, name, count, size, is_early=is_early)
    async with subject.running(folder / "moment") as node:
        await _measure_moment(node, report, size)
    return report


async def _measure_moment(node: Subject, report: Report, size: Size) -> None:
    """All due in one millisecond, to a consumer that waits for them."""
    count, repeats = size.pick(1_000, 100_000, 100_000), size.pick(1, 3, 10)
    await _warm_up(node, size.pick(1_000, 50_000, 100_000))
    first_ms, rates = [], []
    consumer = AsyncConsumer(
        node.channel, group="moment", topic=load.TOPIC, prefetch_messages=_PREFETCH, polls=_POLLS
    )
    async with consumer, AsyncProducer(node.channel) as producer:
        for _ in range(repeats):
            ahead_s = count / 200_000 + _MOMENT_AHEAD_S
            due_ms = int((time.time() + ahead_s) * 1_000)
            dues = np.full(count, due_ms)
            work = load.cut_columns(dues, load.make_bodies(), are_instants=True)
            await load.publish_columns(producer, work)
            with subject.frozen_garbage():
                arrivals = await _arrivals(consumer, count)
            first_ms.append(arrivals[0] - due_ms)
            rates.append(count / (arrivals[-1] - due_ms) * 1_000)
            await consumer.flush_acks()
    name = f"{count:,} due in one millisecond"
    report.add_median(f"{name}: the first is there after", first_ms, "ms", FIRST_TARGET)
    report.add_median(f"{name}: all are there, at", rates, "msg/s", DRAIN_TARGET)


async def _arrivals(consumer: AsyncConsumer, count: int) -> list[float]:
    """When each answer was in the consumer's hands, until all were; ms since the Unix epoch."""
    arrivals, received = list[float](), 0
    async with asyncio.timeout(_GIVE_UP_S):
        while received < count:
            batch = await consumer.receive_batch()
            if batch is not None:
                arrivals.append(time.time() * 1_000)
                received += len(batch)
                consumer.ack_soon(batch)
    return arrivals


async def _measure(
    node: Subject, report: Report, name: str, count: int, size: Size, *, is_early: bool
) -> None:
    speed = await _warm_up(node, size.pick(1_000, 50_000, 300_000))
    spare_s = size.pick(0.5, 8.0, 15.0) if is_early else size.pick(0.2, 2.0, 3.0)
    ahead_s = 2 * count / speed + spare_s
    second_ms = (int((time.time() + ahead_s) * 1_000) // 1_000 + 1) * 1_000
    dues = second_ms + np.random.default_rng(load.SEED).integers(0, 1_000, count)
    work = load.cut_columns(dues, load.make_bodies(), are_instants=True)
    released_before = (await node.status()).released_count
    async with AsyncProducer(node.channel) as producer:
        await load.publish_columns(producer, work)
    if is_early:
        await node.stop()
        await node.start()
    spare_ms = second_ms - time.time() * 1_000
    if spare_ms < 0 and size is not Size.TINY:
        raise RuntimeError(f"published {-spare_ms:.0f} ms after the second began: a slow machine")
    status = await node.status()
    late_ms = await _released(node, int(dues.max()), released_before + count)
    report.add(
        f"{name}: all released after",
        late_ms,
        "ms",
        RELEASE_TARGET,
        f"ready {spare_ms / 1e3:.1f} s before; {status.run_count} runs",
    )
    for group, how, target in (
        ("batches", _drain_batches, DRAIN_TARGET),
        ("objects", _drain_objects, None),
    ):
        span = await _drain(node, group, count, how)
        said = {"batches": "whole answers, bodies checked", "objects": "an object a message"}
        report.add(
            f"{name}: drain, {said[group]}", count / span.seconds, "msg/s", target, span.cores
        )


async def _warm_up(node: Subject, count: int) -> float:
    """Publish far ahead; messages per second."""
    work = load.cut_columns(load.spread_delays(count), load.make_bodies())
    async with AsyncProducer(node.channel) as producer:
        await load.publish_columns(producer, work[:1])
        begun = time.perf_counter()
        await load.publish_columns(producer, work)
    return count / (time.perf_counter() - begun)


async def _released(node: Subject, last_due_ms: int, expected: int) -> float:
    """Milliseconds from the last due time until all were released."""
    await asyncio.sleep(max(0.0, last_due_ms / 1_000 - 1 - time.time()))
    async with asyncio.timeout(_GIVE_UP_S):
        while True:
            released = (await node.status()).released_count
            if released >= expected:
                return max(0.0, time.time() * 1_000 - last_due_ms)
            await asyncio.sleep(_POLL_S)


Drain = Callable[[AsyncConsumer, int], Awaitable[int]]


async def _drain(node: Subject, group: str, count: int, how: Drain) -> Span:
    consumer = AsyncConsumer(
        node.channel,
        group=group,
        topic=load.TOPIC,
        prefetch_messages=_PREFETCH,
        polls=_POLLS,
    )
    async with consumer, asyncio.timeout(_GIVE_UP_S):
        with subject.frozen_garbage(), node.span() as span:
            received = await how(consumer, count)
            await consumer.flush_acks()
        if received != count or consumer.stale_count:
            raise RuntimeError(f"{received} received of {count}, {consumer.stale_count} stale")
    return span


async def _drain_batches(consumer: AsyncConsumer, count: int) -> int:
    received = checked = 0
    while received < count:
        batch = await consumer.receive_batch()
        if batch is None:
            break
        checked += len(batch.bodies())
        received += len(batch)
        consumer.ack_soon(batch)
    return min(received, checked)


async def _drain_objects(consumer: AsyncConsumer, count: int) -> int:
    received = size = 0
    while received < count:
        messages = await consumer.receive(1_000)
        if not messages:
            break
        for message in messages:
            size += len(message.body)
        received += len(messages)
        consumer.ack_soon(messages)
    return received if size == received * load.BODY_BYTES else -1
