"""Connections before a site that only says what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.errors import ConfigError
from hourwheel.gateway.exchange import Bounds, Request, Response
from hourwheel.gateway.port import HttpPort
from hourwheel.gateway.prepared import make_tls
from hourwheel.gateway.problems import status_of
from tests.support.eventually import until

QUICK = Bounds(head_bytes=1_024, body_bytes=1_000, head_ms=200, body_ms=200, answer_ms=200)
PATIENT = Bounds(head_bytes=1_024, body_bytes=1_000, head_ms=60_000, body_ms=60_000, answer_ms=200)


class Site:
    """Answers with the body; waits where the path says so."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.unsent: list[str] = []
        self.go = asyncio.Event()
        self.ended: list[str] = []

    async def answer(self, request: Request, read_body: Callable[[], Awaitable[bytes]]) -> Response:
        try:
            body = await read_body()
        except errors.HourwheelError as error:
            return self.refuse(error)
        self.seen.append(request.target)
        try:
            if request.target == "/wait":
                await self.go.wait()
        finally:
            self.ended.append(request.target)

        async def on_unsent() -> None:
            self.unsent.append(request.target)

        body = b"x" * 50_000_000 if request.target == "/much" else body
        return Response(200, body, on_unsent=on_unsent)

    def refuse(self, error: errors.HourwheelError) -> Response:
        return Response(status_of(error), error.reason.encode())


class World:
    def __init__(self, bounds: Bounds, connections_max: int = 8) -> None:
        self.site = Site()
        settings: dict[str, Any] = {"connections_max": connections_max, "bodies_bytes": 2_000}
        self.port = HttpPort(self.site, bounds, tls=None, wall_ms=lambda: 0.0, **settings)
        self.number = self.port.start("127.0.0.1", 0)

    async def open(self, raw: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(raw)
        return reader, writer

    async def said(self, raw: bytes) -> bytes:
        reader, writer = await self.open(raw)
        try:
            async with asyncio.timeout(60):
                return await reader.read()
        finally:
            writer.close()


@pytest.fixture
async def quick() -> AsyncIterator[World]:
    world = World(QUICK)
    yield world
    await world.port.stop(0)


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "host: a", *headers, "", "")).encode()


async def test_requests_and_what_is_none(quick: World) -> None:
    raw = get("/a", "content-length: 2") + b"hi" + get("/b", "connection: close")
    found = await quick.said(raw)
    assert found.count(b"HTTP/1.1 200") == 2
    assert b"\r\n\r\nhiHTTP" in found
    assert b"date: Thu, 01 Jan 1970 00:00:00 GMT" in found
    assert quick.site.seen == ["/a", "/b"]
    for wrong, reason in (
        (b"nonsense\r\n\r\n", b"NOT_HTTP"),
        (get("/", "x: " + "x" * 1_100), b"HEAD_TOO_LARGE"),
        (b"GET / HTT", b"REQUEST_TIMEOUT"),
        (get("/", "content-length: 1001"), b"BODY_TOO_LARGE"),
        (get("/", "content-length: 9"), b"REQUEST_TIMEOUT"),
        (get("/", "content-length: 9") + b"part", b"REQUEST_TIMEOUT"),
        (get("/", "transfer-encoding: chunked") + b"400\r\n" + b"x" * 1_024, b"BODY_TOO_LARGE"),
        (get("/", "authorization: a", "authorization: b"), b"NOT_HTTP"),
        (get("/", "expect: 100-continue", "content-length: 1"), b"100 "),
    ):
        assert reason in await quick.said(wrong), wrong
    assert await quick.said(b"") == b""  # idle
    assert len(quick.site.seen) == 2
    assert (await quick.said(b"HEAD" + get("/c", "connection: close")[3:])).endswith(b"\r\n\r\n")


async def test_a_caller_who_hangs_up_ends_the_work() -> None:
    world = World(PATIENT)
    _, writer = await world.open(get("/wait"))
    await until(lambda: world.site.seen)
    writer.close()
    await until(lambda: world.site.ended)
    assert not world.site.go.is_set()
    await world.port.stop(0)


async def test_an_answer_that_nobody_reads_is_given_back() -> None:
    world = World(PATIENT)
    _, writer = await world.open(get("/much"))
    await until(lambda: world.site.unsent)
    assert world.site.unsent == ["/much"]
    writer.close()
    await world.port.stop(0)


async def test_the_longest_silent_gives_way_and_work_does_not() -> None:
    world = World(PATIENT, connections_max=2)
    first, writer = await world.open(get("/wait"))
    await until(lambda: world.site.seen)
    silent, other = await world.open(b"GET /half")
    assert b"200" in await world.said(get("/new", "connection: close"))
    assert await silent.read() == b""
    second, another = await world.open(get("/wait"))
    await until(lambda: world.site.seen.count("/wait") == 2)
    assert await world.said(get("/none")) == b""  # no room, and nobody to give way
    world.site.go.set()
    for reader in (first, second):
        assert b"200" in await reader.readuntil(b"\r\n")
    for one in (writer, other, another):
        one.close()
    await world.port.stop(60_000)


async def test_halves_of_bodies_give_way_after_those_who_wait_for_a_head() -> None:
    world = World(PATIENT, connections_max=3)
    half = get("/half", "content-length: 9") + b"x"
    bodies = [await world.open(half) for _ in range(2)]
    await until(lambda: world.port.body_bytes == 2)
    silent, another = await world.open(b"GET /")
    new = get("/new", "connection: close")
    assert b"200" in await world.said(new)
    assert await silent.read() == b""
    held = [await world.open(half)]
    await until(lambda: world.port.body_bytes == 3)
    assert b"200" in await world.said(new)
    assert await bodies[0][0].read() == b"", "the longest first"
    bodies[1][1].write(b"x" * 8)
    assert b"200" in await bodies[1][0].readuntil(b"\r\n")
    assert world.site.seen == ["/new", "/new", "/half"]
    for _, writer in (*bodies, *held, (silent, another)):
        writer.close()
    await world.port.stop(0)


async def test_a_body_that_is_on_its_way_may_end_when_the_port_stops() -> None:
    world = World(PATIENT)
    reader, writer = await world.open(get("/half", "content-length: 2") + b"x")
    await until(lambda: world.port.body_bytes == 1)
    stopping = asyncio.ensure_future(world.port.stop(60_000))
    await asyncio.sleep(0)
    writer.write(b"x")
    assert b"200" in await reader.readuntil(b"\r\n")
    writer.close()
    await stopping


async def test_bodies_of_all_connections_have_a_bound() -> None:
    world = World(PATIENT)
    held = [await world.open(get("/", "content-length: 1000") + b"x" * 900) for _ in range(2)]
    found = b""
    async with asyncio.timeout(60):
        while b"OVERLOADED" not in found:
            found = await world.said(
                get("/", "content-length: 900", "connection: close") + b"x" * 900
            )
    for _, writer in held:
        writer.close()
    await world.port.stop(0)


async def test_a_port_that_is_taken_and_certificates_that_are_none(quick: World) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        quick.port.start("127.0.0.1", quick.number)
    assert make_tls("", "", "") is None
    with pytest.raises(ConfigError, match="cannot be used"):
        make_tls("/none", "/none", "")
