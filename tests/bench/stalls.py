"""When the machine itself stood still: processes that only sleep, and note when they woke late.

One of real-time priority on each core wakes before everything that is measured: when even it was
late, a hypervisor or the kernel had the core. One of usual priority, on any core, waits as what is
measured waits: what it misses beyond that is what the scheduler gave to others. The idea is
jHiccup's.
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
    usual_ms: list[tuple[float, float]] = field(default_factory=list)
    """The same of the process of usual priority."""


def longest_ms(spans_ms: list[tuple[float, float]]) -> float:
    """The longest of them; 0 without any."""
    return max((end - begin for begin, end in spans_ms), default=0.0)


def overlap_ms(
    spans_ms: list[tuple[float, float]], from_ms: NDArray[np.float64], to_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[n]: the longest of the spans' parts that lie in [from, to) of each."""
    longest = np.zeros(len(from_ms))
    for begin, end in spans_ms:
        np.maximum(longest, np.minimum(to_ms, end) - np.maximum(from_ms, begin), out=longest)
    return longest


@asynccontextmanager
async def watched() -> AsyncIterator[Stalls]:
    """Watch all cores while the block runs."""
    stalls = Stalls()
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    watchers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.stalls", core,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for core in (*cores, "any")
    ]  # fmt: skip
    try:
        yield stalls
    finally:
        for watcher, core in zip(watchers, (*cores, "any"), strict=True):
            out, _ = await watcher.communicate(b"")  # closes its standard input: it ends
            first, *lines = out.decode().splitlines()
            if core != "any":
                stalls.is_real_time &= first == "real time"
            spans = stalls.usual_ms if core == "any" else stalls.spans_ms
            for line in filter(None, lines):
                begin, end = line.split()
                spans.append((float(begin), float(end)))


def _watch(core: str) -> None:
    """Until standard input is closed."""
    print("real time" if core != "any" and _become_real_time(int(core)) else "usual priority")
    os.set_blocking(0, False)
    found, before = [], time.time_ns()
    while _is_open():
        time.sleep(_PERIOD_S)
        now = time.time_ns()
        if now - before > _STALL_NS:
            found.append(f"{before / 1e6:.3f} {now / 1e6:.3f}")
        before = now
    print("\n".join(found))


def _become_real_time(core: int) -> bool:
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


def _is_open() -> bool:
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


if __name__ == "__main__":
    _watch(sys.argv[1])
