"""Hourwheel as a broker of dramatiq.

    import dramatiq
    from hourwheel.integrations.dramatiq import HourwheelBroker

    dramatiq.set_broker(HourwheelBroker("hourwheel://127.0.0.1:7400"))

A message that is sent with a delay, or that the middleware `Retries` sends again, is published with
its due time: it waits in the wheel, and in no worker's memory. There are no queues `.DQ`. What an
actor rejects is a dead letter of the group (`hourwheel dead list`). A queue is a topic.

dramatiq's command line forks before it connects, so that workers are clients themselves.
"""

import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.message import Message as Outgoing
from hourwheel.client.message import ReceivedMessage
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.integrations import queue_admin
from hourwheel.integrations.leased_queue import LeasedQueue
from hourwheel.integrations.names import topic_of
from hourwheel.priorities import NO_PRIORITY, PRIORITY_MAX
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import Channel

DEFAULT_GROUP: Final = "dramatiq"
INVISIBLE_MS: Final = 60_000
"""A worker that is killed keeps what it had from others so long."""
_SCHEME: Final = "hourwheel://"
_PRIORITY_OPTION: Final = "broker_priority"
"""Of actors and messages, as dramatiq's broker for RabbitMQ has it."""
_REASON_CHARS_MAX: Final = 200
_NO_MESSAGE: Final = "it is no message of dramatiq"
_clock: Final = SystemClock()
Result = TypeVar("Result")


