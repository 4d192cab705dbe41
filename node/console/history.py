"""What the master counted in the last minutes: kept while somebody looks, shared by all consoles.

Pure; points are as JSON has them, and rates are made of them in the browser.
"""

from collections import deque
from typing import Any, Final

from hourwheel.client.cluster_status import ShardStatus

POINT_COUNT_MAX: Final = 300
"""Points remembered: ten minutes, at one every two seconds."""
POINT_MS_MIN: Final = 1_000
"""Two points are at least so far apart."""
SPAN_MS: Final = 600_000
"""Older points are forgotten."""


class History:
    """On one thread."""

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._points: deque[dict[str, Any]] = deque(maxlen=POINT_COUNT_MAX)

    def add(self, now_ms: int, master: str, shard: ShardStatus) -> None:
        """What `master` says at `now_ms`."""
        if self._points and now_ms - self._points[-1]["at_ms"] < POINT_MS_MIN:
            return
        delivery = shard.delivery
        self._points.append(
            {
                "at_ms": now_ms,
                # Counts of one process: of another master, or after its restart, they begin anew.
                "master": f"{master}/{shard.epoch}",
                "published": shard.published_count,
                "released": shard.released_count,
                "cancelled": shard.cancelled_count,
                "delivered": 0 if delivery is None else delivery.delivered_count,
                "acknowledged": 0 if delivery is None else delivery.acknowledged_count,
                "late": [] if delivery is None else list(delivery.lateness_counts),
            }
        )
        while self._points[0]["at_ms"] < now_ms - SPAN_MS:
            self._points.popleft()

    def since(self, at_ms: int) -> list[dict[str, Any]]:
        """Points after an instant, the oldest first."""
        return [point for point in self._points if point["at_ms"] > at_ms]
