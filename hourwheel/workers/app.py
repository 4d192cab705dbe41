"""`App`: what a program writes to handle messages, and to publish them."""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from sysconfig import get_paths
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from hourwheel import errors
from hourwheel.client.blocking import Producer
from hourwheel.client.groups.membership import Broadcast
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Times
from hourwheel.clock import SystemClock
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.instants import check_count, instant_to_ms
from hourwheel.outcomes import CancelOutcome, Missed, RescheduleOutcome
from hourwheel.priorities import NO_PRIORITY
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.workers.execution import Execution, Middleware
from hourwheel.workers.handler import CONCURRENCY, TIME_LIMIT_MS, Function, Handler, make_handler
from hourwheel.workers.hints import check_settings, mark, missing
from hourwheel.workers.lengths import Length, length_to_ms
from hourwheel.workers.payloads import encode
from hourwheel.workers.recurring import Recurring
from hourwheel.workers.service import Parts
from hourwheel.workers.worker import STOP_MS, Worker

SERVER_VARIABLE: Final = "HOURWHEEL_SERVER"
_SETTINGS: Final = frozenset({"priority", "expires", "dedup_key", "if_pending", "ordering_key"})
"""Of `publish`, as `Message` has them."""
F = TypeVar("F", bound=Function)


class Credentials(TypedDict):
    """How an app connects; see `Channel`."""

    tls: Tls | bool | None
    token: Token | None
    user: tuple[str, str] | None


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
        self._access: Credentials = {"tls": tls, "token": token, "user": user}
        self.middleware = tuple(middleware)
        self._handlers: list[Handler] = []
        self._recurrences: list[Recurring] = []
        self._producer: Producer | None = None
        self._make_producer: Callable[..., Producer] = Producer
        self._making_producer = threading.Lock()

    if not TYPE_CHECKING:  # to which each attribute would be one

        def __getattr__(self, name: str) -> object:
            """Say what to write instead of what other libraries have. Raises AttributeError."""
            raise missing(name)

    @property
    def handlers(self) -> Sequence[Handler]:
        """In the order in which they were registered."""
        return self._handlers

    def handler(
        self,
        topic: str | Sequence[str],
        *,
        group: str = "",
        filter: str | FilterExpression | None = None,  # noqa: A002 - as in the client
        concurrency: int = CONCURRENCY,
        time_limit: Length = timedelta(milliseconds=TIME_LIMIT_MS),
        invisible: Length | None = None,
        broadcast: bool | Broadcast = False,
    ) -> Callable[[F], F]:
        """Register a function, or a coroutine function, for the messages of a topic, or of several.

        It gets the payload as it is annotated (see `hourwheel.workers.payloads`), and the
        `MessageContext` where a parameter is annotated with it. It returns: the message is
        acknowledged. It raises: the message comes again after the group's retry delay, and is a
        dead letter when the group's attempts are used up. `Retry(delay=...)` says when.

        Args:
            topic: where messages come from; or a pattern, "orders-*", of up to 256 topics, which
                are looked up every ten seconds; or a list of both.
            group: the consumer group; empty: the app's.
            filter: which messages the group wants; see `AsyncConsumer`.
            concurrency: how many at one time, in each process; of a list, for each entry. Functions
                run in as many threads.
            time_limit: "90s" or a timedelta. What takes longer is given up and comes again.
            invisible: how long messages are leased at first; None: as the group is set up. Leases
                are made longer while a handler runs.
            broadcast: each worker gets every message, and not one of them all: True, or a
                `Broadcast`. Not of a pattern. A worker that was away for too long ends with
                `UnknownGroup`, for it may have missed some.

        Raises:
            InvalidArgument: an argument, or what the function takes, makes no sense.
        """
        check_count(concurrency, "concurrency", at_least=1)
        group = self._checked_group(group)
        time_limit_ms = max(1, length_to_ms(time_limit, "time_limit"))
        invisible_ms = 0 if invisible is None else length_to_ms(invisible, "invisible")
        check_count(invisible_ms, "invisible")
        if callable(topic):
            raise errors.InvalidArgument('a handler has a topic: write @app.handler("orders")')
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics:
            raise errors.InvalidArgument("a handler has a topic")

        def register(function: F) -> F:
            for one in topics:
                self._add(
                    make_handler(
                        function,
                        one,
                        group,
                        filter=filter,
                        concurrency=concurrency,
                        time_limit_ms=time_limit_ms,
                        invisible_ms=invisible_ms,
                        broadcast=broadcast,
                    )
                )
            mark(function, topics[0])
            return function

        return register

    def _checked_group(self, group: str) -> str:
        if not (group or self._group):
            raise errors.InvalidArgument("name the consumer group: App(group=...) or the handler's")
        return group or self._group

    def _add(self, made: Handler) -> None:
        if any((one.topic, one.group) == (made.topic, made.group) for one in self._handlers):
            raise errors.InvalidArgument(
                f"topic {made.topic!r} has a handler in group {made.group!r}: which one would get"
                " what?"
            )
        self._handlers.append(made)

    def recurring(
        self,
        when: str | timedelta,
        *,
        zone: str = "",
        topic: str = "",
        name: str = "",
        payload: object = None,
        missed: Missed = Missed.ALL,
        priority: int = NO_PRIORITY,
    ) -> Callable[[F], F]:
        """Have a function called again and again, by a worker of the app.

        A recurrence of the broker does it (docs/guides/recurring.md): it is put when a worker
        begins, and defined anew when the program says something else of it. Each occurrence is a
        message, handled once by one of all workers, with the attempts of the group.

            @app.recurring("0 3 * * *", zone="Europe/Berlin")
            def report_of_the_night() -> None: ...

        Args:
            when: a cron expression, or a fixed interval.
            zone: the time zone of the expression; empty: UTC.
            topic: empty: one of its own, "<group>.<name>", whose handler the function is. Else a
                topic that has its handler already: put this decorator above `@app.handler`.
            name: of the recurrence in its topic; empty: the function's.
            payload: what each message has, as in `publish`; None: nothing.
            missed: what becomes of occurrences that an outage has delayed.
            priority: of each message, as in `publish`.

        Raises:
            InvalidArgument: an argument makes no sense, or two recurrences have one name. What is
                wrong with `when` and `zone`, the worker says as it begins.
        """
        if callable(when):
            raise errors.InvalidArgument('say when: @app.recurring("0 3 * * *")')
        times = Times(cron=when, time_zone=zone) if isinstance(when, str) else Times(every=when)
        times.to_wire()
        body, content_type = (b"", "") if payload is None else encode(payload)
        group = "" if topic else self._checked_group("")

        def register(function: F) -> F:
            own_name = name or str(getattr(function, "__name__", ""))
            where = topic or f"{group}.{own_name}"
            if any((one.topic, one.name) == (where, own_name) for one in self._recurrences):
                raise errors.InvalidArgument(f"there are two recurrences {own_name!r} of {where!r}")
            if not topic:
                self.handler(where)(function)
            made = Recurring(
                topic=where,
                name=own_name,
                times=times,
                body=body,
                content_type=content_type,
                missed=missed,
                priority=priority,
            )
            self._recurrences.append(made)
            return function

        return register

    @property
    def recurrences(self) -> Sequence[Recurring]:
        """What `recurring` has registered."""
        return self._recurrences

    # --- publishing -----------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: object,
        *,
        in_: Length | None = None,
        at: datetime | None = None,
        key: str = "",
        tags: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> MessageId:
        """Publish one message; returns when it is durable. Not for use in a coroutine.

        Args:
            topic: where to.
            payload: bytes, a text, or what JSON or pydantic can write.
            in_: how long from now: "30m" or a timedelta; None: at once.
            at: or when: an instant with a time zone.
            key: a name of yours, by which it can be cancelled.
            tags: to filter by.
            properties: for the consumer, and for filters.
            settings: `priority`, 0 to 9: of what a group may be given, the highest comes first;
                `expires`, a timedelta after it is due, or an instant, and then no group gets it;
                `dedup_key` with `if_pending`, what becomes of this message where a pending one has
                the same dedup key; `ordering_key`, see `Message`.

        Raises:
            InvalidArgument: one of them makes no sense.
            HourwheelError: see `Producer.publish`.
        """
        message = make_message(
            payload, in_=in_, at=at, key=key, tags=tags, properties=properties, **settings
        )
        return self.producer.publish(topic, message)

    async def publish_async(self, topic: str, payload: object, **settings: Any) -> MessageId:
        """As `publish`, for coroutines."""
        message = make_message(payload, **settings)
        future = self.producer.publish_soon(topic, message)
        return await asyncio.wrap_future(future)

    def cancel(self, topic: str, key: str) -> CancelOutcome:
        """Take back all messages of a topic with this key. See `Producer.cancel_by_key`.

        Not for use in a coroutine.
        """
        return self.producer.cancel_by_key(topic, key).outcome

    async def cancel_async(self, topic: str, key: str) -> CancelOutcome:
        """As `cancel`, for coroutines."""
        return await asyncio.to_thread(self.cancel, topic, key)

    def move(
        self,
        topic: str,
        key: str,
        *,
        in_: Length | None = None,
        at: datetime | None = None,
    ) -> RescheduleOutcome:
        """Give all messages of a topic with this key another due time, as in `publish`.

        See `Producer.reschedule_by_key`. Not for use in a coroutine.

        Raises InvalidArgument: not one of the two is given.
        """
        if (in_ is None) == (at is None):
            raise errors.InvalidArgument("say in_ or at: where to?")
        if at is not None:
            found = self.producer.reschedule_by_key(topic, key, due_ms=instant_to_ms(at))
        else:
            found = self.producer.reschedule_by_key(topic, key, delay_ms=length_to_ms(in_, "in_"))
        return found.outcome

    async def move_async(
        self,
        topic: str,
        key: str,
        *,
        in_: Length | None = None,
        at: datetime | None = None,
    ) -> RescheduleOutcome:
        """As `move`, for coroutines."""
        return await asyncio.to_thread(self.move, topic, key, in_=in_, at=at)

    @property
    def producer(self) -> Producer:
        """The app's own, for all else that a producer does. One for all threads."""
        with self._making_producer:
            if self._producer is None:
                self._producer = self._make_producer(self.server, **self._access)
            return self._producer

    def produce_by(self, make: Callable[..., Producer]) -> None:
        """Publish by such a producer from now on, as by `hourwheel.otel.TracedProducer`.

        `make` is called with the arguments of `Producer`. What is published is sent before.
        """
        self.close()
        self._make_producer = make

    @property
    def credentials(self) -> Credentials:
        """How it connects now: for `connect_to`, to come back."""
        return self._access.copy()

    def connect_to(
        self,
        server: Servers,
        *,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """Publish and serve there from now on; what is published is sent before.

        The former credentials are for the former nodes, and are not used there.
        """
        self.close()
        self.server = server
        self._access = {"tls": tls, "token": token, "user": user}

    def close(self) -> None:
        """Close the producer."""
        with self._making_producer:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

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
                parts = Parts(channel, execution, SystemClock())
                worker = Worker(
                    parts,
                    self._handlers,
                    recurring=self._recurrences,
                    stop_ms=STOP_MS,
                )
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
    in_: Length | None = None,
    at: datetime | None = None,
    key: str = "",
    tags: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    **settings: Any,
) -> Message:
    """The message that `App.publish` publishes. Raises as that does."""
    check_settings({name: one for name, one in settings.items() if name not in _SETTINGS})
    body, content_type = encode(payload)
    return Message(
        body,
        delay_ms=None if in_ is None else length_to_ms(in_, "in_"),
        due=at,
        keys=[key] if key else (),
        tags=tags,
        properties=properties,
        content_type=content_type,
        **settings,
    )


