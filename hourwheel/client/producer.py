"""The asyncio producer: publish, cancel, reschedule, flush. `sender` does the work."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import numpy as np

from hourwheel import errors, limits
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns, Draft
from hourwheel.client.changes import cancellation, rescheduling, uniqueness
from hourwheel.client.message import Message
from hourwheel.client.message_ids import DedupAnswer, PublishedIds
from hourwheel.client.sender import Sender, SenderSettings, Wanted
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.instants import INSTANT_MS_MIN, check_count, check_instant, wait_of_ms
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers

BATCH_MESSAGES: Final = 1_000
BATCH_BYTES: Final = 1024 * 1024
BUFFER_BYTES: Final = 32 * 1024 * 1024
DELIVERY_TIMEOUT_MS: Final = 120_000.0
ANSWER_TIMEOUT_MS: Final = 30_000.0
CLOSE_TIMEOUT_MS: Final = 1_000.0
"""How long leaving the context waits for messages under way after an exception inside it."""


class AsyncProducer:
    """Publishes messages, each of them once.

        async with AsyncProducer("127.0.0.1:7400") as producer:
            message_id = await producer.publish("orders", Message(b"...", delay_ms=90_000))

    Publishing waits while the buffer is full. What was awaited is durable as the node is
    configured. Nothing is published twice, whatever is lost on the way: a producer numbers its
    batches, and the node knows those again that it has seen. Cancelling a task that awaits an
    answer does not take its message back: see `cancel`. Belongs to one event loop.
    """

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        linger_ms: float = 0.0,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_timeout_ms: float = DELIVERY_TIMEOUT_MS,
        answer_timeout_ms: float = ANSWER_TIMEOUT_MS,
        is_idempotent: bool = True,
        due_ms_min: int = INSTANT_MS_MIN,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """Prepare a producer; it connects when it is first used.

        Args:
            server: see `Channel`; or a channel to be shared (and closed) by the caller.
            linger_ms: how long a message waits for others to fill its batch. With 0 batches grow
                by themselves while earlier ones are under way.
            batch_messages: most messages of a batch.
            batch_bytes: about how many bytes a batch has at most (a larger message goes alone).
            buffer_bytes: bytes of messages that may be under way before publishing waits.
            delivery_timeout_ms: how long a batch is tried before its messages fail; at most
                `limits.DELIVERY_TIMEOUT_MS_MAX` if idempotent.
            answer_timeout_ms: how long one try waits for the node's answer.
            is_idempotent: False: a batch whose outcome is unknown fails with `Timeout` instead of
                being sent again.
            due_ms_min: earlier instants are refused, as seconds by mistake; 0: take all, and
                deliver what is past at once.
            tls: see `Channel`.
            token: see `Channel`.
            user: see `Channel`.

        Raises:
            InvalidArgument: a batch size that no node would take, or a number that cannot be.
        """
        check_count(batch_messages, "batch_messages")
        check_count(batch_bytes, "batch_bytes")
        check_count(buffer_bytes, "buffer_bytes")
        linger_ms = wait_of_ms(linger_ms, "linger_ms")
        delivery_timeout_ms = wait_of_ms(delivery_timeout_ms, "delivery_timeout_ms")
        answer_timeout_ms = wait_of_ms(answer_timeout_ms, "answer_timeout_ms")
        if is_idempotent and delivery_timeout_ms > limits.DELIVERY_TIMEOUT_MS_MAX:
            raise errors.InvalidArgument(
                f"delivery_timeout_ms is at most {limits.DELIVERY_TIMEOUT_MS_MAX}: nodes may have"
                " forgotten a producer later"
            )
        if not 0 < batch_messages <= limits.BATCH_MESSAGE_COUNT_MAX:
            raise errors.InvalidArgument("batch_messages is out of range")
        if not 0 < batch_bytes <= limits.BATCH_BYTES_MAX // 2:
            raise errors.InvalidArgument("batch_bytes is out of range")
        self._owns_channel = not isinstance(server, Channel)
        self._channel = (
            server
            if isinstance(server, Channel)
            else Channel(server, tls=tls, token=token, user=user)
        )
        self._settings = SenderSettings(
            linger_ms=linger_ms,
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            answer_timeout_ms=answer_timeout_ms,
            is_idempotent=is_idempotent,
        )
        self._sender = Sender(self._channel, self._settings)
        self._due_ms_min = due_ms_min
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(None if kind is None else CLOSE_TIMEOUT_MS)

    async def publish(self, topic: str, message: Message) -> MessageId:
        """Publish one message; returns its id when it is durable.

        Raises:
            InvalidArgument: the message or the topic cannot be accepted as it is.
            HourwheelError: see `hourwheel.errors`; `Timeout` says that the outcome is unknown.
        """
        return await (await self.publish_soon(topic, message))

    async def publish_soon(self, topic: str, message: Message) -> "asyncio.Future[MessageId]":
        """As `publish`, but waits only for room in the buffer: await the result for the id."""
        return await self._add_one(topic, message, Wanted.ID)

    def begin_publish(self, topic: str, message: Message) -> "asyncio.Future[MessageId]":
        """As `publish`, without a task but where the buffer is full. Raises as that does."""
        begun = self._sender.try_add(topic, self._draft_one(message), Wanted.ID)
        return asyncio.ensure_future(self._publish_one(topic, message)) if begun is None else begun

    async def _publish_one(self, topic: str, message: Message) -> MessageId:
        message_id: MessageId = await (await self._add_one(topic, message, Wanted.ID))
        return message_id

    async def _add_one(self, topic: str, message: Message, wanted: Wanted) -> "asyncio.Future[Any]":
        return await self._sender.add(topic, self._draft_one(message), wanted)

    def _draft_one(self, message: Message) -> Draft:
        draft = batch_builder.draft_one(message)
        if message.due_ms is not None:
            check_instant(message.due_ms, self._due_ms_min)
        return draft

    async def publish_many(self, topic: str, messages: Sequence[Message]) -> PublishedIds:
        """Publish n messages; returns their ids, in order, when all are durable.

        All are checked before any is sent. A list that fits into one batch (`batch_messages`,
        `batch_bytes`, only delays or only instants) is accepted or refused together; of a longer
        one some may be published although this raises: `params["published_count"]` says how many.
        Raises as `publish`.
        """
        futures: list[asyncio.Future[PublishedIds]] = []
        places: list[int] = []
        drafted = batch_builder.draft_messages(messages)
        for draft, _ in drafted:
            self._check_instants(draft)
        with _forgotten_on_failure(futures):
            for draft, ordinals in drafted:
                await self._add_all(topic, draft, futures)
                places += ordinals or ()
            ids = await _collect(futures)
        if len(drafted) <= 1:
            return ids
        ordered = np.empty_like(ids.array)
        ordered[places] = ids.array
        return PublishedIds(ordered, {places[at]: one for at, one in ids.deduped.items()})

    async def publish_batch(self, topic: str, columns: Columns) -> PublishedIds:
        """As `publish_many`, for those who have columns: spares one object a message."""
        futures: list[asyncio.Future[PublishedIds]] = []
        draft = batch_builder.draft_columns(columns)
        self._check_instants(draft)
        with _forgotten_on_failure(futures):
            await self._add_all(topic, draft, futures)
            return await _collect(futures)

    async def publish_unique(self, topic: str, message: Message) -> DedupAnswer:
        """Publish one message that has a `dedup_key`, and hear what became of it.

        Of a topic and a key one message is pending at a time. Where there is one, `if_pending` of
        the message says what becomes of this one; the answer has the ids. Sent again, it is the
        same. (`publish` gives the id of the message that is pending then, and raises
        `AlreadyPending` where this one was rejected. `publish_many` tells it in `deduped`.)

        Raises as `publish`; `TooManyDedupKeys` where as many are pending as a shard keeps.
        """
        if not message.dedup_key:
            raise errors.InvalidArgument("a dedup_key is needed")
        answer: DedupAnswer = await (await self._add_one(topic, message, Wanted.ANSWER))
        return answer

    async def debounce(self, topic: str, key: str, message: Message) -> DedupAnswer:
        """Publish a message that takes the place of the pending one with the same dedup key.

        Called again and again with a delay, only the last message is released: so long after the
        last call. Needs the permission to cancel, too. Raises as `publish_unique`.
        """
        return await uniqueness.debounce(self, topic, key, message)

    async def cancel(self, message_id: MessageId | str) -> CancelOutcome:
        """Take one message back. Raises `InvalidMessageId` for a text that is no id."""
        return (await self.cancel_many([message_id]))[0]

    async def cancel_many(self, ids: cancellation.Ids) -> list[CancelOutcome]:
        """Take n messages back; see `AsyncAdmin.cancel_many`."""
        return await cancellation.cancel_many(self._channel, ids)

    async def cancel_by_key(self, topic: str, key: str) -> cancellation.KeyCancelled:
        """Take back all messages of a topic that have a key."""
        return (await self.cancel_by_keys(topic, [key]))[0]

    async def cancel_by_keys(
        self, topic: str, keys: Sequence[str]
    ) -> list[cancellation.KeyCancelled]:
        """The same for n keys; one answer for each, in order.

        All messages whose publish was answered before are among them.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidArgument: no message can have such a key.
            HourwheelError: a call failed; calling again is safe.
        """
        return await cancellation.cancel_keys(self._channel, topic, keys)

    async def reschedule(
        self,
        message_id: MessageId | str,
        *,
        due_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> rescheduling.Rescheduled:
        """Move one message that is not yet released to another due time. Its id stays.

        Args:
            message_id: of the message.
            due_ms: an instant, epoch milliseconds; what is past is released at once.
            delay_ms: or a delay, from now by the cluster's clock.

        Raises:
            InvalidMessageId: a text that is no id.
            InvalidDueTime, BeyondHorizon: it cannot be due then.
            HourwheelError: the call failed; calling again is safe.
        """
        return (await self.reschedule_many([message_id], due_ms=due_ms, delay_ms=delay_ms))[0]

    async def reschedule_many(
        self,
        ids: cancellation.Ids,
        *,
        due_ms: int | Sequence[int] | None = None,
        delay_ms: int | Sequence[int] | None = None,
    ) -> list[rescheduling.Rescheduled]:
        """Move n messages, to one due time or each to its own; one answer for each, in order."""
        times = rescheduling.NewTimes(due_ms, delay_ms, self._due_ms_min)
        return await rescheduling.reschedule_many(self._channel, ids, times)

    async def reschedule_by_key(
        self, topic: str, key: str, *, due_ms: int | None = None, delay_ms: int | None = None
    ) -> rescheduling.KeyRescheduled:
        """Move all messages of a topic that have a key, and are not yet released."""
        found = await self.reschedule_by_keys(topic, [key], due_ms=due_ms, delay_ms=delay_ms)
        return found[0]

    async def reschedule_by_keys(
        self,
        topic: str,
        keys: Sequence[str],
        *,
        due_ms: int | Sequence[int] | None = None,
        delay_ms: int | Sequence[int] | None = None,
    ) -> list[rescheduling.KeyRescheduled]:
        """The same for n keys, to one due time or each to its own; one answer for each, in order.

        All messages whose publish was answered before are among them.

        Raises:
            UnknownTopic: there is no such topic.
            InvalidArgument: no message can have such a key.
            HourwheelError: as `reschedule`.
        """
        times = rescheduling.NewTimes(due_ms, delay_ms, self._due_ms_min)
        return await rescheduling.reschedule_keys(self._channel, topic, keys, times)

    async def flush(self) -> None:
        """Send without lingering, and wait until nothing is under way.

        Failures are raised where the messages were published, not here.
        """
        self._channel.home.enter()
        await self._sender.flush()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush, then end.

        What is still under way after `timeout_ms` fails with `Cancelled`, or with `Timeout` where
        it may have been published.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._channel.home.is_elsewhere:
            return  # what is under way is the parent's
        self._sender.refuse_new()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                await self._sender.flush()
        except TimeoutError:
            pass  # the sender fails the messages with it
        finally:
            await self._sender.close()
            if self._owns_channel:
                await self._channel.close()

    def _check_instants(self, draft: Draft) -> None:
        if draft.count and not draft.is_relative:
            check_instant(int(draft.times_ms.min()), self._due_ms_min)

    async def _add_all(
        self, topic: str, draft: Draft, futures: "list[asyncio.Future[PublishedIds]]"
    ) -> None:
        settings = self._settings
        pieces = batch_builder.cut(
            draft, messages_max=settings.batch_messages, bytes_max=settings.batch_bytes
        )
        for piece in pieces:
            futures.append(await self._sender.add(topic, piece, Wanted.IDS))


@contextmanager
def _forgotten_on_failure(futures: "list[asyncio.Future[PublishedIds]]") -> Iterator[None]:
    """If the block fails, or its task is cancelled, these are not waited for any more."""
    try:
        yield
    except BaseException:
        for future in futures:
            future.cancel()
        raise


async def _collect(futures: "Sequence[asyncio.Future[PublishedIds]]") -> PublishedIds:
    """The ids of all parts, joined.

    Raises:
        HourwheelError: the first failed part's, when all are done, with `published_count`.
    """
    if not futures:
        return PublishedIds(np.empty(0, ID_DTYPE))
    await asyncio.wait(futures)
    failed = [error for future in futures if (error := future.exception()) is not None]
    arrays = [future.result().array for future in futures if future.exception() is None]
    if failed:
        if isinstance(failed[0], errors.HourwheelError):
            failed[0].params["published_count"] = str(sum(map(len, arrays)))
        raise failed[0]
    deduped: dict[int, DedupAnswer] = {}
    first = 0
    for future in futures:
        deduped |= {first + at: one for at, one in future.result().deduped.items()}
        first += len(future.result())
    return PublishedIds(np.concatenate(arrays), deduped)
