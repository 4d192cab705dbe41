"""A target of webhooks, as good or as bad as a test likes.

async with WebhookTarget(lambda post: b"HTTP/1.1 200 OK\r\n\r\n") as target:
    ...
    assert target.posts[0].body == b"x"
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from tests.support.eventually import before_the_next_look, until

OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
ENDLESS: Final = "endless"
HANG_UP: Final = "hang up"
SILENT: Final = "silent"
_TLS_HANDSHAKE: Final = b"\x16"
"""What TLS begins with."""
DRIPPING: Final = "dripping"
"""A head that goes on for ever, a field at a time."""
INTERIM: Final = "interim"
"""As that, of answers before the answer."""
CUT: Final = b"(cut)"
"""At the end of an answer: what is before it is sent, and the connection closed."""


class Post(NamedTuple):
    """As it came."""

    line: str
    headers: dict[str, str]
    body: bytes


How = bytes | str


class WebhookTarget:
    """See the top of this file. What it is given says how each POST is answered."""

    def __init__(self, answer: Callable[[Post], How], tls: ssl.SSLContext | None = None) -> None:
        self._answer, self._tls = answer, tls
        self.posts: list[Post] = []
        self.connection_count = 0
        """That there were."""
        self.written = 0
        """Bytes of endless answers."""
        self._ended, self._go = asyncio.Event(), asyncio.Event()
        self._go.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await until(lambda: not self._writers)

    def wait_for(self, go: asyncio.Event) -> None:
        """No POST is answered before it is set."""
        self._go = go

    @property
    def open_count(self) -> int:
        """Connections that there are."""
        return len(self._writers)

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/hook?a=b"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass  # whoever has read enough hangs up
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another POST may come by the same connection."""
        first = await reader.readexactly(1)
        if first == _TLS_HANDSHAKE:
            return False  # as a server without TLS does: no line of a request may ever come
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): text for name, text in (one.split(": ", 1) for one in rest)}
        body = await reader.readexactly(int(headers["content-length"]))
        post = Post(line, headers, body)
        self.posts.append(post)
        how = self._answer(post)
        await self._go.wait()
        if isinstance(how, bytes):
            writer.write(how.removesuffix(CUT))
            await writer.drain()
            if how.endswith(CUT):
                return False
            return headers.get("connection") != "close" and b"connection: close" not in how
        if how == SILENT:
            await self._ended.wait()
        elif how in {DRIPPING, INTERIM}:
            writer.write(b"HTTP/1.1 200 OK\r\n" if how == DRIPPING else b"")
            drop = b"x: y\r\n" if how == DRIPPING else b"HTTP/1.1 102 Processing\r\n\r\n"
            while not self._ended.is_set():
                writer.write(drop)
                await writer.drain()
                await before_the_next_look()
        elif how == ENDLESS:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
            while not self._ended.is_set():
                writer.write(b"x" * 65_536)
                await writer.drain()
                self.written += 65_536
        return False
