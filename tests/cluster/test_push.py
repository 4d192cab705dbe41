"""Webhooks while the master of three nodes is killed: each message is delivered."""

import asyncio
import base64
from pathlib import Path

from hourwheel import AsyncAdmin, AsyncProducer, Message
from hourwheel.clock import SystemClock
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.command import push_until
from hourwheel.webhooks.prepared import prepare
from hourwheel.webhooks.pushers import Pushers
from hourwheel.webhooks.settings import Subscription
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.eventually import until
from tests.support.webhook_target import OK, WebhookTarget

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
COUNT = 200


async def test_each_message_is_pushed_though_the_master_is_killed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    async with (
        LocalCluster(tmp_path, 3, values=VALUES) as cluster,
        WebhookTarget(lambda _: OK) as target,
    ):
        master = await cluster.wait_for_master(in_sync=3)
        one = Subscription(
            name="shop",
            group="hooks",
            topics=("orders",),
            url=target.url,
            secret_file=str(tmp_path / "secret"),
            allow_http=True,
            allow_private=True,
            timeout_ms=1_000,
        )
        async with AsyncAdmin(cluster.servers) as admin:
            await admin.create_topic("orders")
        async with Channel(cluster.servers) as channel, AsyncProducer(cluster.servers) as producer:
            pushers = Pushers(channel, SystemClock())
            pushers.change([prepare(one)])
            stopping, ending = asyncio.Event(), asyncio.Event()
            push = asyncio.create_task(push_until(pushers, stopping, ending, 60_000))
            bodies = {b"%d" % number for number in range(COUNT)}
            ids = await producer.publish_many("orders", [Message(body) for body in bodies])
            await until(lambda: len(target.posts) > COUNT // 10)
            await cluster.kill_node(master)
            later = await producer.publish_many("orders", [Message(b"later")] * 10)
            expected = {*ids.texts(), *later.texts()}
            await until(lambda: {one.headers["webhook-id"] for one in target.posts} >= expected)
            stopping.set()
            await push
        assert {post.headers["webhook-id"] for post in target.posts} == expected
        assert {post.body for post in target.posts} == {*bodies, b"later"}
