"""Small lists to many topics, by one producer: what it costs must follow the messages."""

import asyncio
import itertools
from pathlib import Path
from typing import Final

from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size

TARGET = at_least(100_000)
LIST_MESSAGES: Final = 20
CALLERS: Final = 200
_US: Final = 1e6


async def run(size: Size, folder: Path) -> Report:
    """Each number of topics on a node of its own."""
    lists = size.pick(20, 3_000, 20_000)
    repetitions = size.pick(1, 3, 5)
    report = Report(
        [
            (
                f"{repetitions} x {lists:,} lists of {LIST_MESSAGES} messages of "
                f"{load.BODY_BYTES} bytes, each to the next topic, due in an hour"
            ),
            f"{CALLERS} tasks, one producer; durable: each is acknowledged after fdatasync",
            "client: live objects frozen for the collector",
        ]
    )
    for topics in (1, 20, 1_000) if size is not Size.TINY else (3,):
        async with subject.running(folder / f"topics-{topics}") as node:
            await _measure(report, node, topics, lists, repetitions)
    return report


async def _measure(
    report: Report, node: subject.Subject, topic_count: int, lists: int, repetitions: int
) -> None:
    topics = [f"many-{number}" for number in range(topic_count)]
    messages = [Message(b"x" * load.BODY_BYTES, delay_ms=load.HOUR_MS)] * LIST_MESSAGES
    speeds: list[float] = []
    node_s = client_s = 0.0
    async with AsyncProducer(node.child.address) as producer:

        async def publish(left: "itertools.islice[str]") -> None:
            for topic in left:
                await producer.publish_many(topic, messages)

        for topic in topics:
            await producer.publish(topic, messages[0])
        for _ in range(repetitions):
            left = itertools.islice(itertools.cycle(topics), lists)
            with subject.frozen_garbage(), node.span() as span:
                await asyncio.gather(*(publish(left) for _ in range(CALLERS)))
            speeds.append(lists * LIST_MESSAGES / span.seconds)
            node_s += span.node_cpu_s
            client_s += span.client_cpu_s
    calls = lists * repetitions
    note = f"a list: node {_US * node_s / calls:.0f}, client {_US * client_s / calls:.0f} us CPU"
    report.add_median(f"{topic_count:,} topics", speeds, "msg/s", TARGET, note)
