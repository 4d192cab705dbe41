"""Connections of strangers without a call: a node lets go of them, and its clients notice nothing.

They have begun HTTP/2, so that the bound for a handshake is behind them, and answer pings as a
client does. In the clear and over TLS.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Tls
from node.process.subprocess_node import ChildNode
from tests.support import raw_http2 as raw
from tests.support.certificates import Authority, tls_section
from tests.support.lossy_proxy import LossyProxy

CONNECTIONS: Final = 16
IDLE_MS: Final = 1_000
ROUNDS: Final = 3


class World(NamedTuple):
    node: ChildNode
    context: ssl.SSLContext | None
    tls: Tls | None


@pytest.fixture(params=["plain", "TLS"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    values: dict[str, Any] = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "limits": {"connections": CONNECTIONS, "connection_idle_ms": IDLE_MS},
    }
    context, tls = None, None
    if request.param == "TLS":
        authority = Authority(tmp_path)
        values["tls"] = tls_section(authority.issue("node", "127.0.0.1", "localhost"))
        context = ssl.create_default_context(cafile=str(authority.file))
        context.set_alpn_protocols(["h2"])
        tls = Tls(ca=authority.file)
    async with ChildNode(tmp_path / "data", values, log_file=tmp_path / "node.log") as node:
        yield World(node, context, tls)


def hold_all_places(world: World) -> bool:
    """Take every place with a connection that calls nothing; whether each is ended."""
    with ExitStack() as stack:
        idle: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            one = stack.enter_context(raw.connect(world.node.address, world.context))
            one.sendall(raw.PREFACE + raw.settings())
            idle.append(one)
        return all(raw.is_ended(one) for one in idle)


async def test_idle_connections_of_strangers_end(world: World) -> None:
    """They hold every place, and end by themselves: then a client has one."""
    assert await asyncio.to_thread(hold_all_places, world)
    async with AsyncProducer(world.node.address, tls=world.tls) as producer:
        await producer.publish("orders", Message(b"x", delay_ms=3_600_000))


async def test_client_connects_again_unnoticed(world: World) -> None:
    """Its own connection is ended as well while it asks nothing; the next call makes another."""
    async with LossyProxy() as proxy:
        proxy.target = world.node.address
        async with AsyncAdmin(proxy.address, tls=world.tls) as admin:
            for _ in range(ROUNDS):
                assert await admin.topics() == []
                async with asyncio.timeout(30):
                    await proxy.wait_until_unused()
        assert proxy.accepted_count == ROUNDS
