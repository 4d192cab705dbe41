"""What our client makes of requests that are larger than gRPC lets in, and that it goes on."""

from typing import Any

import pytest

from hourwheel import AsyncProducer, Channel, Message, errors
from hourwheel.formats.message_id import MessageId
from tests.support.api_world import ApiWorld

REQUEST_BYTES_MAX = 64 << 10
"""Our nodes let in more than our client sends; what stands before one may not."""


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.api.server.request_bytes_max", lambda _: REQUEST_BYTES_MAX)


async def test_publish_fails_for_good_when_it_is_too_large_and_the_producer_goes_on() -> None:
    """gRPC ends the stream, so that the next batch has another one."""
    async with (
        ApiWorld() as world,
        Channel(world.address) as channel,
        AsyncProducer(channel) as producer,
    ):
        await producer.publish("orders", Message(b"before"))
        with pytest.raises(errors.MessageTooLarge) as caught:
            await producer.publish("orders", Message(bytes(REQUEST_BYTES_MAX)))
        assert not caught.value.retriable
        await producer.publish("orders", Message(b"behind"))
        assert [one.body for one in world.engine.stored] == [b"before", b"behind"]


async def test_small_batches_arrive_when_one_between_them_is_too_large() -> None:
    async with (
        ApiWorld() as world,
        Channel(world.address) as channel,
        AsyncProducer(channel, batch_messages=1) as producer,
    ):
        bodies = [b"1", b"2", bytes(REQUEST_BYTES_MAX), b"3", b"4"]
        futures = [await producer.publish_soon("orders", Message(body)) for body in bodies]
        found: list[Any] = []
        for future in futures:
            try:
                found.append(await future)
            except errors.MessageTooLarge as error:
                found.append(error)
        assert [isinstance(one, MessageId) for one in found] == [True, True, False, True, True]
        # Sent again as they were, where it is not known whether they were taken: the fake engine
        # takes them twice, a real one recognises them.
        taken = dict.fromkeys(one.body for one in world.engine.stored)
        assert list(taken) == [b"1", b"2", b"3", b"4"]


async def test_unary_call_fails_for_good_when_it_is_too_large_and_the_producer_goes_on() -> None:
    async with (
        ApiWorld() as world,
        Channel(world.address) as channel,
        AsyncProducer(channel) as producer,
    ):
        with pytest.raises(errors.MessageTooLarge) as caught:
            await producer.cancel_many([MessageId(0, 1, 0, 0)] * 10_000)
        assert not caught.value.retriable
        await producer.publish("orders", Message(b"behind"))
        assert [one.body for one in world.engine.stored] == [b"behind"]
