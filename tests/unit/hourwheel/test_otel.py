"""Spans of publishing and processing, and what messages carry of them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace

from hourwheel import errors, otel
from hourwheel.client.batch_builder import Columns
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message, ReceivedMessage
from hourwheel.formats import meta as metas
from hourwheel.formats.meta import MessageMeta
from hourwheel.limits import MESSAGE_PROPERTY_COUNT_MAX
from tests.support.fake_node import STORE_MS, FakeNode
from tests.support.spans import Spans, linked_ids, span_id, traceparent

FULL = {f"name{number}": "value" for number in range(MESSAGE_PROPERTY_COUNT_MAX)}
"""Properties that leave no room for another one."""


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    async with FakeNode() as started:
        yield started


def traced(node: FakeNode, spans: Spans) -> otel.TracedAsyncProducer:
    return otel.TracedAsyncProducer(node.address, tracer_provider=spans.provider)


def properties(node: FakeNode) -> list[dict[str, str]]:
    """Of all published messages."""
    found = [metas.decode(one.blob[: one.meta_bytes]) for one in node.messages]
    return [dict(one.properties) for one in found]


async def received(node: FakeNode, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with AsyncConsumer(node.address, group="g", topic="t") as consumer:
        while len(found) < count:
            found += await consumer.receive()
        await consumer.ack(found)
    return found


# --- publishing ---------------------------------------------------------------------------------


async def test_message_carries_the_context_of_its_span(node: FakeNode, spans: Spans) -> None:
    message = Message(b"body", delay_ms=90_000, properties={"shop": "7", "traceparent": "old"})
    async with traced(node, spans) as producer:
        message_id = await producer.publish("t", message)
    (span,) = spans.take()
    assert (span.name, span.kind) == ("publish t", trace.SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "hourwheel",
        "messaging.destination.name": "t",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.message.body.size": 4,
        "messaging.hourwheel.message.delay_ms": 90_000,
        "messaging.message.id": str(message_id),
    }
    assert properties(node) == [{"shop": "7", "traceparent": traceparent(span)}]
    assert message.properties == {"shop": "7", "traceparent": "old"}, "the caller's own"


async def test_messages_of_one_call_carry_the_context_of_one_span(
    node: FakeNode, spans: Spans
) -> None:
    shop = MessageMeta(properties=(("shop", "7"),))
    async with traced(node, spans) as producer:
        await producer.publish_many("t", [Message(b"a"), Message(b"b", delay_ms=5)])
        await producer.publish_batch("t", Columns(bodies=[b"c", b"d"], metas=[shop, MessageMeta()]))
        await producer.publish_batch("t", Columns(bodies=[b"e"]))
    found = spans.take()
    counts = [(one.attributes or {})["messaging.batch.message_count"] for one in found]
    assert counts == [2, 2, 1]
    carried = [{"traceparent": traceparent(one)} for one in found]
    assert properties(node) == [
        *(carried[0], carried[0], {"shop": "7"} | carried[1], carried[1], carried[2])
    ]


async def test_message_without_room_goes_without_its_context(
    node: FakeNode, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    full = MessageMeta(properties=tuple(FULL.items()))
    async with traced(node, spans) as producer:
        await producer.publish("t", Message(b"a", properties=FULL))
        await producer.publish_many("t", [Message(b"b", properties=FULL), Message(b"c")])
        await producer.publish_batch("t", Columns(bodies=[b"d"], metas=[full]))
        assert producer.untraced_count == 3
    found = properties(node)
    assert [found[0], found[1], found[3]] == [FULL] * 3
    assert list(found[2]) == ["traceparent"]
    assert [record.name for record in caplog.records] == ["hourwheel.otel"], "once"


async def test_nothing_is_added_when_nobody_traces(node: FakeNode) -> None:
    nobody = trace.NoOpTracerProvider()
    async with otel.TracedAsyncProducer(node.address, tracer_provider=nobody) as producer:
        await producer.publish("t", Message(b"a"))
        await producer.publish_many("t", [Message(b"b")])
        await producer.publish_batch("t", Columns(bodies=[b"c"]))
    assert properties(node) == [{}, {}, {}]
    for message in await received(node, 3):
        with otel.process_span(message, group="g", tracer_provider=nobody) as span:
            assert not span.is_recording()


async def test_span_says_why_publishing_failed(node: FakeNode, spans: Spans) -> None:
    bad_meta = MessageMeta(tags=("",))
    async with traced(node, spans) as producer:
        node.fail_next("PublishStream", errors.InvalidTopic())
        with pytest.raises(errors.InvalidTopic):
            await producer.publish("t", Message(b"a"))
        with pytest.raises(errors.InvalidArgument):
            await producer.publish("t", Message(b"a", tags="one text"))
        with pytest.raises(errors.InvalidArgument):
            await producer.publish("t", "no message")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidDueTime):
            await producer.publish_many("t", [Message(b"a", delay_ms=-1)])
        with pytest.raises(errors.InvalidArgument):
            await producer.publish_batch("t", Columns(bodies=[b"a"], metas=[bad_meta]))
        assert producer.untraced_count == 0
    found = spans.take()
    assert [(one.attributes or {})["error.type"] for one in found] == [
        *("InvalidTopic", "InvalidArgument", "InvalidArgument"),
        *("InvalidDueTime", "InvalidArgument"),
    ]
    assert {one.status.status_code for one in found} == {trace.StatusCode.ERROR}
    assert {one.events[0].name for one in found} == {"exception"}


async def test_span_ends_when_nobody_waits_for_the_outcome(node: FakeNode, spans: Spans) -> None:
    async with traced(node, spans) as producer:
        with node.hold("PublishStream"):
            (await producer.publish_soon("t", Message(b"a"))).cancel()
            await asyncio.sleep(0)
            (span,) = spans.take()
    assert (span.attributes or {})["error.type"] == "CancelledError"


# --- processing ---------------------------------------------------------------------------------


async def test_processing_is_linked_to_publishing(node: FakeNode, spans: Spans) -> None:
    async with traced(node, spans) as producer:
        await producer.publish("t", Message(b"a", delay_ms=7))
    (published,) = spans.take()
    (message,) = await received(node, 1)
    with otel.process_span(message, group="g", tracer_provider=spans.provider) as current:
        assert trace.get_current_span() is current
    (span,) = spans.take()
    assert (span.name, span.kind) == ("process t", trace.SpanKind.CONSUMER)
    assert span.parent is None
    assert linked_ids(span) == [span_id(published)]
    assert dict(span.attributes or {}) == {
        "messaging.system": "hourwheel",
        "messaging.destination.name": "t",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.consumer.group.name": "g",
        "messaging.message.id": str(message.message_id),
        "messaging.hourwheel.message.attempt": 1,
        "messaging.hourwheel.message.due_ms": STORE_MS + 7,
        "messaging.hourwheel.message.store_ms": message.store_ms,
        "messaging.hourwheel.message.receive_ms": message.receive_ms,
    }
    release_ns = max(message.due_ms, message.store_ms) * 1_000_000
    assert [(one.name, one.timestamp) for one in span.events] == [("release", release_ns)]
    origin = trace.get_current_span(otel.context_of(message)).get_span_context()
    assert origin.span_id == span_id(published), "for those who want a child"


async def test_processing_several_is_linked_to_each_call_that_published(
    node: FakeNode, spans: Spans
) -> None:
    async with traced(node, spans) as producer:
        await producer.publish_many("t", [Message(b"a"), Message(b"b")])
        await producer.publish("t", Message(b"c"))
    published = spans.take()
    node.add_topic("t", b"of a producer that does not trace")
    messages = await received(node, 4)
    with otel.process_span(messages, group="g", tracer_provider=spans.provider):
        pass
    (span,) = spans.take()
    assert set(linked_ids(span)) == set(map(span_id, published))
    assert len(span.links) == 2
    assert (span.attributes or {})["messaging.batch.message_count"] == 4


async def test_failure_of_processing_is_recorded_and_raised(node: FakeNode, spans: Spans) -> None:
    node.add_topic("t", b"a")
    (message,) = await received(node, 1)
    with (
        pytest.raises(ZeroDivisionError),
        otel.process_span(message, group="g", tracer_provider=spans.provider),
    ):
        raise ZeroDivisionError
    (span,) = spans.take()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ZeroDivisionError"
    assert not span.links


def test_no_messages_have_no_span(spans: Spans) -> None:
    with otel.process_span([], group="g", tracer_provider=spans.provider) as span:
        assert not span.is_recording()
    assert spans.take() == []


# --- without it ---------------------------------------------------------------------------------


def printed(script: str) -> str:
    """What a script prints, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_programs_that_do_not_trace_do_not_load_opentelemetry() -> None:
    script = "import sys; from hourwheel import Consumer, Producer; print(*sys.modules)"
    assert "opentelemetry" not in printed(script).split()


def test_extra_is_named_when_it_is_not_installed() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "try: import hourwheel.otel\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'hourwheel[otel]'" in printed(script)
