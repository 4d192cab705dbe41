"""One POST: to an address that is allowed, within a time, and reading no more than a head.

The name is resolved once, and what is connected to is one of the addresses that came of that and
that are allowed: a name server that says something else a moment later is not asked. Proxies of the
environment are not used, redirects not followed, the body of an answer not read.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import h11

from hourwheel.errors import ConfigError
from hourwheel.webhooks.addresses import is_public
from hourwheel.webhooks.answers import Answer
from hourwheel.webhooks.settings import Target

HEAD_BYTES_MAX: Final = 16_384
ADDRESSES_MAX: Final = 3
"""Of a name, that are tried."""
INTERIM_MAX: Final = 8
"""Answers before the answer (1xx)."""
_SECOND_MS: Final = 1_000


class PostFailed(Exception):
    """There is no answer; the text says why, and has nothing of the URL but the host."""


class Poster:
    """POSTs to one target."""

    def __init__(
        self,
        target: Target,
        *,
        timeout_ms: int,
        ca: str = "",
        allow_private: bool = False,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> None:
        """Nothing is connected.

        Args:
            target: where to.
            timeout_ms: for each POST.
            ca: who signs the target's certificate; empty: the authorities of the system.
            allow_private: any address will do.
            is_allowed: whether an address may be connected to; for tests.

        Raises:
            ConfigError: `ca` cannot be used.
        """
        self._target, self._timeout_ms = target, timeout_ms
        self._is_allowed = (lambda _: True) if allow_private else is_allowed
        self._tls: ssl.SSLContext | None = None
        if target.is_tls:
            try:
                self._tls = ssl.create_default_context(cafile=ca or None)
            except OSError as error:
                raise ConfigError(f"ca = {ca!r} cannot be used: {error}") from None
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send it, on a connection of its own.

        Raises:
            PostFailed: there is no answer, or none of HTTP.
        """
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(self._timeout_ms / _SECOND_MS):
                reader, writer = await self._connect()
                return await self._exchange(reader, writer, headers, body)
        except TimeoutError:
            raise PostFailed(f"no answer within {self._timeout_ms} ms") from None
        except ssl.SSLCertVerificationError as error:
            raise PostFailed(f"the certificate is not good: {error.verify_message}") from None
        except (OSError, h11.ProtocolError) as error:
            raise PostFailed(str(error) or type(error).__name__) from None
        finally:
            if writer is not None:
                writer.transport.abort()  # the rest of the answer is nobody's concern

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure: OSError | None = None
        for address in (await self._addresses())[:ADDRESSES_MAX]:
            try:
                return await asyncio.open_connection(
                    address,
                    self._target.port,
                    limit=HEAD_BYTES_MAX,
                    ssl=self._tls,
                    server_hostname=self._target.host if self._tls is not None else None,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
        raise failure or PostFailed(f"{self._target.host} has no address")

    async def _addresses(self) -> list[str]:
        """Those that may be connected to."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._target.host, self._target.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            raise PostFailed(f"{self._target.host} cannot be resolved: {error}") from None
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        allowed = [address for address in addresses if self._is_allowed(address)]
        if not allowed:
            raise PostFailed(
                f"{self._target.host} is {', '.join(addresses[:ADDRESSES_MAX])}: no address of the"
                " public internet (allow_private)"
            )
        return allowed

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        head = {
            "host": self._target.authority,
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        request = h11.Request(method="POST", target=self._target.path, headers=list(head.items()))
        try:
            writer.write(
                b"".join(
                    http.send(event) or b""
                    for event in (request, h11.Data(data=body), h11.EndOfMessage())
                )
            )
            await writer.drain()
        except ConnectionError:
            pass  # it may have answered before it had read all
        return await _read_answer(http, reader)


async def _read_answer(http: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    interim = 0
    while True:
        event: Any = http.next_event()
        if event is h11.NEED_DATA:
            raw = await reader.read(HEAD_BYTES_MAX)
            if not raw:
                raise PostFailed("the connection was closed before an answer")
            http.receive_data(raw)
        elif isinstance(event, h11.Response):
            found = dict(event.headers)
            return Answer(event.status_code, found.get(b"retry-after", b"").decode("latin-1"))
        elif isinstance(event, h11.InformationalResponse) and interim < INTERIM_MAX:
            interim += 1
        else:
            raise PostFailed("there are only interim answers")
