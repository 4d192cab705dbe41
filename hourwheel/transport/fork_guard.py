"""Which process a client belongs to, and what a fork leaves to the child.

gRPC does not survive a fork once it was used: its threads do not exist in the child, its locks may
be held there for ever, and its connections are the parent's. Nor can it be started anew in the
child, so that even a new client would wait in vain. (Where all clients were closed before it works
mostly, but gRPC ends some of its threads later, and a child was seen to die of that.) The parent
notices nothing. So:

    in the parent, before the fork         in the child
    the client was made, not used          works: it connects there, as a client of its own
    it was used                            `Forked`, at once
    any client was used, open or closed    `Forked`, at once, for each client

A `Home` is asked before a client touches anything of its own. Closing asks, too: what is the
parent's is left alone. With `GRPC_ENABLE_FORK_SUPPORT` at its default, gRPC starts threads in the
child of a process that uses it, and some of them crash, whatever the child does: docs/CLIENT.md.
"""

import os
import threading
from typing import Final

from hourwheel import errors

_POLLER: Final = "(_poll_wrapper)"
"""End of the name of the thread that grpc.aio has while anything of it is alive in a process,
from whatever library."""

_USED: Final = (
    "this client was used before the process forked, and is the parent's: make one in the child, "
    "of a process that has used none (or start processes by spawn)"
)
_LOST: Final = (
    "gRPC was used before the process forked, and cannot be used in the child: fork before the "
    "first use of a client, or start processes by spawn"
)


class _Process:
    """What is known of this process."""

    def __init__(self) -> None:
        self.forks = 0
        """How many forks lie between the process that loaded this module and this one."""
        self.is_grpc_lost = False
        """gRPC was used before one of them."""
        self.was_grpc_used = False
        """Whether it was used here, by our clients or, as seen at a fork, by somebody else."""

    def before_fork(self) -> None:
        self.was_grpc_used |= any(_POLLER in one.name for one in threading.enumerate())

    def after_fork_in_child(self) -> None:
        self.forks += 1
        self.is_grpc_lost |= self.was_grpc_used


_process: Final = _Process()
os.register_at_fork(before=_process.before_fork, after_in_child=_process.after_fork_in_child)


def note_channel() -> None:
    """A gRPC channel was made."""
    _process.was_grpc_used = True


class Home:
    """The process that something belongs to: the one that first entered."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        """It belongs to no process yet."""
        self._forks: int | None = None

    def enter(self) -> None:
        """It is about to be used.

        Raises:
            Forked: it belongs to another process, or gRPC cannot be used in this one.
        """
        if self._forks != _process.forks:
            self._settle()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it belongs to another process."""
        return self._forks is not None and self._forks != _process.forks

    def _settle(self) -> None:
        if self._forks is not None:
            raise errors.Forked(_USED)
        if _process.is_grpc_lost:
            raise errors.Forked(_LOST)
        self._forks = _process.forks