def load_app(target: str) -> App:
    """The app that "module:name" says; the name is `app` where it is left out.

    Raises:
        InvalidArgument: there is none.
        FailedPrecondition: the module cannot be imported; says where in the program that is.
    """
    name, _, attribute = target.partition(":")
    if not all(name.split(".")) or "/" in name or name.endswith(".py"):
        raise errors.InvalidArgument(f"{target!r} is no app: write module:app, such as shop:app")
    try:
        module = import_module(name)
    except errors.HourwheelError:
        raise
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            package, _, last = name.rpartition(".")
            hint = f"; an app of a module is {package}:{last}" if package and not attribute else ""
            where = sys.path[0]
            raise errors.InvalidArgument(
                f"there is no module {name!r} in {where!r}{hint}"
            ) from None
        raise errors.FailedPrecondition(
            f"{name!r} cannot be imported:\n{_own_part(error)}"
        ) from error
    found = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise errors.InvalidArgument(f"{name} has no App called {attribute or 'app'!r}")
    return found


def _own_part(error: Exception) -> str:
    """A traceback of the program's own lines: without those of Python, libraries and Hourwheel."""
    folders = [*map(get_paths().get, ("stdlib", "purelib", "platlib")), Path(__file__).parents[1]]
    others = tuple(f"{one}{os.sep}" for one in folders)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen ", *others))
    ]
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    return "".join(lines).rstrip()
