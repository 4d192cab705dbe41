"""One subscription: receives for its group, posts each message, and acknowledges it or not.

A message is leased when there is a place for it, and its lease is longer than a POST may take. What
is done is acknowledged until its lease is over; what is not comes again as the group has it.
"""

import asyncio
import logging
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from hourwheel import errors, limits
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import ReceivedMessage
from hourwheel.clock import Clock
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.answers import Answer, Decision, decide
from hourwheel.webhooks.metrics import PushCounts, SubscriptionHealth
from hourwheel.webhooks.post import PostFailed
from hourwheel.webhooks.prepared import Prepared
from hourwheel.webhooks.results import PostResult, result_of
from hourwheel.webhooks.signature import sign

LEASE_MARGIN_MS: Final = 30_000
"""A lease is so much longer than a POST may take: for the acknowledgement, over a takeover too."""
WAIT_MS: Final = 20_000.0
FIRST_WAIT_MS: Final = 100.0
"""Of the first poll, and after a failure: its answer says that messages can be received."""
AGAIN_MS: Final = 1_000.0
"""After receiving failed, and doubled each time up to"""
AGAIN_MS_MAX: Final = 30_000.0
_CONTENT_TYPE: Final = re.compile(
    r"[!#$&^_.+\w-]{1,127}/[!#$&^_.+\w-]{1,127}(;[ -~]{0,254}[!-~])?", re.ASCII
)
"""No space at the end: HTTP has none there."""
_ANY_BYTES: Final = "application/octet-stream"
_SECOND_MS: Final = 1_000
_log = logging.getLogger("hourwheel.push")


@dataclass(slots=True, eq=False)
class _Lane:
    """One topic of a subscription, with its part of the places."""

    consumer: AsyncConsumer
    place_count: int
    running: set[asyncio.Task[None]] = field(default_factory=set)
    place: asyncio.Event = field(default_factory=asyncio.Event)
    is_receiving: bool = False


