"""Where the nodes of a cluster are, and how messages between them get lost.

`Loopback` is one machine's loopback interface: nothing can be lost there. Others are in
chaos/namespaces.py and chaos/proxies.py.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterable
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self, TypeAlias

Link: TypeAlias = tuple[str, str]
"""(from, to): node ids. What goes this way."""


class Places(NamedTuple):
    """Where a node listens, each host:port."""

    api: str
    data: str
    control: str

    @property
    def text(self) -> str:
        """As `cluster.nodes` wants it."""
        return ",".join(self)


class Network(Protocol):
    """What connects the nodes. An async context manager: it is there inside, gone after it."""

    is_tls: bool
    """Its addresses are not loopback: nodes need certificates."""

    def listens(self, node: str) -> Places:
        """Where a node listens."""
        ...

    def seen_from(self, node: str, peer: str) -> Places:
        """Where `node` reaches `peer`."""
        ...

    def prefix(self, node: str) -> list[str]:
        """What stands before a command that is to run where the node is."""
        ...

    def add(self, node: str) -> None:
        """One node more."""
        ...

    async def cut(self, links: Iterable[Link]) -> None:
        """From now on all that takes these ways is lost; neither end hears of it."""
        ...

    async def mend(self, links: Iterable[Link]) -> None:
        """Take `cut` back."""
        ...

    async def __aenter__(self) -> Self:
        """Make it."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Remove it."""
        ...


class Ports:
    """Ports of the loopback interface, of which a process keeps what it was given until it ends.

    So another one gets none of a node that is down for a while. Each process locks a byte for each
    port, in a file that all know.
    """

    def __init__(self, first: int, end: int, file: Path) -> None:
        """`[first, end)` are there; `file` is made if need be."""
        self._first, self._count, self._file = first, end - first, file
        self._turns = count_from(os.getpid() * 97)  # each process begins elsewhere
        self._locks: int | None = None

    def take(self, count: int) -> list[int]:
        """So many on which no process listens now. Goes on where the last call ended.

        Raises:
            OSError: there are not so many.
        """
        tried = islice(self._turns, self._count)
        ports = (self._first + turn % self._count for turn in tried)
        found = list(islice((one for one in ports if self._reserve(one) and _is_free(one)), count))
        if len(found) < count:
            raise OSError("no free ports")
        return found

    def _reserve(self, port: int) -> bool:
        if self._locks is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._locks = os.open(self._file, flags, 0o600)
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):
            return False
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_PORTS: Final = Ports(12_000, 20_000, Path(tempfile.gettempdir(), f"hourwheel-ports-{os.getuid()}"))
"""Below those of outgoing connections: else one of these would take the port of a node that was
killed, and now and then a node that tries to reach it would reach itself."""


def free_ports(count: int) -> list[int]:
    """So many ports for nodes: see `Ports.take`."""
    return _PORTS.take(count)


class Loopback:
    """See the top of this file. Is a `Network`."""

    is_tls = False

    def __init__(self, nodes: Iterable[str]) -> None:
        """Choose ports."""
        self._places: dict[str, Places] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: str) -> None:
        """See `Network`."""
        ports = free_ports(len(Places._fields))
        self._places[node] = Places(*(f"127.0.0.1:{port}" for port in ports))

    def listens(self, node: str) -> Places:
        """See `Network`."""
        return self._places[node]

    def seen_from(self, node: str, peer: str) -> Places:
        """See `Network`."""
        del node
        return self._places[peer]

    def prefix(self, node: str) -> list[str]:
        """See `Network`."""
        del node
        return []

    async def cut(self, links: Iterable[Link]) -> None:
        """See `Network`: it cannot."""
        raise NotImplementedError

    async def mend(self, links: Iterable[Link]) -> None:
        """See `Network`."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Nothing to do."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to do."""
