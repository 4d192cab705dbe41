"""A network namespace for each node, joined by a bridge: the kernel's own network, cut at will.

    node n1 [hw..n1  veth] ----+
    node n2 [hw..n2  veth] ----+-- bridge, in this process's namespace, where the clients are
    node n3 [hw..n3  veth] ----+

A direction is cut by giving the sender a wrong hardware address for the receiver: frames leave, and
arrive nowhere, unnoticed; connections that stand are hit, too. Clients still reach everybody.
It needs root and iproute2; neither iptables nor nft.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Final, Self

from chaos.network import Link, Places

_NET: Final = "10.211"
_BITS: Final = 24
_PORTS: Final = (7_400, 7_401, 7_402)
_NOWHERE: Final = "02:00:00:00:00:99"
_ENDED_S: Final = 30.0


def _ip(*arguments: str) -> None:
    """Run `ip`. Raises CalledProcessError."""
    path = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    subprocess.run(["ip", *arguments], check=True, capture_output=True, env=path, timeout=_ENDED_S)


class Namespaces:
    """See the top of this file. Is a `Network`."""

    is_tls = True

    def __init__(self, nodes: Iterable[str], number: int | None = None) -> None:
        """Nothing is made yet. `number`, 0 to 255, tells networks of one machine apart."""
        self._number = os.getpid() % 256 if number is None else number
        self._nodes = tuple(nodes)
        self._bridge = f"hwb{self._number}"
        self._cut: set[Link] = set()

    def _space(self, node: str) -> str:
        return f"hw{self._number}-{node}"

    def _address(self, node: str) -> str:
        return f"{_NET}.{self._number}.{self._nodes.index(node) + 11}"

    def listens(self, node: str) -> Places:
        """See `Network`."""
        return Places(*(f"{self._address(node)}:{port}" for port in _PORTS))

    def seen_from(self, node: str, peer: str) -> Places:
        """See `Network`."""
        del node
        return self.listens(peer)

    def prefix(self, node: str) -> list[str]:
        """See `Network`."""
        return [shutil.which("ip") or "/usr/sbin/ip", "netns", "exec", self._space(node)]

    def add(self, node: str) -> None:
        """See `Network`: the nodes are those of the beginning."""
        raise NotImplementedError

    async def cut(self, links: Iterable[Link]) -> None:
        """See `Network`."""
        for link in links:
            self._cut.add(link)
            await asyncio.to_thread(self._set_neighbour, link, "replace")

    async def mend(self, links: Iterable[Link]) -> None:
        """See `Network`."""
        for link in links:
            self._cut.discard(link)
            await asyncio.to_thread(self._set_neighbour, link, "del")

    def _set_neighbour(self, link: Link, verb: str) -> None:
        sender, receiver = link
        where = (self._address(receiver), "dev", "eth0")
        how = ("lladdr", _NOWHERE, "nud", "permanent") if verb == "replace" else ()
        _ip("-n", self._space(sender), "neigh", verb, *where, *how)

    # -- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Make everything, or nothing."""
        try:
            await asyncio.to_thread(self.make)
        except BaseException:
            self.remove()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Remove everything; no process may be in it any more."""
        await asyncio.to_thread(self.remove)

    def make(self) -> None:
        """Make everything. Raises CalledProcessError, OSError."""
        bridge = self._bridge
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{_NET}.{self._number}.1/{_BITS}", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for at, node in enumerate(self._nodes):
            space, outer = self._space(node), f"{bridge}p{at}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "addr", "add", f"{self._address(node)}/{_BITS}", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """Remove whatever is there of it. A pair of devices goes with its namespace."""
        for node in self._nodes:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._space(node))
        for at, _ in enumerate(self._nodes):
            with suppress(subprocess.CalledProcessError):
                _ip("link", "del", f"{self._bridge}p{at}")
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)


@cache
def can_make_namespaces() -> bool:
    """Whether they can be made here. Tries it out."""
    probe = Namespaces(("probe",), number=255)
    try:
        probe.make()
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        with suppress(OSError, subprocess.SubprocessError):
            probe.remove()
    return True
