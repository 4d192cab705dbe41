"""A steady load on a cluster, and what became of each message that was acknowledged.

async with ClusterLoad(cluster.servers) as load:
    await load.some(200)                # until so many more have arrived
    kill(...)
    await load.some(200)
    await load.finish()                 # all that was acknowledged has arrived
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from hourwheel.clock import SystemClock
from tests.support.eventually import until

TOPIC: Final = "orders"
GROUP: Final = "billing"
_DELAY_MS: Final = 300
_BATCH: Final = 20
_PAUSE_S: Final = 0.01
"""Between publishes; a load, no waiting."""


class Arrival(NamedTuple):
    """One delivery."""

    at_ms: float
    due_ms: int
    attempt: int


class ClusterLoad:
    """See the top of this file."""

    def __init__(self, servers: str) -> None:
        self.clock = SystemClock()
        self.acknowledged: dict[bytes, int] = {}
        """Body -> due time."""
        self.arrived: dict[bytes, list[Arrival]] = {}
        self.arrivals: list[float] = []
        self.failures: list[str] = []
        self._producer, self._consumer = (
            AsyncProducer(servers),
            AsyncConsumer(servers, group=GROUP, topic=TOPIC),
        )
        self._admin = AsyncAdmin(servers)
        self._publishing: asyncio.Task[None] | None = None
        self._consuming: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def __aenter__(self) -> Self:
        for client in (self._producer, self._consumer, self._admin):
            await client.__aenter__()
        await self._admin.create_topic(TOPIC)
        self._consuming = asyncio.create_task(self._consume())
        await self._consumer_is_known()
        self._publishing = asyncio.create_task(self._publish())
        return self

    async def _consumer_is_known(self) -> None:
        while True:
            with suppress(errors.UnknownGroup):
                if (await self._admin.get_group(GROUP)).lags:
                    return

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tasks = [one for one in (self._publishing, self._consuming) if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in (self._admin, self._consumer, self._producer):
            await client.__aexit__(kind, error, trace)

    async def _publish(self) -> None:
        number = 0
        while not self._over.is_set():
            messages = [
                Message(b"%d" % (number + one), delay_ms=_DELAY_MS) for one in range(_BATCH)
            ]
            number += _BATCH
            try:
                published = await self._producer.publish_many(TOPIC, messages)
            except errors.HourwheelError as error:
                self.failures.append(f"publish: {error!r}")
                continue
            for message, one in zip(messages, published, strict=True):
                self.acknowledged[message.body] = one.due_ms
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._over.wait()

    async def _consume(self) -> None:
        while True:
            try:
                delivery = await self._consumer.receive(1_000, wait_ms=1_000)
            except errors.HourwheelError as error:
                self.failures.append(f"receive: {error!r}")
                await asyncio.sleep(0)
                continue
            now_ms = self.clock.wall_ms()
            for message in delivery:
                told = Arrival(now_ms, message.due_ms, message.attempt)
                self.arrived.setdefault(message.body, []).append(told)
            if delivery:
                self.arrivals.append(now_ms)
            self._consumer.ack_soon(delivery)

    async def some(self, count: int) -> None:
        """Wait until so many more messages have arrived."""
        until_count = len(self.arrived) + count
        await until(lambda: len(self.arrived) >= until_count)

    async def finish(self) -> None:
        """Publish no more, and wait for what was acknowledged. What was not may arrive, too."""
        self._over.set()
        assert self._publishing is not None
        await self._publishing
        await until(lambda: self.acknowledged.keys() <= self.arrived.keys())

    # -- what was seen ------------------------------------------------------------------------

    def early(self) -> list[Any]:
        """Deliveries before the time."""
        return [
            (body, one)
            for body, told in self.arrived.items()
            for one in told
            if one.at_ms < one.due_ms
        ]

    def repeated(self) -> int:
        """How many came more than once: leases that their master took into its grave."""
        return sum(len(told) > 1 for told in self.arrived.values())

    def gap_ms(self, since_ms: float) -> float:
        """The longest silence that began or ended behind `since_ms`."""
        pairs = zip(self.arrivals, self.arrivals[1:], strict=False)
        return max((later - one for one, later in pairs if later > since_ms), default=0.0)

    async def released_count(self) -> int:
        """Entries of the topic's queues: release events, as the log has them."""
        return (await self._admin.get_topic(TOPIC)).released_count
