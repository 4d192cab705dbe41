"""The HTTP API and those who mean it harm, or know no better: others are served."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.http_world import HttpWorld

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
PATH = "/v1/topics/t/messages"
SMALL = {"head_bytes": 2_048, "body_bytes": 20_000, "bodies_bytes": 60_000}
QUICK = {"head_ms": 300, "body_ms": 300, "answer_ms": 300, "connections": 8}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HttpWorld]:
    async with HttpWorld(tmp_path, VALUES, **SMALL, **QUICK) as found:
        yield found


async def said(world: HttpWorld, raw: bytes, *, is_ended: bool = False) -> bytes:
    """What the gateway says until it closes the connection."""
    reader, writer = await asyncio.open_connection(*world.address)
    try:
        writer.write(raw)
        if is_ended:
            writer.write_eof()
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def request(body: bytes, *headers: str, method: str = "POST") -> bytes:
    named = ("host: localhost", "content-type: application/json", *headers)
    return "\r\n".join((f"{method} {PATH} HTTP/1.1", *named, "", "")).encode() + body


def reason_of(raw: bytes) -> tuple[int, str]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["reason"]


BODIES: list[tuple[bytes, str]] = [
    (b"", "NOT_JSON"),
    (b"{", "NOT_JSON"),
    (b'{"text": "x"} x', "NOT_JSON"),
    (b'{"json": NaN}', "NOT_JSON"),
    (b'{"text": "\xff"}', "NOT_JSON"),
    (b'{"text": "\\ud800"}', "NOT_JSON"),
    (b'{"json": ' + b"[" * 9_000 + b"]" * 9_000 + b"}", "NOT_JSON"),
    (b"null", "INVALID_ARGUMENT"),
    (b"[]", "INVALID_ARGUMENT"),
    (b'[{"text": 1}]', "INVALID_ARGUMENT"),
    (b'{"text": "x", "json": 1}', "INVALID_ARGUMENT"),
    (b'{"base64": "%%"}', "INVALID_ARGUMENT"),
    (b'{"text": "x", "delay": true}', "INVALID_ARGUMENT"),
    (b'{"text": "x", "delay": -1}', "INVALID_ARGUMENT"),
    (b'{"text": "x", "delay": "1h", "due": 1}', "INVALID_DUE_TIME"),
    (b'{"text": "x", "due": 1700000000}', "INVALID_DUE_TIME"),
    (b'{"text": "x", "due": "tomorrow"}', "INVALID_DUE_TIME"),
    (b'{"text": "x", "due": "1h"}', "INVALID_DUE_TIME"),
    (b'{"text": "x", "colour": "red"}', "INVALID_ARGUMENT"),
    (b'{"text": "x", "tags": ["\\u0000"]}', "INVALID_ARGUMENT"),
]


async def test_bodies_that_are_no_message(world: HttpWorld) -> None:
    for body, reason in BODIES:
        answer = await world.ask("POST", PATH, body, content_type="application/json")
        assert (answer.status, answer.reason) == (400, reason), body
    assert (await world.post("/v1/groups/g/receive", {"topic": "t"})).reason == "UNKNOWN_TOPIC"


async def test_paths_methods_and_types_that_are_none(world: HttpWorld) -> None:
    for method, path, status, reason in (
        ("POST", "/v1", 404, "NO_SUCH_PATH"),
        ("GET", "/v1/topics/t/messages/x", 404, "NO_SUCH_PATH"),
        ("DELETE", PATH, 405, "METHOD_NOT_ALLOWED"),
        ("OPTIONS", PATH, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/topics/%ff/messages", 400, "INVALID_ARGUMENT"),
        ("GET", PATH, 400, "INVALID_ARGUMENT"),
        ("GET", f"{PATH}?key=k&key=l", 400, "INVALID_ARGUMENT"),
        ("GET", f"{PATH}?key=k&more=1", 400, "INVALID_ARGUMENT"),
        ("GET", f"{PATH}?key=k&limit=0", 400, "INVALID_ARGUMENT"),
        ("GET", f"{PATH}?key=k&limit=many", 400, "INVALID_ARGUMENT"),
        ("GET", "/v1/messages/xyz", 400, "INVALID_MESSAGE_ID"),
        ("GET", "/v1/topics/a%2Fb/messages?key=k", 400, "INVALID_TOPIC"),
    ):
        answer = await world.ask(method, path)
        assert (answer.status, answer.reason) == (status, reason), (method, path)
        if status == 405:
            assert answer.headers["allow"] == "POST, GET"
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = await world.ask("POST", PATH, b'{"text": "x"}', content_type=kind)
        assert (answer.status, answer.reason) == (415, "WRONG_MEDIA_TYPE")
    head = await world.ask("HEAD", "/healthz")
    assert (head.status, head.raw, head.headers["content-length"]) == (200, b"", "15")


async def test_web_pages_may_not_call(world: HttpWorld) -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"host": "rebound.example"},
        {"host": "rebound.example:7480"},
    ):
        answer = await world.post(PATH, {"text": "x"}, **headers)
        assert (answer.status, answer.reason) == (403, "FOREIGN_PAGE")
    assert (await world.post(PATH, {"text": "x"}, host="[::1]:80")).status == 201


NO_REQUESTS: list[tuple[bytes, int, str]] = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "NOT_HTTP"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "NOT_HTTP"),
    (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "NOT_HTTP"),
    (request(b"", "authorization: a", "authorization: b"), 400, "NOT_HTTP"),
    (request(b"", "content-length: 1", "content-length: 2"), 400, "NOT_HTTP"),
    (request(b"x\r\n", "transfer-encoding: chunked"), 400, "NOT_HTTP"),
    (request(b"", "x-long: " + "x" * 4_096), 431, "HEAD_TOO_LARGE"),
    (request(b"", "content-length: 9000000000"), 413, "BODY_TOO_LARGE"),
    (request(b"", "expect: 100-continue", "content-length: 20001"), 413, "BODY_TOO_LARGE"),
    (
        request(b"fff\r\n" + b"x" * 4_095 + b"\r\n", "transfer-encoding: chunked")
        + b"4000\r\n"
        + b"x" * 16_384,
        413,
        "BODY_TOO_LARGE",
    ),
    (request(b"", "content-length: 5", "content-encoding: gzip"), 415, "WRONG_MEDIA_TYPE"),
    (request(b"half", "content-length: 5"), 408, "REQUEST_TIMEOUT"),
    (b"POST / HTT", 408, "REQUEST_TIMEOUT"),
]


async def test_what_is_no_request(world: HttpWorld) -> None:
    for raw, status, reason in NO_REQUESTS:
        assert reason_of(await said(world, raw)) == (status, reason), raw[:80]
    assert (await world.post(PATH, {"text": "x"})).status == 201


async def test_requests_one_behind_the_other_are_answered_in_order(world: HttpWorld) -> None:
    body = b'{"text": "x"}'
    one = request(body, f"content-length: {len(body)}")
    last = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    raw = await said(world, one + one + last)
    assert [part[:3] for part in raw.split(b"HTTP/1.1 ")[1:]] == [b"201", b"201", b"200"]
    assert await said(world, b"", is_ended=True) == b""


async def test_those_who_say_nothing_give_way(tmp_path: Path) -> None:
    """Idle connections and halves of heads take all there are; whoever calls is served."""
    async with HttpWorld(tmp_path, VALUES, connections=4, head_ms=600_000) as world:
        silent = [await asyncio.open_connection(*world.address) for _ in range(4)]
        for _, writer in silent[:2]:
            writer.write(b"POST /v1/topics/t/messages HTTP/1.1\r\nx: ")
        for _ in range(3):
            assert (await world.post(PATH, {"text": "x"})).status == 201
        assert await silent[0][0].read() == b""  # the longest first
        for _, writer in silent:
            writer.close()


async def test_bodies_of_all_together_have_a_bound(tmp_path: Path) -> None:
    settings = {"body_bytes": 20_000, "bodies_bytes": 30_000}
    async with HttpWorld(tmp_path, VALUES, **settings) as world:
        open_: list[Any] = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*world.address)
            writer.write(request(b"x" * 15_000, "content-length: 15001"))
            open_.append((reader, writer))
        answers = [await world.post(PATH, {"text": "x" * 18_000}) for _ in range(3)]
        assert {one.status for one in answers} <= {201, 503}
        for _, writer in open_:
            writer.close()
        while (answer := await world.post(PATH, {"text": "x" * 18_000})).status != 201:
            assert answer.reason == "OVERLOADED"


async def test_tls_that_is_none(tmp_path: Path) -> None:
    own = Authority(tmp_path).issue("own", "127.0.0.1")
    files = {"cert": str(own.certificate), "key": str(own.key)}
    async with HttpWorld(tmp_path, VALUES, **files, head_ms=300) as world:
        assert await said(world, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n") == b""
        assert await said(world, b"") == b""  # a handshake that never comes


async def test_the_node_is_gone(tmp_path: Path) -> None:
    async with HttpWorld(tmp_path, VALUES, call_timeout_ms=300) as world:
        assert (await world.post(PATH, {"text": "x"})).status == 201
        await world.node.node.stop(grace_ms=0)
        answer = await world.post(PATH, {"text": "x"})
        assert (answer.status, answer.reason) in {(503, "UNAVAILABLE"), (504, "TIMEOUT")}
        assert (await world.get("/healthz")).status == 200


async def test_large_things_are_refused_while_others_are_served(tmp_path: Path) -> None:
    """With the sizes that a gateway has by itself."""
    many = b"[" + b"[]," * (2 << 20) + b"[]]"
    unknown = b"{" + b",".join(b'"%x":1' % number for number in range(500_000)) + b"}"
    key = f"idempotency-key: {'k' * (1 << 20)}"
    hostile = [
        (request(many, f"content-length: {len(many)}"), (413, "TOO_MANY_ITEMS")),
        (request(unknown, f"content-length: {len(unknown)}"), (413, "TOO_MANY_ITEMS")),
        (request(b"", f"content-length: {10 << 30}"), (413, "BODY_TOO_LARGE")),
        (request(b"{}", "content-encoding: gzip", "content-length: 2"), (415, "WRONG_MEDIA_TYPE")),
        (request(b"{}", key, "content-length: 2"), (431, "HEAD_TOO_LARGE")),
    ]
    async with HttpWorld(tmp_path, VALUES) as world:
        for raw, expected in hostile:
            closing = raw.replace(b"host: localhost", b"host: localhost\r\nconnection: close", 1)
            refusals = [asyncio.ensure_future(said(world, closing)) for _ in range(3)]
            assert (await world.post(PATH, {"text": "x"})).status == 201
            # Who still sends when it is refused may not see the answer.
            found = [reason_of(one) for one in await asyncio.gather(*refusals) if one]
            assert set(found) <= {expected, (503, "OVERLOADED")}
            assert (await world.post(PATH, {"text": "x"})).status == 201
