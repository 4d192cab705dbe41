"""Whether the process at the other end of a Unix-domain socket has ended: proof, and not a guess.

    kernel's word who connected (SO_PEERCRED) --> a file descriptor of that process (pidfd)
    readable: all its threads have ended

That is proof, because it is about a process and not about a connection: one that is stopped, hangs
or has closed its socket has not ended. Where the number was given to another process before the
descriptor was opened, the first one had ended by then; so whatever is watched instead, its end is
told too late, never too early. Without the kernel's help (no Linux, a peer in another PID
namespace) nothing is ever told, and leases are waited for.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user, group: `struct ucred` of Linux."""

_log = logging.getLogger(__name__)


class ProcessWatch:
    """Of one process at a time. On the event loop's thread."""

    def __init__(self) -> None:
        """Of none yet."""
        self._descriptor: int | None = None

    def watch(self, peer: Any, on_end: Callable[[], None]) -> None:
        """Call `on_end` once, when the process that connected has ended; forget the former one.

        Args:
            peer: the accepted socket.
            on_end: maybe called before this returns.
        """
        self.close()
        try:
            self._descriptor = _open(peer)
        except ProcessLookupError:
            on_end()
            return
        except OSError as error:
            _log.warning("broker_process_not_watched", extra={"error": str(error)})
            return
        if self._descriptor is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._descriptor, self._ended, on_end)

    def _ended(self, on_end: Callable[[], None]) -> None:
        self.close()
        on_end()

    def close(self) -> None:
        """Watch nothing any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def _open(peer: Any) -> int | None:
    """A descriptor of the process; None where there are none. Raises OSError."""
    if not hasattr(os, "pidfd_open"):
        return None
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return os.pidfd_open(pid) if pid > 0 else None
