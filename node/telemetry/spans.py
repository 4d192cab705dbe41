"""What the process works on, by name: so that a turn of the event loop that took long says why.

    spans    work of the event loop's thread, noted around batches: `with spans.span("apply"): ...`.
             One within another counts for itself alone, so that shares add up.
    asides   work of other threads, which may hold the interpreter's lock meanwhile.

A span costs about 0.6 microseconds. Nothing here decides what is long: hourwheel/stalls.py.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Span:
    """One kind of work on the loop's thread. A context manager, never around an `await`."""

    __slots__ = ("_depth", "_ns", "_outer", "_spans", "_turn", "name")

    def __init__(self, spans: "Spans", name: str) -> None:
        """By `Spans.span`."""
        self.name = name
        self._spans = spans
        self._outer: Span | None = None
        self._depth = 0
        self._turn = -1
        """In which the time was counted."""
        self._ns = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return  # this kind of work calls itself
        spans = self._spans
        now_ns = spans.now_ns()
        outer = self._outer = spans.current
        if outer is not None:
            outer._ns += now_ns - spans.since_ns  # noqa: SLF001 - one of its own kind
        elif not spans.is_in_turn:
            spans.is_in_turn = True
            spans.on_begin(now_ns)
        if self._turn != spans.turn:
            self._turn, self._ns = spans.turn, 0
        spans.current, spans.since_ns = self, now_ns

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        spans = self._spans
        now_ns = spans.now_ns()
        self._ns += now_ns - spans.since_ns
        spans.current, spans.since_ns = self._outer, now_ns

    def ns_in(self, turn: int) -> int:
        """How long this work took in a turn, as far as it is not another turn's by now."""
        return self._ns if self._turn == turn else 0


class Aside:
    """One kind of work of another thread: at most one of its kind at a time."""

    __slots__ = ("_spans", "ended_ns", "is_on", "name")

    def __init__(self, spans: "Spans", name: str) -> None:
        """By `Spans.aside`."""
        self.name = name
        self._spans = spans
        self.is_on = False
        self.ended_ns = 0

    def __enter__(self) -> None:
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.ended_ns = self._spans.now_ns()
        self.is_on = False


class Spans:
    """All kinds of work of a process, and which of them the loop is at. Names come from the code.

    Invariant: `current` is None between two turns of the loop.
    """

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Nothing is under way. `now_ns`: a clock that never steps."""
        self.now_ns = now_ns
        self.current: Span | None = None
        """The innermost work under way."""
        self.since_ns = 0
        """Up to when time is counted."""
        self.turn = 0
        """Number of the turn that has begun last."""
        self.is_in_turn = False
        """Whether work began in this turn, and has not ended since."""
        self.on_begin: Callable[[int], object] = int
        """Called when the first work of a turn begins, with its time."""
        self._spans: dict[str, Span] = {}
        self._asides: dict[str, Aside] = {}

    def span(self, name: str) -> Span:
        """The kind of work with this name; keep it, rather than ask each time."""
        return self._spans.setdefault(name, Span(self, name))

    def aside(self, name: str) -> Aside:
        """As `span`, of a thread beside the loop's."""
        return self._asides.setdefault(name, Aside(self, name))

    def end_turn(self) -> None:
        """The turn is over: what comes now is another one's."""
        self.is_in_turn = False
        self.turn += 1

    def ran_ns(self) -> dict[str, int]:
        """What ran in this turn, and how long, each without what ran within it."""
        found = {one.name: one.ns_in(self.turn) for one in self._spans.values()}
        return {name: ns for name, ns in found.items() if ns}

    def ran_beside(self, since_ns: int) -> tuple[str, ...]:
        """What other threads worked on at some time from then on."""
        asides = self._asides.values()
        return tuple(one.name for one in asides if one.is_on or one.ended_ns > since_ns)


@coroutine
def in_steps(work: Coroutine[object, None, ResultT], span: Span) -> Generator[Any, Any, ResultT]:
    """Await `work`; each of its steps, from one wait to the next, counts as `span`.

    What is thrown into it is not kept here: its traceback leads back to this frame, and all that
    `work` holds would stay in memory until cycles are looked for.
    """
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        with span:
            try:
                waits_for = step(value)
            except StopIteration as stop:
                result: ResultT = stop.value
                return result
            finally:
                value = None
        try:
            value, step = (yield waits_for), work.send
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - it is the work's to handle
            value, step = error, work.throw
