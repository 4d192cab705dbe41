"""When to look at a transaction again: one timer each."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from hourwheel.types import Offset


class Timers:
    """A heap whose entries that do not hold any more are skipped."""

    def __init__(self) -> None:
        """None is set."""
        self._at_ms: dict[Offset, int] = {}
        self._heap: list[tuple[int, Offset]] = []
        """(When, offset); one that `_at_ms` does not have is stale."""

    def __len__(self) -> int:
        """Entries, stale ones as well."""
        return len(self._heap)

    def set(self, offset: Offset, at_ms: int) -> None:
        """In the place of the one before."""
        if self._at_ms.get(offset) != at_ms:
            self._at_ms[offset] = at_ms
            heappush(self._heap, (at_ms, offset))

    def pop_due(self, now_ms: int) -> Offset | None:
        """The offset whose timer is over for the longest time, which has none any more."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, offset = heappop(self._heap)
            if self._at_ms.get(offset) == at_ms:
                del self._at_ms[offset]
                return offset
        return None

    def keep(self, is_wanted: Callable[[Offset], bool]) -> None:
        """Forget those of all other offsets."""
        self._at_ms = {one: at_ms for one, at_ms in self._at_ms.items() if is_wanted(one)}
        self._heap = [(at_ms, one) for one, at_ms in self._at_ms.items()]
        heapify(self._heap)
