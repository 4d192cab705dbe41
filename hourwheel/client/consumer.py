"""The asyncio consumer: leases messages ahead of their use, hands them out, acknowledges them.

A shell: `prefetch_buffer` decides what is held and asked for.
"""

import asyncio
import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Self

from hourwheel import errors, limits
from hourwheel.client.ack_batcher import AckBatcher, checked, finish, raise_if_bad, to_ranges
from hourwheel.client.groups.membership import Broadcast, find_membership
from hourwheel.client.groups.message_stream import MessageStream
from hourwheel.client.groups.topic_polls import TOPIC_POLLS, TopicChoice, TopicPolls
from hourwheel.client.message import ReceivedBatch, ReceivedMessage
from hourwheel.client.poll import LEASE_MARGIN_RATIO, Poll
from hourwheel.client.prefetch_buffer import Finishable, PrefetchBuffer, Selection, select
from hourwheel.filter_language.inputs import as_filter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.instants import check_count, count_of_ms, wait_of_ms
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.transport.failover import Patience, follow
from hourwheel.transport.methods import CHANGE_INVISIBLE, NACK
from hourwheel.transport.retry import Pace
from hourwheel.v1 import consumer_pb2

PREFETCH_MESSAGES: Final = 1_000
POLLS: Final = 2
POLL_WAIT_MS: Final = 20_000
WAIT_MS: Final = 20_000.0
FEW_MESSAGES: Final = 64
"""After an answer of so many the next poll may wait some milliseconds for those of others."""
ACK_LINGER_MS: Final = 50.0
UNAVAILABLE_MS_MAX: Final = 60_000.0
CLOSE_TIMEOUT_MS: Final = 2_000.0


