"""When entries become visible in the queues that somebody waits for.

A queue's visible end moves for everybody: another group's Receive may have moved it long before
those who wait here are woken. So what counts is not where it stands, but what those who wait were
asked for last: each watched queue has the instant at which the first entry opens that they have not
been asked for. It is noted by the same reading of the clock by which they were asked, and goes away
only by `open`, which names the queue to be asked for again.
"""

import heapq
from collections.abc import Callable, Iterable


class Gates:
    """The alarms of all watched queues. Pure; as fast as few of them open at a time.

    Invariants: those who wait for a watched queue were asked for every entry that opens before
    `_opens_ms[queue]`, or for all there is where that is missing; `_heap` has an item for each
    instant in `_opens_ms`, and stale ones.
    """

    def __init__(self, find_gate_ms: Callable[[int, int], int | None]) -> None:
        """`find_gate_ms(queue, now_ms)`: when the first entry opens that is not visible at now_ms.

        Not later than `now_ms` where it has not looked through all that is visible; None where
        nothing more stands in the queue.
        """
        self._find_gate_ms = find_gate_ms
        self._watched: set[int] = set()
        self._opens_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def watch(self, queue: int, now_ms: int) -> None:
        """Somebody who was asked at `now_ms` waits for this queue.

        Where others do already, what they have not been asked for stays as it was.
        """
        if queue not in self._watched:
            self._watched.add(queue)
            self._note(queue, now_ms)

    def unwatch(self, queue: int) -> None:
        """Nobody waits for it any more."""
        self._watched.discard(queue)
        self._opens_ms.pop(queue, None)

    def _note(self, queue: int, now_ms: int) -> None:
        gate_ms = self._find_gate_ms(queue, now_ms)
        if gate_ms is None:
            self._opens_ms.pop(queue, None)
        elif gate_ms != self._opens_ms.get(queue):
            self._opens_ms[queue] = gate_ms
            heapq.heappush(self._heap, (gate_ms, queue))

    def open(self, touched: Iterable[int], now_ms: int) -> set[int]:
        """Whose waiters to ask at `now_ms`: queues that were touched, or where something opened.

        The next alarm of each is set by the same instant.
        """
        opened = self._watched.intersection(touched)
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            queue = heapq.heappop(self._heap)[1]
            del self._opens_ms[queue]
            opened.add(queue)
        for queue in opened:
            self._note(queue, now_ms)
        return opened

    def next_ms(self) -> int | None:
        """When to call `open` next, or None."""
        while self._heap:
            at_ms, queue = self._heap[0]
            if self._opens_ms.get(queue) == at_ms:
                return at_ms
            heapq.heappop(self._heap)
        return None

    def clear(self) -> None:
        """Nobody waits."""
        self._watched.clear()
        self._opens_ms.clear()
        self._heap.clear()
