"""A light load on a cluster: a few hundred messages a second, published, delivered, acknowledged.

async with LightLoad(servers).running() as load:
    await load.some(500)        # so many more deliveries have come
    ...
load.missing, load.twice, load.failures, load.pauses_ms(...)

It paces itself: at most so many messages are on their way, each due a moment after it is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from hourwheel.clock import SystemClock
from hourwheel.formats.receipt import parse

_TOPIC: Final = "load"
_GROUP: Final = "load"
_AT_ONCE: Final = 10
_ON_THEIR_WAY: Final = 40
_DELAY_MS_MIN: Final = 20
_DELAY_MS_SPREAD: Final = 180
_POLL_MS: Final = 500
_HANG_S: Final = 120.0


@dataclass
class LightLoad:
    """See the top of this file."""

    servers: str
    accepted: set[int] = field(default_factory=set)
    arrivals: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Message -> places in the queue from which it came: one for each release."""
    early: list[int] = field(default_factory=list)
    failures: list[errors.HourwheelError] = field(default_factory=list)
    redelivered: int = 0
    times_ms: list[float] = field(default_factory=list)
    """Of deliveries, by a monotonic clock."""

    def __post_init__(self) -> None:
        """Nothing runs."""
        self._clock = SystemClock()
        self._sent = 0
        self._is_over = False
        self._arrived = asyncio.Event()

    @property
    def missing(self) -> set[int]:
        """Accepted and never delivered."""
        return self.accepted - self.arrivals.keys()

    @property
    def twice(self) -> list[int]:
        """Released twice."""
        return [number for number, places in self.arrivals.items() if len(places) > 1]

    def now_ms(self) -> float:
        """The clock of `times_ms`."""
        return self._clock.monotonic_ms()

    def pause_ms(self, from_ms: float, to_ms: float) -> float:
        """The longest time without a delivery that overlaps a period."""
        gaps = [b - a for a, b in pairwise(self.times_ms) if b > from_ms and a < to_ms]
        return max(gaps, default=float("inf"))

    async def some(self, count: int) -> None:
        """Wait until so many more messages have come."""
        goal = len(self.arrivals) + count
        await self._until(lambda: bool(self.failures) or len(self.arrivals) >= goal)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(_HANG_S):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["LightLoad"]:
        """Under load inside; after it, all that was accepted has come, or the wait was in vain."""
        async with AsyncAdmin(self.servers) as admin:
            await admin.create_topic(_TOPIC)
        consuming = asyncio.ensure_future(self._consume())
        publishing = asyncio.ensure_future(self._publish())
        try:
            yield self
            self._is_over = True
            self._arrived.set()
            await publishing
            await self._until(lambda: not self.missing)
        finally:
            publishing.cancel()
            consuming.cancel()
            await asyncio.wait([publishing, consuming])

    async def _publish(self) -> None:
        async with AsyncProducer(self.servers) as producer:
            while not self._is_over:
                numbers = range(self._sent, self._sent + _AT_ONCE)
                self._sent += _AT_ONCE
                messages = [Message(b"%d" % each, delay_ms=_delay_ms(each)) for each in numbers]
                try:
                    await producer.publish_many(_TOPIC, messages)
                except errors.HourwheelError as error:
                    self.failures.append(error)
                    self._arrived.set()
                else:
                    self.accepted.update(numbers)
                await self._until(lambda: self._is_over or len(self.missing) < _ON_THEIR_WAY)

    async def _consume(self) -> None:
        async with AsyncConsumer(self.servers, group=_GROUP, topic=_TOPIC) as consumer:
            while True:
                try:
                    batch = await consumer.receive_batch(_POLL_MS)
                except errors.HourwheelError as error:
                    self.failures.append(error)
                    self._arrived.set()
                    continue
                if batch is None:
                    continue
                self.times_ms.append(self.now_ms())
                lease = parse(batch.receipt)
                for ordinal, message in enumerate(batch):
                    number = int(message.body)
                    place = (lease.topic_queue, lease.first_position + lease.index + ordinal)
                    self.redelivered += place in self.arrivals.get(number, ())
                    self.arrivals.setdefault(number, set()).add(place)
                    if message.receive_ms < message.due_ms:
                        self.early.append(number)
                consumer.ack_soon(batch)
                self._arrived.set()


def _delay_ms(number: int) -> int:
    """Spread out, so that something comes every few milliseconds."""
    return _DELAY_MS_MIN + number * 37 % _DELAY_MS_SPREAD
