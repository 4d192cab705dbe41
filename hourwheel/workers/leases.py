"""Which leases are to be made longer, and when. Pure: the keeper has the clock, and calls.

What came in one answer of the node has one lease. It is made longer while a message of it is in
work, each time when half of it is over.
"""

from dataclasses import dataclass, field
from typing import Final

from hourwheel.client.message import ReceivedBatch

_PART: Final = 0.5
"""Of a lease, after which it is made longer."""
RETRY_MS: Final = 500.0
"""After a try that failed, while the lease lasts."""


@dataclass(slots=True)
class _Held:
    batch: ReceivedBatch
    unfinished: int
    span_ms: int
    next_ms: float
    is_lost: bool = field(default=False)


class Leases:
    """Those of one consumer. Times are those of the monotonic clock, in milliseconds."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: dict[int, _Held] = {}
        self.lost_count = 0
        """Leases that were over before their messages were done."""

    def __len__(self) -> int:
        """Answers of which messages are in work."""
        return len(self._held)

    def add(self, batch: ReceivedBatch, now_ms: float) -> float:
        """One more message of this answer is in work. Its lease is to be made longer then."""
        held = self._held.get(id(batch))
        if held is not None:
            held.unfinished += 1
            return held.next_ms
        span_ms = max(1, batch.invisible_until_ms - batch.delivery.header.receive_ms)
        left_ms = max(0.0, batch.lease_until_ms - now_ms)
        next_ms = now_ms + left_ms * _PART
        self._held[id(batch)] = _Held(batch, 1, span_ms, next_ms)
        return next_ms

    def remove(self, batch: ReceivedBatch) -> None:
        """A message of it is done with."""
        held = self._held[id(batch)]
        held.unfinished -= 1
        if not held.unfinished:
            del self._held[id(batch)]

    def find_due(self, now_ms: float) -> list[tuple[ReceivedBatch, int]]:
        """Which to make longer now, and by how many milliseconds."""
        return [
            (held.batch, held.span_ms)
            for held in self._held.values()
            if held.next_ms <= now_ms and not held.is_lost
        ]

    def next_wakeup_ms(self) -> float:
        """When there will be one; infinite: when there are others."""
        return min(
            (held.next_ms for held in self._held.values() if not held.is_lost),
            default=float("inf"),
        )

    def on_extended(self, batch: ReceivedBatch, now_ms: float) -> None:
        """It lasts longer, as `batch.lease_until_ms` says now."""
        held = self._held.get(id(batch))
        if held is not None:
            held.next_ms = now_ms + max(1.0, batch.lease_until_ms - now_ms) * _PART

    def on_failed(self, batch: ReceivedBatch, now_ms: float, *, is_lost: bool) -> None:
        """It could not be made longer. `is_lost`: nor will it be."""
        held = self._held.get(id(batch))
        if held is not None:
            held.next_ms = now_ms + RETRY_MS
            held.is_lost = is_lost or now_ms >= batch.lease_until_ms
            self.lost_count += held.is_lost
