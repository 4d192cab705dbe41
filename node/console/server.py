"""The console put together: what its configuration means, the port, the site, the API."""

import asyncio
import secrets
import ssl
from collections.abc import Callable
from typing import Final

from hourwheel.clock import Clock
from hourwheel.transport.access import PLAIN, Access
from hourwheel.types import NodeId
from node.config.checks import is_loopback, split_address
from node.config.model import ConsoleSection
from node.console.api import Api, Home
from node.console.gate import Gate
from node.console.http import KEY, ConsolePort, PortLimits
from node.console.logins import Logins
from node.console.site import Site, read_files

_TOKEN_BYTES: Final = 24
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to be replaced
"""What one listens on -> what one can connect to."""


def reached_at(listen: str, address: str) -> str:
    """Where this machine reaches the node's API, host:port.

    Args:
        listen: what the API listens on; port 0 for any free.
        address: what clients are given.
    """
    host, port = split_address("node.listen", listen)
    if not port:
        port = split_address("node.listen", address)[1]
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Console:
    """`start` and `stop` in the node's loop."""

    def __init__(
        self,
        config: ConsoleSection,
        node_id: NodeId,
        address: str,
        clock: Clock,
        *,
        access: Access = PLAIN,
        needs_login: bool = False,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """Nothing listens yet.

        Args:
            config: its configuration.
            node_id: of the node behind it.
            address: where that one's API is reached from here, host:port.
            clock: of the machine.
            access: how it knows the nodes whose API it calls.
            needs_login: who uses it shows who it is.
            tls: towards browsers, for connections that are accepted now; None: in the clear.
        """
        self._config, self._node_id, self._api_address = config, node_id, address
        self._clock, self._access, self._tls = clock, access, tls
        self._needs_login = needs_login
        self._logins: Logins | None = None
        self._port: ConsolePort | None = None

    def start(self) -> str:
        """Listen; the address, host:port. Raises ConfigError: it cannot be listened on."""
        listen, changes = self._config.listen, self._config.changes
        may_change = changes == "always" or (changes == "auto" and is_loopback(KEY, listen))

        def make(access: Access) -> Api:
            return Api(
                Home(self._node_id, self._api_address, may_change, access),
                now_ms=lambda: int(self._clock.wall_ms()),
                monotonic_ms=self._clock.monotonic_ms,
            )

        self._logins = Logins(self._access, make, needs_login=self._needs_login)
        names = {name.lower().rstrip(".") for name in self._config.hosts.split()}
        names.add(split_address(KEY, listen)[0].lower())
        site = Site(
            Gate(frozenset(names), secrets.token_urlsafe(_TOKEN_BYTES)),
            self._logins,
            read_files(),
            node_loop=asyncio.get_running_loop(),
            monotonic_ms=self._clock.monotonic_ms,
        )
        limits = PortLimits(connections=self._config.connections)
        self._port = ConsolePort(listen, site.answer, limits, self._tls)
        return self._port.start()

    async def stop(self) -> None:
        """Stop listening, and stop what runs."""
        if self._port is not None:
            await asyncio.to_thread(self._port.stop)  # its thread may wait for this loop
        if self._logins is not None:
            await self._logins.close()
