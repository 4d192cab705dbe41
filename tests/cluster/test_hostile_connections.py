"""Connections that wear a node out, by HTTP/2 made by hand: others are served meanwhile."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Tls
from node.process.subprocess_node import ChildNode
from tests.support import raw_http2 as raw
from tests.support.certificates import Authority, tls_section
from tests.support.memory_bound import resident_bytes

CONNECTIONS: Final = 250
"""That the node takes; it is offered four times as many."""
WAIT_MS: Final = 1_000
GROWTH_BYTES: Final = 96 << 20
"""Of the node, by all attacks together."""
SESSION: Final = b"/hourwheel.v1.SessionService/Session"
PUBLISH: Final = b"/hourwheel.v1.ProducerService/Publish"


class World(NamedTuple):
    node: ChildNode
    context: ssl.SSLContext | None
    producer: AsyncProducer
    base_bytes: int

    def connect(self) -> socket.socket:
        return raw.connect(self.node.address, self.context)

    async def attack(self, run: Callable[["World"], None]) -> None:
        """Others are served while it goes on, and the node stays small."""
        running = asyncio.ensure_future(asyncio.to_thread(run, self))
        served = 0
        while not running.done() or not served:
            async with asyncio.timeout(60):
                await self.producer.publish("orders", Message(b"x", delay_ms=3_600_000))
            served += 1
            assert resident_bytes(self.node.pid) < self.base_bytes + GROWTH_BYTES
        await running


@pytest.fixture(params=["plain", "TLS"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    values: dict[str, Any] = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "limits": {"connections": CONNECTIONS, "request_wait_ms": WAIT_MS},
    }
    context, tls = None, None
    if request.param == "TLS":
        authority = Authority(tmp_path)
        files = authority.issue("node", "127.0.0.1", "localhost")
        values["tls"] = tls_section(files)
        context = ssl.create_default_context(cafile=str(authority.file))
        context.set_alpn_protocols(["h2"])
        tls = Tls(ca=authority.file)
    node = ChildNode(tmp_path / "data", values, log_file=tmp_path / "node.log")
    async with node, AsyncProducer(node.address, tls=tls) as producer:
        await producer.publish("orders", Message(b"x", delay_ms=3_600_000))
        yield World(node, context, producer, resident_bytes(node.pid))


def be_silent(world: World) -> None:
    """Some connections say nothing, some the half of what one begins with."""
    host, _, port = world.node.address.rpartition(":")
    half = b"\x16\x03\x01\x02" if world.context else raw.PREFACE[:9]
    with ExitStack() as stack:
        silent = []
        for number in range(4 * CONNECTIONS):
            try:
                one = stack.enter_context(socket.create_connection((host, int(port)), 30))
                if number % 2:
                    one.sendall(half)
            except OSError:  # the node takes no more
                continue
            silent.append(one)
        # Each is thrown out when its time is over, the last one, too.
        assert all(raw.is_ended(one) for one in (*silent[:4], *silent[-4:]))


def send_much_metadata(world: World) -> None:
    large = raw.headers(1, PUBLISH, x=b"a" * (1 << 20))
    for _ in range(4):
        with world.connect() as one:
            raw.send_until_refused(one, raw.PREFACE + raw.settings() + large, 1)
            one.settimeout(0.1)
            raw.is_ended(one)


def ping(world: World) -> None:
    with world.connect() as one:
        one.sendall(raw.PREFACE + raw.settings())
        one.settimeout(10)
        raw.send_until_refused(one, raw.ping() * 1_000, 20)
        assert raw.is_ended(one)


def open_and_reset(world: World) -> None:
    with world.connect() as one:
        one.sendall(raw.PREFACE + raw.settings())
        one.settimeout(2)
        for first in range(1, 8_000, 200):
            both = [
                raw.headers(stream, PUBLISH) + raw.reset(stream)
                for stream in range(first, first + 200, 2)
            ]
            if raw.send_until_refused(one, b"".join(both), 1):
                break


def open_and_never_read(world: World) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            one = stack.enter_context(world.connect())
            opened = [raw.headers(stream, SESSION) for stream in range(1, 64, 2)]
            start = raw.PREFACE + raw.settings(initial_window_bytes=0)
            raw.send_until_refused(one, start + b"".join(opened), 1)


async def test_node_is_not_worn_out(world: World) -> None:
    for attack in (be_silent, send_much_metadata, ping, open_and_reset, open_and_never_read):
        await world.attack(attack)
