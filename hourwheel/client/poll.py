"""One poll for messages: what is asked, and what becomes of the answer.

Where the client checks the filter, an answer's messages that do not match are acknowledged here,
and no caller sees them.
"""

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.client.ack_batcher import AckBatcher
from hourwheel.client.groups.membership import Membership
from hourwheel.client.message import ReceivedBatch, runs_of
from hourwheel.client.prefetch_buffer import Selection
from hourwheel.filter_language.check import FilterCheck
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire, filter_to_wire
from hourwheel.formats.delivery_batch import DeliveryBatch
from hourwheel.limits import RECEIVE_WAIT_MS_MAX
from hourwheel.transport.channel import CALL_TIMEOUT_MS, Channel
from hourwheel.transport.methods import RECEIVE
from hourwheel.transport.retry import Pace
from hourwheel.v1 import consumer_pb2

LEASE_MARGIN_RATIO: Final = 0.1
"""Part of a lease that is not used: it began before its answer came, and acks take time."""
SIFT_MS: Final = 1_000.0
"""So long a poll goes on beyond its wait while nothing of what comes matches: behind it there may
be what is wanted, also for a caller who does not wait."""

SETTLE_MS: Final = 500.0
"""So long a consumer that is closed waits for a node to end the polls that it has given up."""
_UNSEEN_MAX: Final = 64
"""Older ones come again by themselves soon."""


@dataclass(slots=True)
class _Poller:
    """One poll after the other; the next number says that the answer before has arrived."""

    poller_id: int
    number: int = 1
    is_given_up: bool = False
    """The caller has gone, and the node may not know it yet."""


