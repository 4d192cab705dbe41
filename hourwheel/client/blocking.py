"""Producer, consumer and administrator for programs without asyncio.

Thin: each runs its asyncio twin on an event loop in a thread of its own, and waits for it. All
methods may be called from any thread. A call costs about 0.1 ms of handing over, so publish lists
(`publish_many`) where it matters; messages that were fetched ahead are taken without it. Arguments,
results and errors: see the twins.
"""

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeVar, Unpack

from hourwheel.client import catalog
from hourwheel.client.access import Grant, Limits, Quota, User
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Columns
from hourwheel.client.catalog import MessageDescription
from hourwheel.client.changes.blocking_changes import BlockingChanges
from hourwheel.client.changes.blocking_pending import BlockingPending
from hourwheel.client.changes.cancellation import Ids, KeyCancelled
from hourwheel.client.cluster_status import ClusterStatus, Mastership
from hourwheel.client.consumer import ACK_LINGER_MS, WAIT_MS, AsyncConsumer
from hourwheel.client.damage import DamagedMessage
from hourwheel.client.groups.blocking_positions import BlockingPositions
from hourwheel.client.groups.dead_letters import DeadLetterMessage, Redriven
from hourwheel.client.groups.positions import Skipped
from hourwheel.client.lookup import History, KeyMessage
from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.members import NO_NODES, Members
from hourwheel.client.message import Message, ReceivedBatch, ReceivedMessage
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.pending import PendingMessage
from hourwheel.client.prefetch_buffer import AckBuffer, Finishable, PrefetchBuffer
from hourwheel.client.producer import CLOSE_TIMEOUT_MS, AsyncProducer
from hourwheel.client.recurring.blocking_recurrences import BlockingRecurrences
from hourwheel.client.wheel import WheelDescription
from hourwheel.clock import SystemClock
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import GeneSpec
from hourwheel.instants import check_count, wait_of_ms
from hourwheel.limits import LIST_PAGE_SIZE_MAX
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.transport.endpoints import Servers
from hourwheel.transport.fork_guard import Home

_LIST_MESSAGES: Final = 256
"""How many messages a listing fetches from the event loop at once."""
_GATHER_RATIO: Final = 0.2
"""Of the time that acknowledgements may wait, so much is before the event loop has them."""
Found = TypeVar("Found")


