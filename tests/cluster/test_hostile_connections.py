"""Connections and calls that wear a node out, by HTTP/2 made by hand: others are served meanwhile.

In the clear, over TLS, and with access control besides: then also logins that are guessed, tokens
that are forged, and the ports of metrics and the console.
"""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import argon2
import grpc
import pytest

from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Tls
from node.process.subprocess_node import ChildNode
from tests.support import raw_http2 as raw
from tests.support.certificates import Authority, tls_section
from tests.support.memory_bound import resident_bytes
from tests.support.tokens import AUDIENCE, ISSUER, Signer

CONNECTIONS: Final = 250
"""That the node takes; it is offered four times as many."""
WAIT_MS: Final = 1_000
GROWTH_BYTES: Final = 96 << 20
"""Of the node, by all attacks together."""
PORTS_GROWTH_BYTES: Final = 160 << 20
"""Besides, with access control: 64 MiB for the one secret that is being checked, and 256 KiB for
each handshake that has ended and is not collected yet, of a console and a port for metrics."""
SESSION: Final = b"/hourwheel.v1.SessionService/Session"
PUBLISH: Final = b"/hourwheel.v1.ProducerService/Publish"
STATUS: Final = "/hourwheel.v1.AdminService/GetStatus"
SIGNER: Final = Signer.new()
GUESSES: Final = 300
FORGERIES: Final = 2_000
AT_ONCE: Final = 50
SERVED_S: Final = 0.02
"""Between two calls of others, while an attack goes on."""


class World(NamedTuple):
    node: ChildNode
    context: ssl.SSLContext | None
    producer: AsyncProducer
    base_bytes: int

    authority: bytes = b""
    """Whom clients trust; empty: in the clear."""

    def connect(self) -> socket.socket:
        return raw.connect(self.node.address, self.context)

    def browser(self) -> ssl.SSLContext:
        """Of whoever speaks HTTP/1.1."""
        return ssl.create_default_context(cadata=self.authority.decode())

    async def attack(self, run: Callable[["World"], None]) -> None:
        """Others are served while it goes on, and the node stays small."""
        running = asyncio.ensure_future(asyncio.to_thread(run, self))
        growth_bytes = GROWTH_BYTES + PORTS_GROWTH_BYTES * bool(self.node.console_address)
        served = 0
        while not running.done() or not served:
            async with asyncio.timeout(60):
                await self.producer.publish("orders", Message(b"x", delay_ms=3_600_000))
            served += 1
            await asyncio.wait([running], timeout=SERVED_S)
            assert resident_bytes(self.node.pid) < self.base_bytes + growth_bytes
        await running


def login_of(secret: str) -> str:
    return "Basic " + b64encode(f"root:{secret}".encode()).decode()


def with_access_control(folder: Path) -> dict[str, Any]:
    """What a node's configuration has then."""
    (folder / "users").write_text(f"root:{argon2.PasswordHasher().hash('secret')}\n")
    (folder / "keys.pem").write_bytes(SIGNER.public_pem)
    return {
        "access": {"is_on": True, "administrators": "root"},
        "authentication": {
            "users_file": str(folder / "users"),
            "token_keys_file": str(folder / "keys.pem"),
            "token_issuer": ISSUER,
            "token_audience": AUDIENCE,
        },
        "console": {"listen": "127.0.0.1:0"},
    }


@pytest.fixture(params=["plain", "TLS", "access control"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    values: dict[str, Any] = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "limits": {"connections": CONNECTIONS, "request_wait_ms": WAIT_MS},
    }
    context, tls, user, trusted = None, None, None, b""
    if request.param != "plain":
        authority = Authority(tmp_path)
        files = authority.issue("node", "127.0.0.1", "localhost")
        values["tls"] = tls_section(files)
        context = ssl.create_default_context(cafile=str(authority.file))
        context.set_alpn_protocols(["h2"])
        tls, trusted = Tls(ca=authority.file), authority.file.read_bytes()
    if request.param == "access control":
        values |= with_access_control(tmp_path)
        user = ("root", "secret")
    node = ChildNode(tmp_path / "data", values, log_file=tmp_path / "node.log")
    async with node, AsyncProducer(node.address, tls=tls, user=user) as producer:
        await producer.publish("orders", Message(b"x", delay_ms=3_600_000))
        yield World(node, context, producer, resident_bytes(node.pid), trusted)


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


def answers(world: World, credentials: Iterable[str]) -> Counter[grpc.StatusCode]:
    """What calls with these are answered, many at one time."""
    found: Counter[grpc.StatusCode] = Counter()
    under_way: list[Any] = []
    with grpc.secure_channel(
        world.node.address, grpc.ssl_channel_credentials(world.authority)
    ) as channel:
        call: Any = channel.unary_unary(STATUS)
        for one in credentials:
            metadata = (("authorization", one),)
            under_way.append(call.future(b"", metadata=metadata, timeout=60))
            if len(under_way) == AT_ONCE:
                found[under_way.pop(0).code()] += 1
        found.update(one.code() for one in under_way)
    return found


def guess_secrets(world: World) -> None:
    """Each guess is dear to check: few are, all others are turned away."""
    found = answers(world, (login_of(f"guess {number}") for number in range(GUESSES)))
    assert found.keys() <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert found[grpc.StatusCode.RESOURCE_EXHAUSTED] > GUESSES // 2


def forge_tokens(world: World) -> None:
    """By a key that the node does not know, each another one."""
    thief = Signer.new()
    forged = (f"Bearer {thief.token(f'root-{number}')}" for number in range(FORGERIES))
    assert answers(world, forged) == {grpc.StatusCode.UNAUTHENTICATED: FORGERIES}


def be_silent_elsewhere(world: World) -> None:
    """At the ports of metrics and the console, which answer whoever says something."""
    for address in (world.node.metrics_address, world.node.console_address):
        host, _, port = address.rpartition(":")
        half = b"\x16\x03\x01\x02"
        with ExitStack() as stack:
            for number in range(4 * CONNECTIONS):
                one = stack.enter_context(socket.create_connection((host, int(port)), 30))
                with suppress(OSError):  # it gave way already
                    one.sendall(half[: number % 2 * len(half)])
            path = "healthz" if address == world.node.metrics_address else "no-such-page"
            with suppress(HTTPError):  # that asks for a login
                urlopen(f"https://{address}/{path}", timeout=60, context=world.browser()).close()


ATTACKS: Final = (be_silent, send_much_metadata, ping, open_and_reset, open_and_never_read)
ON_LOGINS: Final = (guess_secrets, forge_tokens, be_silent_elsewhere)


async def test_node_is_not_worn_out(world: World) -> None:
    attacks = (*ATTACKS, *ON_LOGINS) if world.node.console_address else ATTACKS
    for attack in attacks:
        await world.attack(attack)
