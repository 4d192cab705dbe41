"""Room for answers that are passed on: whoever reads one from the master waits for room first.

What is not read stays at the master, but for the little that gRPC takes ahead, and counts there as
not read. So a node holds no more of what it passes on than of what it hands out itself.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from node.contracts.answer_budget import AnswerBudget, HeldAnswer


class _Waiting(NamedTuple):
    size_bytes: int
    held: HeldAnswer
    future: "asyncio.Future[None]"


class AnswerRoom:
    """First come, first served. Belongs to one event loop.

    Invariant: if anybody waits, there is no room for the first of them.
    """

    def __init__(self, budget: AnswerBudget) -> None:
        """Nobody waits for room in `budget`."""
        self._budget = budget
        self._waiting: deque[_Waiting] = deque()
        budget.watch(self._serve)

    async def take(self, held: HeldAnswer, size_bytes: int) -> None:
        """Wait until there is room for so much; `held` holds it then."""
        if not self._waiting and self._budget.has_room_for(size_bytes):
            held.hold(size_bytes)
            return
        waiting = _Waiting(size_bytes, held, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.future
        finally:
            if waiting in self._waiting:  # given up: the next one may need less
                self._waiting.remove(waiting)
                self._serve()

    def _serve(self) -> None:
        while self._waiting and self._budget.has_room_for(self._waiting[0].size_bytes):
            first = self._waiting.popleft()
            if not first.future.done():
                first.held.hold(first.size_bytes)
                first.future.set_result(None)
