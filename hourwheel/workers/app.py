"""`App`: what a program writes to handle messages, and to publish them."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final, TypeVar

from hourwheel import errors
from hourwheel.client.blocking import Producer
from hourwheel.client.message import Message
from hourwheel.clock import SystemClock
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.instants import check_count, count_of_ms
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.workers.execution import Execution, Middleware
from hourwheel.workers.handler import CONCURRENCY, TIME_LIMIT_MS, Function, Handler, make_handler
from hourwheel.workers.payloads import encode
from hourwheel.workers.worker import Worker

SERVER_VARIABLE: Final = "HOURWHEEL_SERVER"
F = TypeVar("F", bound=Function)


class App:
    """The handlers of a program, and a producer for what it publishes.

        app = App("127.0.0.1:7400", group="shop")

        @app.handler("orders")
        def close_unpaid(order: dict) -> None:
            print("closing", order["id"])

        app.publish("orders", {"id": 17}, in_="30m", key="order-17")

    Run its handlers by `hourwheel worker module:app`, or within a program by `await app.serve()`.
    """

    def __init__(
        self,
        server: Servers = "",
        *,
        group: str = "",
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """Prepare; nothing is connected before it is used.

        Args:
            server: see `Channel`; empty: the environment's HOURWHEEL_SERVER, else 127.0.0.1:7400.
            group: of handlers that name none.
            tls: see `Channel`.
            token: see `Channel`.
            user: see `Channel`.
            middleware: coroutine functions (context, call_next) around each handler, the first one
                outermost.
        """
        self.server: Servers = server or os.environ.get(SERVER_VARIABLE, "") or SERVER_DEFAULT
        self._group = group
        self._access: dict[str, Any] = {"tls": tls, "token": token, "user": user}
        self.middleware = tuple(middleware)
        self._handlers: list[Handler] = []
        self._producer: Producer | None = None

    @property
    def handlers(self) -> Sequence[Handler]:
        """In the order in which they were registered."""
        return self._handlers

    def handler(
        self,
        topic: str,
        *,
        group: str = "",
        filter: str | FilterExpression | None = None,  # noqa: A002 - as in the client
        concurrency: int = CONCURRENCY,
        time_limit: int | timedelta = TIME_LIMIT_MS,
        invisible: int | timedelta = 0,
    ) -> Callable[[F], F]:
        """Register a function, or a coroutine function, for the messages of a topic.

        It gets the payload as it is annotated (see `hourwheel.workers.payloads`), and the
        `MessageContext` where a parameter is annotated with it. It returns: the message is
        acknowledged. It raises: the message comes again after the group's retry delay, and is a
        dead letter when the group's attempts are used up. `Retry(delay=...)` says when.

        Args:
            topic: where messages come from.
            group: the consumer group; empty: the app's.
            filter: which messages the group wants; see `AsyncConsumer`.
            concurrency: how many at one time, in each process. Functions run in as many threads.
            time_limit: a timedelta or milliseconds. What takes longer is given up and comes again.
            invisible: how long messages are leased at first; 0: as the group is set up. Leases are
                made longer while a handler runs.

        Raises:
            InvalidArgument: an argument, or what the function takes, makes no sense.
        """
        check_count(concurrency, "concurrency", at_least=1)
        group = group or self._group
        if not group:
            raise errors.InvalidArgument("name the consumer group: App(group=...) or the handler's")

        def register(function: F) -> F:
            made = make_handler(
                function,
                topic,
                group,
                filter=filter,
                concurrency=concurrency,
                time_limit_ms=max(1, count_of_ms(time_limit, "time_limit")),
                invisible_ms=count_of_ms(invisible, "invisible"),
            )
            if any((one.topic, one.group) == (topic, group) for one in self._handlers):
                raise errors.InvalidArgument(
                    f"topic {topic!r} has a handler in group {group!r}: which one would get what?"
                )
            self._handlers.append(made)
            return function

        return register

    # --- publishing -----------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: object,
        *,
        in_: str | timedelta | int | None = None,
        at: datetime | None = None,
        key: str = "",
        tags: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> MessageId:
        """Publish one message; returns when it is durable. Not for use in a coroutine.

        Args:
            topic: where to.
            payload: bytes, a text, or what JSON or pydantic can write.
            in_: how long from now: "30m", a timedelta, or milliseconds; None: at once.
            at: or when: an instant with a time zone.
            key: a name of yours, by which it can be cancelled.
            tags: to filter by.
            properties: for the consumer, and for filters.

        Raises:
            InvalidArgument: one of them makes no sense.
            HourwheelError: see `Producer.publish`.
        """
        message = make_message(payload, in_=in_, at=at, key=key, tags=tags, properties=properties)
        return self.producer.publish(topic, message)

    async def publish_async(self, topic: str, payload: object, **settings: Any) -> MessageId:
        """As `publish`, for coroutines."""
        message = make_message(payload, **settings)
        future = self.producer.publish_soon(topic, message)
        return await asyncio.wrap_future(future)

    def cancel(self, topic: str, key: str) -> CancelOutcome:
        """Take back all messages of a topic with this key. See `Producer.cancel_by_key`."""
        return self.producer.cancel_by_key(topic, key).outcome

    @property
    def producer(self) -> Producer:
        """The app's own, for all else that a producer does."""
        if self._producer is None:
            self._producer = Producer(self.server, **self._access)
        return self._producer

    def connect_to(self, server: Servers) -> None:
        """Publish and serve there from now on; what is published is sent before."""
        self.close()
        self.server = server

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # --- serving --------------------------------------------------------------------------------

    def channel(self) -> Channel:
        """A connection as this app is set up; the caller closes it."""
        return Channel(self.server, **self._access)

    async def serve(self, stopping: asyncio.Event | None = None) -> None:
        """Run the handlers in this process until `stopping` is set, or the task is cancelled.

        Here nothing protects one message from the handler of another one that ends the process:
        that is what `hourwheel worker` has processes for.

        Raises:
            HourwheelError: a failure that trying again does not mend.
        """
        execution = Execution(self._handlers, self.middleware)
        try:
            async with self.channel() as channel:
                worker = Worker(channel, self._handlers, execution, SystemClock())
                stop = asyncio.create_task(_stop_when(stopping, worker))
                try:
                    await worker.run()
                finally:
                    stop.cancel()
        finally:
            execution.close()


