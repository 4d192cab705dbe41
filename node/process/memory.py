"""Memory that the process has freed goes back to the operating system, and circles are found early.

glibc keeps what is freed: in an arena for each of many threads, and, of blocks as large as a batch,
more the larger they were. A node that took a flood of large requests would so keep gigabytes for
ever. Measured with 20 streams of 4 MiB batches: docs/decisions/0023-memory-of-streams.md.

Where the C library is another one, nothing is done.

Python's collector of circles stops the whole process while it works. Each call through gRPC leaves
some ten objects in a circle, which are dead by the time it looks: how long it stops is how many it
lets gather. 50,000 of them took 110 ms, every ten seconds, and a message was so much late; 2,000
take 0.9 ms, and less processor time in all, since they are still in the processor's cache.
"""

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_SETTINGS: Final = (
    # Said once, it stays; else glibc raises it to the largest block ever freed, up to 32 MiB.
    (_M_MMAP_THRESHOLD, 8 << 20),
    # What honest publishing takes and frees all the time stays; the rest goes by `trim`.
    (_M_TRIM_THRESHOLD, 64 << 20),
    # The loop's own, and one for all of gRPC's threads.
    (_M_ARENA_MAX, 2),
)
_GARBAGE_THRESHOLDS: Final = (2_000, 20, 100)
"""New objects between two collections; of these, until the next older generation is looked at."""
LOOK_S: Final = 5.0
TRAFFIC_BYTES_MIN: Final = 64 << 20
"""Of requests and answers between two looks, or under way: with less it is quiet."""
GROWN_BYTES_MIN: Final = 64 << 20
"""Less than so much more than before is not worth giving back."""
AGAIN_LOOKS_MAX: Final = 32
"""After a trim there are others, after 1, 2, 4 and so on looks, up to this: what a flood has left,
such as calls whose clients do not read, goes by and by."""


def configure() -> bool:
    """Have large blocks go back as they are freed. For the process: before it has many threads.

    Returns whether the C library understands it.
    """
    mallopt = _find("mallopt")
    return mallopt is not None and {mallopt(*setting) for setting in _SETTINGS} == {1}


def trim() -> bool:
    """Give back what is free; takes milliseconds, without the interpreter's lock.

    Returns whether there was anything.
    """
    malloc_trim = _find("malloc_trim")
    return malloc_trim is not None and malloc_trim(0) == 1


def resident_bytes() -> int:
    """What the process takes of the machine's memory; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def settle_garbage_collector() -> None:
    """What lives as long as the process is not looked through again, and the rest often.

    Call it once, when everything long-lived is there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _find(name: str) -> Any | None:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


class Trimming:
    """Trims when the process has grown and it is quiet again: after a flood, whatever it was of.

    What requests had is no measure of that: gRPC holds some of each that is refused unread.
    """

    def __init__(
        self,
        bytes_taken: Callable[[], int],
        bytes_in_flight: Callable[[], int],
        give_back: Callable[[], object] = trim,
        resident: Callable[[], int] = resident_bytes,
    ) -> None:
        """`bytes_taken` is what requests had in all since the start; it grows."""
        self._bytes_taken, self._bytes_in_flight = bytes_taken, bytes_in_flight
        self._give_back, self._resident = give_back, resident
        self._seen_bytes = bytes_taken()
        self._low_bytes = resident()
        """What was resident after the last trim."""
        self._again_looks = self._left_looks = 0

    async def look(self) -> None:
        """Trim if that is due: call it every few seconds."""
        if self._is_due():
            await asyncio.to_thread(self._give_back)
            self._low_bytes = self._resident()

    def _is_due(self) -> bool:
        taken, before = self._bytes_taken(), self._seen_bytes
        self._seen_bytes = taken
        if max(taken - before, self._bytes_in_flight()) >= TRAFFIC_BYTES_MIN:
            return False
        if self._resident() >= self._low_bytes + GROWN_BYTES_MIN:
            self._again_looks = self._left_looks = 1
            return True
        self._left_looks -= 1
        if self._left_looks != 0:
            return False
        self._again_looks *= 2
        self._left_looks = self._again_looks if self._again_looks <= AGAIN_LOOKS_MAX else 0
        return True

    async def run(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()
