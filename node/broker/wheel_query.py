"""How many messages are due when: counted beside everything else that a node does.

A question is answered in slices of a few milliseconds, between which the loop goes on; one at a
time for all callers. It reads nothing of the log, so that a node that is not the master answers,
too, as of what it has applied.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from hourwheel import errors, limits
from hourwheel.types import DUE_MS_MAX
from node.consumers.loop_share import LoopShare, Turns
from node.contracts.wheel_info import WheelInfo
from node.shard.shard import Shard
from timewheel.due_counts import Counts, DueCounter

_WAITING_MAX: Final = 32
"""Questions that wait for their turn; each takes some ten milliseconds."""


class Host(Protocol):
    """What is used of node/broker/engine.py."""

    shard: Shard
    is_closing: bool
    now_ms: Callable[[], int]

    def fail(self, error: errors.HourwheelError) -> None:
        """The node cannot go on."""
        ...


class WheelQuery:
    """See EnginePort.describe_wheel."""

    def __init__(self, host: Host) -> None:
        """Read the host's shard."""
        self._host, self._shard = host, host.shard
        self._turns = Turns("questions about the wheel", _WAITING_MAX)

    async def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelInfo:
        """See EnginePort."""
        bounds = _checked(bounds_ms)
        async with self._turns.one():
            return await self._count(bounds)

    async def _count(self, bounds: Counts) -> WheelInfo:
        log, views = self._shard.log, self._shard.views
        share = LoopShare(lambda: log.end_offset)
        while True:
            pending_count, now_ms = views.counters.pending, self._host.now_ms()
            counter = DueCounter(views.wheel, views.cursor.key, bounds)
            while not (counter.is_done or counter.is_stale):
                self._step(counter)
                await share.rest()
            if counter.is_done:
                break  # else a flush or a merge has come between: those are seconds apart
        found = counter.result()
        return WheelInfo(
            now_ms,
            found.counts,
            found.are_exact,
            found.earlier_count,
            found.later_count,
            pending_count,
            cancelled_count=max(0, found.total - pending_count),
        )

    def _step(self, counter: DueCounter) -> None:
        """The next slice.

        Raises:
            ShuttingDown: to go on makes no sense any more.
            CorruptFile: a run is damaged: the node ends.
        """
        if self._host.is_closing:
            raise errors.ShuttingDown
        try:
            counter.step()
        except errors.CorruptFile as error:
            self._host.fail(error)
            raise


def _checked(bounds_ms: Sequence[int]) -> Counts:
    """Raises InvalidArgument."""
    count, most = len(bounds_ms), limits.WHEEL_BOUND_COUNT_MAX
    if not 2 <= count <= most:  # noqa: PLR2004 - a range has two
        raise errors.InvalidArgument(
            f"there are {count} bounds of ranges; 2 to {most} are allowed",
            field="bounds_ms",
            value=count,
            most=most,
        )
    if min(bounds_ms) < 0 or max(bounds_ms) > DUE_MS_MAX:
        raise errors.InvalidArgument("a bound is no instant", field="bounds_ms")
    bounds = np.array(bounds_ms, np.int64)
    if not (bounds[1:] > bounds[:-1]).all():
        raise errors.InvalidArgument("the bounds do not ascend", field="bounds_ms")
    return bounds
