"""The broker is gone for longer than clients wait before they say so: all go on by themselves.

Clients say so after a minute (`unavailable_ms_max`). Here it is a moment, for those that set none.
What was done just before may come again: its acknowledgement may not have arrived.
"""

import asyncio
import base64
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from kombu import Connection, Consumer, Producer, Queue

from hourwheel import App, AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.clock import SystemClock
from hourwheel.integrations.bridge import Bridge, Target
from hourwheel.integrations.bridge_cluster import Clusters
from hourwheel.integrations.bridge_server import serve_caller
from hourwheel.integrations.dramatiq import HourwheelBroker
from hourwheel.integrations.kombu import Transport
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.command import push_until
from hourwheel.webhooks.prepared import prepare
from hourwheel.webhooks.pushers import Pushers
from hourwheel.webhooks.settings import Subscription
from node.process.subprocess_node import ChildNode
from tests.support.addresses import free_address
from tests.support.eventually import until
from tests.support.webhook_target import OK, WebhookTarget

UNAVAILABLE_MS_MAX = 100.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = AsyncConsumer.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "unavailable_ms_max", UNAVAILABLE_MS_MAX)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    """It comes back where it was."""
    values = {"node": {"listen": free_address()}}
    async with ChildNode(tmp_path / "data", values, log_file=tmp_path / "node.log") as found:
        async with AsyncAdmin(found.address) as admin:
            await admin.create_topic("orders")
        yield found


class Away:
    """Ends the node, until somebody has said that it is gone, and brings it back."""

    def __init__(self, node: ChildNode, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        self._node, self._caplog = node, caplog

    def said(self, text: str) -> bool:
        return any(text in one.getMessage() for one in self._caplog.records)

    async def until_said(self, text: str) -> None:
        assert not self.said(text)
        await self._node.kill()
        await until(lambda: self.said(text))
        await self._node.start()


@pytest.fixture
def away(node: ChildNode, caplog: pytest.LogCaptureFixture) -> Away:
    return Away(node, caplog)


async def publish(node: ChildNode, text: str) -> None:
    async with AsyncProducer(node.address) as producer:
        await producer.publish("orders", Message(text.encode()))


async def test_handlers_go_on(node: ChildNode, away: Away) -> None:
    app, seen, stopping = App(node.address, group="shop"), list[str](), asyncio.Event()

    @app.handler("orders")
    async def note(text: str) -> None:
        seen.append(text)

    serving = asyncio.create_task(app.serve(stopping))
    await publish(node, "before")
    await until(lambda: seen == ["before"])
    await away.until_said("cannot receive from orders")
    await publish(node, "after")
    await until(lambda: set(seen) == {"before", "after"})
    stopping.set()
    await serving


async def test_webhooks_go_on(node: ChildNode, away: Away, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("whsec_" + base64.b64encode(b"k" * 32).decode())
    async with WebhookTarget(lambda _: OK) as target, Channel(node.address) as channel:
        one = Subscription(
            name="shop",
            group="hooks",
            topics=("orders",),
            url=target.url,
            secret_file=str(tmp_path / "secret"),
            allow_http=True,
            allow_private=True,
        )
        pushers, stopping, ending = (
            Pushers(channel, SystemClock()),
            asyncio.Event(),
            asyncio.Event(),
        )
        pushers.change([prepare(one)])
        pushing = asyncio.create_task(push_until(pushers, stopping, ending, 60_000))
        await publish(node, "before")
        await until(lambda: len(target.posts) == 1)
        await away.until_said("shop: cannot receive")
        await publish(node, "after")
        await until(lambda: {post.body for post in target.posts} == {b"before", b"after"})
        stopping.set()
        await pushing


async def test_actors_of_dramatiq_go_on(
    node: ChildNode, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.01)
    seen: list[str] = []
    broker = HourwheelBroker(node.address)

    def note(text: str) -> None:
        seen.append(text)

    actor = dramatiq.actor(note, broker=broker)
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=50)
    worker.start()
    try:
        await asyncio.to_thread(actor.send, "before")
        await until(lambda: seen == ["before"])
        await away.until_said("Consumer encountered a connection error")
        await asyncio.to_thread(actor.send, "after")
        await until(lambda: set(seen) == {"before", "after"})
    finally:
        await asyncio.to_thread(worker.stop)
        await asyncio.to_thread(broker.close)


async def test_workers_of_celery_go_on(node: ChildNode, away: Away) -> None:
    """By their transport and the bridge, which is in a process of its own elsewhere."""
    loop, callers = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def serve(its: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=its)
        callers.add(asyncio.create_task(serve_caller(reader, writer, Clusters())))

    class Local(Transport):  # type: ignore[misc]
        @staticmethod
        def open_bridge(target: Target) -> Bridge:
            ours, its = socket.socketpair()
            asyncio.run_coroutine_threadsafe(serve(its), loop).result()
            return Bridge(target, ours)

    seen: list[int] = []
    tasks = Queue("orders", routing_key="orders")
    host, _, port = node.address.partition(":")

    def connected() -> Connection:
        return Connection(hostname=host, port=int(port), transport=Local)

    def send(number: int) -> None:
        with connected() as connection:
            Producer(connection).publish(number, routing_key="orders", declare=[tasks])

    def note(message: Any) -> None:
        seen.append(message.payload)
        message.ack()

    def work() -> None:
        with (
            connected() as connection,
            Consumer(connection, [tasks], on_message=note, accept=["json"]),
        ):
            while 2 not in seen:
                connection.drain_events(timeout=60)

    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.to_thread(send, 1)
    await until(lambda: seen == [1])
    await away.until_said("cannot receive from orders")
    await asyncio.to_thread(send, 2)
    await working
    await asyncio.gather(*callers)
    assert set(seen) == {1, 2}
