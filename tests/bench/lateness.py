"""Lateness: how long after its due time a message is in its consumer's hands."""

import asyncio
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, add_lateness, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Subject

P50_TARGET = at_most(1.5)
P99_TARGET = at_most(5)
PER_SECOND: Final = 20_000
_SILENCE_MS: Final = 15_000.0
_BESIDE_MS: Final = 10
"""While publishing goes on, a batch is published this often."""


async def run(size: Size, folder: Path) -> Report:
    """A steady load published before, the same published meanwhile, and single messages."""
    seconds = size.pick(0.3, 5, 30)
    singles = size.pick(5, 50, 200)
    report = Report(
        [
            (
                f"{PER_SECOND:,} messages due each second for {seconds} s, {PER_SECOND // 1_000} "
                "in each millisecond"
            ),
            "arrival (receive_batch returns) minus due time, by the clock of one machine",
            "one AsyncConsumer, 2 polls, acknowledging within 50 ms; a child process serves",
            "client: garbage collector off while measuring",
            "single: one message at a time, 30-130 ms ahead, nothing else pending near",
        ]
    )
    async with subject.running(folder / "lateness") as node:
        await _warm_up(node)
        single = await _single(node, singles)
        with node.span() as span:
            before = await _published_before(node, seconds, size)
        with node.span() as beside_span:
            beside = await _published_meanwhile(node, seconds, size.pick(200, 2_000, 2_000))
    add_lateness(report, "steady, published before", before, P50_TARGET, P99_TARGET)
    report.add("steady, published before: node", span.node_cpu_s / span.seconds * 100, "% CPU")
    add_lateness(report, "steady, published meanwhile", beside, P50_TARGET, P99_TARGET)
    beside_percent = beside_span.node_cpu_s / beside_span.seconds * 100
    report.add("steady, published meanwhile: node", beside_percent, "% CPU")
    add_lateness(report, "single", single)
    return report


def _consumer(node: Subject, group: str) -> AsyncConsumer:
    return AsyncConsumer(node.channel, group=group, topic=load.TOPIC, prefetch_messages=8_000)


async def receive_late_ms(consumer: AsyncConsumer, count: int) -> NDArray[np.float64]:
    """float64[count]: lateness of each message in ms, in order of arrival."""
    late: list[NDArray[np.float64]] = []
    received = 0
    while received < count:
        batch = await consumer.receive_batch(wait_ms=_SILENCE_MS)
        arrived_ms = time.time_ns() / 1e6
        if batch is None:
            raise TimeoutError(f"{received} of {count} messages arrived")
        late.append(np.subtract(arrived_ms, batch.delivery.due_ms, dtype=np.float64))
        received += len(batch)
        consumer.ack_soon(batch)
    await consumer.flush_acks()
    return np.concatenate(late)


async def _warm_up(node: Subject) -> None:
    """The topic, the group, and each code path once."""
    async with AsyncAdmin(node.channel) as admin:
        await admin.create_topic(load.TOPIC)
    async with AsyncProducer(node.channel) as producer, _consumer(node, "steady") as consumer:
        await load.publish_columns(
            producer, load.cut_columns(np.arange(50, 300).repeat(4), load.make_bodies())
        )
        await receive_late_ms(consumer, 1_000)


async def _single(node: Subject, count: int) -> NDArray[np.float64]:
    late, delays = [], np.random.default_rng(load.SEED).integers(30, 130, count).tolist()
    async with AsyncProducer(node.channel) as producer, _consumer(node, "steady") as consumer:
        with subject.frozen_garbage(is_off=True):
            for delay in delays:
                receiving = asyncio.create_task(receive_late_ms(consumer, 1))
                await producer.publish(load.TOPIC, Message(b"x" * 200, delay_ms=delay))
                late.append(await receiving)
    return np.concatenate(late)


async def _published_before(node: Subject, seconds: float, size: Size) -> NDArray[np.float64]:
    count = int(seconds * PER_SECOND)
    start_ms = int(time.time() * 1_000 + size.pick(500, 2_000, 2_000) + count / 100)
    dues = start_ms + np.arange(count) // (PER_SECOND // 1_000)
    np.random.default_rng(load.SEED).shuffle(dues)
    work = load.cut_columns(dues, load.make_bodies(), are_instants=True)
    async with AsyncProducer(node.channel) as producer:
        await load.publish_columns(producer, work)
    if time.time() * 1_000 > start_ms - 500 and size is not Size.TINY:
        raise RuntimeError("publishing took too long: a slow machine")
    async with _consumer(node, "steady") as consumer:
        await asyncio.sleep(max(0.0, start_ms / 1_000 - 0.5 - time.time()))
        with subject.frozen_garbage(is_off=True):
            return await receive_late_ms(consumer, count)


async def _published_meanwhile(node: Subject, seconds: float, ahead_ms: int) -> NDArray[np.float64]:
    rounds = int(seconds * 1_000 / _BESIDE_MS)
    each = PER_SECOND * _BESIDE_MS // 1_000
    delays = ahead_ms + np.arange(each) % _BESIDE_MS
    bodies = load.make_bodies(each)
    async with AsyncProducer(node.channel) as producer, _consumer(node, "steady") as consumer:
        with subject.frozen_garbage(is_off=True):
            receiving = asyncio.create_task(receive_late_ms(consumer, rounds * each))
            begun = time.perf_counter()
            futures = []
            for number in range(rounds):
                await asyncio.sleep(begun + number * _BESIDE_MS / 1_000 - time.perf_counter())
                columns = load.cut_columns(delays, bodies)
                futures.append(asyncio.create_task(load.publish_columns(producer, columns, 1)))
            await asyncio.gather(*futures)
            return await receiving
