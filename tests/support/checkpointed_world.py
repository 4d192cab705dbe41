"""Leads a view with files through changes, checkpoints and crashes, beside a naive model of it.

A checkpoint's works run one by one, with other changes between them, as they do on another thread.
What a crash leaves must be what the last manifest named, whatever was under way.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from hypothesis import strategies as st

from tests.sim.disk import SimulatedCrash, SimulatedDisk

Work = Callable[[], None]
CHECKPOINT_STEPS = (
    *("begin", "begin", "work", "work", "work", "finish", "finish", "checkpoint", "checkpoint"),
    *("fail_after", "crash", "kill", "manifest_then_crash"),
)
"""Steps that all worlds know; each adds its changes."""


def steps_of(*changes: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Lists of (step, seed), with more changes than steps of checkpoints."""
    every = (*CHECKPOINT_STEPS, *changes * -(-20 // len(changes)))
    return st.lists(
        st.tuples(st.sampled_from(every), st.integers(0, 2**32)), min_size=20, max_size=60
    )


class CheckpointedView(Protocol):
    """What these views have in common."""

    def begin_checkpoint(self) -> list[Work]: ...

    def end_checkpoint(self) -> list[Work]: ...


View = TypeVar("View", bound=CheckpointedView)
Model = TypeVar("Model")


class CheckpointedWorld(ABC, Generic[View, Model]):
    """See the top of this file. `state` is what a manifest says of the view."""

    def __init__(self, empty: Model, state: Any) -> None:
        self.disk = SimulatedDisk()
        self.model = empty
        self._durable = (state, copy.deepcopy(empty))
        self._captured = self._durable
        self._works: list[Work] = []
        self._is_under_way = False
        self.view = self.open(state)

    @abstractmethod
    def open(self, state: Any) -> View:
        """The view that a manifest describes."""

    @abstractmethod
    def state(self) -> Any:
        """What a manifest says of the view now."""

    @abstractmethod
    def compare(self) -> None:
        """Assert that view and model are the same."""

    def run(self, steps: list[tuple[str, int]]) -> None:
        """Call these methods with these seeds; come back where power fails; compare after each."""
        for name, seed in steps:
            try:
                getattr(self, name)(seed)
            except SimulatedCrash:
                self.crash(seed)
            self.compare()

    def begin(self, seed: int) -> None:
        """Begin a checkpoint, in place of one that is under way and so has failed."""
        self._works = self.view.begin_checkpoint()
        self._captured = (self.state(), copy.deepcopy(self.model))
        self._is_under_way = True

    def work(self, seed: int) -> None:
        """Do the next work, if there is one."""
        if self._works:
            self._works.pop(0)()

    def finish(self, seed: int) -> None:
        """Do all works, and write the manifest, if a checkpoint is under way."""
        while self._works:
            self.work(seed)
        if self._is_under_way:
            self._durable = self._captured
            self._is_under_way = False
            # Removals: done with the next works, or lost in a crash.
            self._works = self.view.end_checkpoint()

    def checkpoint(self, seed: int) -> None:
        """A whole checkpoint, with what is removed after it."""
        self.begin(seed)
        self.finish(seed)
        self.finish(seed)

    def manifest_then_crash(self, seed: int) -> None:
        """Power fails between the manifest and what comes after it."""
        while self._works:
            self.work(seed)
        if self._is_under_way:
            self._durable = self._captured
        self.crash(seed)

    def fail_after(self, seed: int) -> None:
        """Let power fail soon."""
        self.disk.fail_after(1 + seed % 7, takes_effect=bool(seed & 8))

    def crash(self, seed: int) -> None:
        """Power fails now, and maybe again while the view is opened."""
        self.disk.crash(Random(seed))
        self._come_back(seed)

    def kill(self, seed: int) -> None:
        """The process dies; what it wrote is in the page cache."""
        self.disk.kill()
        self._come_back(seed)

    def _come_back(self, seed: int) -> None:
        self._works = []
        self._is_under_way = False
        state, model = self._durable
        self.model = copy.deepcopy(model)
        if seed % 3 == 0:
            self.disk.fail_after(1 + seed % 2, takes_effect=bool(seed & 4))
        try:
            self.view = self.open(state)
        except SimulatedCrash:
            self.crash(seed // 3 + 1)
        self.compare()
