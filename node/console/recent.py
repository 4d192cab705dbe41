"""Answers that were made a moment ago: a request for the same gets the same.

A thousand consoles cost the cluster what one costs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar, cast

COUNT_MAX: Final = 64
"""Answers remembered; those that were asked for longest ago are forgotten."""

ValueT = TypeVar("ValueT")


class Recent:
    """On one event loop."""

    def __init__(self, now_ms: Callable[[], float], count_max: int = COUNT_MAX) -> None:
        """`now_ms`: a monotonic clock."""
        self._now_ms, self._count_max = now_ms, count_max
        self._made: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()
        self._running: set[asyncio.Task[Any]] = set()

    async def get(
        self, key: Hashable, age_ms_max: float, make: Callable[[], Awaitable[ValueT]]
    ) -> ValueT:
        """What `make` gives, or gave for `key` at most `age_ms_max` ago. Raises what it raises."""
        found = self._made.get(key)
        now_ms = self._now_ms()
        if found is None or (found[1].done() and now_ms - found[0] > age_ms_max):
            task = asyncio.ensure_future(_run(make))
            self._running.add(task)
            task.add_done_callback(self._ended)
            self._made[key] = found = now_ms, task
            while len(self._made) > self._count_max:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        task = found[1]
        try:
            # Shielded: others wait for it, too.
            return cast("ValueT", await asyncio.shield(task))
        except Exception:
            if self._made.get(key) is found:
                del self._made[key]
            raise

    def forget(self) -> None:
        """What was made is out of date: something was changed."""
        self._made.clear()

    async def close(self) -> None:
        """End what is under way."""
        self._made.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may be gone: then none looks at it


async def _run(make: Callable[[], Awaitable[ValueT]]) -> ValueT:
    return await make()
