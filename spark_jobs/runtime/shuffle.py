"""Results of tasks that are put together again by a number: what a `Runner` spreads."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
FACTS: Final = -1
"""The number of results that are not put together, but given to the driver."""
Numbered = tuple[int, Any]
Spreader = Callable[[T], Iterable[Numbered]]
Joiner = Callable[[int, Iterator[Any]], R]


class Spread(Protocol):
    """Results that are put together by their numbers 0 .. n - 1."""

    def facts(self) -> list[Any]:
        """Those of number `FACTS`. All tasks have run when this returns."""
        ...

    def join(self, joiner: Joiner[R]) -> list[R]:
        """What `joiner(number, results)` makes of each number that has results, in no order."""
        ...

    def close(self) -> None:
        """They are not needed any more."""
        ...
