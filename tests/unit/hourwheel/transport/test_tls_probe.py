"""What a handshake that is made to hear the reason hears, from servers of the standard library."""

import asyncio
import socketserver
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hourwheel.transport.access import Tls
from hourwheel.transport.tls_probe import NO_CAUSE, find_cause
from tests.support.certificates import Authority, Files


@asynccontextmanager
async def serving(context: ssl.SSLContext | None, *, hangs_up: bool = False) -> AsyncIterator[str]:
    """A server's address; it says something first, as HTTP/2 does, or hangs up."""
    connections: set[asyncio.StreamWriter] = set()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        if not hangs_up:
            writer.write(b"SETTINGS")
            await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        for one in connections:
            one.transport.abort()
        server.close()


@asynccontextmanager
async def alerting(context: ssl.SSLContext) -> AsyncIterator[str]:
    """A server in threads: it sends the alert of a handshake that fails, which asyncio's do not."""

    class Greeter(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as tls:
                tls.sendall(b"SETTINGS")
                tls.recv(1)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeter)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    host, port = server.server_address[:2]
    yield f"{host!s}:{port}"
    for end in (server.shutdown, server.server_close, serving.join):
        await asyncio.to_thread(end)  # its threads wait until connections of this loop are closed


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_context(authority: Authority, *, wants_certificates: bool = False) -> ssl.SSLContext:
    node = authority.issue("node", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(node.certificate, node.key)
    if wants_certificates:
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_of(authority: Authority, files: Files | None = None) -> Tls:
    if files is None:
        return Tls(ca=authority.file)
    return Tls(ca=authority.file, cert=files.certificate, key=files.key)


async def test_a_node_that_speaks_is_no_trouble(authority: Authority) -> None:
    async with serving(server_context(authority)) as address:
        assert await find_cause(address, tls_of(authority)) == NO_CAUSE


async def test_tls_is_wanted_where_it_is_spoken(authority: Authority) -> None:
    async with serving(server_context(authority)) as address:
        assert (await find_cause(address, None)).name == "tls_wanted"
    async with serving(server_context(authority, wants_certificates=True)) as address:
        assert (await find_cause(address, None)).name == "tls_wanted"


async def test_a_certificate_that_is_not_right_is_named_by_the_alert(authority: Authority) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    cases = {
        "client_certificate_wanted": None,
        "client_certificate_untrusted": Authority(authority.directory, "b").issue("b", "127.0.0.1"),
        "client_certificate_expired": authority.issue("c", "::1", begins=past[0], ends=past[1]),
        "": authority.issue("d", "127.0.0.1"),
    }
    async with alerting(server_context(authority, wants_certificates=True)) as address:
        for cause, files in cases.items():
            assert (await find_cause(address, tls_of(authority, files))).name == cause


async def test_a_node_that_hangs_up_twice_without_a_word_wants_another_certificate(
    authority: Authority,
) -> None:
    """As gRPC's servers do, which send no alert."""
    mine = authority.issue("mine", "127.0.0.1")
    async with serving(server_context(authority), hangs_up=True) as address:
        assert (await find_cause(address, tls_of(authority))).name == "client_certificate_wanted"
        found = await find_cause(address, tls_of(authority, mine))
        assert found.name == "client_certificate_refused"


async def test_what_is_no_tls_or_nobody_at_all_is_no_cause(authority: Authority) -> None:
    async with serving(None) as address:
        assert await find_cause(address, tls_of(authority)) == NO_CAUSE
    assert await find_cause(address, tls_of(authority)) == NO_CAUSE
    assert await find_cause("127.0.0.1:none", tls_of(authority)) == NO_CAUSE
