"""Addresses of names: looked up in threads of their own, one for each name that is under way.

    asked --> an answer that is kept --> addresses
      or --> the look-up of that name that is under way, else a new one --> answer, kept a moment

The system's resolver blocks for as long as a name server does not answer, which can be half a
minute. The event loop's own threads are few: a target whose name server is dead would take them
all, and the names of all other targets would wait. So a name has one look-up at a time, in a thread
of its own, and all who wait for that name share it. After `wait_ms` they wait no longer; the
look-up goes on, and what comes of it serves those who ask later. Threads are daemons: a look-up
that hangs keeps no program from its end.
"""

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Final

WAIT_MS: Final = 5_000
"""As long as the system's resolver waits for the first name server."""
KEPT_MS: Final = 5_000
"""Addresses that were found."""
FAILURE_KEPT_MS: Final = 2_000
"""That there are none."""
UNDER_WAY_MAX: Final = 256
"""As many as there may be subscriptions: so the names of others never take the last place."""
_SECOND_MS: Final = 1_000


class Unresolved(Exception):
    """The name has no address, or none is known in time; the text says why."""


@dataclass(slots=True, eq=False)
class _Lookup:
    begun_s: float
    answer: "asyncio.Future[tuple[str, ...] | Unresolved]"
    until_s: float = 0.0
    """How long the answer is kept."""


class Names:
    """See the top of this file. Belongs to the event loop by which it is asked first."""

    def __init__(self, *, wait_ms: int = WAIT_MS, under_way_max: int = UNDER_WAY_MAX) -> None:
        """Nothing is known.

        Args:
            wait_ms: how long anyone waits for a look-up, from its beginning on.
            under_way_max: so many look-ups at one time.
        """
        self._wait_ms, self._under_way_max = wait_ms, under_way_max
        self._lookups: dict[str, _Lookup] = {}

    async def addresses_of(self, host: str) -> tuple[str, ...]:
        """Those of a name, or of an address in one of its spellings.

        Raises:
            Unresolved: there are none, or none are known in time.
        """
        loop = asyncio.get_running_loop()
        lookup = self._lookups.get(host)
        if lookup is None or (lookup.answer.done() and lookup.until_s <= loop.time()):
            lookup = self._begin(host, loop)
        left_s = lookup.begun_s + self._wait_ms / _SECOND_MS - loop.time()
        if not lookup.answer.done() and left_s > 0:
            await asyncio.wait([lookup.answer], timeout=left_s)
        if not lookup.answer.done():
            raise Unresolved(f"no name server has answered within {self._wait_ms} ms")
        found = lookup.answer.result()
        if isinstance(found, Unresolved):
            raise Unresolved(str(found))
        return found

    def _begin(self, host: str, loop: asyncio.AbstractEventLoop) -> _Lookup:
        now_s = loop.time()
        self._lookups = {
            name: one
            for name, one in self._lookups.items()
            if not one.answer.done() or one.until_s > now_s
        }
        if sum(not one.answer.done() for one in self._lookups.values()) >= self._under_way_max:
            raise Unresolved("too many names are being looked up")
        lookup = _Lookup(now_s, loop.create_future())
        thread = threading.Thread(
            target=_look_up, args=(host, loop, lookup), name="hourwheel-names", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread to give
            raise Unresolved(str(error)) from None
        self._lookups[host] = lookup
        return lookup


def _look_up(host: str, loop: asyncio.AbstractEventLoop, lookup: _Lookup) -> None:
    """In a thread of its own."""
    found: tuple[str, ...] | Unresolved
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = tuple(dict.fromkeys(str(one[4][0]) for one in entries))
    except (OSError, UnicodeError) as error:
        found = Unresolved(str(error))
    with contextlib.suppress(RuntimeError):  # the loop is closed: it waits for nothing
        loop.call_soon_threadsafe(_answer, loop, lookup, found)


def _answer(
    loop: asyncio.AbstractEventLoop, lookup: _Lookup, found: tuple[str, ...] | Unresolved
) -> None:
    kept_ms = FAILURE_KEPT_MS if isinstance(found, Unresolved) else KEPT_MS
    lookup.until_s = loop.time() + kept_ms / _SECOND_MS
    lookup.answer.set_result(found)