class _SoonPublished(concurrent.futures.Future[MessageId]):
    """What `publish_soon` gives: running from the start, for a message is not taken back by it."""

    def __init__(self) -> None:
        super().__init__()
        self._home = Home()
        self._home.enter()
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> MessageId:
        """The id. Raises `Forked` where it stays unknown."""
        self._home.enter()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why there is none. Raises as `result`."""
        self._home.enter()
        return super().exception(timeout)


def _close_with(client: object, thread: LoopThread) -> None:
    """A client that is collected as garbage leaves no thread and no connection behind."""
    weakref.finalize(client, thread.abandon).atexit = False  # which is for `LoopThread`s


class Producer(BlockingChanges):
    """Publishes messages, each of them once: `AsyncProducer`, blocking.

    with Producer("127.0.0.1:7400") as producer:
        message_id = producer.publish("orders", Message(b"...", delay_ms=90_000))
    """

    _twin_class: ClassVar[type[AsyncProducer]] = AsyncProducer

    def __init__(self, server: Servers = SERVER_DEFAULT, **settings: Any) -> None:
        """`settings`: see `AsyncProducer`."""
        self._twin = self._twin_class(server, **settings)
        self._thread = LoopThread(partial(self._twin.close, CLOSE_TIMEOUT_MS))
        _close_with(self, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.finish(self._twin.__aexit__(kind))

    def publish(self, topic: str, message: Message) -> MessageId:
        """See `AsyncProducer.publish`."""
        return self._thread.wait_for(partial(self._twin.begin_publish, topic, message))

    def publish_soon(self, topic: str, message: Message) -> "concurrent.futures.Future[MessageId]":
        """See `AsyncProducer.publish_soon`; waits only while the buffer is full."""
        self._thread.check()
        outer = _SoonPublished()

        def hand_over(inner: "asyncio.Future[MessageId]") -> None:
            error = inner.exception()
            if error is None:
                outer.set_result(inner.result())
            else:
                outer.set_exception(error)

        async def start() -> None:
            (await self._twin.publish_soon(topic, message)).add_done_callback(hand_over)

        self._thread.run(start())
        return outer

    def publish_many(self, topic: str, messages: Sequence[Message]) -> PublishedIds:
        """See `AsyncProducer.publish_many`."""
        return self._thread.run(self._twin.publish_many(topic, messages))

    def publish_batch(self, topic: str, columns: Columns) -> PublishedIds:
        """See `AsyncProducer.publish_batch`."""
        return self._thread.run(self._twin.publish_batch(topic, columns))

    def cancel(self, message_id: MessageId | str) -> CancelOutcome:
        """See `AsyncProducer.cancel`."""
        return self._thread.run(self._twin.cancel(message_id))

    def cancel_many(self, ids: Ids) -> list[CancelOutcome]:
        """See `AsyncAdmin.cancel_many`."""
        return self._thread.run(self._twin.cancel_many(ids))

    def flush(self) -> None:
        """See `AsyncProducer.flush`."""
        self._thread.run(self._twin.flush())

    def close(self, timeout_ms: float | None = None) -> None:
        """See `AsyncProducer.close`."""
        self._thread.finish(self._twin.close(timeout_ms))


class Consumer:
    """Receives the messages of one topic for one consumer group: `AsyncConsumer`, blocking.

    with Consumer("127.0.0.1:7400", group="billing", topic="orders") as consumer:
        for message in consumer:
            handle(message.body)
            consumer.ack_soon(message)
    """

    def __init__(
        self,
        server: Servers = SERVER_DEFAULT,
        *,
        group: str,
        topic: str = "",
        ack_linger_ms: float = ACK_LINGER_MS,
        **settings: Any,
    ) -> None:
        """`settings`: see `AsyncConsumer`."""
        ack_linger_ms = wait_of_ms(ack_linger_ms, "ack_linger_ms")
        self._gather_ms = ack_linger_ms * _GATHER_RATIO
        settings |= {"topic": topic, "ack_linger_ms": ack_linger_ms - self._gather_ms}
        self._twin = AsyncConsumer(server, group=group, **settings)
        self._thread = LoopThread(self._twin.close)
        self._clock = SystemClock()
        self._arrived = threading.Event()
        self._twin.on_arrival = self._arrived.set
        self._lock = threading.Lock()
        self._acks = AckBuffer()
        self._are_acks_on_their_way = False
        _close_with(self, self._thread)

    def __enter__(self) -> Self:
        if self._twin.is_member:
            self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """See `AsyncConsumer.open`."""
        self._thread.run(self._twin.open())

    @property
    def expired_count(self) -> int:
        """See `AsyncConsumer.expired_count`."""
        return self._twin.expired_count

    @property
    def stale_count(self) -> int:
        """See `AsyncConsumer.stale_count`."""
        return self._twin.stale_count

    @property
    def undecided_count(self) -> int:
        """See `AsyncConsumer.undecided_count`."""
        return self._twin.undecided_count

    @property
    def filtered_count(self) -> int:
        """See `AsyncConsumer.filtered_count`."""
        return self._twin.filtered_count

    def receive(
        self, max_messages: int = 32, wait_ms: float | timedelta = WAIT_MS
    ) -> list[ReceivedMessage]:
        """See `AsyncConsumer.receive`."""
        check_count(max_messages, "max_messages", at_least=1)

        def take(buffer: PrefetchBuffer, now_ms: float) -> list[ReceivedMessage]:
            return buffer.take(max_messages, now_ms)

        return self._receive(take, partial(self._twin.receive, max_messages), wait_ms) or []

    def receive_batch(self, wait_ms: float | timedelta = WAIT_MS) -> ReceivedBatch | None:
        """See `AsyncConsumer.receive_batch`."""
        return self._receive(PrefetchBuffer.find_batch, self._twin.receive_batch, wait_ms)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages, without end. Raises as `receive`."""
        while True:
            message = self._receive(PrefetchBuffer.find_one, self._ask_for_one, WAIT_MS)
            if message is not None:
                yield message

    async def _ask_for_one(self, wait_ms: float) -> ReceivedMessage | None:
        found = await self._twin.receive(1, wait_ms)
        return found[0] if found else None

    def _receive(
        self,
        take: Callable[[PrefetchBuffer, float], Found],
        ask: Callable[[float], Coroutine[Any, Any, Found]],
        wait_ms: float | timedelta,
    ) -> Found | None:
        """What `take` finds among the messages fetched ahead, waiting for it in this thread.

        The loop does not hand over what is here already. It is asked, by `ask`, where there is
        more to do: polls are to be begun, an error is to be raised, or nothing is fetched ahead.
        """
        self._thread.check()
        if found := self._take(take):
            return found
        wait_ms = wait_of_ms(wait_ms, "wait_ms")
        until_ms = self._clock.monotonic_ms() + wait_ms
        while True:
            if not self._twin.is_settled:
                is_ahead = self._twin.is_ahead
                found = self._thread.run(ask(0.0 if is_ahead else wait_ms))
                if found or not is_ahead:
                    return found
            self._arrived.clear()
            if found := self._take(take):
                if len(self._twin.buffer):
                    self._arrived.set()  # others may wait for the rest
                return found
            left_ms = until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return None
            self._arrived.wait(left_ms / 1_000)
            self._thread.check()

    def _take(self, take: Callable[[PrefetchBuffer, float], Found]) -> Found | None:
        twin = self._twin
        if not twin.is_settled:
            return None
        found = take(twin.buffer, self._clock.monotonic_ms())
        twin.on_taken()
        return found

    def ack(self, messages: Finishable) -> None:
        """See `AsyncConsumer.ack`."""
        self._thread.run(self._twin.ack(messages))

    def ack_soon(self, messages: Finishable) -> None:
        """See `AsyncConsumer.ack_soon`."""
        self._thread.check()
        with self._lock:
            self._acks.add(messages)
            if self._are_acks_on_their_way:
                return
            self._are_acks_on_their_way = True
        self._thread.call_soon(self._hand_acks_over_soon)

    def flush_acks(self) -> None:
        """See `AsyncConsumer.flush_acks`."""
        self._thread.run(self._flush_acks())

    def nack(
        self, messages: Finishable, delay_ms: int | timedelta | None = None, **how: Any
    ) -> None:
        """See `AsyncConsumer.nack`."""
        self._thread.run(self._twin.nack(messages, delay_ms, **how))

    def change_invisible(
        self, message: ReceivedMessage | ReceivedBatch, ms: int | timedelta
    ) -> int:
        """See `AsyncConsumer.change_invisible`."""
        return self._thread.run(self._twin.change_invisible(message, ms))

    def close(self) -> None:
        """See `AsyncConsumer.close`."""
        self._thread.finish(self._close())

    async def _close(self) -> None:
        self._hand_acks_over()
        await self._twin.close()

    async def _flush_acks(self) -> None:
        self._hand_acks_over()
        await self._twin.flush_acks()

    def _hand_acks_over_soon(self) -> None:
        """In the loop, which else would wake up for each call of `ack_soon`."""
        asyncio.get_running_loop().call_later(self._gather_ms / 1_000, self._hand_acks_over)

    def _hand_acks_over(self) -> None:
        with self._lock:
            selections = self._acks.take(len(self._acks))
            self._are_acks_on_their_way = False
        self._twin.ack_ranges_soon(selections)