async def _stop_when(stopping: asyncio.Event | None, worker: Worker) -> None:
    if stopping is not None:
        await stopping.wait()
        worker.stop()


def make_message(
    payload: object,
    *,
    in_: str | timedelta | int | None = None,
    at: datetime | None = None,
    key: str = "",
    tags: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """The message that `App.publish` publishes. Raises as that does."""
    body, content_type = encode(payload)
    return Message(
        body,
        delay_ms=None if in_ is None else _delay_ms(in_),
        due=at,
        keys=[key] if key else (),
        tags=tags,
        properties=properties,
        content_type=content_type,
    )


def _delay_ms(given: str | timedelta | int) -> int:
    if not isinstance(given, str):
        return count_of_ms(given, "in_")
    try:
        due_time = import_module("hourwheel.due_time")
    except ImportError:
        raise errors.InvalidArgument(
            f"to read {given!r} install 'hourwheel[workers]', or give a timedelta"
        ) from None
    parsed: int = due_time.parse_duration_ms(given)
    return parsed


def load_app(target: str) -> App:
    """The app that "module:name" says; the name is `app` where it is left out.

    Raises:
        InvalidArgument: there is none.
    """
    name, _, attribute = target.partition(":")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name and not name.startswith(f"{error.name}."):
            raise
        raise errors.InvalidArgument(f"there is no module {name!r} in {sys.path[0]!r}") from None
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise errors.InvalidArgument(f"{name} has no App called {attribute or 'app'!r}")
    return found
