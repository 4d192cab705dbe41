"""How often consoles ask, however many are open: rules alone, no clock.

Each console asks again after `poll_ms`, which every answer has. When many are open it grows, so
that all of them together ask about `RATE_MAX` times a second; a single console gets `POLL_MS_MIN`.
A client that does not keep to it (a program) is refused above the bucket's rate.
"""

from typing import Final

POLL_MS_MIN: Final = 2_000
POLL_MS_MAX: Final = 120_000
RATE_MAX: Final = 25.0
"""Requests a second that all consoles together are led to: some ten milliseconds of work."""
BURST_MAX: Final = 300.0
"""Requests that may come at once."""
REFILL: Final = 100.0
"""Requests a second; what comes beyond that is refused for now."""
_SECOND_MS: Final = 1_000.0


class Pace:
    """Counts requests. Times are by one monotonic clock, in milliseconds."""

    def __init__(self) -> None:
        """No call has come."""
        self.poll_ms = POLL_MS_MIN
        self._bucket = BURST_MAX
        self._filled_ms = 0.0
        self._round_ms = 0.0
        self._count = 0

    def admit(self, now_ms: float) -> bool:
        """Whether a request is answered; call it once for each."""
        refill = (now_ms - self._filled_ms) * REFILL / _SECOND_MS
        self._bucket = min(BURST_MAX, self._bucket + refill)
        self._filled_ms = now_ms
        self._count += 1
        self._adjust(now_ms)
        if self._bucket < 1.0:
            return False
        self._bucket -= 1.0
        return True

    def _adjust(self, now_ms: float) -> None:
        """In a round of `poll_ms` each console asks once: so many are open as have asked in it."""
        spent_ms = now_ms - self._round_ms
        if spent_ms >= self.poll_ms:
            self.poll_ms = _poll_ms(self._count * self.poll_ms / spent_ms)
            self._round_ms, self._count = now_ms, 0
        else:  # more than were expected have asked before it is over
            self.poll_ms = max(self.poll_ms, _poll_ms(self._count / 2))


def _poll_ms(consoles: float) -> int:
    """How often each of so many is to ask."""
    return round(min(max(consoles * _SECOND_MS / RATE_MAX, POLL_MS_MIN), POLL_MS_MAX))
