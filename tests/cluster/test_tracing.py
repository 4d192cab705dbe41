"""A trace through a real node: delay, lists, redelivery and the topic of dead letters."""

import asyncio
from pathlib import Path

from hourwheel import Admin, AsyncConsumer, Consumer, Message, ReceivedMessage
from hourwheel.otel import TracedAsyncProducer, TracedProducer, process_span
from tests.support.embedded_node import EmbeddedNode
from tests.support.spans import Spans, linked_ids, span_id


async def test_trace_outlives_delay_redelivery_and_dead_letter(tmp_path: Path) -> None:
    spans = Spans()
    async with EmbeddedNode(tmp_path) as node:
        async with TracedAsyncProducer(node.address, tracer_provider=spans.provider) as producer:
            message_id = await producer.publish("orders", Message(b"order 17", delay_ms=200))
        (published,) = spans.take()
        await asyncio.to_thread(set_up, node.address)
        async with AsyncConsumer(node.address, group="g", topic="orders") as consumer:
            for _ in range(2):
                (message,) = await consumer.receive()
                with process_span(message, group="g", tracer_provider=spans.provider):
                    await consumer.nack(message, 0)
        async with AsyncConsumer(node.address, group="undertaker", topic="%DLQ%g") as consumer:
            (letter,) = await consumer.receive()
            with process_span(letter, group="undertaker", tracer_provider=spans.provider):
                await consumer.ack(letter)
    processed = spans.take()
    assert [linked_ids(one) for one in processed] == [[span_id(published)]] * 3
    facts = [one.attributes or {} for one in processed]
    assert {one["messaging.message.id"] for one in facts} == {str(message_id)}
    assert {one["messaging.destination.name"] for one in facts} == {"orders"}
    attempts = [one["messaging.hourwheel.message.attempt"] for one in facts]
    assert attempts[:2] == [1, 2]
    (release,) = processed[0].events
    assert release.timestamp == message_id.due_ms * 1_000_000
    assert not processed[1].events, "when a retry was released, its delivery does not say"


def set_up(address: str) -> None:
    with Admin(address) as admin:
        admin.put_group("g", attempts_max=2)


async def test_blocking_clients_trace_as_their_twins_do(tmp_path: Path) -> None:
    spans = Spans()
    async with EmbeddedNode(tmp_path) as node:
        await asyncio.to_thread(publish_and_process, node.address, spans)
    single, soon, listed, request, *processed = spans.take()
    for one in (single, soon, listed):
        assert one.parent is not None
        assert one.parent.span_id == span_id(request), "the context of the calling thread"
    assert (listed.attributes or {})["messaging.batch.message_count"] == 100
    found = {one for each in processed for one in linked_ids(each)}
    assert found == {span_id(single), span_id(soon), span_id(listed)}


def publish_and_process(address: str, spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")
    with TracedProducer(address, tracer_provider=spans.provider) as producer:
        with tracer.start_as_current_span("request"):
            producer.publish("orders", Message(b"0", delay_ms=50))
            producer.publish_soon("orders", Message(b"1")).result()
            producer.publish_many("orders", [Message(b"n", keys=[str(n)]) for n in range(100)])
        assert producer.untraced_count == 0
    done: list[ReceivedMessage] = []
    with Consumer(address, group="g", topic="orders") as consumer:
        while len(done) < 102:
            messages = consumer.receive()
            with process_span(messages, group="g", tracer_provider=spans.provider):
                done += messages
            consumer.ack(messages)
