"""A broker in the process of a test, and the handlers of apps that run at it.

Three threads have a part: the node and the consumers live in the loop of one; handlers that are
coroutines run in the loop of another one, or in that of a test which is a coroutine itself; and
the test waits. One message is handled at a time, in the order of handlers and of delivery, so that
two runs of a test are alike.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from hourwheel import errors, limits, rooms
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.groups.membership import Broadcast
from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.message import ReceivedMessage
from hourwheel.instants import instant_to_ms
from hourwheel.testing.clock import Clock
from hourwheel.transport.channel import Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.workers.app import App, Credentials
from hourwheel.workers.execution import CallNext, Execution
from hourwheel.workers.handler import Handler, MessageContext
from hourwheel.workers.outcome import tell
from hourwheel.workers.pattern import find_topics
from hourwheel.workers.recurring import put_all
from hourwheel.workers.results import Reject, Result, ResultKind, Retry
from hourwheel.workers.worker import members_of

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""Where clocks begin, so that a test does not depend on the day on which it runs. A Tuesday."""
AT_ONCE_MAX: Final = 100_000
"""Messages that are handled at one time of the clock: more are a handler's that publishes for ever.
"""
_TAKEN: Final = 16
"""Messages of one poll."""
T = TypeVar("T")


class NodePort(Protocol):
    """What the broker needs of node/process/manual_clock_node.py, in its own loop."""

    now_ms: int

    async def start(self) -> str:
        """Serve; returns host:port."""
        ...

    async def stop(self) -> None:
        """End."""
        ...

    async def settle(self) -> None:
        """Return when nothing is left to do now."""
        ...

    async def find_next_ms(self, until_ms: int) -> int | None:
        """When something happens by itself."""
        ...

    async def move_to(self, at_ms: int) -> None:
        """Move the clock, and settle."""
        ...


@dataclass(frozen=True, slots=True)
class Handled:
    """A message that a handler was called for."""

    handler: str
    """Its module and name."""
    context: MessageContext
    result: ResultKind
    at_ms: int
    """What the clock showed."""
    error: BaseException | None = None
    """What the handler raised."""


@dataclass(slots=True)
class _Running:
    """A handler that runs here."""

    handler: Handler
    execution: Execution
    member: Broadcast | None
    """As what it is one of a broadcast."""
    consumers: dict[str, AsyncConsumer] = field(default_factory=dict)
    """By topic."""


