"""Webhooks of groups that have an order, or a rate."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import AsyncAdmin, AsyncProducer, Message
from hourwheel.clock import SystemClock
from hourwheel.testing import Broker, Clock
from tests.api.test_push import KEY, VALUES, pushing
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until
from tests.support.webhook_target import OK, How, Post, WebhookTarget

REFUSED = b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(KEY).decode())


async def prepare(server: str, messages: list[Message], **settings: Any) -> None:
    """The group with these settings, and what is there for it."""
    async with AsyncAdmin(server) as admin:
        await admin.create_topic("orders", queue_count=1)
        await admin.put_group("hooks", **settings)
    async with AsyncProducer(server) as producer:
        await producer.publish_many("orders", messages)


@pytest.mark.usefixtures("secret")
async def test_a_group_with_an_order_has_each_key_posted_in_order(
    hourwheel_broker: Broker, hourwheel_clock: Clock, tmp_path: Path
) -> None:
    """Also where one is refused at first, with places for all of them at one time."""

    def answer(post: Post) -> How:
        is_first_try = post.headers["hourwheel-attempt"] == "1"
        return REFUSED if post.body == b"a 1" and is_first_try else OK

    def of_key(key: bytes) -> list[bytes]:
        return [post.body for post in target.posts if post.body.startswith(key)]

    keys, numbers = ("a", "b"), range(4)
    messages = [
        Message(f"{key} {number}".encode(), ordering_key=key) for number in numbers for key in keys
    ]
    await prepare(hourwheel_broker.server, messages, order="block", retry_delay_ms=60_000)
    node: Any = SimpleNamespace(address=hourwheel_broker.server)
    async with WebhookTarget(answer) as target, pushing(node, tmp_path, target, concurrency=8):
        await until(lambda: len(of_key(b"b")) == 4)
        await until(lambda: len(of_key(b"a")) == 2)
        await hourwheel_clock.advance_async("59s")
        assert of_key(b"a") == [b"a 0", b"a 1"], "those behind it wait for it"
        await hourwheel_clock.advance_async("2s")
        await until(lambda: len(of_key(b"a")) == 5)
        assert of_key(b"a") == [b"a 0", b"a 1", b"a 1", b"a 2", b"a 3"]
        assert of_key(b"b") == [b"b 0", b"b 1", b"b 2", b"b 3"]


@pytest.mark.usefixtures("secret")
async def test_a_group_with_a_rate_has_no_more_posted(tmp_path: Path) -> None:
    """At least so long it takes, by the node's own clock, though there are places for all."""
    rate, count, clock = 20, 16, SystemClock()
    async with (
        EmbeddedNode(tmp_path / "data", VALUES) as node,
        WebhookTarget(lambda _: OK) as target,
    ):
        await prepare(node.address, [Message(b"x")] * count, per_second_max=rate)
        begun_ms = clock.monotonic_ms()
        async with pushing(node, tmp_path, target, concurrency=count):
            await until(lambda: len(target.posts) == count)
        passed_ms = clock.monotonic_ms() - begun_ms
    burst = rate // 10
    assert passed_ms >= (count - burst - 1) / rate * 1_000
