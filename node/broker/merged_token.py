"""Who waits for a batch that holds the messages of several callers."""

import asyncio
from typing import Any

from hourwheel.errors import HourwheelError


class MergedToken:
    """The callers whose messages one batch holds."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[tuple["asyncio.Future[Any]", int, int]]) -> None:
        """`parts` are (future, ordinal of the caller's first message, how many)."""
        self.parts = parts

    def answer(self, verdicts: dict[int, Any], error: HourwheelError | None) -> None:
        """Tell each caller the verdict of its own messages."""
        for future, first, _ in self.parts:
            if future.done():
                continue
            verdict = error if error is not None else verdicts[first]
            if isinstance(verdict, HourwheelError):
                future.set_exception(verdict)
            else:
                future.set_result(verdict)
