"""Partitions without root: every node reaches every other through a proxy in this process.

    n1 -- n1's address of n2 --> proxy --> where n2 listens

While a direction is cut, what goes that way stays in the proxy, and comes out when it is mended:
as TCP's own repetitions would bring it. Neither end hears that a connection has ended. Unlike
in a real partition a new connection is accepted, and then nothing comes.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Self

from chaos.network import Link, Places, free_ports

_CHUNK_BYTES: Final = 1 << 16
_PROXIED: Final = ("data", "control")


class Proxies:
    """See the top of this file. Is a `Network`."""

    is_tls = False

    def __init__(self, nodes: Iterable[str]) -> None:
        """Choose ports; nothing listens yet."""
        self._nodes = tuple(nodes)
        links = [(one, other) for one in self._nodes for other in self._nodes if one != other]
        ports = iter(free_ports(3 * len(self._nodes) + len(_PROXIED) * len(links)))
        self._listens = {
            node: Places(*(f"127.0.0.1:{next(ports)}" for _ in Places._fields))
            for node in self._nodes
        }
        self._seen = {
            (one, other): self._listens[other]._replace(
                **{plane: f"127.0.0.1:{next(ports)}" for plane in _PROXIED}
            )
            for one, other in links
        }
        self._gates = {link: asyncio.Event() for link in links}
        self._servers: list[asyncio.Server] = []
        self._pumps: set[asyncio.Task[None]] = set()

    def listens(self, node: str) -> Places:
        """See `Network`."""
        return self._listens[node]

    def seen_from(self, node: str, peer: str) -> Places:
        """See `Network`."""
        return self._listens[node] if node == peer else self._seen[node, peer]

    def prefix(self, node: str) -> list[str]:
        """See `Network`."""
        del node
        return []

    def add(self, node: str) -> None:
        """See `Network`: the nodes are those of the beginning."""
        raise NotImplementedError

    async def cut(self, links: Iterable[Link]) -> None:
        """See `Network`."""
        for link in links:
            self._gates[link].clear()

    async def mend(self, links: Iterable[Link]) -> None:
        """See `Network`."""
        for link in links:
            self._gates[link].set()

    async def __aenter__(self) -> Self:
        """Listen."""
        for link, places in self._seen.items():
            self._gates[link].set()
            for plane in _PROXIED:
                await self._listen(link, getattr(places, plane), plane)
        return self

    async def _listen(self, link: Link, at: str, plane: str) -> None:
        one, other = link
        host, port = getattr(self._listens[other], plane).split(":")

        async def serve(near: asyncio.StreamReader, near_end: asyncio.StreamWriter) -> None:
            try:
                far, far_end = await asyncio.open_connection(host, int(port))
            except OSError:
                near_end.close()
                return
            for reader, writer, way in ((near, far_end, link), (far, near_end, (other, one))):
                pump = asyncio.create_task(self._pump(reader, writer, self._gates[way]))
                self._pumps.add(pump)
                pump.add_done_callback(self._pumps.discard)

        self._servers.append(await asyncio.start_server(serve, "127.0.0.1", int(at.split(":")[1])))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_CHUNK_BYTES):
                    await gate.wait()
                    writer.write(data)
                    await writer.drain()
            await gate.wait()
        finally:
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        for server in self._servers:
            server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