class AsyncConsumer:
    """Receives the messages of one topic, or of several, for one consumer group.

        async with AsyncConsumer("127.0.0.1:7400", group="billing", topic="orders") as consumer:
            async for message in consumer:
                handle(message.body)
                consumer.ack_soon(message)

    Each message is leased to this consumer for its invisible time; one that is not acknowledged by
    then is delivered to the group again (`attempt` counts). Delivery is at least once. Messages are
    fetched ahead in the background: hold no more ahead (`prefetch_messages`) than you handle within
    the invisible time. Belongs to one event loop.
    """

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        group: str,
        topic: str = "",
        topics: Sequence[str] = (),
        pattern: str = "",
        filter: str | FilterExpression | None = None,  # noqa: A002 - what users call it
        invisible_ms: int = 0,
        prefetch_messages: int = PREFETCH_MESSAGES,
        broadcast: bool | Broadcast = False,
        polls: int = POLLS,
        poll_bytes: int = 0,
        ack_linger_ms: float = ACK_LINGER_MS,
        unavailable_ms_max: float = UNAVAILABLE_MS_MAX,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """Prepare a consumer; it connects when it is first used.

        Args:
            server: see `Channel`; or a channel to be shared (and closed) by the caller.
            group: consumer group.
            topic: topic to receive from; or
            topics: several, at most 10,000, each of which gets its turn; or
            pattern: all topics whose names fit, * for any text, ? for a character; looked up every
                30 s. Beyond 64 topics polls go round, and an idle topic waits for its turn.
            filter: which messages the group wants: tags (`"paid && !test"`), or `Sql("...")`. All
                consumers of the group say the same, or nothing (None): as its subscription says, or
                everything. On a topic of dead letters it selects for this consumer only.
            invisible_ms: how long messages are leased; 0: as the group is set up.
            prefetch_messages: how many messages to hold ahead; 0: none, each `receive` is one poll.
            broadcast: this consumer gets every message, beside all others of `group` that do. True,
                or a `Broadcast`, which says by which name, from where on, and for how long it is
                remembered. Not of a pattern. It begins with `open`.
            polls: how many polls to have under way, each for its part of `prefetch_messages`.
            poll_bytes: about how many bytes one poll may bring; 0: as the node likes (1 MiB).
            ack_linger_ms: how long `ack_soon` may wait for others.
            unavailable_ms_max: how long nodes may be out of reach before `receive` says so.
            tls: see `Channel`.
            token: see `Channel`.
            user: see `Channel`.

        Raises:
            InvalidArgument: a number is out of range or no whole one.
            InvalidFilter: one to be checked here; the first `receive` refuses others.
            FailedPrecondition: it is to be checked here, and `hourwheel[filters]` is not installed.
        """
        check_count(prefetch_messages, "prefetch_messages")
        check_count(polls, "polls", at_least=1)
        check_count(invisible_ms, "invisible_ms")
        check_count(poll_bytes, "poll_bytes")
        ack_linger_ms = wait_of_ms(ack_linger_ms, "ack_linger_ms")
        unavailable_ms_max = wait_of_ms(unavailable_ms_max, "unavailable_ms_max")
        self._owns_channel = not isinstance(server, Channel)
        self._channel = (
            server
            if isinstance(server, Channel)
            else Channel(server, tls=tls, token=token, user=user)
        )
        self._clock = self._channel.clock
        wanted = as_filter(filter)
        self._membership = find_membership(self._channel, broadcast, group, wanted)
        group = self._group = group if self._membership is None else self._membership.group
        self.is_ahead = prefetch_messages > 0
        """Whether messages are fetched before they are asked for."""
        choice = TopicChoice.of(topic, topics, pattern)
        if choice is not None:
            polls = self._polls_of(choice, polls)
        self._topics = (topic,) if choice is None else choice.names
        self._polls = polls
        self._patience = Patience(unavailable_ms_max)
        poll_messages = min(limits.RECEIVE_MESSAGE_COUNT_MAX, -(-prefetch_messages // polls))
        self.buffer = PrefetchBuffer(prefetch_messages, max(1, poll_messages))
        """What is fetched ahead. Who takes from it beside `receive` says so by `on_taken`."""
        self._acker = AckBatcher(self._channel, group, linger_ms=ack_linger_ms)
        poll_of = partial(
            Poll,
            self._channel,
            self._acker,
            group=group,
            wanted=wanted,
            invisible_ms=invisible_ms,
            bytes_max=poll_bytes,
            membership=self._membership,
        )
        self._poll_of: Poll | TopicPolls
        if choice is None:
            self._poll_of = poll_of(topic=topic)
        else:
            self._poll_of = TopicPolls(
                self._channel, choice, lambda name: poll_of(topic=name), polls
            )
        self._pollers: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._stream = self._stream_of(has_own_filter=filter is not None and topic.startswith("%"))
        """None: of several topics, and with a filter of our own, polls are made."""
        self._unstreamed = asyncio.Event()
        """Set while no poller sees to the stream."""
        self._unstreamed.set()
        self.on_arrival: Callable[[], object] = bool
        """Called in the loop when messages have arrived, or there is something to raise."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lacks_room = False
        """A poller waits until somebody takes messages."""
        self._failure: errors.HourwheelError | None = None
        self._is_closed = False
        self._is_settled = False
        """Nothing to raise, all polls under way: what `_prepare` would find out anew each time."""

    def _polls_of(self, choice: TopicChoice, polls: int) -> int:
        if not self.is_ahead:
            raise errors.InvalidArgument("of several topics messages are fetched ahead")
        if choice.pattern and self._membership is not None:
            raise errors.InvalidArgument("a broadcast is of topics, and not of a pattern")
        return max(polls, min(TOPIC_POLLS, len(choice.names) or TOPIC_POLLS))

    def _stream_of(self, *, has_own_filter: bool) -> MessageStream | None:
        if not self.is_ahead or has_own_filter or not isinstance(self._poll_of, Poll):
            return None
        parts = self._channel, self._poll_of, self.buffer
        return MessageStream(*parts, self._taken, self._on_stream)

    @property
    def is_settled(self) -> bool:
        """Whether `receive` has nothing to do but to take what is in the buffer, or to wait."""
        return self._is_settled and self._acker.deferred is None

    @property
    def is_member(self) -> bool:
        """Whether it is a member of a broadcast."""
        return self._membership is not None

    def on_taken(self) -> None:
        """Messages were taken from the buffer; in any thread."""
        if self._lacks_room and self._loop is not None and self.buffer.has_room:
            self._lacks_room = False
            self._loop.call_soon_threadsafe(self._taken.set)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        """Become a member of the broadcast, from now on; else it does nothing.

        `async with` calls it, and so does the first `receive`. Topics that are not there yet are
        received from their first message on.

        Raises:
            FailedPrecondition: there is an ordinary group of this name, whose consumers share
                messages.
            LimitReached: there are too many members.
            HourwheelError: see `hourwheel.errors`; to call again is safe.
        """
        if self._membership is None:
            return
        for topic in self._topics:
            with contextlib.suppress(errors.UnknownTopic):
                await self._membership.join(topic)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def expired_count(self) -> int:
        """Messages fetched ahead whose lease ended before anyone took them: they come again."""
        return self.buffer.expired_count

    @property
    def stale_count(self) -> int:
        """Messages of `ack_soon` whose lease ended before it was acknowledged: they come again."""
        return self._acker.stale_count

    @property
    def undecided_count(self) -> int:
        """Messages of `ack_soon` that are acknowledged or come again: an answer was lost."""
        return self._acker.undecided_count

    @property
    def filtered_count(self) -> int:
        """Messages that this client checked, and acknowledged since they do not match."""
        return self._poll_of.filtered_count

    # --- receiving ------------------------------------------------------------------------------

    async def receive(
        self, max_messages: int = 32, wait_ms: float | timedelta = WAIT_MS
    ) -> list[ReceivedMessage]:
        """Up to `max_messages` messages, all from one answer; none if none came within `wait_ms`.

        Args:
            max_messages: how many at most; 1 or more.
            wait_ms: how long to wait; milliseconds, or a timedelta.

        Raises:
            InvalidArgument: one of them is negative, or no such number.
            InvalidFilter: the node cannot understand the filter; `params["position"]` says where.
            SubscriptionMismatch: the group wants something else of this topic.
            MemberReplaced: another process is this member of the broadcast now.
            UnknownGroup: the member of a broadcast was away for too long, and is forgotten:
                messages may have been missed. Another consumer begins anew.
            HourwheelError: a failure that trying again does not mend, or one that lasted for
                `unavailable_ms_max`.
        """
        check_count(max_messages, "max_messages", at_least=1)
        wait_ms = wait_of_ms(wait_ms, "wait_ms")
        if not self.is_ahead:
            self._acker.raise_deferred()
            poll = partial(self._poll, max_messages)
            batch = await follow(self._channel, wait_ms, self._patience, poll)
            return [] if batch is None else batch.messages()
        until_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            now_ms = self._prepare()
            taken = self.buffer.take(max_messages, now_ms)
            if self.buffer.has_room:
                self._taken.set()
            if taken:
                return taken
            if not await self._wait_for_arrival(until_ms - now_ms):
                return []

    async def receive_batch(self, wait_ms: float | timedelta = WAIT_MS) -> ReceivedBatch | None:
        """The next whole answer, for those who work in bulk; None if none came within `wait_ms`.

        An answer of which `receive` handed out a part is left to it. Raises as `receive`.
        """
        wait_ms = wait_of_ms(wait_ms, "wait_ms")
        if not self.is_ahead:
            self._acker.raise_deferred()
            return await follow(self._channel, wait_ms, self._patience, partial(self._poll, 0))
        until_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            now_ms = self._prepare()
            batch = self.buffer.find_batch(now_ms)
            if self.buffer.has_room:
                self._taken.set()
            if batch is not None:
                return batch
            if not await self._wait_for_arrival(until_ms - now_ms):
                return None

    def __aiter__(self) -> Self:
        """Messages, without end. Raises as `receive`."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message, whenever it comes."""
        while True:
            if self.is_ahead:
                now_ms = self._prepare()
                message = self.buffer.find_one(now_ms)
                if self.buffer.has_room:
                    self._taken.set()
                if message is not None:
                    return message
                await self._wait_for_arrival(WAIT_MS)
            else:
                received = await self.receive(1)
                if received:
                    return received[0]

    # --- finishing ------------------------------------------------------------------------------

    async def ack(self, messages: Finishable) -> None:
        """Done with these: they are not delivered to the group again. Waits until that is durable.

        Raises:
            StaleReceipt: the lease of some of them was over; those may come again.
            UndecidedReceipt: a `StaleReceipt`; the connection broke before, and either these are
                acknowledged, by the try whose answer was lost, or they come again.
            HourwheelError: see `hourwheel.errors`; acknowledging again is always safe.
        """
        await self._acker.ack(messages)

    def ack_soon(self, messages: Finishable) -> None:
        """As `ack`, without waiting: sent within `ack_linger_ms`, tried until the lease is over.

        What could not be acknowledged in time comes again and is counted in `stale_count`.
        """
        self._acker.add_soon(messages)

    def ack_ranges_soon(self, selections: Iterable[Selection]) -> None:
        """As `ack_soon`, for ranges of answers."""
        self._acker.add_ranges_soon(selections)

    async def flush_acks(self) -> None:
        """Wait until all of `ack_soon` is acknowledged. Raises as `ack`."""
        self._channel.home.enter()
        await self._acker.flush()

    async def nack(
        self,
        messages: Finishable,
        delay_ms: int | timedelta | None = None,
        *,
        dead_letter: bool = False,
        reason: str = "",
        not_begun: bool = False,
    ) -> None:
        """Not done: deliver them to the group again, or as dead letters when attempts are used up.

        Args:
            messages: which.
            delay_ms: when, in milliseconds or as a timedelta; None: after the group's retry delay,
                which grows with the attempts.
            dead_letter: they are dead letters at once, whatever attempts are left. In a group of
                order `block` they block their keys instead.
            reason: why, for those who look at dead letters; up to 1,024 bytes.
            not_begun: they come again at once as if they had never been leased; no attempt counts.

        Raises:
            InvalidArgument: `delay_ms` is nothing of that, or goes with `dead_letter`; a reason
                that is too long, or for no dead letter; `not_begun` goes with one of these.
            StaleReceipt: the lease of some of them was over; those come again in any case.
            UndecidedReceipt: a `StaleReceipt`; the connection broke before, and when they come
                again is not known: as asked, or as the group has it. (Where they had been
                acknowledged before, and that is not known either: perhaps not at all.)
            HourwheelError: see `hourwheel.errors`.
        """
        after_ms = None if delay_ms is None else count_of_ms(delay_ms, "delay_ms")
        selections = select(messages)
        for first in range(0, len(selections), limits.RECEIPT_COUNT_MAX):
            some = selections[first : first + limits.RECEIPT_COUNT_MAX]
            request = consumer_pb2.NackRequest(
                group=self._group,
                ranges=to_ranges(some),
                delay_ms=0 if not_begun and after_ms is None else after_ms,
                dead_letter=dead_letter,
                reason=reason,
                not_begun=not_begun,
            )
            raise_if_bad(await finish(self._channel, NACK, request, some))

    async def change_invisible(
        self, message: ReceivedMessage | ReceivedBatch, ms: int | timedelta
    ) -> int:
        """Lease for `ms` from now on everything that came in one answer with this message.

        Args:
            message: one of the answer, or all of it.
            ms: how long, in milliseconds or as a timedelta.

        Returns:
            When the lease ends, by the node's clock, in milliseconds since the Unix epoch.

        Raises:
            StaleReceipt: the lease was over.
            HourwheelError: see `hourwheel.errors`.
        """
        ms = count_of_ms(ms, "ms")
        batch = message if isinstance(message, ReceivedBatch) else message.batch
        sent_ms = self._clock.monotonic_ms()
        whole = Selection(batch, 0, len(batch.delivery))
        request = consumer_pb2.ChangeInvisibleRequest(
            group=self._group, ranges=to_ranges([whole]), invisible_ms=ms
        )
        answer = await self._channel.call(CHANGE_INVISIBLE, request)
        raise_if_bad(checked([whole], answer.outcomes))
        batch.lease_until_ms = sent_ms + ms * (1 - LEASE_MARGIN_RATIO)
        batch.invisible_until_ms = answer.invisible_until_ms
        return answer.invisible_until_ms

    async def settle(self) -> None:
        """Have the node end polls whose `receive` was cancelled, and give back what they brought.

        For who receives no more for a while, with `prefetch_messages=0`, and still has messages to
        finish. Without it a poll that waits may lease messages that no caller sees.
        """
        self._channel.home.enter()
        await self._poll_of.settle()
        await self._give_back([])

    async def close(self) -> None:
        """Acknowledge what `ack_soon` has, give back unread messages, and end.

        Raises:
            HourwheelError: acknowledging failed; the consumer is closed all the same.
        """
        if self._is_closed:
            return
        self._is_closed, self._is_settled = True, False
        if self._channel.home.is_elsewhere:
            return  # the leases are the parent's
        pollers = set(self._pollers)
        for poller in pollers:
            poller.cancel()
        if pollers:
            await asyncio.wait(pollers)
        await self._poll_of.settle()
        self._on_arrival()
        held = self.buffer.take_all()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1_000):
                try:
                    await self._acker.flush()  # first: what follows is a kindness
                except errors.HourwheelError:
                    await self._give_back(held)
                    raise
                await self._give_back(held)
                if self._membership is not None:
                    await self._membership.leave()
        except TimeoutError:
            raise errors.Timeout(
                "some messages could not be acknowledged: they come again"
            ) from None
        finally:
            await self._acker.close()
            if self._owns_channel:
                await self._channel.close()

    async def _give_back(self, held: list[Selection]) -> None:
        ranges = to_ranges(held) + self._poll_of.take_unseen()
        if not ranges:
            return
        request = consumer_pb2.NackRequest(group=self._group, delay_ms=0, not_begun=True)
        request.ranges.extend(ranges)
        try:
            await self._channel.call(NACK, request, is_retried=False)
        except errors.HourwheelError:
            return  # a kindness to other consumers: without it they wait until the leases end

    # --- polling --------------------------------------------------------------------------------

    def _prepare(self) -> float:
        """Start polling, raise what is to be raised; gives the time."""
        self._channel.home.enter()
        if self.is_settled:
            return self._clock.monotonic_ms()
        if self._is_closed:
            raise errors.Cancelled("the consumer is closed")
        self._acker.raise_deferred()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise copy.copy(failure)
        self._loop = asyncio.get_running_loop()
        while len(self._pollers) < self._polls:
            poller = self._loop.create_task(self._poll_forever(), name="hourwheel-poll")
            poller.add_done_callback(self._on_poller_done)
            self._pollers.add(poller)
        self._is_settled = True
        return self._clock.monotonic_ms()

    def _on_arrival(self) -> None:
        self._arrived.set()
        self.on_arrival()

    async def _wait_for_arrival(self, wait_ms: float) -> bool:
        if wait_ms <= 0:
            return False
        self._arrived.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                await self._arrived.wait()
                return True
        return False

    def _on_poller_done(self, poller: "asyncio.Task[None]") -> None:
        """A failure that trying again does not mend, or a bug of ours: the next call raises it."""
        self._pollers.discard(poller)
        self._is_settled = False
        if poller.cancelled() or (error := poller.exception()) is None:
            return
        if not isinstance(error, errors.HourwheelError):
            error = errors.Internal(f"polling failed: {error!r}")
        self._failure = error
        self._on_arrival()

    def _on_stream(self) -> None:
        self._patience.on_success()
        self._on_arrival()

    def _note_lack(self) -> None:
        self._lacks_room = True

    async def _stream_forever(self, stream: MessageStream) -> None:
        """Until the node has no stream for us; meanwhile the other pollers rest."""
        pace = self._channel.new_pace()
        self._unstreamed.clear()
        try:
            while stream.is_due():
                try:
                    await stream.run(pace, self._note_lack)
                except errors.HourwheelError as error:
                    self._note_failure(error)
                else:
                    self._patience.on_success()
                await asyncio.sleep(pace.wait_ms / 1_000)
        finally:
            self._unstreamed.set()

    async def _poll_forever(self) -> None:
        pace, batch, stream = self._channel.new_pace(), None, self._stream
        while True:
            if stream is not None and stream.is_due():
                if self._unstreamed.is_set():
                    await self._stream_forever(stream)
                else:
                    await self._unstreamed.wait()
                continue
            # Where messages come one by one, other polls wait for the next ones meanwhile.
            is_urgent = batch is None or len(batch) > FEW_MESSAGES
            requested = self.buffer.reserve()
            if not requested:
                self._taken.clear()
                self._lacks_room = True
                if not self.buffer.has_room:  # none was taken just before
                    await self._taken.wait()
                continue
            batch = None
            try:
                batch = await self._poll(requested, POLL_WAIT_MS, pace, is_urgent=is_urgent)
            except errors.HourwheelError as error:
                self._note_failure(error)
            else:
                self._patience.on_success()
            finally:
                self.buffer.add(requested, batch)
            if batch is not None:
                self._on_arrival()
            await asyncio.sleep(pace.wait_ms / 1_000)

    def _note_failure(self, error: errors.HourwheelError) -> None:
        """Go on if that may help; tell the next caller if it has not helped for too long."""
        if not error.retriable:
            raise error
        now_ms = self._clock.monotonic_ms()
        if self._patience.is_over(now_ms):
            self._patience.begin_anew(now_ms)
            self._failure = error
            self._is_settled = False
            self._on_arrival()

    async def _poll(
        self, count: int, wait_ms: float, pace: Pace, *, is_urgent: bool = True
    ) -> ReceivedBatch | None:
        if self._is_closed:
            raise errors.Cancelled("the consumer is closed")
        return await self._poll_of.poll(count, wait_ms, pace, is_urgent=is_urgent)
