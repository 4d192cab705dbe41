"""Lives and deaths of one node under load, and what is looked at in between.

A death is followed by a look at what it left: views restored from the checkpoint are the same as
views built anew from the log. The end is the checker's.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.checker import Bounds, check, describe
from chaos.message_mix import Mix
from chaos.workload import Workload
from hourwheel import errors
from hourwheel.clock import SystemClock
from tests.support.addresses import free_address
from tests.support.eventually import until
from tests.support.faulty_node import FaultyNode
from tests.support.stored import digests_of, read_stored

_USUAL_START_MS: Final = 1_000.0
_HANG_S: Final = 120.0


def say(text: str) -> None:
    """For people who run pytest with -s, and in the report of a failure."""
    sys.stdout.write(f"{text}\n")


def small_node(**sections: dict[str, Any]) -> dict[str, Any]:
    """A configuration with which a node often does what it else does now and then."""
    return {
        "node": {"listen": free_address()},
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "log": {"segment_bytes": 1 << 20, "index_interval_bytes": 1 << 13},
        "wheel": {
            "memtable_units": 1_024,
            "memtable_span_bytes": 1 << 17,
            "merge_run_count": 3,
            "job_units_per_slice": 1_024,
        },
        "telemetry": {"log_format": "json"},
        **sections,
    }


@dataclass
class Reaper:
    """See the top of this file."""

    node: FaultyNode
    directory: Path
    log: Path
    load: Workload
    chooser: random.Random
    deaths: Counter[str] = field(default_factory=Counter)
    starts_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nobody has died."""
        self._clock = SystemClock()

    async def start(self) -> None:
        """Start a sound node."""
        self.node.fault = None
        begun_ms = self._clock.monotonic_ms()
        await self.node.start()
        self.starts_ms.append(self._clock.monotonic_ms() - begun_ms)

    async def some_load(self, events_max: int, *, or_end: bool = False) -> None:
        """Wait for a random number of answers, some to publishers, or for the node's own end."""
        load, count = self.load, self.chooser.randint(5, events_max)
        events, publishes = load.event_count + count, load.publish_count + 1 + count // 10
        await load.wait_for(
            lambda: (
                (load.event_count >= events and load.publish_count >= publishes)
                or (or_end and self.node.has_ended)
            )
        )

    # -- deaths -----------------------------------------------------------------------------------

    async def kill_soon(self, within_ms: float) -> None:
        """SIGKILL at a moment that no event marks, within so many milliseconds from now."""
        pid, delay_s = self.node.pid, self.chooser.random() * within_ms / 1_000
        asyncio.get_running_loop().call_later(delay_s, send, pid, signal.SIGKILL)
        await self.node.ended()

    async def kill_while_it_stops(self) -> None:
        """SIGTERM, and SIGKILL while it drains or saves."""
        send(self.node.pid, signal.SIGTERM)
        await self.kill_soon(500)

    async def kill_while_it_starts(self) -> None:
        """SIGKILL while it loads, recovers, or has just begun to serve."""
        starting = asyncio.ensure_future(self.node.start())
        await until(lambda: self.node.is_there)
        usual_ms = self.starts_ms[-1] if self.starts_ms else _USUAL_START_MS
        delay_s = usual_ms * (0.3 + 0.8 * self.chooser.random()) / 1_000
        asyncio.get_running_loop().call_later(delay_s, send, self.node.pid, signal.SIGKILL)
        assert await self._end_of(starting) == -signal.SIGKILL

    async def die(self) -> int:
        """Start with the fault that the node has been given, and wait for the end: its exit code.

        It may come before the node serves.
        """
        starting = asyncio.ensure_future(self.node.start())
        await until(lambda: self.node.is_there)
        return await self._end_of(starting)

    async def _end_of(self, starting: "asyncio.Future[None]") -> int:
        """Wait for the process's end, whether its start succeeds before it or not."""
        async with asyncio.timeout(_HANG_S):
            await asyncio.wait([starting])
            code = await self.node.ended()
        failure = starting.exception()
        if failure is not None and not isinstance(failure, errors.Unavailable):
            raise failure
        return code

    async def look(self, death: str) -> None:
        """I5: the views are what the log says, wherever the process was interrupted."""
        self.deaths[death] += 1
        found = await asyncio.to_thread(digests_of, self.directory)
        assert found.restored == found.rebuilt, f"{found} after {self.deaths}"

    # -- the end ----------------------------------------------------------------------------------

    def judge(self, bounds: Bounds | None = None) -> None:
        """What was promised holds. The node has stopped, and the load has been settled."""
        say(self.report())
        violations = check(self.load.history, read_stored(self.directory), bounds)
        assert violations == [], describe(violations)

    def report(self) -> str:
        """What happened, in numbers."""
        history = self.load.history
        first = {(one.group, one.serial) for one in history.deliveries}
        cancels = Counter(one.outcome.name if one.outcome else "?" for one in history.cancels)
        finishes = Counter(f"{one.verb} {one.is_ok}" for one in history.finishes)
        return (
            f"{self.deaths.total()} deaths {dict(self.deaths)};"
            f" {len(self.starts_ms)} sound starts of {min(self.starts_ms):.0f}"
            f"-{max(self.starts_ms):.0f} ms\n"
            f"{len(history.sent)} messages sent, {len(history.accepted)} acknowledged,"
            f" {len(history.refused)} refused; cancels {dict(cancels)}\n"
            f"{len(history.deliveries)} deliveries, {len(first)} of them the first to their group;"
            f" {dict(finishes)}"
        )


@asynccontextmanager
async def reaping(
    folder: Path,
    seed: int,
    *,
    mix: Mix | None = None,
    values: dict[str, Any] | None = None,
    directory: Path | None = None,
) -> AsyncIterator[Reaper]:
    """A node that serves, under load; in the end it is settled, stopped and judged.

    Args:
        folder: for the log file, and for the data directory.
        seed: of all choices.
        mix: of the load.
        values: the node's configuration.
        directory: the data directory; "data" in `folder` by default.
    """
    say(f"\nseed {seed}")
    directory, log = directory or folder / "data", folder / "node.log"
    node = FaultyNode(directory, values or small_node(), log_file=log)
    load = Workload(node.configured_address, seed, mix or Mix())
    reaper = Reaper(node, directory, log, load, random.Random(seed))
    try:
        await reaper.start()
        async with load.running():
            yield reaper
            await load.settle()
        assert await node.stop() == 0
    finally:
        if node.is_there:
            await node.kill()
    reaper.judge()


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def events_of(log: Path) -> list[dict[str, Any]]:
    """What a node has logged; lines that are no JSON (a traceback, a torn line) as `raw`."""
    found = []
    for line in log.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"event": "", "level": "error", "raw": line})
    return found


def complaints_of(log: Path) -> list[dict[str, Any]]:
    """What a node says only when something is wrong."""
    return [one for one in events_of(log) if one.get("level") in {"error", "critical"}]
