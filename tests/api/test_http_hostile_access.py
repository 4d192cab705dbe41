"""The HTTP API over TLS, with access control on, and those who mean it harm: others are served."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from hourwheel.client.admin import AsyncAdmin
from hourwheel.gateway.callers import CHECKS_A_SOURCE
from hourwheel.gateway.listings import LISTINGS_A_CALLER, LISTINGS_WAITING_A_CALLER
from hourwheel.gateway.models import KEY_PAGE_MAX
from hourwheel.transport.access import Tls
from tests.support.certificates import Authority, tls_section
from tests.support.eventually import until, until_told
from tests.support.http_access import administered, basic, values_of
from tests.support.http_world import Answer, HttpWorld
from tests.support.tokens import Signer

PATH: Final = "/v1/topics/orders/messages"
BODY: Final = {"text": "x"}
CONNECTIONS: Final = 64
SLOW: Final = {"head_ms": 600_000, "body_ms": 600_000, "call_timeout_ms": 60_000}
"""No machine is too slow for those who mean well."""
GUESSES: Final = 40
ANSWERS: Final = 80
LISTINGS: Final = 2 * (LISTINGS_A_CALLER + LISTINGS_WAITING_A_CALLER)
EVE: Final = f"authorization: {basic('eve')}"


class TlsWorld(HttpWorld):
    """Nodes, gateway and callers speak TLS; `eve` may publish and list, and is no administrator."""

    def __init__(self, folder: Path, **settings: int) -> None:
        self.authority = Authority(folder)
        own = self.authority.issue("own", "127.0.0.1", "localhost")
        self.nodes = Tls(ca=self.authority.file)
        self.context = ssl.create_default_context(cafile=str(self.authority.file))
        super().__init__(
            folder,
            {**values_of(folder, Signer.new()), "tls": tls_section(own)},
            tls=self.nodes,
            caller_tls=self.context,
            cert=str(own.certificate),
            key=str(own.key),
            **settings,
        )

    async def say(self, raw: bytes) -> bytes:
        """What the gateway says, by TLS, until it closes the connection."""
        reader, writer = await asyncio.open_connection(*self.address, ssl=self.context)
        try:
            writer.write(raw)
            async with asyncio.timeout(60):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TlsWorld]:
    async def grant(admin: AsyncAdmin) -> None:
        await admin.grant("eve", ["publish", "look"], "topic", "*")

    async with TlsWorld(tmp_path, **SLOW, connections=CONNECTIONS, answer_ms=1_000) as found:
        await administered(found, grant, found.nodes)
        yield found


async def publish(world: HttpWorld, name: str = "root", secret: str = "secret") -> Answer:
    return await world.post(PATH, BODY, authorization=basic(name, secret))


def request(*headers: str, body: bytes = b"") -> bytes:
    named = ("host: localhost", "content-type: application/json", *headers)
    return "\r\n".join((f"POST {PATH} HTTP/1.1", *named, "", "")).encode() + body


ROOT: Final = f"authorization: {basic('root')}"
GUESS: Final = f"authorization: {basic('root', 'guessed')}"
HALF: Final = "content-length: 5"
REFUSED: Final = [
    (request(HALF, body=b"half"), 401),  # nobody's body is waited for
    (request(GUESS, HALF, body=b"half"), 401),
    (request(ROOT, GUESS), 400),
    (request(f"authorization: Basic {'A' * 9_000}", "content-length: 0"), 401),
    (request(f"authorization: Bearer {'A' * 20_000}", "content-length: 0"), 431),
    (request(GUESS, "content-length: 9000000000"), 401),
    (request(ROOT, "content-length: 9000000000"), 413),
    (request(ROOT, "content-length: 1", "content-length: 2"), 400),
    (request(ROOT, "content-encoding: gzip", HALF, body=b"12345"), 415),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
]


async def test_what_is_refused_is_refused_before_anything_of_it_is_done(world: TlsWorld) -> None:
    for raw, status in REFUSED:
        said = await world.say(raw.replace(b"host:", b"connection: close\r\nhost:", 1))
        assert int(said.split()[1]) == status, raw[:120]
        assert (b"WWW-Authenticate" in said or b"www-authenticate" in said) == (status == 401)
    assert (await publish(world)).status == 201


async def test_handshakes_that_never_end_and_halves_of_requests_give_way(world: TlsWorld) -> None:
    silent = [await asyncio.open_connection(*world.address) for _ in range(CONNECTIONS)]
    for _, writer in silent[::2]:
        writer.write(b"\x16\x03\x01")
    for _ in range(3):
        assert (await publish(world)).status == 201
    assert await silent[0][0].read() == b""  # the longest first
    for _, writer in silent:
        writer.close()


async def test_what_does_not_come_in_time_is_given_up(tmp_path: Path) -> None:
    """Where the gateway is slower than its own bounds, it closes without a word."""
    async with TlsWorld(tmp_path, head_ms=3_000, body_ms=300) as world:
        for raw in (b"POST / HTT", request(ROOT, HALF, body=b"half")):
            said = await world.say(raw)
            assert said == b"" or said.split()[1] in {b"401", b"408", b"503"}


async def test_a_flood_of_failed_logins_keeps_nobody_out_who_is_known_or_elsewhere(
    world: TlsWorld,
) -> None:
    assert (await publish(world)).status == 201
    guesses = [f"authorization: {basic('root', f'guess-{one}')}" for one in range(GUESSES)]
    flood = [
        asyncio.ensure_future(world.say(request("connection: close", guess, HALF, body=b"[]")))
        for guess in guesses
    ]
    for _ in range(5):  # who is known is served while others guess
        assert (await publish(world)).status == 201
    world.source = "127.0.0.2"

    async def is_let_in() -> bool:  # and so is who comes from elsewhere
        return (await publish(world, "eve")).status == 201

    await until_told(is_let_in)
    statuses = Counter(int(one.split()[1]) for one in await asyncio.gather(*flood))
    assert statuses.keys() <= {401, 503, 504}
    assert statuses[401] + statuses[504] >= CHECKS_A_SOURCE
    assert statuses[503]  # few are shown to a node, and the others to none
    assert world.gateway.health(is_refused=False).caller_count == 2  # guesses keep nothing
    world.source = "127.0.0.1"
    assert (await publish(world, "root", "guess-0")).status == 401
    assert (await publish(world)).status == 201


async def test_a_flood_of_listings_is_bounded_and_others_publish_meanwhile(world: TlsWorld) -> None:
    keyed = [{"text": "x", "delay": "1h", "keys": ["k"]}] * KEY_PAGE_MAX
    assert (await world.post(PATH, keyed, authorization=basic("eve"))).status == 201
    assert (await publish(world)).status == 201
    path = f"{PATH}?key=k&limit={KEY_PAGE_MAX}"
    raw = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{EVE}\r\n\r\n".encode()
    flood = [asyncio.ensure_future(world.say(raw)) for _ in range(LISTINGS)]
    for _ in range(5):
        assert (await publish(world)).status == 201
    own = await world.get(path, authorization=basic("root"))  # the bound is each caller's
    assert (own.status, len(own.json["messages"])) == (200, KEY_PAGE_MAX)
    said = await asyncio.gather(*flood)
    assert {int(one.split()[1]) for one in said} == {200, 503}
    assert all(b'"limit": "listings"' in one for one in said if b" 503 " in one[:20])
    last = await world.get(path, authorization=basic("eve"))
    assert (last.status, last.json["is_complete"]) == (200, True)


async def heard(reader: asyncio.StreamReader) -> int:
    """How many answers come before the connection ends."""
    raw = b""
    try:
        while part := await reader.read(1 << 20):
            raw += part
    except OSError:
        pass
    return raw.count(b"HTTP/1.1 200")


async def test_an_answer_that_nobody_reads_is_given_up(world: TlsWorld) -> None:
    keyed = [{"text": "x", "delay": "1h", "keys": ["k"]}] * KEY_PAGE_MAX
    assert (await world.post(PATH, keyed, authorization=basic("eve"))).status == 201
    line = f"GET {PATH}?key=k&limit={KEY_PAGE_MAX} HTTP/1.1\r\nhost: localhost\r\n{ROOT}\r\n\r\n"
    deaf = [
        await asyncio.open_connection(*world.address, ssl=world.context, limit=1) for _ in range(4)
    ]
    for _, writer in deaf:
        writer.write(line.encode() * ANSWERS)
    assert (await publish(world)).status == 201
    health = world.gateway.health
    await until(lambda: health(is_refused=False).body_bytes == 0)
    for reader, writer in deaf:
        assert (
            await heard(reader) < ANSWERS
        )  # the others were given up, and not kept for who is deaf
        writer.close()