class Pusher:
    """See the top of this file. Belongs to one event loop."""

    def __init__(
        self, prepared: Prepared, channel: Channel, clock: Clock, counts: PushCounts
    ) -> None:
        """`counts`: of what comes of its POSTs."""
        self._subscription, self._secrets = prepared.subscription, prepared.secrets
        self._poster, self._channel, self._clock = prepared.poster, channel, clock
        self._counts = counts
        self._lanes: list[_Lane] = []

    def health(self) -> SubscriptionHealth:
        """For probes and metrics."""
        return SubscriptionHealth(
            self._subscription.name,
            bool(self._lanes) and all(lane.is_receiving for lane in self._lanes),
            sum(len(lane.running) for lane in self._lanes),
            self._poster.dial_count,
            self._counts,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set and what was begun has ended; cancelled, that comes again."""
        one = self._subscription
        settings: dict[str, Any] = {
            "group": one.group,
            "filter": one.wanted,
            "invisible_ms": min(one.timeout_ms + LEASE_MARGIN_MS, limits.INVISIBLE_MS_MAX),
            "prefetch_messages": 0,
        }
        places = one.concurrency // len(one.topics)
        self._lanes = [
            _Lane(AsyncConsumer(self._channel, topic=topic, **settings), places)
            for topic in one.topics
        ]
        try:
            await self._receive_until(stopping)
            for lane in self._lanes:
                await lane.consumer.settle()  # or what is given back may be leased again unseen
            if running := [task for lane in self._lanes for task in lane.running]:
                await asyncio.wait(running)
        finally:
            for lane in self._lanes:
                await self._close(lane)
            await self._poster.close()
            self._counts.dial_count += self._poster.dial_count

    async def _receive_until(self, stopping: asyncio.Event) -> None:
        receiving = [asyncio.create_task(self._receive(lane)) for lane in self._lanes]
        stop = asyncio.create_task(stopping.wait())
        try:
            done, _ = await asyncio.wait({*receiving, stop}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                task.result()  # a bug: they end by being cancelled
        finally:
            for task in (*receiving, stop):
                task.cancel()
            await asyncio.gather(*receiving, stop, return_exceptions=True)
            for lane in self._lanes:
                lane.is_receiving = False

    async def _close(self, lane: _Lane) -> None:
        """What is under way comes again; what is done is acknowledged."""
        await lane.consumer.settle()  # again, where that was interrupted
        running = list(lane.running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        try:
            await lane.consumer.close()
        except errors.HourwheelError as error:
            name = self._subscription.name
            _log.warning("%s: not all could be acknowledged: %s", name, error.message)

    async def _receive(self, lane: _Lane) -> None:
        again_ms = AGAIN_MS
        while True:
            free = lane.place_count - len(lane.running)
            if free <= 0:
                lane.place.clear()
                await lane.place.wait()
                continue
            try:
                wait_ms = WAIT_MS if lane.is_receiving else FIRST_WAIT_MS
                messages = await lane.consumer.receive(free, wait_ms)
            except errors.HourwheelError as error:
                lane.is_receiving = False
                _log.error("%s: cannot receive: %s", self._subscription.name, error.message)
                await asyncio.sleep(again_ms / _SECOND_MS)
                again_ms = min(AGAIN_MS_MAX, again_ms * 2)
                continue
            # Nothing may have come because no node was there to say so.
            lane.is_receiving = bool(messages) or self._channel.is_connected
            again_ms = AGAIN_MS
            for message in messages:
                task = asyncio.create_task(self._deliver(lane.consumer, message))
                lane.running.add(task)
                task.add_done_callback(partial(self._on_delivered, lane))

    def _on_delivered(self, lane: _Lane, task: "asyncio.Task[None]") -> None:
        lane.running.discard(task)
        lane.place.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a delivery failed", exc_info=error)

    async def _deliver(self, consumer: AsyncConsumer, message: ReceivedMessage) -> None:
        name, begun_ms = self._subscription.name, self._clock.monotonic_ms()
        delay_ms, size = None, 0
        try:
            body = message.body
            size = len(body)
            answer = await self._poster.post(self._headers(message), body)
        except PostFailed as failure:
            result, why = failure.result, str(failure)
        except errors.HourwheelError as error:  # its bytes are not what was published
            result, why = PostResult.DAMAGED, error.message
        except asyncio.CancelledError:
            await self._give_back(consumer, message, 0)
            raise
        else:
            decision = self._decide(answer)
            result, why = result_of(answer.status), f"status {answer.status}"
            delay_ms = decision.delay_ms
        self._counts.add(result, self._clock.monotonic_ms() - begun_ms, size)
        self._counts.retry_after_count += delay_ms is not None
        if result is PostResult.DONE:
            consumer.ack_soon(message)
            return
        _log.warning("%s: %s, attempt %d: %s", name, message.message_id, message.attempt, why)
        await self._give_back(consumer, message, delay_ms)

    def _decide(self, answer: Answer) -> Decision:
        return decide(answer, self._clock.wall_ms(), self._subscription.retry_after_ms_max)

    async def _give_back(
        self, consumer: AsyncConsumer, message: ReceivedMessage, delay_ms: int | None
    ) -> None:
        try:
            await consumer.nack(message, delay_ms)
        except errors.HourwheelError as error:
            text = "%s: %s could not be given back, and comes again after its lease: %s"
            _log.warning(text, self._subscription.name, message.message_id, error.message)

    def _headers(self, message: ReceivedMessage) -> dict[str, str]:
        message_id, body = str(message.message_id), message.body
        timestamp_s = int(self._clock.wall_ms()) // _SECOND_MS
        kind = message.content_type.rstrip("; ")
        return {
            "content-type": kind if _CONTENT_TYPE.fullmatch(kind) else _ANY_BYTES,
            "user-agent": "hourwheel",
            **self._subscription.headers,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": sign(self._secrets, message_id, timestamp_s, body),
            "hourwheel-topic": message.topic,
            "hourwheel-group": self._subscription.group,
            "hourwheel-attempt": str(message.attempt),
            "hourwheel-due-ms": str(message.due_ms),
        }
