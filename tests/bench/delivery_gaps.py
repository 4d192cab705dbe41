"""A steady stream of due messages beside a publishing load, and how long deliveries ever paused."""

import asyncio
import contextlib
import time
from typing import Any, Final, Self

import numpy as np

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats import receipt
from tests.bench import load

INTERVAL_MS: Final = 5
_AHEAD_MS: Final = 2_000
_PIECE: Final = 100
_LOAD_EVERY_S: Final = 0.1
_TOPIC: Final = "stream"
_GROUP: Final = "stream"
_LAST_S: Final = 15.0


class Stream:
    """Publishes a message for every 5 ms, two seconds ahead, and receives them; counts at the end.

    Attributes:
        missing: acknowledged and not received; known after the `async with`.
        redelivered: received more than once.
        early, early_ms: received before they were due, and by how much at most.
    """

    def __init__(self, servers: str) -> None:
        """Of a cluster's addresses."""
        self._servers = servers
        self._arrivals: list[tuple[float, float]] = []
        """(arrival, due), in ms since the Unix epoch."""
        self._epochs: list[int] = []
        """Of the masters that delivered them."""
        self._times: dict[bytes, int] = {}
        self._acked: set[bytes] = set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._ends = asyncio.Event()
        self.missing = self.redelivered = self.early = 0
        self.early_ms = 0.0

    async def __aenter__(self) -> Self:
        """Begin; returns when messages arrive."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._publish()),
            loop.create_task(self._load()),
            loop.create_task(self._receive()),
        ]
        async with asyncio.timeout(60):
            while len(self._arrivals) < _PIECE:  # noqa: ASYNC110 - it watches a list grow
                await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Publish no more, receive the rest, count."""
        self._ends.set()
        await asyncio.gather(*self._tasks[:2])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                while not self._acked <= self._times.keys():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        self._tasks[2].cancel()
        await asyncio.gather(self._tasks[2], return_exceptions=True)
        self.missing = len(self._acked - self._times.keys())
        self.redelivered = sum(count > 1 for count in self._times.values())
        early = [due - arrival for arrival, due in self._arrivals if arrival < due]
        self.early, self.early_ms = len(early), max(early, default=0.0)

    def longest_gap_ms(self, from_ms: float, to_ms: float) -> float:
        """Longest time without an arrival between two instants, less the interval."""
        found = np.array([at for at, _ in self._arrivals])
        low = max(0, int(np.searchsorted(found, from_ms)) - 1)
        high = int(np.searchsorted(found, to_ms))
        times = np.append(found[low:high], to_ms)
        return max(0.0, float(np.diff(times).max()) - INTERVAL_MS)

    async def first_of_next_ms(self, instant_ms: float) -> float:
        """How long after `instant_ms` came the first message that the next master delivered.

        What the former one had sent may still arrive, and a busy machine pauses by itself: so it is
        told by the epoch of the lease. Infinite where nothing comes for long.
        """
        low = int(np.searchsorted(np.array([at for at, _ in self._arrivals]), instant_ms))
        epoch = max(self._epochs[:low], default=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                while max(self._epochs[low:], default=0) <= epoch:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        later = (at for at, of in zip(self._arrivals, self._epochs, strict=True) if of > epoch)
        return next((at - instant_ms for at, _ in later), float("inf"))

    async def _publish(self) -> None:
        next_ms = int(time.time() * 1_000) + _AHEAD_MS
        number = 0
        async with AsyncProducer(self._servers) as producer:
            while not self._ends.is_set():
                piece = [
                    Message(b"%d" % (number + one), due_ms=next_ms + one * INTERVAL_MS)
                    for one in range(_PIECE)
                ]
                await producer.publish_many(_TOPIC, piece)
                self._acked |= {one.body for one in piece}
                number, next_ms = number + _PIECE, next_ms + _PIECE * INTERVAL_MS
                await asyncio.sleep(max(0.0, (next_ms - _AHEAD_MS) / 1_000 - time.time()))

    async def _load(self) -> None:
        bodies, seed = load.make_bodies(), 0
        async with AsyncProducer(self._servers) as producer:
            while not self._ends.is_set():
                begun = time.perf_counter()
                work = load.cut_columns(load.spread_delays(load.BATCH, seed=seed), bodies)
                await load.publish_columns(producer, work, 1)
                seed += 1
                await asyncio.sleep(max(0.0, _LOAD_EVERY_S - (time.perf_counter() - begun)))

    async def _receive(self) -> None:
        async with AsyncAdmin(self._servers) as admin:
            await admin.create_topic(_TOPIC)
        async with AsyncConsumer(self._servers, group=_GROUP, topic=_TOPIC) as consumer:
            while True:
                messages = await consumer.receive(1_000, wait_ms=1_000)
                now_ms = time.time() * 1_000
                for one in messages:
                    self._times[one.body] = self._times.get(one.body, 0) + 1
                    self._arrivals.append((now_ms, one.due_ms))
                    self._epochs.append(receipt.parse(one.batch.receipt).epoch)
                consumer.ack_soon(messages)
