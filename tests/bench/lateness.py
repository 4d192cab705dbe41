"""Lateness: how long after its due time a message is in its consumer's hands."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Consumer
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, Target, add_lateness, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Subject

_SILENCE_MS: Final = 15_000.0
_BESIDE_MS: Final = 10
"""While publishing goes on, a batch is published this often."""
_BEFORE_S: Final = 0.5
"""So long before the first is due its consumer begins."""


class Rate(NamedTuple):
    """How many messages are due each second, and what is promised of them."""

    per_second: int
    p50: Target | None = None
    p99: Target | None = None
    p999: Target | None = None
    node: Target | None = None
    """Of a core."""


STEADY: Final = Rate(20_000, at_most(1.0), at_most(2.5), at_most(10), at_most(0.6))
RATES: Final = (Rate(2_000, p99=at_most(2)), STEADY, Rate(100_000, p99=at_most(10)))


class _Found(NamedTuple):
    late_ms: NDArray[np.float64]
    node_cores: float


async def run(size: Size, folder: Path) -> Report:
    """Steady loads published before, one published meanwhile, and single messages."""
    seconds = size.pick(0.3, 5, 15)
    singles = size.pick(5, 50, 200)
    report = Report(
        [
            f"messages of {load.BODY_BYTES} bytes, due evenly over {seconds} s",
            "arrival (receive_batch returns) minus due time, by the clock of one machine",
            "one consumer, 2 polls, acknowledging within 50 ms; a child process serves",
            "client: garbage collector off while measuring",
            (
                "node: its processor time while messages are received; where they were published "
                "before, without the publishing and the wait"
            ),
            "single: one message at a time, 30-130 ms ahead, nothing else pending near",
        ]
    )
    async with subject.running(folder / "lateness") as node:
        await _warm_up(node)
        single = await _single(node, singles)
        for receive in (_receive, _receive_blocking):
            for rate in RATES:
                found = await _published_before(node, rate.per_second, seconds, size, receive)
                kind = "asyncio" if receive is _receive else "blocking"
                _add(report, f"{kind}, {rate.per_second:,}/s", rate, found)
        beside = await _published_meanwhile(node, seconds, size.pick(200, 2_000, 2_000))
    _add(report, f"asyncio, {STEADY.per_second:,}/s, published meanwhile", Rate(0), beside)
    add_lateness(report, "single", single)
    return report


def _add(report: Report, name: str, rate: Rate, found: _Found) -> None:
    add_lateness(report, name, found.late_ms, rate.p50, rate.p99, rate.p999)
    report.add(f"{name}: node", found.node_cores, "cores", rate.node)


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


Receive = Callable[[Subject, int, float], Awaitable[NDArray[np.float64]]]
"""Receives so many messages, from an instant (epoch seconds) on; their lateness."""


async def _receive(node: Subject, count: int, from_s: float) -> NDArray[np.float64]:
    async with _consumer(node, "steady") as consumer:
        await asyncio.sleep(max(0.0, from_s - time.time()))
        return await receive_late_ms(consumer, count)


async def _receive_blocking(node: Subject, count: int, from_s: float) -> NDArray[np.float64]:
    return await asyncio.to_thread(_receive_in_thread, node.child.address, count, from_s)


def _receive_in_thread(address: str, count: int, from_s: float) -> NDArray[np.float64]:
    late: list[NDArray[np.float64]] = []
    received = 0
    with Consumer(address, group="steady", topic=load.TOPIC, prefetch_messages=8_000) as consumer:
        threading.Event().wait(max(0.0, from_s - time.time()))
        while received < count:
            batch = consumer.receive_batch(wait_ms=_SILENCE_MS)
            arrived_ms = time.time_ns() / 1e6
            if batch is None:
                raise TimeoutError(f"{received} of {count} messages arrived")
            late.append(np.subtract(arrived_ms, batch.delivery.due_ms, dtype=np.float64))
            received += len(batch)
            consumer.ack_soon(batch)
    return np.concatenate(late)


async def _published_before(
    node: Subject, per_second: int, seconds: float, size: Size, receive: Receive
) -> _Found:
    count = int(seconds * per_second)
    start_ms = int(time.time() * 1_000 + size.pick(500, 2_000, 2_000) + count / 100)
    dues = start_ms + np.arange(count) * 1_000 // per_second
    np.random.default_rng(load.SEED).shuffle(dues)
    work = load.cut_columns(dues, load.make_bodies(), are_instants=True)
    async with AsyncProducer(node.channel) as producer:
        await load.publish_columns(producer, work)
    from_s = start_ms / 1_000 - _BEFORE_S
    if time.time() > from_s and size is not Size.TINY:
        raise RuntimeError("publishing took too long: a slow machine")
    receiving = asyncio.ensure_future(receive(node, count, from_s))
    await asyncio.sleep(max(0.0, from_s - time.time()))
    with subject.frozen_garbage(is_off=True), node.span() as span:
        late_ms = await receiving
    return _Found(late_ms, span.node_cpu_s / span.seconds)


async def _published_meanwhile(node: Subject, seconds: float, ahead_ms: int) -> _Found:
    rounds = int(seconds * 1_000 / _BESIDE_MS)
    each = STEADY.per_second * _BESIDE_MS // 1_000
    delays = ahead_ms + np.arange(each) % _BESIDE_MS
    bodies = load.make_bodies(each)
    async with AsyncProducer(node.channel) as producer, _consumer(node, "steady") as consumer:
        with subject.frozen_garbage(is_off=True), node.span() as span:
            receiving = asyncio.create_task(receive_late_ms(consumer, rounds * each))
            begun = time.perf_counter()
            futures = []
            for number in range(rounds):
                await asyncio.sleep(begun + number * _BESIDE_MS / 1_000 - time.perf_counter())
                columns = load.cut_columns(delays, bodies)
                futures.append(asyncio.create_task(load.publish_columns(producer, columns, 1)))
            await asyncio.gather(*futures)
            late_ms = await receiving
    return _Found(late_ms, span.node_cpu_s / span.seconds)
