"""One POST: within a time, and reading no more than a head and a short rest.

Redirects are not followed. Where a connection that was kept turns out to be closed, without a byte
of an answer, the POST is sent once more on a new one: its `webhook-id` is the same.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import h11

from hourwheel.errors import ConfigError
from hourwheel.webhooks.addresses import is_public
from hourwheel.webhooks.answers import Answer
from hourwheel.webhooks.connections import (
    Connection,
    Connections,
    PostFailed,
    Unanswered,
)
from hourwheel.webhooks.names import Names
from hourwheel.webhooks.results import PostResult
from hourwheel.webhooks.settings import Target

__all__ = ["PostFailed", "Poster"]

_SECOND_MS: Final = 1_000


class Poster:
    """POSTs to one target."""

    def __init__(
        self,
        target: Target,
        *,
        timeout_ms: int,
        ca: str = "",
        allow_private: bool = False,
        keep_ms: int = 0,
        kept_max: int = 1,
        names: Names | None = None,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> None:
        """Nothing is connected.

        Args:
            target: where to.
            timeout_ms: for each POST.
            ca: who signs the target's certificate; empty: the authorities of the system.
            allow_private: any address will do.
            keep_ms: how long a connection is kept for the next POST; 0: each has its own.
            kept_max: so many are kept.
            names: where addresses come from, shared with other targets; None: its own.
            is_allowed: whether an address may be connected to; for tests.

        Raises:
            ConfigError: `ca` cannot be used.
        """
        self._target, self._timeout_ms, self._keep_ms = target, timeout_ms, keep_ms
        tls: ssl.SSLContext | None = None
        if target.is_tls:
            try:
                tls = ssl.create_default_context(cafile=ca or None)
            except OSError as error:
                raise ConfigError(f"ca = {ca!r} cannot be used: {error}") from None
            tls.minimum_version = ssl.TLSVersion.TLSv1_2
        allowed = (lambda _: True) if allow_private else is_allowed
        self._connections = Connections(
            target, tls, allowed, names=names or Names(), keep_ms=keep_ms, kept_max=kept_max
        )

    @property
    def dial_count(self) -> int:
        """Connections that were made, or tried."""
        return self._connections.dial_count

    async def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send it.

        Raises:
            PostFailed: there is no answer, or none of HTTP.
        """
        if not self._keep_ms:
            headers = {"connection": "close", **headers}
        try:
            async with asyncio.timeout(self._timeout_ms / _SECOND_MS):
                return await self._post(headers, body)
        except TimeoutError:
            text = f"no answer within {self._timeout_ms} ms"
            raise PostFailed(PostResult.TIMEOUT, text) from None
        except ssl.SSLCertVerificationError as error:
            text = f"the certificate is not good: {error.verify_message}"
            raise PostFailed(PostResult.TLS, text) from None
        except ssl.SSLError as error:
            raise PostFailed(PostResult.TLS, str(error) or type(error).__name__) from None
        except OSError as error:
            raise PostFailed(PostResult.UNREACHABLE, str(error) or type(error).__name__) from None
        except h11.ProtocolError as error:
            raise PostFailed(PostResult.NOT_HTTP, str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close the connections that are kept."""
        await self._connections.close()

    async def _post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        connection = await self._connections.take()
        was_used = connection.is_used
        try:
            return await self._post_by(connection, headers, body)
        except Unanswered:
            if not was_used:
                raise
        return await self._post_by(await self._connections.dial(), headers, body)

    async def _post_by(
        self, connection: Connection, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        try:
            answer = await connection.post(self._target, headers, body)
        except BaseException:
            connection.abort()
            raise
        self._connections.give_back(connection)
        return answer