class Broker:
    """A context manager: a broker inside, nothing after it. All methods from any thread.

    with Broker(folder) as broker:
        broker.run(app)
        broker.clock.advance("3d")
    """

    def __init__(self, directory: Path, *, start: datetime = START) -> None:
        """Its files go into `directory`; `start`: what the clock shows at first."""
        self._directory, self._start_ms = directory, instant_to_ms(start)
        self._node: NodePort
        self._channel: Channel
        self._nodes_thread = LoopThread(_nothing)
        self._handlers_thread = LoopThread(_nothing)
        self._busy = threading.Lock()
        """Somebody moves the clock, or waits for handlers."""
        self._running: list[_Running] = []
        self._former: list[tuple[App, Servers, Credentials]] = []
        """Apps, and where they were connected to."""
        self._error: BaseException | None = None
        """Of the handler that was called last."""
        self._raises = True
        self._admin: Admin | None = None
        self.server = ""
        """Where clients reach it, host:port."""
        self.clock = Clock(lambda: self._node.now_ms, self._move_to, self._handlers_thread.run)
        self.handled: list[Handled] = []
        """Each call of a handler, in order."""

    def __enter__(self) -> Self:
        """Start.

        Raises:
            FailedPrecondition: what a server needs is not installed.
            HourwheelError: as `hourwheel node`.
        """
        try:
            import_module("hourwheel.due_time")  # for the clock
            made = rooms.load("node.process.manual_clock_node").ManualClockNode
        except ModuleNotFoundError as error:
            raise errors.FailedPrecondition(
                f"a broker needs {error.name}: pip install 'hourwheel[testing]'"
            ) from None
        try:
            self._nodes_thread.run(self._begin(made))
        except BaseException:
            self._nodes_thread.finish(_nothing())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and connect apps to where they were before."""
        for app, server, credentials in self._former:
            app.connect_to(server, **credentials)
        if self._admin is not None:
            self._admin.close()
        self._handlers_thread.finish(_nothing())
        self._nodes_thread.finish(self._stop())

    async def _begin(self, make: Callable[[Path, int], NodePort]) -> None:
        self._node = make(self._directory, self._start_ms)
        self.server = await self._node.start()
        self._channel = Channel(self.server)

    async def _stop(self) -> None:
        for one in self._running:
            one.execution.close()
            for consumer in one.consumers.values():
                await consumer.close()
        await self._channel.close()
        await self._node.stop()

    @property
    def admin(self) -> Admin:
        """An administrator: groups, dead letters, what is pending."""
        if self._admin is None:
            self._admin = Admin(self.server)
        return self._admin

    # --- handlers -------------------------------------------------------------------------------

    def run(self, app: App, *, raise_errors: bool = True) -> None:
        """Have the handlers of an app called from now on, and let it publish here.

        They are called by `settle` and as the clock moves, in this process, whatever `--processes`
        would say. Nothing of a handler takes time of the clock.

        Args:
            app: it is connected to this broker, until the broker ends; without its TLS, token or
                user, which are for other nodes.
            raise_errors: what a handler raises, other than `Retry` and `Reject`, is raised by
                `settle` and `advance` as soon as its message was given back. False: it is in
                `handled` only, and the message comes again as in production. Of several apps the
                last one says.

        Raises:
            InvalidArgument: the app runs here already.
            HourwheelError: a recurrence of the app cannot be.
        """
        if any(app is one for one, _, _ in self._former):
            raise errors.InvalidArgument("this app runs here already")
        self._raises = raise_errors
        self._former.append((app, app.server, app.credentials))
        app.connect_to(self.server)
        execution = Execution(app.handlers, (self._note_error, *app.middleware))
        self._nodes_thread.run(self._add(app, execution))

    async def _add(self, app: App, execution: Execution) -> None:
        await put_all(AsyncAdmin(self._channel), app.recurrences)
        members = members_of(app.handlers)
        for handler in app.handlers:
            member = members.get(handler)
            if member is not None:  # it is there all the time, although the clock leaps
                member = replace(member, idle_ms=limits.MEMBER_IDLE_MS_MAX)
            one = _Running(handler, execution, member)
            self._running.append(one)
            if member is not None:  # it gets what is published from now on
                with suppress(errors.UnknownTopic):
                    await self._consumer_of(one, handler.topic).open()

    async def _receive(self, one: _Running) -> list[tuple[AsyncConsumer, ReceivedMessage]]:
        """What is there for a handler now."""
        handler, found = one.handler, []
        topics = [handler.topic]
        if handler.has_pattern:
            topics = await find_topics(AsyncAdmin(self._channel), handler.topic)
        for topic in topics:
            consumer = self._consumer_of(one, topic)
            with suppress(errors.UnknownTopic):
                found += [(consumer, message) for message in await consumer.receive(_TAKEN, 0)]
        return found

    def _consumer_of(self, one: _Running, topic: str) -> AsyncConsumer:
        handler = one.handler
        if topic not in one.consumers:
            one.consumers[topic] = AsyncConsumer(
                self._channel,
                group=handler.group,
                topic=topic,
                filter=handler.filter,
                invisible_ms=handler.invisible_ms,
                prefetch_messages=0,
                broadcast=one.member or False,
            )
        return one.consumers[topic]

    async def _note_error(self, context: MessageContext, call_next: CallNext) -> None:
        try:
            await call_next(context)
        except BaseException as error:
            self._error = error
            raise

    def settle(self) -> None:
        """Return when handlers have handled all that is due now. Not for use in a coroutine.

        Raises:
            FailedPrecondition: there is no end to it.
            BaseException: what a handler has raised, see `run`.
        """
        self._handlers_thread.run(self.settle_async())

    async def settle_async(self) -> None:
        """As `settle`, for coroutines: handlers that are coroutines run in the caller's loop."""
        await self._move_to(self._node.now_ms)

    async def _move_to(self, at_ms: int) -> None:
        if not self._busy.acquire(blocking=False):
            raise errors.FailedPrecondition("somebody moves this clock already: a handler cannot")
        try:
            await self._in_node(self._node.settle())
            await self._handle_all()
            while (next_ms := await self._find_next_ms(at_ms)) is not None:
                await self._in_node(self._node.move_to(next_ms))
                await self._handle_all()
            await self._in_node(self._node.move_to(at_ms))
            await self._handle_all()
        finally:
            self._busy.release()

    async def _find_next_ms(self, until_ms: int) -> int | None:
        """When something happens; at the latest when members of broadcasts are to be heard of."""
        next_ms = await self._in_node(self._node.find_next_ms(until_ms))
        heard_ms = self._node.now_ms + limits.MEMBER_IDLE_MS_MAX // 2
        if any(one.member for one in self._running) and heard_ms < until_ms:
            return heard_ms if next_ms is None else min(next_ms, heard_ms)
        return next_ms

    async def _in_node(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of what runs in the node's loop."""
        return await asyncio.wrap_future(self._nodes_thread.begin(coroutine))

    async def _handle_all(self) -> None:
        handled_count, is_done = 0, False
        while not is_done:
            is_done = True
            for one in self._running:
                messages = await self._in_node(self._receive(one))
                for consumer, message in messages:
                    is_done = False
                    await self._handle(one, consumer, message)
                handled_count += len(messages)
                if handled_count > AT_ONCE_MAX:
                    raise errors.FailedPrecondition(
                        f"more than {AT_ONCE_MAX:,} messages at one time of the clock: does"
                        f" {one.handler.name} publish, or retry without delay, for ever?"
                    )

    async def _handle(
        self, one: _Running, consumer: AsyncConsumer, message: ReceivedMessage
    ) -> None:
        context = MessageContext.of(message, one.handler.group)
        result = await one.execution.run(one.handler, context)
        error, self._error = self._error, None
        at_ms = self._node.now_ms
        self.handled.append(Handled(one.handler.name, context, result.kind, at_ms, error))
        await self._in_node(self._finish(consumer, message, result, one.handler.name))
        if self._raises and error is not None and not isinstance(error, Retry | Reject):
            if isinstance(error, Exception):
                raise error
            # Raised as they are, these would end the loop, or look like its own doing.
            raise RuntimeError(f"{one.handler.name}: {result.error or error!r}") from error

    async def _finish(
        self, consumer: AsyncConsumer, message: ReceivedMessage, result: Result, name: str
    ) -> None:
        await tell(consumer, message, result, name)
        await consumer.flush_acks()
        await self._node.settle()


async def _nothing() -> None:
    """Of threads that are ended by their owner, always."""
