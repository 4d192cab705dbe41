"""Addresses on loopback that nobody has, and that nobody gets.

They lie below the ports that the system gives to outgoing connections, and to whoever asks for any
port: one of these could take the port of a node that does not listen yet, or is down for a while.
Each process of the tests has a part of them to itself, and gives each port of it in turn.
"""

import socket
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Final

_HOST: Final = "127.0.0.1"
_FIRST_PORT: Final = 8_000
_END_PORT: Final = 11_900
"""Further up: chaos/network.py, and then node/tools/local_cluster/nodes.py."""
_PART_PORTS: Final = 99
_TURNS: Final = count()


def free_address() -> str:
    """host:port of loopback. It is fixed, so that others can be told before somebody listens.

    Raises:
        OSError: all are taken.
    """
    first = _own_part()
    for _ in range(_PART_PORTS):
        port = first + next(_TURNS) % _PART_PORTS
        with suppress(OSError):
            _bound(port, reuse=True).close()
            return f"{_HOST}:{port}"
    raise OSError("no free ports")


@cache
def _own_part() -> int:
    """The first port of this process's part: it holds the port below until it ends."""
    for port in range(_FIRST_PORT, _END_PORT, 1 + _PART_PORTS):
        with suppress(OSError):
            _bound(port, reuse=False).detach()
            return port + 1
    raise OSError("no free ports")


def _bound(port: int, *, reuse: bool) -> socket.socket:
    """A socket that has this port. Raises OSError where somebody else has it."""
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        made.bind((_HOST, port))
    except OSError:
        made.close()
        raise
    return made
