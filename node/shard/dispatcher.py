"""Decide the next DISPATCH: how far the cursor may go, a small lead ahead of the clock.

A dispatch must be durable before anyone may see what it releases. So it is appended a little before
its time: `lead_ms` follows the measured times of commits, the slow ones too. What it releases is
seen only from each message's due time on (the release gate in the consume queue), so leading never
means early.

Very many messages of one moment do not fit into the lead. They are released in pieces that begin
small and double: the first of them are durable and visible in time, whatever comes behind, and the
many that follow cost few records.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hourwheel.formats.record_batch import DISPATCH_ROW, Kind, build_rows
from hourwheel.types import SEQUENCE_MAX, Key
from node.shard.views import Views

_SLOW_KEPT: Final = 0.999
"""Of the time of the slowest commit, with each other one: half of it after 700."""
FIRST_UNITS: Final = 512
"""The first record of a burst releases no more; each further one up to twice as many."""
_CALM_MS: Final = 50
"""When nothing was due for so long, what comes next is the first of a burst, for all one knows."""


@dataclass(frozen=True)
class DispatchConfig:
    """Bounds of the dispatcher."""

    units_max: int = 4_096
    """Units that one record releases at most. Twice as many are in flight when another is appended,
    at most: that bounds the time that apply takes in one go."""
    lead_ms_min: int = 3
    lead_ms_max: int = 20
    interval_ms: int = 8
    """Dispatches are at least so far apart, unless more units are due than one may release."""


class Dispatcher:
    """Plans dispatches. `append_cursor` is where the last appended one ends, applied or not."""

    def __init__(self, config: DispatchConfig, cursor: Key) -> None:
        """`cursor`: where the last DISPATCH in the log ends."""
        self._config = config
        self.append_cursor = cursor
        self._commit_ms = self._slow_commit_ms = 1.0
        self._not_before_ms = 0
        self._is_resting = False
        """Nothing is planned before `_not_before_ms`, whatever is due."""
        self._limit = self._first_limit = min(FIRST_UNITS, config.units_max)
        """Units that the next record releases at most."""
        self._planned_ms = 0
        self._interval_count = 0
        """Units that were planned since the last interval was over."""
        self.planned_count = 0
        """Units that the last planned record releases."""

    @property
    def units_max(self) -> int:
        """Units that one record releases at most."""
        return self._config.units_max

    @property
    def lead_ms(self) -> int:
        """How long before its due time a dispatch is appended."""
        config = self._config
        commit_ms = max(2 * self._commit_ms, self._slow_commit_ms)
        lead_ms = commit_ms + 1 + config.interval_ms
        return int(min(max(lead_ms, config.lead_ms_min), config.lead_ms_max))

    def observe_commit(self, duration_ms: float) -> None:
        """A group commit took this long: quick to rise, slow to fall.

        What one commit in hundreds takes counts as well: a disk is slow again and again, and what
        is due meanwhile would be late each time.
        """
        weight = 0.3 if duration_ms > self._commit_ms else 0.02
        self._commit_ms += weight * (duration_ms - self._commit_ms)
        slow_ms = min(duration_ms, self._config.lead_ms_max)
        self._slow_commit_ms = max(slow_ms, self._slow_commit_ms * _SLOW_KEPT)

    def plan(self, views: Views, now_ms: int, *, is_urgent: bool = False) -> bytes | None:
        """The next DISPATCH batch, unstamped, or None: nothing is due within the lead, or paused.

        The range may reach over units that are published while the record is in flight: what it
        releases is decided where it stands in the log. `is_urgent`: do not wait for
        `interval_ms`.
        """
        if now_ms < self._not_before_ms and not is_urgent:
            return None  # as in most turns
        self._is_resting = False
        after, target = self.append_cursor, Key(now_ms + self.lead_ms, SEQUENCE_MAX)
        if target <= after or views.catalog.is_dispatch_paused:
            return None
        if now_ms - self._planned_ms > _CALM_MS:
            self._limit, self._interval_count = self._first_limit, 0
        limit = self._limit
        loaded = views.wheel.load_for_plan(after, target, limit)
        to, count = views.wheel.near.plan(after, loaded, limit)
        if not count:
            return None
        row = np.zeros(1, DISPATCH_ROW)
        row[0] = (*after, *to, views.applied_offset, *views.released)
        self.append_cursor = to
        self._planned_ms, self.planned_count = now_ms, count
        self._is_resting = count < limit
        # As large as what comes in each interval, so that a steady flow needs no more records.
        self._interval_count += count
        usual = self._interval_count if self._is_resting else count
        self._limit = min(max(2 * usual, self._first_limit), self._config.units_max)
        if self._is_resting:
            self._interval_count = 0
        self._not_before_ms = now_ms + self._config.interval_ms if self._is_resting else now_ms
        return build_rows(Kind.DISPATCH, row)

    def take_back(self, row: np.void) -> None:
        """A planned dispatch was never written: plan it again."""
        self.append_cursor = Key(int(row["prev_due_ms"]), int(row["prev_sequence"]))
        self._not_before_ms, self._is_resting = 0, False

    def next_wakeup_ms(self, views: Views) -> int | None:
        """When to plan again, or None while nothing is pending, or all of it is paused.

        Right after a plan, that is when the next one may be; what is due then is looked for then.
        """
        if views.catalog.is_dispatch_paused:
            return None
        if self._is_resting:
            return self._not_before_ms
        due = views.wheel.next_pending_ms(self.append_cursor)
        return None if due is None else max(due - self.lead_ms, self._not_before_ms)
