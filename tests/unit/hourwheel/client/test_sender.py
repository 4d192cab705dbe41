"""The task's own affairs; what it does for users: test_producer.py."""

import asyncio
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns, Draft
from hourwheel.client.sender import Sender, SenderSettings, Wanted
from hourwheel.transport.channel import Channel
from tests.support.eventually import until
from tests.support.fake_node import FakeNode


def sender_of(channel: Channel, *, linger_ms: float = 0.0, batch_messages: int = 10) -> Sender:
    settings = SenderSettings(
        linger_ms=linger_ms,
        batch_messages=batch_messages,
        batch_bytes=1 << 20,
        buffer_bytes=1 << 20,
        delivery_timeout_ms=60_000.0,
        answer_timeout_ms=60_000.0,
        is_idempotent=True,
    )
    return Sender(channel, settings)


def draft(body: bytes = b"x") -> Draft:
    return batch_builder.draft_columns(Columns(bodies=[body]))


async def test_add_when_closed(channel: Channel) -> None:
    sender = sender_of(channel)
    sender.refuse_new()
    with pytest.raises(errors.Cancelled):
        _ = await sender.add("t", draft(), Wanted.ID)
    await sender.flush()
    await sender.close()


@pytest.mark.parametrize("topic", [5, None, b"t", "\ud800"])
async def test_add_when_the_topic_is_no_text(node: FakeNode, channel: Channel, topic: Any) -> None:
    sender = sender_of(channel)
    with pytest.raises(errors.InvalidTopic):
        _ = await sender.add(topic, draft(), Wanted.ID)
    await (await sender.add("t", draft(b"good"), Wanted.ID))  # it has done no harm to others
    assert [one.body for one in node.messages] == [b"good"]
    await sender.close()


async def test_add_when_a_bug_of_ours_strikes(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(batch_builder, "build", broken)
    sender = sender_of(channel, batch_messages=1)
    futures = [await sender.add("t", draft(), Wanted.ID) for _ in range(3)]
    await asyncio.wait(futures)
    assert {type(future.exception()) for future in futures} == {errors.Internal}
    with pytest.raises(errors.Cancelled):
        _ = await sender.add("t", draft(), Wanted.ID)
    await sender.close()


async def test_producer_goes_on_when_there_was_no_token_once(node: FakeNode) -> None:
    tokens = ["good"]

    def token() -> str:
        return tokens[0]

    async with Channel(node.address, token=token) as channel:
        await channel.connect()
        sender = sender_of(channel)
        tokens.clear()
        with pytest.raises(errors.Unauthenticated):
            await (await sender.add("t", draft(b"never left"), Wanted.ID))
        tokens.append("another")
        await (await sender.add("t", draft(b"y"), Wanted.ID))
        await sender.close()
    assert [one.body for one in node.messages] == [b"y"]


async def test_flush_when_nothing_was_added(channel: Channel) -> None:
    sender = sender_of(channel)
    await sender.flush()
    await sender.close()


async def test_flush_when_messages_linger(node: FakeNode, channel: Channel) -> None:
    sender = sender_of(channel, linger_ms=3_600_000.0)
    future = await sender.add("t", draft(), Wanted.ID)
    await asyncio.gather(sender.flush(), sender.flush())
    assert (await future).sequence == 0
    await sender.close()


async def test_linger_when_it_is_over(node: FakeNode, channel: Channel) -> None:
    sender = sender_of(channel, linger_ms=1.0)
    futures = [await sender.add("t", draft(b"%d" % n), Wanted.ID) for n in range(3)]
    await asyncio.gather(*futures)
    assert len(node.calls["PublishStream"]) == 1
    await sender.close()


async def test_batches_are_sent_again_when_grpc_itself_ends_the_stream(
    node: FakeNode, channel: Channel
) -> None:
    """As it does when a node leaves the cluster and its connection is closed."""
    sender = sender_of(channel, batch_messages=1)
    with node.hold("PublishStream"):
        future = await sender.add("t", draft(), Wanted.ID)
        await until(lambda: len(node.calls["PublishStream"]) == 1)
        assert sender._stream is not None
        sender._stream.cancel()
        await until(lambda: sender._stream is None or not sender._stream.has_failed)
    async with asyncio.timeout(60):
        assert (await future).sequence == 0
    await sender.close()