class HourwheelBroker(Broker):
    """A broker for dramatiq. It connects when it is first used, in the process that uses it."""

    def __init__(
        self,
        url: str = "hourwheel://127.0.0.1:7400",
        *,
        middleware: list[Middleware] | None = None,
        group: str = DEFAULT_GROUP,
        namespace: str = "",
        invisible_ms: int = INVISIBLE_MS,
        tls: Tls | bool | None = None,
        token: Token | None = None,
    ) -> None:
        """Prepare.

        Args:
            url: `hourwheel://user:secret@host:port`, with more of `host:port` behind commas; user
                and scheme may be left out.
            middleware: see `dramatiq.Broker`.
            group: the consumer group of all workers.
            namespace: sets queues of equal names apart.
            invisible_ms: how long a message is leased. Leases are made longer while a worker has
                the message.
            tls: see `hourwheel.Channel`.
            token: see `hourwheel.Channel`.

        Raises:
            InvalidArgument: `url` names no server.
        """
        super().__init__(middleware=middleware)
        self.actor_options.add(_PRIORITY_OPTION)
        self.queues: set[str] = set()
        self._group, self._namespace, self._invisible_ms = group, namespace, invisible_ms
        user, _, servers = url.removeprefix(_SCHEME).rstrip("/").rpartition("@")
        name, _, secret = user.partition(":")
        login = (unquote(name), unquote(secret)) if user else None
        self._channel = Channel(servers, tls=tls, token=token, user=login)
        self._producer = AsyncProducer(self._channel)
        self._admin = AsyncAdmin(self._channel)
        self._thread = LoopThread(self._close)

    async def _close(self) -> None:
        await self._producer.close()
        await self._channel.close()

    def close(self) -> None:
        """Disconnect."""
        self._thread.finish(self._close())

    def topic_of(self, queue_name: str) -> str:
        """The topic of a queue. Raises InvalidTopic."""
        return topic_of(queue_name, self._namespace)

    def declare_queue(self, queue_name: str) -> None:
        """Know of a queue; the topic is made when it is first used."""
        if queue_name in self.queues:
            return
        self.emit_before("declare_queue", queue_name)
        self.queues.add(queue_name)
        self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """All that were declared."""
        return self.queues.copy()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Publish a message, for `delay` milliseconds from now.

        Raises:
            ConnectionClosed: no node takes it in time.
            InvalidArgument: it is too large, its delay too long, or its `broker_priority` is none.
        """
        if "eta" in message.options:  # from elsewhere; a worker would delay it once more
            options = {name: one for name, one in message.options.items() if name != "eta"}
            message = dataclasses.replace(message, options=options)
        self.emit_before("enqueue", message, delay)
        outgoing = Outgoing(
            message.encode(),
            delay_ms=None if delay is None else max(0, round(delay)),
            keys=[message.message_id],
            content_type="application/json",
            priority=self._priority_of(message),
        )
        topic = self.topic_of(message.queue_name)
        with _as_of_dramatiq():
            self._thread.wait_for(partial(self._producer.begin_publish, topic, outgoing))
        self.emit_after("enqueue", message, delay)
        return message

    def _priority_of(self, message: Message[Any]) -> int:
        """0 to 9, the largest first: its `broker_priority`, else as its actor's `priority` says.

        That has the smallest first, and 0 where nothing is said: -1 to -9 are 1 to 9 here.
        """
        actor = self.actors.get(message.actor_name)
        said = message.options.get(_PRIORITY_OPTION)
        if said is None and actor is not None:
            said = actor.options.get(_PRIORITY_OPTION)
        if said is None:
            said = 0 if actor is None else min(PRIORITY_MAX, max(NO_PRIORITY, -actor.priority))
        found: int = said  # whether it is one, `draft_one` says
        return found

    def cancel(self, message: Message[Any]) -> bool:
        """Take back a message that is not due yet. False: it is gone, or was never there.

        Raises:
            ConnectionClosed: no node answers.
        """
        topic = self.topic_of(message.queue_name)
        try:
            found = self._run(partial(self._producer.cancel_by_key, topic, message.message_id))
        except errors.UnknownTopic:
            return False
        return bool(found.cancelled_count)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        """Messages of a queue.

        Raises:
            QueueNotFound: it was not declared.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        queue = LeasedQueue(
            self._channel, self.topic_of(queue_name), self._group, self._invisible_ms
        )
        return _HourwheelConsumer(self._thread, queue, prefetch, timeout)

    def flush(self, queue_name: str) -> None:
        """Drop the messages of a queue: those that are not due, and those that are."""
        topic = self.topic_of(queue_name)
        self._run(partial(queue_admin.purge, self._admin, topic, self._group))

    def flush_all(self) -> None:
        """As `flush`, of all queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until nothing of a queue is left to do, later messages included: for tests.

        Raises:
            QueueJoinTimeout: it takes longer than `timeout` milliseconds.
        """
        until_ms = None if timeout is None else _clock.monotonic_ms() + timeout
        topic, pause = self.topic_of(queue_name), threading.Event()
        while self._run(partial(queue_admin.count_unfinished, self._admin, topic, self._group)):
            if until_ms is not None and _clock.monotonic_ms() >= until_ms:
                raise QueueJoinTimeout(queue_name)
            pause.wait(interval / 1_000)

    def _run(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        return _run(self._thread, call)


class _Holding:
    """What one consumer has leased and no worker has settled yet.

    dramatiq's worker makes a new consumer after a pause or a lost connection, and tells that one
    what has become of messages of the former one. So messages know whose they are, and their leases
    are made longer until the last of them is settled, also when their consumer has ended.
    """

    def __init__(self, thread: LoopThread, queue: LeasedQueue) -> None:
        self.queue = queue
        self._thread = thread
        self._count = 0
        self._freed = threading.Condition()
        self._has_ended = self._is_closed = False

    def wait_for_room(self, count_max: int, wait_s: float) -> int:
        """How many more may be held; 0: none within this time."""
        with self._freed:
            self._freed.wait_for(lambda: self._count < count_max, wait_s)
            return max(0, count_max - self._count)

    def add(self, count: int) -> None:
        """So many are leased."""
        with self._freed:
            self._count += count

    def free(self, count: int = 1) -> None:
        """So many are settled."""
        with self._freed:
            self._count -= count
            self._freed.notify()
        self._close_if_idle()

    def end(self) -> None:
        """Nothing more is received. Raises ConnectionClosed."""
        self._has_ended = True
        _run(self._thread, self.queue.settle)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        with self._freed:
            if self._is_closed or not self._has_ended or self._count:
                return
            self._is_closed = True
        _run(self._thread, self.queue.close)


class _Received(MessageProxy):
    """A message, and its lease."""

    def __init__(self, message: Message[Any], received: ReceivedMessage, holding: _Holding) -> None:
        super().__init__(message)
        self.received, self.holding = received, holding
        self.is_settled = False
        """Nothing more is sent of it."""

    def settle(self) -> None:
        """It is done, a dead letter, given back or let go."""
        self.is_settled = True
        self.holding.free()


class _HourwheelConsumer(Consumer):
    """Of one queue. `ack` and `nack` are called by the threads of workers.

    dramatiq may pass them messages of an earlier consumer, and others without a lease: these
    are left alone.
    """

    def __init__(
        self, thread: LoopThread, queue: LeasedQueue, prefetch: int, timeout_ms: int
    ) -> None:
        self._thread, self._queue = thread, queue
        self._prefetch, self._timeout_ms = prefetch, timeout_ms
        self._fetched: deque[ReceivedMessage] = deque()
        self._holding = _Holding(thread, queue)

    def __next__(self) -> MessageProxy | None:
        """The next message; None: none within the time."""
        if not self._fetched:
            self._fetch()
        if not self._fetched:
            return None
        received = self._fetched.popleft()
        try:
            return _Received(Message.decode(received.body), received, self._holding)
        except (DecodeError, errors.InvalidBatch, ValueError, TypeError, KeyError):
            self._reject_foreign(received)
            return None

    def _reject_foreign(self, received: ReceivedMessage) -> None:
        try:
            _run(self._thread, partial(self._queue.reject, received, _NO_MESSAGE))
        except BaseException:
            self._thread.call_soon(partial(self._queue.let_go, received))
            raise
        finally:
            self._holding.free()

    def _fetch(self) -> None:
        room = self._holding.wait_for_room(self._prefetch, self._timeout_ms / 1_000)
        if not room:
            return
        found = _run(self._thread, partial(self._queue.receive, room, self._timeout_ms))
        self._holding.add(len(found))
        self._fetched.extend(found)

    def ack(self, message: MessageProxy) -> None:
        """It is done. Raises ConnectionClosed."""
        if isinstance(message, _Received) and not message.is_settled:
            queue = message.holding.queue
            self._thread.call_soon(partial(queue.ack_soon, message.received))
            message.settle()

    def nack(self, message: MessageProxy) -> None:
        """It is a dead letter. Raises ConnectionClosed: it is held, and this may be tried again."""
        if not isinstance(message, _Received) or message.is_settled:
            return
        error = getattr(message, "_exception", None)
        reason = "rejected" if error is None else f"{type(error).__name__}: {error}"
        queue, received = message.holding.queue, message.received
        try:
            _run(self._thread, partial(queue.reject, received, reason[:_REASON_CHARS_MAX]))
        except ConnectionClosed:
            raise
        except BaseException:
            self._thread.call_soon(partial(queue.let_go, received))
            message.settle()
            raise
        message.settle()

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """They come again at once, to any worker. Raises ConnectionClosed.

        dramatiq does so with those that none of its threads has begun.
        """
        by_holding: dict[_Holding, list[_Received]] = {}
        for one in messages:
            if isinstance(one, _Received) and not one.is_settled:
                by_holding.setdefault(one.holding, []).append(one)
        for holding, given in by_holding.items():
            received = [one.received for one in given]
            _run(self._thread, partial(holding.queue.give_back, received, not_begun=True))
            for one in given:
                one.settle()

    def close(self) -> None:
        """Give back what no worker has got, and end. What is in work stays leased until then."""
        given = list(self._fetched)
        self._fetched.clear()
        try:
            _run(self._thread, partial(self._queue.give_back, given, not_begun=True))
        finally:
            self._holding.free(len(given))
        self._holding.end()


def _run(thread: LoopThread, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Raises ConnectionClosed where trying again may help, and what `call` raises."""
    with _as_of_dramatiq():
        return thread.run(call())


@contextmanager
def _as_of_dramatiq() -> Iterator[None]:
    """Raises ConnectionClosed where trying again may help."""
    try:
        yield
    except (errors.Unavailable, errors.Timeout, errors.Cancelled) as error:
        raise ConnectionClosed(error) from error
