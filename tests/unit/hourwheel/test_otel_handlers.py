"""Spans around the handlers of an app."""

from typing import Any

import pytest
from opentelemetry import trace

from hourwheel import App, otel
from hourwheel.errors import Unavailable
from hourwheel.testing import Broker
from hourwheel.workers.execution import Execution
from hourwheel.workers.handler import MessageContext, make_handler
from hourwheel.workers.results import Reject, Retry
from tests.support.spans import Spans, linked_ids, span_id

ORIGIN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def context(**properties: str) -> MessageContext:
    return MessageContext("id", "orders", "shop", b"17", 2, 5, 6, properties=properties)


async def run(function: Any, spans: Spans, message: MessageContext) -> Any:
    handler = make_handler(function, "orders", "shop")
    execution = Execution([handler], [otel.handler_spans(tracer_provider=spans.provider)])
    try:
        await execution.run(handler, message)
    finally:
        execution.close()
    (span,) = spans.take()
    return span


async def test_a_span_is_current_in_a_handler_and_linked_to_who_published() -> None:
    spans = Spans()
    seen: list[int] = []

    def function() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    span = await run(function, spans, context(traceparent=ORIGIN))
    assert seen == [span_id(span)]
    assert linked_ids(span) == [0xB7AD6B7169203331]
    assert (span.name, span.kind) == ("process orders", trace.SpanKind.CONSUMER)
    assert span.attributes["messaging.consumer.group.name"] == "shop"
    assert span.attributes["messaging.hourwheel.message.attempt"] == 2
    assert linked_ids(await run(function, spans, context())) == []


@pytest.mark.parametrize("error", [Unavailable("no card service"), SystemExit(3)])
async def test_what_a_handler_raises_is_recorded(error: BaseException) -> None:
    async def coroutine() -> None:
        raise error

    span = await run(coroutine, Spans(), context())
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes["error.type"] == type(error).__name__
    assert [one.name for one in span.events] == ["exception"]


@pytest.mark.parametrize("error", [Retry("busy"), Reject("no such order")])
async def test_what_a_handler_means_is_no_error(error: Exception) -> None:
    async def coroutine() -> None:
        raise error

    span = await run(coroutine, Spans(), context())
    assert span.status.status_code is trace.StatusCode.UNSET
    assert span.attributes["error.type"] == type(error).__name__
    assert not span.events


def test_an_app_carries_its_trace_from_publish_to_handler_and_on(hourwheel_broker: Broker) -> None:
    spans, app = Spans(), App(group="shop")
    otel.instrument(app, tracer_provider=spans.provider)

    @app.handler("orders")
    async def pay(order: int) -> None:
        await app.publish_async("mails", order)

    @app.handler("mails")
    def mail(order: int) -> None:
        """Nobody reads it."""

    hourwheel_broker.run(app)
    with spans.provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
        app.publish("orders", 17, in_="30m")
        begun = checkout.get_span_context().span_id
    hourwheel_broker.clock.advance("30m")
    app.close()
    by_name = {one.name: one for one in spans.take()}
    parent = {name: one.parent and one.parent.span_id for name, one in by_name.items()}
    assert parent == {
        "checkout": None,
        "publish orders": begun,
        "process orders": None,
        "publish mails": span_id(by_name["process orders"]),
        "process mails": None,
    }
    for topic in ("orders", "mails"):
        linked = linked_ids(by_name[f"process {topic}"])
        assert linked == [span_id(by_name[f"publish {topic}"])]
