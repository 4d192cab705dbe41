"""Plays the demo's trace on a node: one producer that schedules and takes back, a consumer group.

Everything runs in one event loop, and is timed by one clock, which follows the machine's as the
node's own does (node/broker/slewed_clock.py).
"""

import asyncio
from bisect import bisect_right
from typing import Final

import numpy as np

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message, ReceivedBatch
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.receipt import parse
from node.broker.slewed_clock import SlewedClock
from node.tools.demo.ledger import Arrival, Ledger
from node.tools.demo.trace import NEVER, Kind, Trace

TOPIC: Final = "order-timers"
GROUP: Final = "shop"
_QUEUES: Final = 2
_CONSUMERS: Final = 2
_LEAD_IN_MS: Final = 250
"""Between building the books and the first order."""
_TICK_MS: Final = 50
"""The producer works in rounds: what falls into the same one goes into one batch."""
_INVISIBLE_MS: Final = 60_000
_GIVE_UP_MS: Final = 20_000
"""A node that is out of reach for so long is lost."""
_QUIET_S: Final = 10.0
"""What has not come so long after everything else is missing."""
_STRAYS_S: Final = 0.5
"""When all has come, so long is waited for what should not come."""
_POLL_S: Final = 0.05
_RECEIVE_WAIT_MS: Final = 200


class FineClock:
    """The time in milliseconds since the Unix epoch, with a fraction."""

    def __init__(self) -> None:
        """Begin with the machine's time."""
        self._machine = SystemClock()
        self._slewed = SlewedClock(self._machine)

    def now_ms(self) -> float:
        """See the class."""
        self._slewed.now_ms()
        return self._machine.monotonic_ms() + self._slewed.offset_ms


class Player:
    """Plays one trace, once."""

    def __init__(self, trace: Trace, address: str) -> None:
        """Prepare.

        Args:
            trace: what to play.
            address: host:port of the node; of several, with commas.
        """
        self._trace = trace
        self._address = address
        self._clock = FineClock()
        self.ledger = Ledger(trace, start_ms=0)
        self._is_over = asyncio.Event()
        self._ids: dict[int, asyncio.Future[MessageId]] = {}

    @property
    def now_ms(self) -> float:
        """The time by which arrivals are noted, in milliseconds since the Unix epoch."""
        return self._clock.now_ms()

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the trace began; below 0 before that."""
        return self._clock.now_ms() - self.ledger.start_ms if self.ledger.start_ms else -_LEAD_IN_MS

    async def play(self) -> None:
        """Play it, and wait until all has come or clearly will not.

        Raises:
            HourwheelError: the node refused something or was lost.
        """
        async with AsyncAdmin(self._address) as admin:
            await admin.create_topic(TOPIC, queue_count=_QUEUES)
        self.ledger.start_ms = round(self._clock.now_ms()) + _LEAD_IN_MS
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_CONSUMERS):
                    group.create_task(self._receive())
                await self._send()
                await self._wait_for_the_last()
                self._is_over.set()
        except ExceptionGroup as group_error:
            raise _first_known(group_error) from None

    # --- the producer ---------------------------------------------------------------------------

    async def _send(self) -> None:
        """Schedule and take back, each at its moment."""
        at_ms, indexes = _steps(self._trace)
        async with (
            AsyncProducer(self._address, delivery_timeout_ms=_GIVE_UP_MS) as producer,
            asyncio.TaskGroup() as group,
        ):
            done = 0
            while done < len(at_ms):
                elapsed_ms = self.elapsed_ms
                end = bisect_right(at_ms, elapsed_ms + _TICK_MS, done)
                if end > done:
                    group.create_task(self._perform(producer, indexes[done:end]))
                    done = end
                await asyncio.sleep(_TICK_MS / 1_000)

    def _message(self, index: int) -> Message:
        trace = self._trace
        return Message(
            self.ledger.bodies[index],
            due_ms=self.ledger.due_ms(index),
            tags=[Kind(int(trace.kind[index])).label],
            keys=[trace.orders.ids[int(trace.order[index])]],
            content_type="application/json",
        )

    async def _perform(self, producer: AsyncProducer, steps: list[int]) -> None:
        """Set timers and take others back, all in one go; see `_steps`."""
        to_set = [step for step in steps if step >= 0]
        futures = {index: asyncio.get_running_loop().create_future() for index in to_set}
        self._ids.update(futures)
        if to_set:
            ids = await producer.publish_many(TOPIC, [self._message(index) for index in to_set])
            for index, message_id in zip(to_set, ids, strict=True):
                futures[index].set_result(message_id)
                self.ledger.note_published(index, str(message_id))
        to_cancel = [~step for step in steps if step < 0]
        if to_cancel:
            cancelled = [await self._ids[index] for index in to_cancel]
            self.ledger.note_cancelled(to_cancel, await producer.cancel_many(cancelled))

    # --- the consumers --------------------------------------------------------------------------

    async def _receive(self) -> None:
        """One member of the group."""
        async with AsyncConsumer(
            self._address,
            group=GROUP,
            topic=TOPIC,
            invisible_ms=_INVISIBLE_MS,
            polls=1,
            unavailable_ms_max=_GIVE_UP_MS,
        ) as consumer:
            while not self._is_over.is_set():
                batch = await consumer.receive_batch(_RECEIVE_WAIT_MS)
                if batch is not None:
                    self.ledger.note_arrived(_arrivals(batch, self._clock.now_ms()))
                    consumer.ack_soon(batch)
            await consumer.flush_acks()

    async def _wait_for_the_last(self) -> None:
        loop = asyncio.get_running_loop()
        last_end_s = loop.time() + max(0.0, self._trace.end_ms - self.elapsed_ms) / 1_000
        seen, quiet_since_s = -1, last_end_s
        while not self.ledger.is_complete and loop.time() < quiet_since_s + _QUIET_S:
            if seen != self.ledger.delivered:
                seen, quiet_since_s = self.ledger.delivered, max(loop.time(), last_end_s)
            await asyncio.sleep(_POLL_S)
        await asyncio.sleep(_STRAYS_S)


def _steps(trace: Trace) -> tuple[list[int], list[int]]:
    """(when, what) by time: what is the index of a timer to set, or ~index of one to take back."""
    taken_back = np.flatnonzero(trace.cancel_ms != NEVER)
    at_ms = np.concatenate((trace.publish_ms, trace.cancel_ms[taken_back]))
    steps = np.concatenate((np.arange(len(trace)), ~taken_back))
    order = np.lexsort((steps < 0, at_ms))
    return at_ms[order].tolist(), steps[order].tolist()


def _arrivals(batch: ReceivedBatch, arrived_ms: float) -> list[Arrival]:
    lease = parse(batch.receipt)
    first = lease.first_position + lease.index
    columns = (batch.message_ids, batch.bodies(), batch.dues_ms, batch.delivery.store_ms.tolist())
    return [
        Arrival(
            message_id=str(message_id),
            body=body,
            due_ms=due_ms,
            store_ms=store_ms,
            arrived_ms=arrived_ms,
            place=(lease.topic_queue, first + ordinal),
            epoch=lease.epoch,
        )
        for ordinal, (message_id, body, due_ms, store_ms) in enumerate(zip(*columns, strict=True))
    ]


def _first_known(group: ExceptionGroup[Exception]) -> Exception:
    """The first error of ours in a group; else the group."""
    for error in group.exceptions:
        found = _first_known(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(found, errors.HourwheelError):
            return found
    return group
