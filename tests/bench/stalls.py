"""When the machine itself stood still: a process of real-time priority on each core, sleeping.

It wakes each millisecond, before everything that is measured. When even it was late, nothing ran
on that core: a hypervisor took it away, or the kernel held it. The idea is jHiccup's.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PERIOD_S: Final = 0.001
_STALL_NS: Final = 5_000_000
_PRIORITY: Final = 50


@dataclass(slots=True)
class Stalls:
    """Times in which a core stood still. Complete when the `with` block of `watched` is left."""

    is_real_time: bool = True
    """Whether the watchers had real-time priority; else others' work counts as a stall as well."""
    spans_ms: list[tuple[float, float]] = field(default_factory=list)
    """[from, to) by the wall clock, of all cores together."""

    @property
    def max_ms(self) -> float:
        """The longest."""
        return max((end - begin for begin, end in self.spans_ms), default=0.0)

    def within(self, from_ms: NDArray[np.float64], to_ms: NDArray[np.float64]) -> NDArray[np.bool_]:
        """bool[n]: whether a core stood still at some time in [from, to) of each."""
        hit = np.zeros(len(from_ms), np.bool_)
        for begin, end in self.spans_ms:
            hit |= (from_ms < end) & (to_ms > begin)
        return hit


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    """Watch all cores while the block runs."""
    stalls = Stalls()
    watchers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.stalls", str(core),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for core in sorted(os.sched_getaffinity(0))
    ]  # fmt: skip
    try:
        yield stalls
    finally:
        for watcher in watchers:
            out, _ = await watcher.communicate(b"")  # closes its standard input: it ends
            first, *lines = out.decode().splitlines()
            stalls.is_real_time &= first == "real time"
            for line in lines:
                begin, end = line.split()
                stalls.spans_ms.append((float(begin), float(end)))


def _watch(core: int) -> None:
    """Until standard input is closed."""
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
        print("real time")
    except PermissionError:
        print("usual priority")
    os.set_blocking(0, False)
    found, before = [], time.time_ns()
    while _is_open():
        time.sleep(_PERIOD_S)
        now = time.time_ns()
        if now - before > _STALL_NS:
            found.append(f"{before / 1e6:.3f} {now / 1e6:.3f}")
        before = now
    print("\n".join(found))


def _is_open() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
