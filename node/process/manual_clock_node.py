"""A node alone whose clock a test moves by hand: for tests of programs that use a node.

All of it is real: log, wheel, leases, API. Only time is not. It stands still until `move_to`, and
nothing is due, ends or comes back meanwhile. `hourwheel.testing` is what users see of it.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from node.broker.engine import Engine
from node.process.app import Node
from node.process.loopback_config import config_for

_TURNS_MAX: Final = 10_000
"""Turns at one time; a turn that finds more to do each time would never end."""
_LOOP_ROUNDS: Final = 3
"""Of the event loop, in which callbacks of a turn begin what they begin."""
_VALUES: Final[Mapping[str, Any]] = {
    # Released in the very millisecond in which they are due.
    "dispatch": {"lead_ms_min": 0, "lead_ms_max": 0, "interval_ms": 0},
    "node": {"metrics_listen": "", "drain_ms": 0},
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    "log": {"scrub_bytes_per_s": 0},
}


class ManualClock:
    """See `hourwheel.clock.Clock`."""

    def __init__(self, start_ms: int) -> None:
        """It shows `start_ms`, in milliseconds since the Unix epoch, until it is moved."""
        self._start_ms = self.at_ms = start_ms

    def wall_ms(self) -> float:
        """What it shows."""
        return float(self.at_ms)

    def monotonic_ms(self) -> float:
        """How far it was moved."""
        return float(self.at_ms - self._start_ms)


class ManualClockNode:
    """A serving node in the running event loop."""

    def __init__(self, directory: Path, start_ms: int) -> None:
        """Its files lie in `directory`; its clock begins at `start_ms`."""
        self._clock = ManualClock(start_ms)
        self._node = Node(config_for(directory, _VALUES), self._clock)

    async def start(self) -> str:
        """Serve; returns where, as host:port. Raises as `Node.start`."""
        await self._node.start()
        return self._node.address

    async def stop(self) -> None:
        """Calls in flight are cut short."""
        await self._node.stop(grace_ms=0)

    @property
    def _engine(self) -> Engine:
        """Raises HourwheelError: why the node cannot go on."""
        found = self._node.failure.found
        if found.done():
            raise found.result()
        return errors.required(self._node.engine, "a node that has started has an engine")

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return self._clock.at_ms

    async def settle(self) -> None:
        """Return when all that is due now is released, and everything that was written is applied.

        Raises:
            HourwheelError: why the node cannot go on.
        """
        for _ in range(_TURNS_MAX):
            self._engine.turn()
            await self._engine.group_commit.drain()
            for _ in range(_LOOP_ROUNDS):
                await asyncio.sleep(0)
            wakeup_ms = self._wakeup_ms()
            if wakeup_ms is None or wakeup_ms > self.now_ms:
                return
        raise errors.Internal("at one time of the clock there is always more to do")

    def _wakeup_ms(self) -> int | None:
        service = self._engine.service
        return None if service is None else service.next_wakeup_ms()

    async def find_next_ms(self, until_ms: int) -> int | None:
        """When something happens by itself, until `until_ms` at the latest; None: nothing does.

        A group's rate lets something through for polls that do not wait, too.
        """
        service, now_ms = self._engine.service, self.now_ms
        allowed_ms = None if service is None else service.receive_service.next_allowance_ms(now_ms)
        found = [at for at in (self._wakeup_ms(), allowed_ms) if at is not None and at <= until_ms]
        return None if not found or now_ms >= until_ms else max(min(found), now_ms + 1)

    async def move_to(self, at_ms: int) -> None:
        """The clock shows `at_ms` from now on; what is due by then is released on return.

        Raises:
            InvalidArgument: that is in its past.
            HourwheelError: why the node cannot go on.
        """
        if at_ms < self.now_ms:
            raise errors.InvalidArgument("a clock does not go back", value=at_ms)
        self._clock.at_ms = at_ms
        await self.settle()
