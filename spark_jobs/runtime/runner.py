"""Where the audit's steps run: in Spark, or in this process.

The audit asks for three things: to do something with each of some tasks, to send a value along, and
to do something with tasks whose results are put together again by a number (a shuffle). What goes
through a shuffle is a few large pieces of bytes, never a row a message.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from spark_jobs.runtime.folder_shuffle import FolderSpread
from spark_jobs.runtime.shuffle import FACTS, Joiner, Numbered, Spread, Spreader
from spark_jobs.runtime.worker_heap import settle_heap

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")
R = TypeVar("R")
V_co = TypeVar("V_co", covariant=True)


class Shared(Protocol[V_co]):
    """A value that was sent along."""

    @property
    def value(self) -> V_co:
        """It."""
        ...


class Runner(Protocol):
    """See the top of this file. Functions are those of modules, or partials of them."""

    def share(self, value: T) -> Shared[T]:
        """Send a value to wherever tasks run."""
        ...

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """What the function makes of each task, in their order."""
        ...

    def spread(self, function: Spreader[T], tasks: Sequence[T], count: int) -> Spread:
        """Let the function make numbered results of each task."""
        ...


# --- in this process ----------------------------------------------------------------------------


class _Here(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value


class _LocalSpread:
    def __init__(self, results: dict[int, list[Any]]) -> None:
        self._results = results

    def facts(self) -> list[Any]:
        return self._results.get(FACTS, [])

    def join(self, joiner: Joiner[R]) -> list[R]:
        return [
            joiner(number, iter(found))
            for number, found in sorted(self._results.items())
            if number != FACTS
        ]

    def close(self) -> None:
        self._results.clear()


class LocalRunner:
    """Runs everything in this thread: for tests, and for logs that are too small for Spark."""

    def share(self, value: T) -> Shared[T]:
        """See `Runner`."""
        return _Here(value)

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """See `Runner`."""
        return [function(task) for task in tasks]

    def spread(self, function: Spreader[T], tasks: Sequence[T], count: int) -> Spread:
        """See `Runner`. All results are in memory."""
        del count
        results: dict[int, list[Any]] = {}
        for task in tasks:
            for number, result in function(task):
                results.setdefault(number, []).append(result)
        return _LocalSpread(results)


# --- in Spark -----------------------------------------------------------------------------------


class _ShuffledSpread:
    def __init__(self, context: "SparkContext", rdd: "RDD[Numbered]", count: int) -> None:
        self._context, self._rdd, self._count = context, rdd, count

    def facts(self) -> list[Any]:
        return self._context.runJob(self._rdd, _values, [self._count])

    def join(self, joiner: Joiner[R]) -> list[R]:
        found: list[R] = self._context.runJob(
            self._rdd, partial(_join, joiner), list(range(self._count))
        )
        return found

    def close(self) -> None:
        pass  # Spark drops the files of a shuffle when nothing refers to it


def _values(rows: Iterable[Numbered]) -> Iterator[Any]:
    return (value for _, value in rows)


def _join(joiner: Joiner[R], rows: Iterable[Numbered]) -> Iterator[R]:
    """A partition has the results of one number, or none."""
    settle_heap()
    iterator = iter(rows)
    first = next(iterator, None)
    if first is not None:
        number, value = first
        yield joiner(number, _chain(value, iterator))


def _chain(value: Any, rows: Iterator[Numbered]) -> Iterator[Any]:
    yield value
    yield from _values(rows)


def _place(count: int, number: int) -> int:
    return count if number == FACTS else number


def _do(function: Callable[[T], R], task: T) -> R:
    settle_heap()
    return function(task)


class SparkRunner:
    """Runs tasks as Spark tasks, a partition each."""

    def __init__(self, context: "SparkContext", *, is_here: bool | None = None) -> None:
        """`is_here`: all tasks run on this machine; None: as the context's master says."""
        self._context = context
        self._is_here = (context.master or "").startswith("local") if is_here is None else is_here

    def share(self, value: T) -> Shared[T]:
        """See `Runner`: a broadcast."""
        shared: Shared[T] = self._context.broadcast(value)
        return shared

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """See `Runner`."""
        if not tasks:
            return []
        placed = self._context.parallelize(tasks, len(tasks))
        found: list[R] = placed.map(partial(_do, function)).collect()
        return found

    def spread(self, function: Spreader[T], tasks: Sequence[T], count: int) -> Spread:
        """See `Runner`.

        Results go to the disks of the executors by Spark's shuffle, and are read from there. Where
        all tasks run on this machine they go to files of our own, without a way through the JVM.
        """
        if self._is_here:
            return FolderSpread(self.map, function, tasks)
        rows = self._context.parallelize(tasks, max(1, len(tasks)))
        placed = rows.flatMap(partial(_do, function)).partitionBy(count + 1, partial(_place, count))
        return _ShuffledSpread(self._context, placed, count)
