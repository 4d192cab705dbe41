"""Tracing with OpenTelemetry: a message carries its producer's context, its consumers link to it.

    pip install 'hourwheel[otel]'

    from hourwheel.otel import TracedProducer, process_span

    with TracedProducer("127.0.0.1:7400") as producer:
        producer.publish("orders", Message(b"...", delay_ms=90_000))

    with Consumer("127.0.0.1:7400", group="billing", topic="orders") as consumer:
        for message in consumer:
            with process_span(message, group="billing"):
                handle(message.body)
            consumer.ack_soon(message)

A traced producer makes a span for each call and puts its context into the properties of the
messages, as `opentelemetry.propagate` is set up: `traceparent` and, where there is any,
`tracestate` and `baggage`. A span of processing is no child of that span but linked to it: between
the two may lie years. Without a tracer provider nothing is added to any message. Programs that do
not import this module pay nothing for it; why it looks as it does:
docs/decisions/0034-tracing-goes-through-properties.md.
"""

import asyncio
import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, cast

from hourwheel import __version__, errors
from hourwheel.client.batch_builder import Columns
from hourwheel.client.blocking import Producer
from hourwheel.client.message import Message, ReceivedBatch, ReceivedMessage
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.workers.app import App
from hourwheel.workers.execution import CallNext, Middleware
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.results import Reject, Retry

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError("tracing needs OpenTelemetry: pip install 'hourwheel[otel]'") from error

__all__ = [
    "TracedAsyncProducer",
    "TracedProducer",
    "context_of",
    "handler_spans",
    "instrument",
    "process_span",
]

_NS_PER_MS: Final = 1_000_000
_log = logging.getLogger(__name__)


