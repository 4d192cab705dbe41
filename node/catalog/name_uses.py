"""When calls last named a topic or a group, as its master remembers it; by number."""

from collections.abc import Callable
from types import TracebackType


class NameUses:
    """Calls under way and the ends of those before. A new master counts from its own beginning.

    A walk through all names calls `saw` for each and `turn_over` at the end, so that what was
    deleted is forgotten.
    """

    def __init__(self) -> None:
        """Nothing was ever used."""
        self._begun_ms = 0
        self._under_way: dict[int, int] = {}
        """Number -> calls that name it and are not answered."""
        self._used_ms: dict[int, int] = {}
        """Number -> when such a call ended last."""
        self._used_next_ms: dict[int, int] = {}
        """The same without what was deleted: takes its place when all names were looked at."""

    def begin(self, now_ms: int) -> None:
        """This node is the master from now on: it knows nothing of what was used before."""
        self._begun_ms = now_ms
        self._used_ms.clear()
        self._used_next_ms.clear()

    def using(self, number: int, now_ms: Callable[[], int]) -> "Use":
        """A call that names this one, for a `with`."""
        return Use(self, number, now_ms)

    def enter(self, number: int) -> None:
        """A call begins."""
        self._under_way[number] = self._under_way.get(number, 0) + 1

    def leave(self, number: int, now_ms: int) -> None:
        """A call ends."""
        left = self._under_way[number] - 1
        if left:
            self._under_way[number] = left
        else:
            del self._under_way[number]
        self._used_ms[number] = self._used_next_ms[number] = now_ms

    def last_ms(self, number: int) -> int | None:
        """When it was used last, or this mastership began; None: it is in use now."""
        return None if number in self._under_way else self._used_ms.get(number, self._begun_ms)

    def is_idle(self, number: int, before_ms: int) -> bool:
        """Whether it is not in use, and was not since `before_ms`; at that instant it may be."""
        last_ms = self.last_ms(number)
        return last_ms is not None and last_ms <= before_ms

    def saw(self, number: int) -> None:
        """It is still there."""
        if number in self._used_ms:
            self._used_next_ms[number] = self._used_ms[number]

    def turn_over(self) -> None:
        """All names were looked at: what was not seen is forgotten, unless it was just used."""
        self._used_ms, self._used_next_ms = self._used_next_ms, {}


class Use:
    """See `NameUses.using`; a class, since a publish pays twice as much for a generator."""

    __slots__ = ("_now_ms", "_number", "_uses")

    def __init__(self, uses: NameUses, number: int, now_ms: Callable[[], int]) -> None:
        """Not under way yet."""
        self._uses, self._number, self._now_ms = uses, number, now_ms

    def __enter__(self) -> None:
        self._uses.enter(self._number)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._uses.leave(self._number, self._now_ms())