class Poll:
    """Polls of one consumer. Belongs to one event loop."""

    def __init__(
        self,
        channel: Channel,
        acker: AckBatcher,
        *,
        group: str,
        topic: str,
        wanted: FilterExpression | None,
        invisible_ms: int,
        bytes_max: int,
        membership: Membership | None = None,
    ) -> None:
        """Prepare.

        Args:
            channel: to the nodes.
            acker: of the same group; is given what does not match.
            group: consumer group.
            topic: topic to receive from.
            wanted: the filter; None: as the group's subscription says.
            invisible_ms: how long messages are leased; 0: as the group is set up.
            bytes_max: about how many bytes an answer may bring; 0: as the node likes.
            membership: of a broadcast, whose group this is.

        Raises:
            InvalidFilter: `wanted` cannot be understood; only where it is checked here.
            FailedPrecondition: it is to be checked here, and `hourwheel[filters]` is not installed.
        """
        self._channel = channel
        self._acker = acker
        self._group = group
        self._topic = topic
        self._filter = None if wanted is None else filter_to_wire(wanted)
        self._invisible_ms = invisible_ms
        self._bytes_max = bytes_max
        self._membership = membership
        self._member_token = 0 if membership is None else membership.token
        self._own: FilterCheck | None = None
        """Of our own filter, if it is to be checked here."""
        if wanted is not None and wanted.check_at_client:
            self._own = FilterCheck(wanted)
        self._filter_check: FilterCheck | None = None
        """Of the filter that a node last left to us to check."""
        self._unseen: deque[str] = deque(maxlen=_UNSEEN_MAX)
        """Receipts of answers that no caller got, the last ones."""
        self._idle: list[_Poller] = []
        """Those that ask for nothing now; the last one first, and behind all the unanswered."""
        self.filtered_count = 0
        """Messages that came and did not match."""

    async def poll(
        self, count: int, wait_ms: float, pace: Pace, *, is_urgent: bool = True
    ) -> ReceivedBatch | None:
        """An answer with at least one message that matches, or None.

        Args:
            count: how many messages to ask for.
            wait_ms: how long to wait for the first one.
            pace: hears how it ended.
            is_urgent: False: it may wait some milliseconds, to go with others.
        """
        await self.join()
        now_ms = self._channel.clock.monotonic_ms
        until_ms = now_ms() + wait_ms
        batch = await self._ask(count, wait_ms, pace, is_urgent=is_urgent)
        while batch is not None and not len(batch) and now_ms() < until_ms + SIFT_MS:
            batch = await self._ask(count, max(0.0, until_ms - now_ms()), pace)
        return batch or None

    async def join(self) -> None:
        """Become a member of the broadcast, if it is one. Raises as `Membership.join`."""
        if self._membership is not None:
            await self._membership.join(self._topic)

    async def _ask(
        self, count: int, wait_ms: float, pace: Pace, *, is_urgent: bool = True
    ) -> ReceivedBatch | None:
        wait_ms = min(wait_ms, RECEIVE_WAIT_MS_MAX)
        poller = self._idle.pop() if self._idle else _Poller(secrets.randbits(64) or 1)
        request = self._request(poller, count, int(wait_ms))
        try:
            answer = await self._call(
                request, wait_ms + CALL_TIMEOUT_MS, pace, poller, is_urgent=is_urgent
            )
        except BaseException:
            self._idle.append(poller)  # the next poll asks for the same answer again
            raise
        self._idle.insert(0, poller)
        if not answer.delivery_batch:
            return None
        return self.read(answer)

    def _request(self, poller: _Poller, count: int, wait_ms: int) -> consumer_pb2.ReceiveRequest:
        request = self.stream_request(count)
        request.wait_ms = wait_ms
        request.poller_id, request.poll_number = poller.poller_id, poller.number
        return request

    def stream_request(self, count: int) -> consumer_pb2.ReceiveRequest:
        """What is asked for, of answers with at most `count` messages, however they come."""
        return consumer_pb2.ReceiveRequest(
            group=self._group,
            topic=self._topic,
            max_messages=count,
            max_bytes=self._bytes_max,
            invisible_ms=self._invisible_ms,
            format=consumer_pb2.RECEIVE_FORMAT_BATCH,
            filter=self._filter,
            member_token=self._member_token,
        )

    async def _call(
        self,
        request: consumer_pb2.ReceiveRequest,
        timeout_ms: float,
        pace: Pace,
        poller: _Poller,
        *,
        is_urgent: bool,
    ) -> consumer_pb2.ReceiveResponse:
        """The node's answer; one that comes just as the caller goes is kept, to be given back."""
        call = asyncio.ensure_future(
            self._channel.call(
                RECEIVE,
                request,
                timeout_ms=timeout_ms,
                is_retried=False,
                pace=pace,
                is_urgent=is_urgent,
            )
        )
        try:
            answer = await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # what has arrived gets through to here
            call.cancel()
            await asyncio.wait([call])
            if call.cancelled():
                poller.is_given_up = True
            elif call.exception() is None and call.result().receipt:
                self._unseen.append(call.result().receipt)
                poller.number += 1
            raise
        poller.number += 1
        poller.is_given_up = False
        return answer

    async def settle(self) -> None:
        """Let the node end the polls that were given up, before anything more is leased to them.

        The same number again replaces a poll that still waits, and gets what it was given.
        """
        given_up = [poller for poller in self._idle if poller.is_given_up]
        if given_up:
            await asyncio.gather(*map(self._settle, given_up))

    async def _settle(self, poller: _Poller) -> None:
        request = self._request(poller, 1, 0)
        try:
            answer = await self._channel.call(
                RECEIVE, request, timeout_ms=SETTLE_MS, is_retried=False
            )
        except errors.HourwheelError:
            return  # a kindness to other consumers: without it they wait until the lease ends
        poller.is_given_up = False
        if answer.receipt:
            self._unseen.append(answer.receipt)
            poller.number += 1

    def take_unseen(self) -> list[consumer_pb2.ReceiptRange]:
        """What was leased to us lately and no caller here will see: to be given back."""
        ranges = [consumer_pb2.ReceiptRange(receipt=receipt) for receipt in self._unseen]
        self._unseen.clear()
        return ranges

    def read(self, answer: consumer_pb2.ReceiveResponse) -> ReceivedBatch:
        """The messages of an answer that match. Raises where it cannot be read: it is unseen."""
        try:
            return self._read(answer)
        except errors.HourwheelError:
            self._unseen.append(answer.receipt)
            raise

    def _read(self, answer: consumer_pb2.ReceiveResponse) -> ReceivedBatch:
        lease_ms = (answer.invisible_until_ms - answer.receive_ms) * (1 - LEASE_MARGIN_RATIO)
        lease_ms = max(0.0, lease_ms - answer.queued_ms)
        check = self._find_check(answer)
        delivery = DeliveryBatch(answer.delivery_batch)
        batch = ReceivedBatch(
            delivery,
            topic=answer.topic or self._topic,
            receipt=answer.receipt,
            invisible_until_ms=answer.invisible_until_ms,
            lease_until_ms=self._channel.clock.monotonic_ms() + lease_ms,
            lease_ms=lease_ms,
            mask=None if check is None else check.find_mask(delivery),
        )
        if batch.mask is not None:
            self._drop(batch, (~batch.mask).nonzero()[0].tolist())
        return batch

    def _find_check(self, answer: consumer_pb2.ReceiveResponse) -> FilterCheck | None:
        """What the node leaves to us; what we said ourselves, we check in any case.

        A consumer that says nothing learns here what its group wants.
        """
        if not answer.HasField("to_check"):
            return self._own
        wanted = filter_from_wire(answer.to_check)
        if self._filter_check is None or self._filter_check.expression != wanted:
            self._filter_check = FilterCheck(wanted)
        return self._filter_check

    def _drop(self, batch: ReceivedBatch, ordinals: list[int]) -> None:
        self.filtered_count += len(ordinals)
        self._acker.add_ranges_soon(Selection(batch, *run) for run in runs_of(ordinals))
