"""What order and dedup keys cost: receiving one of a key at a time, publishing with a key each."""

import asyncio
from pathlib import Path
from typing import Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import IfPending
from tests.bench import subject
from tests.bench.results import Report
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

_BODY: Final = bytes(100)
_TOPIC: Final = "ordered"
_PART: Final = 1_000
_CALLERS: Final = 200
_GIVE_UP_S: Final = 300.0
_DELAY_MS: Final = 86_400_000


async def run(size: Size, folder: Path) -> Report:
    """Drain one queue of several numbers of keys; then publish with dedup keys and without."""
    count = size.pick(600, 20_000, 100_000)
    report = Report(
        [
            f"{count:,} messages of {len(_BODY)} bytes in a queue, all released",
            "one AsyncConsumer, which acknowledges what it gets; until all is durable",
            f"publishes: one message a call, {_CALLERS} callers, due in a day",
        ]
    )
    async with (
        subject.running(folder / "ordered") as node,
        AsyncAdmin(node.channel) as admin,
        AsyncProducer(node.channel) as producer,
    ):
        for name, keys, share in (
            ("no order, a key each", count, 1),
            ("a key each", count, 1),
            ("1,000 keys", 1_000, 1),
            ("one key", 1, 10),
        ):
            topic, some = f"{_TOPIC}-{name.replace(' ', '-').replace(',', '')}", count // share
            await admin.create_topic(topic, queue_count=1)
            order = "none" if name.startswith("no ") else "dead-letter"
            await admin.put_group(topic, order=order, invisible_ms=600_000)
            for first in range(0, some, _PART):
                numbers = range(first, min(some, first + _PART))
                every = [Message(_BODY, ordering_key=f"key-{at % keys}") for at in numbers]
                await producer.publish_many(topic, every)
            span = await _drain(node, topic, some)
            report.add(f"receive: {name}", some / span.seconds, "messages/s", None, span.cores)
        for name, has_key in (("no dedup key", False), ("a dedup key each", True)):
            span = await _publish(node, producer, count // 10, has_key=has_key)
            speed = count // 10 / span.seconds
            report.add(f"publish: {name}", speed, "messages/s", None, span.cores)
    return report


async def _drain(node: Subject, name: str, count: int) -> Span:
    async with asyncio.timeout(_GIVE_UP_S):
        with subject.frozen_garbage(), node.span() as span:
            async with AsyncConsumer(node.channel, group=name, topic=name) as consumer:
                received = 0
                while received < count:
                    messages = await consumer.receive(_PART)
                    received += len(messages)
                    await consumer.ack(messages)
    return span


async def _publish(node: Subject, producer: AsyncProducer, count: int, *, has_key: bool) -> Span:
    numbers = iter(range(count))

    async def call() -> None:
        for number in numbers:
            if has_key:
                message = Message(
                    _BODY,
                    delay_ms=_DELAY_MS,
                    dedup_key=f"name-{number}",
                    if_pending=IfPending.KEEP,
                )
                await producer.publish_unique(_TOPIC, message)
            else:
                await producer.publish(_TOPIC, Message(_BODY, delay_ms=_DELAY_MS))

    with subject.frozen_garbage(), node.span() as span:
        await asyncio.gather(*(call() for _ in range(_CALLERS)))
    return span
