"""Serves a handler with the messages of one topic: leases them, holds the leases, tells the broker.

As many messages are leased as can be worked on at once and no more: what waits for its turn waits
at the node, where it costs no attempt. While a handler runs its lease is made longer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from threading import Event
from typing import Final, NamedTuple, Protocol

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.groups.membership import Broadcast
from hourwheel.client.message import ReceivedMessage
from hourwheel.clock import Clock
from hourwheel.transport.channel import Channel
from hourwheel.workers.handler import Handler, MessageContext, about
from hourwheel.workers.lease_keeper import LeaseKeeper
from hourwheel.workers.metrics import Durations
from hourwheel.workers.outcome import give_back, tell
from hourwheel.workers.results import GIVEN_BACK, NOT_BEGUN, Result, ResultKind, failed

POLL_WAIT_MS: Final = 20_000.0
FIRST_WAIT_MS: Final = 100.0
"""Of the first poll, and after a failure: its answer says that messages can be received."""
ABSENT_TOPIC_WAIT_S: Final = 1.0
"""How often to look whether a topic is there by now."""
UNAVAILABLE_WAIT_S: Final = 1.0
_log = logging.getLogger("hourwheel.worker")


class Runner(Protocol):
    """Runs handlers somewhere."""

    async def run(
        self, handler: Handler, context: MessageContext, note_begun: Callable[[], None]
    ) -> Result:
        """What became of a message. Raises nothing but `CancelledError`.

        Args:
            handler: is called.
            context: of the message.
            note_begun: called before the program's own code may run for it; in any thread, and
                perhaps more than once.
        """
        ...


class Stopping(asyncio.Event):
    """Set when a worker is to receive no more: because it is asked to, or because a part failed."""

    def __init__(self) -> None:
        """Not yet."""
        super().__init__()
        self.error: BaseException | None = None
        """What failed first."""

    def fail(self, error: BaseException) -> None:
        """A part cannot go on. The others end what they have in work."""
        if self.error is None:
            self.error = error
            if not self.is_set():
                _log.error("stopping, for the worker cannot go on: %s", error)
        self.set()


class Parts(NamedTuple):
    """What all services of a worker have in common."""

    channel: Channel
    runner: Runner
    clock: Clock


class Slots:
    """How many messages of a handler may be worked on at once, of all topics that share them."""

    def __init__(self, count: int) -> None:
        """All are free."""
        self._count, self._leased_count = count, 0
        self._is_free = asyncio.Event()
        self.gate = asyncio.Semaphore(count)
        """Held while a message is worked on."""
        self.sharer_count = 0
        """Topics."""

    @property
    def share(self) -> int:
        """How many messages one topic may lease now; 0: none.

        Several topics may lease the last ones at the same time: those wait, leased, at the gate.
        """
        free = self._count - self._leased_count
        return max(1, free // max(1, self.sharer_count)) if free > 0 else 0

    def add(self) -> None:
        """A message is leased."""
        self._leased_count += 1

    def remove(self) -> None:
        """It is done with."""
        self._leased_count -= 1
        self._is_free.set()

    async def wait_for_free(self) -> None:
        """Return when another one may be leased."""
        while not self.share:
            self._is_free.clear()
            await self._is_free.wait()


class Service:
    """Of one handler and topic: its consumer, its leases, and what it has in work."""

    def __init__(
        self,
        parts: Parts,
        handler: Handler,
        topic: str,
        slots: Slots,
        broadcast: Broadcast | None = None,
    ) -> None:
        """Nothing is received yet.

        Args:
            parts: of the worker.
            handler: is called.
            topic: where messages come from.
            slots: may be shared with other topics of the handler.
            broadcast: as what it is a member of its group; None: it is none.
        """
        self.handler, self.topic = handler, topic
        self._runner, self._clock, self._slots = parts.runner, parts.clock, slots
        slots.sharer_count += 1
        self._channel = parts.channel
        try:
            self._consumer = AsyncConsumer(
                parts.channel,
                group=handler.group,
                topic=topic,
                filter=handler.filter,
                invisible_ms=handler.invisible_ms,
                prefetch_messages=0,
                broadcast=broadcast or False,
            )
        except errors.HourwheelError as error:
            raise about(handler.name, error) from None
        self._leases = LeaseKeeper(self._consumer, parts.clock, handler.name)
        self._step: asyncio.Task[list[ReceivedMessage]] | None = None
        """The last poll, or wait for a free slot."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[ResultKind] = Counter()
        self.durations = Durations()
        self.is_receiving = False
        """The last poll was answered."""
        self._is_topic_missing = False

    @property
    def running_count(self) -> int:
        """Messages in work."""
        return len(self._tasks)

    @property
    def lost_lease_count(self) -> int:
        """Leases that ended while a message was in work."""
        return self._leases.lost_count

    async def serve(self, stopping: Stopping) -> None:
        """Receive until `stopping` is set, wait for what is in work.

        A failure that trying again does not mend is one of `stopping`.
        """
        stop = asyncio.create_task(stopping.wait())
        is_settled = False
        try:
            try:
                while not stopping.is_set():
                    await self._serve_once(stop)
            except errors.HourwheelError as error:
                stopping.fail(error)
            await self._consumer.settle()
            is_settled = True
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            if not is_settled:  # a poll that still waits would lease what is given back now
                await self._end_step()
                await self._give_back_unseen()
                await self._consumer.settle()
            for one in (stop, *self._tasks):
                one.cancel()
            await asyncio.gather(stop, *self._tasks, return_exceptions=True)
            await self._leases.close()
            self._slots.sharer_count -= 1
            await self._close()

    async def _serve_once(self, stop: "asyncio.Task[bool]") -> None:
        """One poll, or the wait for a free slot. Returns early when it is to stop."""
        share = self._slots.share
        waited = self._receive(share) if share else self._wait_for_slot()
        step = self._step = asyncio.create_task(waited)
        await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
        await self._end_step()
        self._step = None
        if step.cancelled():
            return
        for message in step.result():
            self._start(message)

    async def _give_back_unseen(self) -> None:
        """What the last poll has brought in the turn in which this was cancelled."""
        step = self._step
        if step is None or step.cancelled() or step.exception() is not None:
            return
        for message in step.result():
            await give_back(self._consumer, message, NOT_BEGUN)

    async def _end_step(self) -> None:
        if self._step is not None and not self._step.done():
            self._step.cancel()
            await asyncio.wait({self._step})

    async def _wait_for_slot(self) -> list[ReceivedMessage]:
        await self._slots.wait_for_free()
        return []

    async def _receive(self, free: int) -> list[ReceivedMessage]:
        try:
            wait_ms = POLL_WAIT_MS if self.is_receiving else FIRST_WAIT_MS
            received = await self._consumer.receive(free, wait_ms)
        except errors.UnknownTopic:
            if not self._is_topic_missing:
                _log.info("topic %s is not there yet", self.topic)
            self.is_receiving, self._is_topic_missing = False, True
            await asyncio.sleep(ABSENT_TOPIC_WAIT_S)
            return []
        except errors.HourwheelError as error:
            self.is_receiving = False
            if not error.retriable:
                raise about(self.handler.name, error) from error
            _log.warning("cannot receive from %s: %s", self.topic, error)
            await asyncio.sleep(UNAVAILABLE_WAIT_S)
            return []
        # Nothing may have come because no task was there to say so.
        self.is_receiving = bool(received) or self._channel.is_connected
        self._is_topic_missing = False
        return received

    def _start(self, message: ReceivedMessage) -> None:
        self._leases.add(message.batch)
        self._slots.add()
        task = asyncio.create_task(self._work(message))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._slots.remove()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a result could not be sent to the broker: %r", error)

    async def _work(self, message: ReceivedMessage) -> None:
        has_begun = Event()
        try:
            async with self._slots.gate:
                begun_ms = self._clock.monotonic_ms()
                result = await self._run(message, has_begun.set)
            self.durations.add(self._clock.monotonic_ms() - begun_ms)
            self.counts[result.kind] += 1
            await tell(self._consumer, message, result, self.handler.name)
        except asyncio.CancelledError:
            given_back = GIVEN_BACK if has_begun.is_set() else NOT_BEGUN
            await give_back(self._consumer, message, given_back)
            raise
        finally:
            self._leases.remove(message.batch)

    async def _run(self, message: ReceivedMessage, note_begun: Callable[[], None]) -> Result:
        try:
            context = MessageContext.of(message, self.handler.group)
        except errors.HourwheelError as error:
            return failed(f"the message cannot be read: {error}")
        return await self._runner.run(self.handler, context, note_begun)

    async def _close(self) -> None:
        try:
            await self._consumer.close()
        except errors.HourwheelError as error:
            _log.warning("some messages of %s come again: %s", self.topic, error)
