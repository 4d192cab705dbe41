"""Progress of a job on Spark, for people who wait: a line that says what is done, and how far."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.status import Status

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY_S: Final = 0.5


class Progress:
    """A context manager; call it with what was done. Writes to standard error, and only there.

    On a terminal it is one line that changes, with the tasks of Spark that are done and to be done;
    elsewhere it writes a line for each step.
    """

    def __init__(self, context: "SparkContext | None", title: str, *, is_quiet: bool) -> None:
        """`context`: its tasks are counted; None: no tasks are."""
        self._context, self._title, self._is_quiet = context, title, is_quiet
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hourwheel-progress", daemon=True)

    def __enter__(self) -> Self:
        if not self._is_quiet and sys.stderr.isatty():
            self._status = self._console.status(self._title)
            self._status.start()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._status is not None:
            self._thread.join()
            self._status.stop()

    def __call__(self, step: str) -> None:
        """Tell of a step that is done."""
        if not self._is_quiet:
            self._console.print(f"  {step}", style="dim")

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            done, total = self.tasks()
            text = f"{self._title}: {done} of {total} tasks" if total else self._title
            if self._status is not None:
                self._status.update(text)

    def tasks(self) -> tuple[int, int]:
        """(done, all) of the stages that run."""
        if self._context is None:
            return 0, 0
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
