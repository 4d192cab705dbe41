"""POSTs to targets that are good, slow, endless, rude and not allowed."""

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from hourwheel.errors import ConfigError
from hourwheel.webhooks import connections, names
from hourwheel.webhooks.answers import Answer
from hourwheel.webhooks.post import Poster, PostFailed
from hourwheel.webhooks.settings import target_of
from tests.support.certificates import Authority
from tests.support.eventually import until
from tests.support.webhook_target import (
    CUT,
    DRIPPING,
    ENDLESS,
    HANG_UP,
    INTERIM,
    OK,
    SILENT,
    How,
    Post,
    WebhookTarget,
)


def poster(url: str, **more: Any) -> Poster:
    settings = {"timeout_ms": 20_000, "allow_private": True, **more}
    return Poster(target_of(url, allow_http=True), **settings)


async def why_not(one: Poster, body: bytes = b"x") -> str:
    with pytest.raises(PostFailed) as caught:
        await one.post({}, body)
    return str(caught.value)


async def test_a_post_and_its_answer() -> None:
    later = b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 503 No\r\nRetry-After: 7\r\n\r\n"
    async with WebhookTarget(lambda post: OK if post.body else later) as target:
        assert await poster(target.url).post({"x-a": "b"}, b"y" * 300_000) == Answer(200)
        assert await poster(target.url).post({}, b"") == Answer(503, "7")
        post = target.posts[0]
        assert post.line == "POST /hook?a=b HTTP/1.1"
        assert post.headers["host"] == f"127.0.0.1:{target.port}"
        assert (post.headers["x-a"], post.headers["connection"]) == ("b", "close")
        assert post.body == b"y" * 300_000


async def test_redirects_are_not_followed() -> None:
    there: list[str] = []
    moved = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"
    async with WebhookTarget(lambda post: (there.append(post.line), moved)[1]) as target:
        assert (await poster(target.url).post({}, b"x")).status == 302
    assert len(there) == 1


async def test_an_endless_answer_is_not_read() -> None:
    async with WebhookTarget(lambda _: ENDLESS) as target:
        assert (await poster(target.url).post({}, b"x")).status == 200
        assert target.written < 100_000_000


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (HANG_UP, "closed before an answer"),
        (b"nonsense\r\n\r\n", "illegal|malformed"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000, "too long|buffer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "only interim"),
        (b"HTTP/1.1 200 OK\r\nretry-after: \x00\r\n\r\n", "illegal"),
    ],
)
async def test_answers_that_are_none(how: Any, why: str) -> None:

    async with WebhookTarget(lambda _: how) as target:
        assert re.search(why, await why_not(poster(target.url)))


@pytest.mark.parametrize("how", [DRIPPING, INTERIM])
async def test_an_answer_that_drips_has_a_deadline_as_a_whole(how: How) -> None:
    async with WebhookTarget(lambda _: how) as target:
        for keep in ({}, KEEP):
            one = poster(target.url, timeout_ms=100, **keep)
            assert re.search("within 100 ms|only interim", await why_not(one))
            await until(lambda: target.open_count == 0)
            await one.close()


async def test_targets_that_accept_and_do_nothing_more() -> None:
    """No handshake; and a body that is not read, while there is much of it."""
    accepted: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        accepted.append(writer)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for url, body in (("https", b"x"), ("http", b"x" * 30_000_000)):
            one = poster(f"{url}://127.0.0.1:{port}/", timeout_ms=300)
            assert "within 300 ms" in await why_not(one, body)
        for writer in accepted:
            writer.transport.abort()


async def test_a_rest_of_an_answer_that_drips_holds_up_no_message() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"
    async with WebhookTarget(lambda _: head) as target:
        one = poster(target.url, timeout_ms=60_000, **KEEP)
        for _ in range(3):
            assert (await one.post({}, b"x")).status == 200
        assert target.connection_count == 3, "none is taken before its answer has ended"
        await one.close()


async def test_a_target_that_is_slow_or_not_there() -> None:
    async with WebhookTarget(lambda _: SILENT) as target:
        assert "within 50 ms" in await why_not(poster(target.url, timeout_ms=50))
        url = target.url
    assert await why_not(poster(url))
    assert "cannot be resolved" in await why_not(poster("https://nobody.invalid/"))
    assert "cannot be resolved" in await why_not(poster(f"https://{'x' * 70}.example/"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "127.1"])
async def test_private_addresses_are_not_connected_to(host: str) -> None:
    async with WebhookTarget(lambda _: OK) as target:
        one = poster(f"http://{host}:{target.port}/", allow_private=False)
        assert "no address of the public internet" in await why_not(one)
        assert target.posts == []


async def test_a_name_is_resolved_once_and_only_allowed_addresses_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is public when it is looked at, and loopback when it is looked at again."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def rebinding(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host != "rebound.example":
            return resolve(host, port, *args, **more)
        asked.append(host)
        shown = ["10.9.9.9", "127.0.0.1"] if len(asked) == 1 else ["10.9.9.9"]
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", (address, port)) for address in shown]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(names, "KEPT_MS", 0)
    async with WebhookTarget(lambda _: OK) as target:
        settings = {"allow_private": False, "is_allowed": lambda one: one == "127.0.0.1"}
        one = poster(f"http://rebound.example:{target.port}/", **settings)
        assert (await one.post({}, b"x")).status == 200
        assert asked == ["rebound.example"]
        assert "10.9.9.9" in await why_not(one)
        assert len(target.posts) == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with WebhookTarget(lambda _: OK) as target:
        assert (await poster(target.url).post({}, b"x")).status == 200