class Admin(BlockingPending, BlockingRecurrences, BlockingPositions):
    """Sets a cluster up and asks what it does: `AsyncAdmin`, blocking.

    with Admin("127.0.0.1:7400") as admin:
        admin.create_topic("orders", queue_count=4)
    """

    def __init__(self, server: Servers = SERVER_DEFAULT, **settings: Any) -> None:
        """`settings`: see `AsyncAdmin`."""
        self._twin: AsyncAdmin = AsyncAdmin(server, **settings)
        self._thread = LoopThread(self._twin.close)
        _close_with(self, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._thread.finish(self._twin.close())

    def create_topic(
        self,
        name: str,
        *,
        queue_count: int = 0,
        gene: GeneSpec | None = None,
        retention_ms: int | None = None,
    ) -> catalog.TopicInfo:
        """See `AsyncAdmin.create_topic`."""
        making = self._twin.create_topic(
            name, queue_count=queue_count, gene=gene, retention_ms=retention_ms
        )
        return self._thread.run(making)

    def update_topic(self, name: str, **changes: Any) -> catalog.TopicInfo:
        """See `AsyncAdmin.update_topic`."""
        return self._thread.run(self._twin.update_topic(name, **changes))

    def delete_topic(self, name: str) -> None:
        """See `AsyncAdmin.delete_topic`."""
        self._thread.run(self._twin.delete_topic(name))

    def get_topic(self, name: str) -> catalog.TopicInfo:
        """See `AsyncAdmin.get_topic`."""
        return self._thread.run(self._twin.get_topic(name))

    def topics(
        self, *, include_internal: bool = False, page_size: int = LIST_PAGE_SIZE_MAX
    ) -> list[catalog.TopicInfo]:
        """See `AsyncAdmin.topics`."""
        return self._thread.run(
            self._twin.topics(include_internal=include_internal, page_size=page_size)
        )

    def put_group(self, name: str, **settings: Unpack[catalog.GroupChanges]) -> catalog.GroupInfo:
        """See `AsyncAdmin.put_group`."""
        return self._thread.run(self._twin.put_group(name, **settings))

    def update_group(self, name: str, **changes: Any) -> catalog.GroupInfo:
        """See `AsyncAdmin.update_group`."""
        return self._thread.run(self._twin.update_group(name, **changes))

    def put_subscription(
        self,
        group: str,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
    ) -> catalog.Subscription:
        """See `AsyncAdmin.put_subscription`."""
        return self._thread.run(self._twin.put_subscription(group, topic, filter))

    def delete_group(self, name: str) -> None:
        """See `AsyncAdmin.delete_group`."""
        self._thread.run(self._twin.delete_group(name))

    def get_group(self, name: str) -> catalog.GroupInfo:
        """See `AsyncAdmin.get_group`."""
        return self._thread.run(self._twin.get_group(name))

    def groups(self, *, page_size: int = LIST_PAGE_SIZE_MAX) -> list[catalog.GroupInfo]:
        """See `AsyncAdmin.groups`."""
        return self._thread.run(self._twin.groups(page_size=page_size))

    def status(self) -> ClusterStatus:
        """See `AsyncAdmin.status`."""
        return self._thread.run(self._twin.status())

    def transfer_master(self, to: str = "", *, shard: int = 0) -> Mastership:
        """See `AsyncAdmin.transfer_master`."""
        return self._thread.run(self._twin.transfer_master(to, shard=shard))

    def list_damaged(self, group: str = "", topic: str = "") -> list[DamagedMessage]:
        """See `AsyncAdmin.list_damaged`."""
        return self._thread.run(self._twin.list_damaged(group, topic))

    def skip(
        self,
        group: str,
        topic: str,
        before: int | datetime | None = None,
        *,
        positions: Sequence[int] = (),
    ) -> Skipped:
        """See `AsyncAdmin.skip`."""
        return self._thread.run(self._twin.skip(group, topic, before, positions=positions))

    def list_dead_letters(
        self,
        group: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **choice: Any,
    ) -> Iterator[DeadLetterMessage]:
        """See `AsyncAdmin.list_dead_letters`."""
        return self._listed(self._twin.list_dead_letters(group, filter, **choice))

    def redrive(
        self,
        group: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **choice: Any,
    ) -> Redriven:
        """See `AsyncAdmin.redrive`."""
        return self._thread.run(self._twin.redrive(group, filter, **choice))

    def discard_damaged(
        self, group: str, ids: Sequence[MessageId | str] | None = None, *, topic: str = ""
    ) -> list[DamagedMessage]:
        """See `AsyncAdmin.discard_damaged`."""
        return self._thread.run(self._twin.discard_damaged(group, ids, topic=topic))

    def members(self) -> Members:
        """See `AsyncAdmin.members`."""
        return self._thread.run(self._twin.members())

    def change_members(
        self,
        add: Mapping[str, str] = NO_NODES,
        remove: Iterable[str] = (),
        *,
        expected_generation: int | None = None,
    ) -> int:
        """See `AsyncAdmin.change_members`."""
        return self._thread.run(
            self._twin.change_members(add, remove, expected_generation=expected_generation)
        )

    def put_user(self, name: str, secret: str, expected_version: int | None = None) -> int:
        """See `AsyncAdmin.put_user`."""
        return self._thread.run(self._twin.put_user(name, secret, expected_version))

    def delete_user(self, name: str, expected_version: int | None = None) -> None:
        """See `AsyncAdmin.delete_user`."""
        self._thread.run(self._twin.delete_user(name, expected_version))

    def users(self) -> list[User]:
        """See `AsyncAdmin.users`."""
        return self._thread.run(self._twin.users())

    def grant(
        self,
        principal: str,
        operations: Iterable[str],
        kind: str,
        resource: str = "",
        expected_version: int | None = None,
    ) -> int:
        """See `AsyncAdmin.grant`."""
        given = self._twin.grant(principal, operations, kind, resource, expected_version)
        return self._thread.run(given)

    def revoke(
        self, principal: str, kind: str, resource: str = "", expected_version: int | None = None
    ) -> None:
        """See `AsyncAdmin.revoke`."""
        self._thread.run(self._twin.revoke(principal, kind, resource, expected_version))

    def grants(self) -> list[Grant]:
        """See `AsyncAdmin.grants`."""
        return self._thread.run(self._twin.grants())

    def put_quota(self, principal: str, limits: Limits, expected_version: int | None = None) -> int:
        """See `AsyncAdmin.put_quota`."""
        return self._thread.run(self._twin.put_quota(principal, limits, expected_version))

    def delete_quota(self, principal: str, expected_version: int | None = None) -> None:
        """See `AsyncAdmin.delete_quota`."""
        self._thread.run(self._twin.delete_quota(principal, expected_version))

    def quotas(self) -> list[Quota]:
        """See `AsyncAdmin.quotas`."""
        return self._thread.run(self._twin.quotas())

    def list_pending(
        self,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        **settings: Any,
    ) -> Iterator[PendingMessage]:
        """See `AsyncAdmin.list_pending`; fetched as it is needed."""
        return self._listed(self._twin.list_pending(topic, filter, **settings))

    def _listed(self, found: AsyncIterator[Found]) -> Iterator[Found]:
        """What is listed, fetched as it is needed."""

        async def some() -> list[Found]:
            messages: list[Found] = []
            async for message in found:
                messages.append(message)
                if len(messages) == _LIST_MESSAGES:
                    break
            return messages

        while messages := self._thread.run(some()):
            yield from messages

    def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelDescription:
        """See `AsyncAdmin.describe_wheel`."""
        return self._thread.run(self._twin.describe_wheel(bounds_ms))

    def describe(self, of: MessageId | str) -> MessageDescription:
        """See `AsyncAdmin.describe`."""
        return self._thread.run(self._twin.describe(of))

    def list_by_key(self, topic: str, key: str, **settings: Any) -> Iterator[KeyMessage]:
        """See `AsyncAdmin.list_by_key`; fetched as it is needed."""
        return self._listed(self._twin.list_by_key(topic, key, **settings))

    def count_by_key(self, topic: str, key: str, **settings: Any) -> int:
        """See `AsyncAdmin.count_by_key`."""
        return self._thread.run(self._twin.count_by_key(topic, key, **settings))

    def history(self, of: MessageId | str, topic: str = "") -> History:
        """See `AsyncAdmin.history`."""
        return self._thread.run(self._twin.history(of, topic))

    def cancel(self, of: MessageId | str) -> CancelOutcome:
        """See `AsyncAdmin.cancel`."""
        return self._thread.run(self._twin.cancel(of))

    def cancel_many(self, ids: Ids) -> list[CancelOutcome]:
        """See `AsyncAdmin.cancel_many`."""
        return self._thread.run(self._twin.cancel_many(ids))

    def cancel_by_key(self, topic: str, key: str) -> KeyCancelled:
        """See `AsyncAdmin.cancel_by_key`."""
        return self._thread.run(self._twin.cancel_by_key(topic, key))

    def cancel_by_keys(self, topic: str, keys: Sequence[str]) -> list[KeyCancelled]:
        """See `AsyncAdmin.cancel_by_keys`."""
        return self._thread.run(self._twin.cancel_by_keys(topic, keys))