class TracedAsyncProducer(AsyncProducer):
    """An `AsyncProducer` whose calls are spans that its messages carry with them."""

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        **settings: Any,
    ) -> None:
        """`tracer_provider`: None for the global one; the others: see `AsyncProducer`."""
        super().__init__(server, **settings)
        self._tracer = _tracer(tracer_provider)
        self.untraced_count = 0
        """Messages that went without a context, since their properties had no room for it."""

    async def publish_soon(self, topic: str, message: Message) -> "asyncio.Future[MessageId]":
        """See `AsyncProducer.publish_soon`; the span ends when the message is durable."""
        with self._span_until_published(topic, message) as (traced, follow):
            return follow(await super().publish_soon(topic, traced))

    def begin_publish(self, topic: str, message: Message) -> "asyncio.Future[MessageId]":
        """See `AsyncProducer.begin_publish`; as `publish_soon`."""
        with self._span_until_published(topic, message) as (traced, follow):
            return follow(super().begin_publish(topic, traced))

    @contextmanager
    def _span_until_published(
        self, topic: str, message: Message
    ) -> (
        "Iterator[tuple[Message, Callable[[asyncio.Future[MessageId]], asyncio.Future[MessageId]]]]"
    ):
        """(the message with the context of a span, what ends the span as its future is done)."""
        span = self._tracer.start_span(
            f"publish {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes=_publish_attributes(topic) | _facts_of(message),
        )

        def follow(future: "asyncio.Future[MessageId]") -> "asyncio.Future[MessageId]":
            future.add_done_callback(partial(_end_published, span))
            return future

        try:
            yield self._with_context(message, _carrier_of(span)), follow
        except BaseException as error:
            _end_failed(span, error)
            raise

    async def publish_many(self, topic: str, messages: Sequence[Message]) -> PublishedIds:
        """See `AsyncProducer.publish_many`; one span, whose context all messages carry."""
        with self._batch_span(topic, len(messages)) as carrier:
            traced = [self._with_context(message, carrier) for message in messages]
            return await super().publish_many(topic, traced)

    async def publish_batch(self, topic: str, columns: Columns) -> PublishedIds:
        """See `AsyncProducer.publish_batch`; as `publish_many`."""
        with self._batch_span(topic, len(columns.bodies)) as carrier:
            if carrier:
                before = columns.metas or [metas.NO_META] * len(columns.bodies)
                traced = [self._meta_with_context(one, carrier) for one in before]
                columns = replace(columns, metas=traced)
            return await super().publish_batch(topic, columns)

    @contextmanager
    def _batch_span(self, topic: str, count: int) -> Iterator[dict[str, str]]:
        """A span around one call; gives what its messages carry."""
        attributes = _publish_attributes(topic) | {"messaging.batch.message_count": count}
        with _current_span(
            self._tracer, f"publish {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield _carrier_of(span)

    def _with_context(self, message: Message, carrier: Mapping[str, str]) -> Message:
        """A copy of the message with the context; itself, where there is no room."""
        if not carrier or not isinstance(message, Message):
            return message  # what is no message, publishing says
        traced = copy.copy(message)
        try:
            traced.properties = {**(message.properties or {}), **carrier}
            metas.encode(traced.meta())
        except errors.MessageTooLarge as error:
            self._note_untraced(error)
            return message
        except (errors.HourwheelError, TypeError):
            return message  # it cannot be published either way, which publishing says
        return traced

    def _meta_with_context(self, meta: MessageMeta, carrier: Mapping[str, str]) -> MessageMeta:
        """As `_with_context`, of metadata."""
        traced = replace(meta, properties=tuple({**dict(meta.properties), **carrier}.items()))
        try:
            metas.encode(traced)
        except errors.MessageTooLarge as error:
            self._note_untraced(error)
            return meta
        except errors.HourwheelError:
            return meta
        return traced

    def _note_untraced(self, error: errors.MessageTooLarge) -> None:
        if not self.untraced_count:
            _log.warning("messages are published without their trace context: %s", error)
        self.untraced_count += 1


class TracedProducer(Producer):
    """A `Producer` whose calls are spans that its messages carry with them."""

    _twin_class: ClassVar[type[AsyncProducer]] = TracedAsyncProducer

    def __init__(
        self,
        server: Servers = SERVER_DEFAULT,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        **settings: Any,
    ) -> None:
        """See `TracedAsyncProducer`."""
        super().__init__(server, tracer_provider=tracer_provider, **settings)

    @property
    def untraced_count(self) -> int:
        """See `TracedAsyncProducer.untraced_count`."""
        return cast("TracedAsyncProducer", self._twin).untraced_count


@contextmanager
def process_span(
    messages: ReceivedMessage | ReceivedBatch | Sequence[ReceivedMessage],
    *,
    group: str,
    tracer_provider: trace.TracerProvider | None = None,
) -> Iterator[trace.Span]:
    """A span around the processing of a message, or of several together, of one topic.

    It is the current span inside, and linked to those that published the messages. What the block
    raises is recorded and raised. With one message, and on its first attempt, the event `release`
    says when the message became due. No messages give no span.

    Args:
        messages: what `receive`, `receive_batch` or an iteration gave.
        group: the consumer group.
        tracer_provider: None for the global one.
    """
    some = [messages] if isinstance(messages, ReceivedMessage) else messages
    if not len(some):
        yield trace.INVALID_SPAN
        return
    first = some[0]
    attributes: dict[str, str | int] = {
        **_common_attributes(first.topic, "process", "process"),
        "messaging.consumer.group.name": group,
    }
    if isinstance(messages, ReceivedMessage):
        attributes |= _delivery_attributes(first)
    else:
        attributes["messaging.batch.message_count"] = len(some)
    origins = (trace.get_current_span(context_of(one)).get_span_context() for one in some)
    links = {(it.trace_id, it.span_id): trace.Link(it) for it in origins if it.is_valid}
    with _current_span(
        _tracer(tracer_provider),
        f"process {first.topic}",
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=list(links.values()),
    ) as span:
        if isinstance(messages, ReceivedMessage) and first.attempt == 1:
            release_ms = max(first.due_ms, first.store_ms)
            span.add_event("release", timestamp=release_ms * _NS_PER_MS)
        yield span


def handler_spans(*, tracer_provider: trace.TracerProvider | None = None) -> Middleware:
    """Middleware of an app: a span around each call of a handler, linked to who published.

        app = App(group="shop", middleware=[handler_spans()])

    As `process_span`, and in the processes of `hourwheel worker`, too. It is the current span of
    the handler, also of one that runs in a thread. What a handler raises is recorded; `Retry` and
    `Reject`, which it means, are named in `error.type` alone.
    """
    tracer = _tracer(tracer_provider)

    async def traced(context: MessageContext, call_next: CallNext) -> None:
        carried = propagate.extract(context.properties or {}, context=Context())
        origin = trace.get_current_span(carried).get_span_context()
        attributes = {
            **_common_attributes(context.topic, "process", "process"),
            "messaging.consumer.group.name": context.group,
            "messaging.message.id": context.message_id,
            "messaging.hourwheel.message.attempt": context.attempt,
            "messaging.hourwheel.message.due_ms": context.due_ms,
            "messaging.hourwheel.message.receive_ms": context.receive_ms,
        }
        with tracer.start_as_current_span(
            f"process {context.topic}",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[trace.Link(origin)] if origin.is_valid else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await call_next(context)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                if not isinstance(error, Retry | Reject):
                    span.record_exception(error)
                    span.set_status(trace.StatusCode.ERROR, str(error))
                raise

    return traced


def instrument(app: App, *, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Trace what an app publishes, and the calls of its handlers.

    By `TracedProducer` and `handler_spans`:

        app = App(group="shop")
        instrument(app)

    A handler's span is outside of all middleware, linked to the span that published its message;
    what the handler publishes itself is a child of it.
    """
    app.middleware = (handler_spans(tracer_provider=tracer_provider), *app.middleware)
    app.produce_by(partial(TracedProducer, tracer_provider=tracer_provider))


def context_of(message: ReceivedMessage) -> Context:
    """The context that the message's producer put into it; empty where there is none.

    For those who want spans to be children of the producer's: `attach` it, or give it to
    `start_span`.
    """
    try:
        properties = message.properties
    except errors.HourwheelError:  # reading a damaged message's body raises it
        return Context()
    return propagate.extract(properties, context=Context())


def _tracer(provider: trace.TracerProvider | None) -> trace.Tracer:
    return trace.get_tracer("hourwheel", __version__, provider)


def _carrier_of(span: trace.Span) -> dict[str, str]:
    """What a message carries of a span's context, and of the baggage around it."""
    carrier: dict[str, str] = {}
    if span.get_span_context().is_valid:
        propagate.inject(carrier, trace.set_span_in_context(span))
    return carrier


@contextmanager
def _current_span(tracer: trace.Tracer, name: str, **settings: Any) -> Iterator[trace.Span]:
    """As `start_as_current_span`, with the type of an error as an attribute."""
    with tracer.start_as_current_span(name, **settings) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


def _end_published(span: trace.Span, future: "asyncio.Future[MessageId]") -> None:
    if future.cancelled():
        _end_failed(span, asyncio.CancelledError("the caller does not wait any more"))
    elif (error := future.exception()) is not None:
        _end_failed(span, error)
    else:
        span.set_attribute("messaging.message.id", str(future.result()))
        span.end()


def _end_failed(span: trace.Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.StatusCode.ERROR, str(error))
    span.end()


def _common_attributes(topic: str, kind: str, name: str) -> dict[str, str | int]:
    """As the semantic conventions for messaging say."""
    return {
        "messaging.system": "hourwheel",
        "messaging.destination.name": topic,
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }


def _publish_attributes(topic: str) -> dict[str, str | int]:
    return _common_attributes(topic, "send", "publish")


def _facts_of(message: object) -> dict[str, str | int]:
    """What is said of a message to publish; of what is no message, nothing."""
    if not isinstance(message, Message):
        return {}
    facts: dict[str, str | int] = {}
    if isinstance(message.body, bytes):
        facts["messaging.message.body.size"] = len(message.body)
    if isinstance(message.due_ms, int):
        facts["messaging.hourwheel.message.due_ms"] = message.due_ms
    elif isinstance(message.delay_ms, int):
        facts["messaging.hourwheel.message.delay_ms"] = message.delay_ms
    return facts


def _delivery_attributes(message: ReceivedMessage) -> dict[str, str | int]:
    """Of one message. The times are the nodes', in milliseconds since the Unix epoch."""
    return {
        "messaging.message.id": str(message.message_id),
        "messaging.hourwheel.message.attempt": message.attempt,
        "messaging.hourwheel.message.due_ms": message.due_ms,
        "messaging.hourwheel.message.store_ms": message.store_ms,
        "messaging.hourwheel.message.receive_ms": message.receive_ms,
    }
