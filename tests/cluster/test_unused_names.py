"""A real node, whose own timer finds a topic that nobody uses."""

from pathlib import Path

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.client.outcomes import CancelOutcome
from node.process.subprocess_node import ChildNode
from tests.support.engine_world import within
from tests.support.eventually import until


async def test_topic_that_publishing_made_goes_when_empty_and_comes_again(tmp_path: Path) -> None:
    limits = {"limits": {"topic_idle_ms": 1}}
    async with (
        ChildNode(tmp_path / "data", limits, log_file=tmp_path / "log") as node,
        AsyncAdmin(node.address) as admin,
        AsyncProducer(node.address) as producer,
    ):
        await admin.create_topic("made")
        kept = await producer.publish("kept", Message(b"later", delay_ms=3_600_000))
        gone = await producer.publish("orders", Message(b"never", delay_ms=3_600_000))
        assert await admin.cancel(gone) is CancelOutcome.CANCELLED

        log = tmp_path / "log"
        await until(lambda: "topic_expired" in log.read_text())
        assert [topic.name for topic in await admin.topics()] == ["kept", "made"]
        await producer.publish("orders", Message(b"again"))
        async with AsyncConsumer(node.address, group="g", topic="orders") as consumer:
            (message,) = await within(consumer.receive())
            assert message.body == b"again"
            await consumer.ack(message)
        assert await admin.cancel(kept) is CancelOutcome.CANCELLED
