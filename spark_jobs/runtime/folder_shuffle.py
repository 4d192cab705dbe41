"""A spread through files: tasks write their results to a folder, and joiners read them from there.

For tasks that all run on one machine. What Spark's own shuffle does to the same bytes on the way
from one Python process to the next (two sockets, the JVM's heap, a compressed file) costs as much
as the audit's own work on them.
"""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, TypeVar

from spark_jobs.runtime.shuffle import FACTS, Joiner, Spreader

T = TypeVar("T")
R = TypeVar("R")


class Mapper(Protocol):
    """What runs tasks: `Runner.map`."""

    def __call__(self, function: Callable[[T], R], tasks: Sequence[T], /) -> list[R]:
        """What the function makes of each task, in their order."""
        ...


class Written(NamedTuple):
    """A result in a file."""

    number: int
    path: str
    at: int
    """Its first byte."""


class FolderSpread:
    """See the top of this file; `spread.Spread` says what the methods do."""

    def __init__(self, run: Mapper, function: Spreader[T], tasks: Sequence[T]) -> None:
        """Run the tasks; their results are in files of a folder that only this user can read."""
        self._run = run
        self._folder = TemporaryDirectory(prefix="hourwheel-spread-")
        self._facts: list[Any] = []
        self._found: dict[int, list[Written]] = {}
        try:
            found = run(partial(_write, function, self._folder.name), list(enumerate(tasks)))
        except BaseException:
            self.close()
            raise
        for facts, written in found:
            self._facts += facts
            for one in written:
                self._found.setdefault(one.number, []).append(one)

    def facts(self) -> list[Any]:
        """See `Spread`."""
        return self._facts

    def join(self, joiner: Joiner[R]) -> list[R]:
        """See `Spread`. The results of a number are those of the first task, then the second's."""
        return self._run(partial(_read, joiner), [one for _, one in sorted(self._found.items())])

    def close(self) -> None:
        """See `Spread`."""
        self._facts, self._found = [], {}
        self._folder.cleanup()


def _write(
    function: Spreader[T], folder: str, numbered: tuple[int, T]
) -> tuple[list[Any], list[Written]]:
    """What a task gives as facts, and where the rest is."""
    ordinal, task = numbered
    path = Path(folder, str(ordinal))
    facts: list[Any] = []
    written: list[Written] = []
    with path.open("wb") as file:
        for number, result in function(task):
            if number == FACTS:
                facts.append(result)
                continue
            written.append(Written(number, str(path), file.tell()))
            pickle.dump(result, file, pickle.HIGHEST_PROTOCOL)
    return facts, written


def _read(joiner: Joiner[R], found: list[Written]) -> R:
    return joiner(found[0].number, map(_load, found))


def _load(one: Written) -> Any:
    with Path(one.path).open("rb") as file:
        file.seek(one.at)
        return pickle.load(file)  # noqa: S301 - `_write` has just written it
