"""Webhooks from a real node to targets that behave, and to those that do not."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.clock import SystemClock
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.command import push_until
from hourwheel.webhooks.prepared import prepare
from hourwheel.webhooks.pusher import WAIT_MS
from hourwheel.webhooks.pushers import Pushers
from hourwheel.webhooks.results import PostResult
from hourwheel.webhooks.settings import Subscription
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until
from tests.support.webhook_target import (
    DRIPPING,
    ENDLESS,
    HANG_UP,
    OK,
    SILENT,
    How,
    Post,
    WebhookTarget,
)

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
KEY = b"k" * 32


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[EmbeddedNode]:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(KEY).decode())
    async with EmbeddedNode(tmp_path / "data", VALUES) as found:
        async with AsyncAdmin(found.address) as admin:
            await admin.create_topic("orders")
            await admin.put_group("hooks", retry_delay_ms=1, attempts_max=3)
        yield found


def subscription(folder: Path, target: WebhookTarget, **more: Any) -> Subscription:
    given: dict[str, Any] = {
        "name": "shop",
        "group": "hooks",
        "topics": ["orders"],
        "url": target.url,
        "secret_file": str(folder / "secret"),
        "allow_http": True,
        "allow_private": True,
        **more,
    }
    return Subscription.model_validate(given)


@asynccontextmanager
async def pushing(
    node: EmbeddedNode, folder: Path, target: WebhookTarget, **more: Any
) -> AsyncIterator[tuple[Pushers, asyncio.Event]]:
    one = subscription(folder, target, **more)
    async with Channel(node.address) as channel:
        pushers = Pushers(channel, SystemClock())
        pushers.change([prepare(one)])
        stopping, ending = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(push_until(pushers, stopping, ending, 60_000))
        try:
            yield pushers, ending
            stopping.set()
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def count(pushers: Pushers, kind: PostResult) -> int:
    return pushers.health()[0].counts.posts[kind]


def failures(pushers: Pushers) -> int:
    return pushers.health()[0].counts.posts.total() - count(pushers, PostResult.DONE)


async def publish(node: EmbeddedNode, *messages: Message) -> list[str]:
    async with AsyncProducer(node.address) as producer:
        return (await producer.publish_many("orders", messages)).texts()


async def test_a_message_is_posted_signed_and_done(node: EmbeddedNode, tmp_path: Path) -> None:
    async with WebhookTarget(lambda _: OK) as target:
        hostile = "text/html\r\nx: y"
        sent = [
            Message(b'{"id": 1}', content_type="application/json"),
            Message(b"\xff", content_type=hostile),
            Message(b"{}", content_type="application/json; "),
        ]
        ids = await publish(node, *sent)
        headers = {"authorization": "Bearer mine"}
        async with pushing(node, tmp_path, target, headers=headers) as (pushers, _):
            await until(lambda: count(pushers, PostResult.DONE) == 3)
            assert pushers.health()[0].is_receiving
        assert len(target.posts) == 3
        by_id = {post.headers["webhook-id"]: post for post in target.posts}
        assert set(by_id) == set(ids)
        kinds = ("application/json", "application/octet-stream", "application/json")
        for message_id, message, kind in zip(ids, sent, kinds, strict=True):
            post = by_id[message_id]
            assert (post.body, post.headers["content-type"]) == (message.body, kind)
            assert post.headers["authorization"] == "Bearer mine"
            assert post.headers["hourwheel-attempt"] == "1"
            assert "x" not in post.headers
            signed = f"{message_id}.{post.headers['webhook-timestamp']}.".encode() + post.body
            digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
            assert post.headers["webhook-signature"] == f"v1,{digest}"
        async with AsyncConsumer(node.address, group="hooks", topic="orders") as consumer:
            assert await consumer.receive(wait_ms=0) == []


BAD: dict[str, How] = {
    "500": b"HTTP/1.1 500 No\r\n\r\n",
    "410": b"HTTP/1.1 410 Gone\r\nretry-after: 0\r\n\r\n",
    "redirect": b"HTTP/1.1 307 There\r\nlocation: http://127.0.0.1:1/\r\n\r\n",
    "hang up": HANG_UP,
    "silent": SILENT,
    "dripping": DRIPPING,
    "nonsense": b"\x00\r\n\r\n",
}


async def test_what_targets_do_not_take_comes_again_and_is_a_dead_letter(
    node: EmbeddedNode, tmp_path: Path
) -> None:
    """Seven kinds of bad answers, three times each; good ones meanwhile, and endless ones."""

    def answer(post: Post) -> How:
        how = json.loads(post.body)
        return ENDLESS if how == "endless" else BAD.get(how, OK)

    hows = [*BAD, "ok", "endless", "ok"]
    # A POST by a kept connection that hangs up is sent twice.
    settings = {"timeout_ms": 300, "keep_ms": 0}
    async with WebhookTarget(answer) as target:
        await publish(node, *(Message(json.dumps(how).encode()) for how in hows))
        async with (
            pushing(node, tmp_path, target, **settings) as (pushers, _),
            AsyncConsumer(node.address, group="ops", topic="%DLQ%hooks") as dead,
        ):
            await until(lambda: failures(pushers) == 3 * len(BAD))
            letters: list[bytes] = []
            while len(letters) < len(BAD):
                received = await dead.receive(wait_ms=60_000)
                letters += [one.body for one in received]
                await dead.ack(received)
            assert count(pushers, PostResult.DONE) == 3
        assert {json.loads(one) for one in letters} == set(BAD)
        times = Counter(json.loads(post.body) for post in target.posts)
        assert times == {**dict.fromkeys(BAD, 3), "ok": 2, "endless": 1}


async def test_retry_after_is_kept_within_bounds(node: EmbeddedNode, tmp_path: Path) -> None:
    async with AsyncAdmin(node.address) as admin:
        await admin.put_group("hooks", retry_delay_ms=3_600_000)
    late = b"HTTP/1.1 429 Later\r\nretry-after: 86400\r\n\r\n"

    def answer(post: Post) -> How:
        return late if post.headers["hourwheel-attempt"] == "1" else OK

    async with WebhookTarget(answer) as target:
        await publish(node, Message(b"x"))
        settings = {"retry_after_ms_max": 1}
        async with pushing(node, tmp_path, target, **settings) as (pushers, _):
            await until(lambda: count(pushers, PostResult.DONE))
        assert [post.headers["hourwheel-attempt"] for post in target.posts] == ["1", "2"]
        assert len({post.headers["webhook-id"] for post in target.posts}) == 1


async def test_no_more_posts_at_a_time_than_are_allowed(node: EmbeddedNode, tmp_path: Path) -> None:
    """And what is under way when it has to end at once comes again at once."""
    async with WebhookTarget(lambda _: SILENT) as target:
        await publish(node, *(Message(b"%d" % number) for number in range(5)))
        settings = {"timeout_ms": 60_000, "concurrency": 2}
        async with pushing(node, tmp_path, target, **settings) as (pushers, ending):
            await until(lambda: len(target.posts) == 2)
            async with AsyncConsumer(
                node.address, group="hooks", topic="orders", prefetch_messages=0
            ) as other:
                left = [one for _ in range(3) for one in await other.receive(1, 60_000)]
                assert len({one.body for one in left}) == 3  # nobody has leased them
                await other.ack(left)
            assert pushers.health()[0].running_count == 2
            ending.set()
        async with AsyncConsumer(node.address, group="hooks", topic="orders") as other:
            again: set[bytes] = set()
            while len(again) < 2:
                again |= {one.body for one in await other.receive(wait_ms=60_000)}
        assert again == {post.body for post in target.posts}


async def test_a_changed_subscription_ends_what_it_has_begun_and_goes_on_as_changed(
    node: EmbeddedNode, tmp_path: Path
) -> None:
    """Another target, while a POST to the former one is under way; then none; then again."""
    go = asyncio.Event()
    async with WebhookTarget(lambda _: OK) as other, WebhookTarget(lambda _: OK) as target:
        target.wait_for(go)
        await publish(node, Message(b"first"))
        async with pushing(node, tmp_path, target, concurrency=1) as (pushers, _):
            await until(lambda: len(target.posts) == 1)
            one = subscription(tmp_path, other, concurrency=1)
            pushers.change([prepare(one)])
            await publish(node, Message(b"second"))
            assert pushers.health()[0].running_count == 1
            assert other.posts == []
            go.set()
            await until(lambda: count(pushers, PostResult.DONE) == 2)
            assert [post.body for post in (*target.posts, *other.posts)] == [b"first", b"second"]
            assert pushers.health()[0].is_receiving

            pushers.change([])
            await until(lambda: not pushers.health())
            await publish(node, Message(b"third"))
            pushers.change([prepare(one)])
            await until(lambda: len(other.posts) == 2)
            assert count(pushers, PostResult.DONE) >= 2, "counters go on"


async def test_equal_subscriptions_are_left_alone(node: EmbeddedNode, tmp_path: Path) -> None:
    async with WebhookTarget(lambda _: OK) as target:
        one = subscription(tmp_path, target)
        assert prepare(one) == prepare(one)
        await publish(node, Message(b"x"))
        async with pushing(node, tmp_path, target) as (pushers, _):
            await until(lambda: count(pushers, PostResult.DONE) == 1)
            pushers.change([prepare(one)])
            await publish(node, Message(b"x"))
            await until(lambda: count(pushers, PostResult.DONE) == 2)
            assert target.connection_count == 1, "it goes on by its connection"
        first = prepare(one)
        (tmp_path / "secret").write_text("whsec_" + base64.b64encode(b"l" * 32).decode())
        assert prepare(one) != first


async def test_a_subscription_receives_as_soon_as_a_node_has_said_so_and_not_before(
    node: EmbeddedNode, tmp_path: Path
) -> None:
    """Nothing is published: the first polls are short, and tell."""
    dials: list[object] = []

    def hang_up(_: object, writer: asyncio.StreamWriter) -> None:
        dials.append(writer)
        writer.close()

    async with (
        WebhookTarget(lambda _: OK) as target,
        await asyncio.start_server(hang_up, "127.0.0.1", 0) as no_node,
    ):
        nobody = Channel("{}:{}".format(*no_node.sockets[0].getsockname()))
        pushers = Pushers(nobody, SystemClock())
        pushers.change([prepare(subscription(tmp_path, target))])
        stopping = asyncio.Event()
        task = asyncio.create_task(pushers.run(stopping))
        try:
            async with (
                pushing(node, tmp_path, target) as (others, _),
                asyncio.timeout(WAIT_MS / 2_000),
            ):
                await until(lambda: others.health()[0].is_receiving)
            await until(lambda: len(dials) > 8)
            assert not pushers.health()[0].is_receiving
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await nobody.close()
