"""A real node, a gateway before it, and a client that speaks plain HTTP.

async with HttpWorld(tmp_path) as world:
    answer = await world.post("/v1/topics/orders/messages", {"text": "x"})
    assert answer.status == 201
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from hourwheel.gateway.command import Gateway
from hourwheel.gateway.prepared import prepare
from hourwheel.gateway.settings import HttpSection
from hourwheel.transport.access import Tls
from tests.support.embedded_node import EmbeddedNode


class Answer(NamedTuple):
    """Of a gateway."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["reason"])


def fetch(
    url: str,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | None = None,
    source: str = "127.0.0.1",
) -> Answer:
    """One request on a connection of its own, from this address of the machine."""
    parts = urlsplit(url)
    connection: HTTPConnection
    if parts.scheme == "https":
        connection = HTTPSConnection(
            parts.hostname or "", parts.port, context=tls, timeout=60, source_address=(source, 0)
        )
    else:
        connection = HTTPConnection(
            parts.hostname or "", parts.port, timeout=60, source_address=(source, 0)
        )
    try:
        connection.request(method, path, body, dict(headers))
        found = connection.getresponse()
        names = {name.lower(): text for name, text in found.getheaders()}
        return Answer(found.status, names, found.read())
    finally:
        connection.close()


class HttpWorld:
    """See the top of this file."""

    def __init__(
        self,
        folder: Path,
        values: Mapping[str, Any] | None = None,
        *,
        tls: Tls | None = None,
        caller_tls: ssl.SSLContext | None = None,
        **settings: Any,
    ) -> None:
        """`values` of the node; `settings` of the gateway."""
        self.node = EmbeddedNode(folder / "data", values)
        self._settings, self._tls, self._caller_tls = settings, tls, caller_tls
        self.url = ""
        self.source = "127.0.0.1"
        """Address that requests come from."""

    async def __aenter__(self) -> Self:
        await self.node.__aenter__()
        self.gateway = self.another_gateway()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.stop(0)
        await self.node.__aexit__(None, None, None)

    def another_gateway(self) -> Gateway:
        """One more before the same node, for the test to stop; `url` is its from now on."""
        section = HttpSection(**{"listen": "127.0.0.1:0", **self._settings})
        found = Gateway(self.node.address, prepare(section), self._tls)
        self.url = found.start()
        return found

    @property
    def address(self) -> tuple[str, int]:
        """Of the gateway."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    async def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return await asyncio.to_thread(
            fetch, self.url, method, path, body, named, self._caller_tls, self.source
        )

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, None, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        raw = json.dumps(body).encode()
        return await self.ask("POST", path, raw, **{"content_type": "application/json", **headers})
