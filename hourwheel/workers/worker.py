"""Receives messages, has their handlers run, and tells the broker what became of them.

As many messages are leased as can be worked on at once and no more: what waits for its turn waits
at the node, where it costs nobody an attempt. While a handler runs its lease is made longer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import ReceivedBatch, ReceivedMessage
from hourwheel.clock import Clock
from hourwheel.transport.channel import Channel
from hourwheel.workers.handler import Handler, MessageContext
from hourwheel.workers.leases import Leases
from hourwheel.workers.outcome import give_back, tell
from hourwheel.workers.results import GIVEN_BACK, Result, ResultKind, failed

POLL_WAIT_MS: Final = 20_000.0
FIRST_WAIT_MS: Final = 100.0
"""Of the first poll, and after a failure: its answer says that messages can be received."""
ABSENT_TOPIC_WAIT_S: Final = 1.0
"""How often to look whether a topic is there by now."""
UNAVAILABLE_WAIT_S: Final = 1.0
_log = logging.getLogger("hourwheel.worker")


class Runner(Protocol):
    """Runs handlers somewhere."""

    async def run(self, handler: Handler, context: MessageContext) -> Result:
        """What became of a message. Raises nothing but `CancelledError`."""
        ...


class Worker:
    """Serves all handlers of a program in one event loop."""

    def __init__(
        self,
        channel: Channel,
        handlers: Sequence[Handler],
        runner: Runner,
        clock: Clock,
        *,
        process_count: int = 1,
    ) -> None:
        """`process_count`: each handler's concurrency is multiplied by it."""
        self._services = [
            _Service(channel, handler, runner, clock, handler.concurrency * process_count)
            for handler in handlers
        ]
        self._stopping = asyncio.Event()

    @property
    def services(self) -> "Sequence[_Service]":
        """One for each handler, for health and metrics."""
        return self._services

    def stop(self) -> None:
        """Receive no more. `run` returns when all that is in work is done with."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`.

        Raises:
            HourwheelError: a failure that trying again does not mend: no permission, another filter
                in the group, and the like.
        """
        services = [asyncio.create_task(one.serve(self._stopping)) for one in self._services]
        try:
            done, _ = await asyncio.wait(services, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            self._stopping.set()
            for one in services:
                one.cancel()
            await asyncio.gather(*services, return_exceptions=True)


class _Service:
    """Of one handler: its consumer, its leases, and what it has in work."""

    def __init__(
        self, channel: Channel, handler: Handler, runner: Runner, clock: Clock, slot_count: int
    ) -> None:
        self.handler = handler
        self._runner, self._clock, self._slot_count = runner, clock, slot_count
        self._consumer = AsyncConsumer(
            channel,
            group=handler.group,
            topic=handler.topic,
            filter=handler.filter,
            invisible_ms=handler.invisible_ms,
            prefetch_messages=0,
        )
        self._leases = Leases()
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        """A slot is free."""
        self._leased = asyncio.Event()
        """There are leases again."""
        self.counts: Counter[ResultKind] = Counter()
        self.is_receiving = False
        """The last poll was answered."""
        self._is_topic_missing = False

    @property
    def running_count(self) -> int:
        """Messages in work."""
        return len(self._tasks)

    async def serve(self, stopping: asyncio.Event) -> None:
        """Receive until `stopping` is set, wait for what is in work. Raises as `Worker.run`."""
        keeper = asyncio.create_task(self._keep_leases())
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                await self._serve_once(stop)
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for one in (keeper, stop, *self._tasks):
                one.cancel()
            await asyncio.gather(keeper, stop, *self._tasks, return_exceptions=True)
            await self._close()

    async def _serve_once(self, stop: "asyncio.Task[bool]") -> None:
        """One poll, or the wait for a free slot. Returns early when it is to stop."""
        free = self._slot_count - len(self._tasks)
        waited = self._wait_for_slot() if free <= 0 else self._receive(free)
        step = asyncio.create_task(waited)
        await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not step.done():
            step.cancel()
            await asyncio.wait({step})
        if step.cancelled():
            return
        for message in step.result():
            self._start(message)

    async def _wait_for_slot(self) -> list[ReceivedMessage]:
        while len(self._tasks) >= self._slot_count:
            self._freed.clear()
            await self._freed.wait()
        return []

    async def _receive(self, free: int) -> list[ReceivedMessage]:
        try:
            wait_ms = POLL_WAIT_MS if self.is_receiving else FIRST_WAIT_MS
            received = await self._consumer.receive(free, wait_ms)
        except errors.UnknownTopic:
            if not self._is_topic_missing:
                _log.info("topic %s is not there yet", self.handler.topic)
            self.is_receiving, self._is_topic_missing = False, True
            await asyncio.sleep(ABSENT_TOPIC_WAIT_S)
            return []
        except errors.HourwheelError as error:
            self.is_receiving = False
            if not error.retriable:
                raise
            _log.warning("cannot receive from %s: %s", self.handler.topic, error)
            await asyncio.sleep(UNAVAILABLE_WAIT_S)
            return []
        self.is_receiving, self._is_topic_missing = True, False
        return received

    def _start(self, message: ReceivedMessage) -> None:
        if not self._leases:
            self._leased.set()
        self._leases.add(message.batch, self._clock.monotonic_ms())
        task = asyncio.create_task(self._work(message))
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a result could not be told to the broker: %r", error)

    async def _work(self, message: ReceivedMessage) -> None:
        try:
            try:
                context = MessageContext.of(message, self.handler.group)
            except errors.HourwheelError as error:
                result = failed(f"the message cannot be read: {error}")
            else:
                result = await self._runner.run(self.handler, context)
            self.counts[result.kind] += 1
            await tell(self._consumer, message, result, self.handler.name)
        except asyncio.CancelledError:
            await give_back(self._consumer, message, GIVEN_BACK)
            raise
        finally:
            self._leases.remove(message.batch)

    async def _keep_leases(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            due = self._leases.find_due(now_ms)
            if due:
                await asyncio.gather(*(self._extend(batch, ms) for batch, ms in due))
                continue
            self._leased.clear()
            wait_ms = self._leases.next_wakeup_ms() - now_ms
            try:
                async with asyncio.timeout(min(wait_ms, POLL_WAIT_MS) / 1_000):
                    await self._leased.wait()
            except TimeoutError:
                continue

    async def _extend(self, batch: ReceivedBatch, ms: int) -> None:
        try:
            await self._consumer.change_invisible(batch, ms)
        except errors.HourwheelError as error:
            is_lost = isinstance(error, errors.StaleReceipt)
            self._leases.on_failed(batch, self._clock.monotonic_ms(), is_lost=is_lost)
            _log.warning(
                "%s: a lease could not be made longer, and its messages may come twice: %s",
                self.handler.name,
                error,
            )
        else:
            self._leases.on_extended(batch, self._clock.monotonic_ms())

    async def _close(self) -> None:
        try:
            await self._consumer.close()
        except errors.HourwheelError as error:
            _log.warning("some messages of %s come again: %s", self.handler.topic, error)
