"""Small flows: messages one by one, over few or many topics, to consumers of one process.

What it costs must follow the messages, and not the number of topics and consumers.
"""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Subject

LIST_MESSAGES: Final = 100
"""Published at once, to one topic."""
PUBLISHERS: Final = 4
BODY: Final = b"x" * 100
FIRST: Final = b"first"
"""Of each topic, before anything is measured: a group begins with a record in the log."""
_US: Final = 1e6
_CALLS: Final = "hourwheel_grpc_server_handled_total"
_FRAMES: Final = "hourwheel_session_frames_total"


class Flow(NamedTuple):
    """What flows."""

    topics: int
    consumers: int
    """One of each topic first; then from the first topic on again, for the same group."""
    per_second: int
    p50_ms_max: float | None = None
    p99_ms_max: float | None = None
    node_cores_max: float | None = None


FLOWS: Final = (
    Flow(1, 1, 3_000),
    Flow(20, 25, 3_000, 2.0, 10.0, 0.3),
    Flow(200, 200, 3_000),
    Flow(1_000, 1_000, 3_000),
    Flow(200, 200, 10_000, None, 25.0),
)


class Found(NamedTuple):
    """What was measured of a flow."""

    late_ms: NDArray[np.float64]
    seconds: float
    node_cpu_s: float
    client_cpu_s: float
    calls: float
    frames: float


async def run(size: Size, folder: Path) -> Report:
    """Each flow on a node of its own."""
    seconds = size.pick(0.5, 3, 30)
    delay_ms_max = size.pick(200, 1_000, 30_000)
    report = Report(
        [
            (
                f"lists of {LIST_MESSAGES} messages, each list to the next topic, published at an "
                f"even pace; delays spread over 0 to {delay_ms_max / 1_000:g} s"
            ),
            "AsyncConsumers built separately, in one process and of one event loop; ack_soon",
            f"{seconds:g} s, after all delays have been met once",
            "arrival (`anext` returns) minus due time, by the clock of one machine",
            "calls: of all methods; frames: of sessions, both ways",
        ]
    )
    flows = FLOWS if size is not Size.TINY else (Flow(3, 4, 300),)
    for number, flow in enumerate(flows):
        async with subject.running(folder / f"flow-{number}") as node:
            _add(report, flow, await _measure(node, flow, seconds, delay_ms_max))
    return report


def _add(report: Report, flow: Flow, found: Found) -> None:
    name = f"{flow.topics:,} topics, {flow.consumers:,} consumers, {flow.per_second:,}/s"
    count = len(found.late_ms)
    p50, p99 = np.percentile(found.late_ms, (50, 99)).tolist()
    promised = flow.p50_ms_max, flow.p99_ms_max, flow.node_cores_max
    targets = [None if it is None else at_most(it) for it in promised]
    report.add(f"{name}: lateness p50", p50, "ms", targets[0], f"{count:,} messages")
    report.add(f"{name}: lateness p99", p99, "ms", targets[1])
    report.add(f"{name}: lateness max", float(found.late_ms.max()), "ms")
    report.add(f"{name}: messages", count / found.seconds, "messages/s")
    report.add(f"{name}: node, a message", found.node_cpu_s / count * _US, "us CPU")
    report.add(f"{name}: node", found.node_cpu_s / found.seconds, "cores", targets[2])
    report.add(f"{name}: client", found.client_cpu_s / found.seconds, "cores")
    report.add(f"{name}: calls", found.calls / found.seconds, "calls/s")
    report.add(f"{name}: frames", found.frames / found.seconds, "frames/s")


async def _measure(node: Subject, flow: Flow, seconds: float, delay_ms_max: int) -> Found:
    address = node.child.address
    topics = [f"small-{number}" for number in range(flow.topics)]
    late_ms: list[float] = []
    async with AsyncProducer(address) as producer:
        for topic in topics:
            await producer.publish(topic, Message(FIRST))
        consumers = [
            AsyncConsumer(address, group="small", topic=topic)
            for topic in itertools.islice(itertools.cycle(topics), flow.consumers)
        ]
        begun = {topic: asyncio.Event() for topic in topics}
        tasks = [asyncio.create_task(_consume(one, late_ms, begun)) for one in consumers]
        for topic in topics:
            await begun[topic].wait()
        pace = _Pace(flow.per_second)
        tasks += [
            asyncio.create_task(
                _publish(producer, topics[lane:] + topics[:lane], pace, delay_ms_max)
            )
            for lane in range(PUBLISHERS)
        ]
        try:
            await asyncio.sleep(delay_ms_max / 1_000 + 1.0)
            calls, frames = await _counts(node)
            late_ms.clear()
            with subject.frozen_garbage(is_off=True), node.span() as span:
                await asyncio.sleep(seconds)
            found = np.array(late_ms)
            calls_end, frames_end = await _counts(node)
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for consumer in consumers:
                await consumer.close()
        failed = [it for it in ended if not isinstance(it, asyncio.CancelledError)]
        if failed:
            raise RuntimeError("a flow has ended") from failed[0]
    return Found(
        found,
        span.seconds,
        span.node_cpu_s,
        span.client_cpu_s,
        calls_end - calls,
        frames_end - frames,
    )


async def _counts(node: Subject) -> tuple[float, float]:
    return await node.metric(_CALLS), await node.metric(_FRAMES)


async def _consume(
    consumer: AsyncConsumer, late_ms: list[float], begun: dict[str, asyncio.Event]
) -> None:
    async for message in consumer:
        if message.body == FIRST:
            begun[message.topic].set()
        else:
            late_ms.append(time.time_ns() / 1e6 - message.due_ms)
        consumer.ack_soon(message)


class _Pace:
    """When the next list is to be published."""

    def __init__(self, per_second: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._pause_s = LIST_MESSAGES / per_second
        self._at_s = self._loop.time()

    async def next(self) -> None:
        self._at_s += self._pause_s
        await asyncio.sleep(max(0.0, self._at_s - self._loop.time()))


async def _publish(
    producer: AsyncProducer, topics: list[str], pace: _Pace, delay_ms_max: int
) -> None:
    """Lists at an even pace; what is late is caught up."""
    random = np.random.default_rng(load.SEED)
    for topic in itertools.cycle(topics):
        await pace.next()
        delays = random.integers(0, delay_ms_max, LIST_MESSAGES).tolist()
        messages = [Message(BODY, delay_ms=delay) for delay in delays]
        await producer.publish_many(topic, messages)