async def test_tls(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = authority.issue("target", "127.0.0.1")
    tls.load_cert_chain(files.certificate, files.key)
    async with WebhookTarget(lambda _: OK, tls) as target:
        assert (await poster(target.url, ca=str(authority.file)).post({}, b"x")).status == 200
        for ca in (str(other.file), ""):
            assert "certificate is not good" in await why_not(poster(target.url, ca=ca))
        name = target.url.replace("127.0.0.1", "localhost")
        assert "certificate is not good" in await why_not(poster(name, ca=str(authority.file)))
    async with WebhookTarget(lambda _: OK) as plain:
        assert await why_not(poster(plain.url.replace("http:", "https:")))
    with pytest.raises(ConfigError, match="cannot be used"):
        poster("https://a.example/", ca=str(tmp_path / "none"))


KEEP = {"keep_ms": 60_000, "kept_max": 2}


async def test_a_connection_is_kept_for_the_next_post(tmp_path: Path) -> None:
    """One handshake, also where answers have a short body, or are no good news."""
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = authority.issue("target", "127.0.0.1")
    tls.load_cert_chain(files.certificate, files.key)
    hows = [
        OK,
        b"HTTP/1.1 500 No\r\ncontent-length: 5\r\n\r\nsorry",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
    ]
    async with WebhookTarget(lambda _: hows[len(target.posts) % 4], tls) as target:
        one = poster(target.url, ca=str(authority.file), **KEEP)
        statuses = [(await one.post({}, b"x")).status for _ in range(12)]
        assert statuses == [500, 200, 204, 200] * 3
        assert (target.connection_count, one.dial_count) == (1, 1)
        assert "connection" not in target.posts[0].headers
        await one.close()


@pytest.mark.parametrize(
    "how",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ENDLESS,
    ],
)
async def test_connections_that_are_not_kept(how: Any) -> None:
    """The second answer of a connection is never taken for that to the next POST."""
    async with WebhookTarget(lambda _: how) as target:
        one = poster(target.url, **KEEP)
        for _ in range(3):
            assert (await one.post({}, b"x")).status == 200
        assert target.connection_count == one.dial_count == 3
        await one.close()


async def test_a_kept_connection_that_was_closed_costs_no_message() -> None:
    """The POST goes by a new one, if not a byte of an answer has come; else it has failed."""
    hows: list[How] = [OK, HANG_UP, OK, b"HTTP/1.1 2" + CUT, OK]

    def answer(post: Post) -> How:
        return hows[len(target.posts) - 1]

    async with WebhookTarget(answer) as target:
        one = poster(target.url, **KEEP)
        assert (await one.post({}, b"x")).status == 200
        assert (await one.post({"webhook-id": "a"}, b"x")).status == 200
        assert [post.headers.get("webhook-id") for post in target.posts] == [None, "a", "a"]
        assert "before an answer" in await why_not(one)
        assert (await one.post({}, b"x")).status == 200
        assert len(target.posts) == len(hows)
        await one.close()


async def test_kept_connections_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with WebhookTarget(lambda _: OK) as target:
        one = poster(target.url, **KEEP)
        for _ in range(2):
            await asyncio.gather(*(one.post({}, b"x") for _ in range(5)))
        assert one.dial_count == 5 + 3, "two were kept"
        await one.close()
        assert (await one.post({}, b"x")).status == 200
        brief = poster(target.url, keep_ms=1, kept_max=1)
        await brief.post({}, b"x")
        await until(lambda: target.open_count == 0)
        await brief.post({}, b"x")
        assert brief.dial_count == 2
        monkeypatch.setattr(connections, "AGE_MS_MAX", 0)
        old = poster(target.url, **KEEP)
        for _ in range(2):
            await old.post({}, b"x")
            await until(lambda: target.open_count == 0)
        assert old.dial_count == 2


async def test_each_connection_that_is_made_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has become a private address: what is kept goes on, nothing new is made."""
    shown = ["127.0.0.1"]

    def resolve(host: str, port: int, *_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (shown[0], port))]

    closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with WebhookTarget(lambda post: closing if post.body == b"last" else OK) as target:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(names, "KEPT_MS", 0)
        settings = {"allow_private": False, "is_allowed": lambda one: one == "127.0.0.1", **KEEP}
        one = poster(f"http://rebound.example:{target.port}/", **settings)
        assert (await one.post({}, b"x")).status == 200
        shown[0] = "10.9.9.9"
        assert (await one.post({}, b"last")).status == 200
        await until(lambda: target.open_count == 0)
        with pytest.raises(PostFailed, match="no address of the public") as caught:
            await one.post({}, b"x")
        assert caught.value.result == "address_refused"
        assert target.connection_count == 1
