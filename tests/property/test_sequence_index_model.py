"""The sequence index against two arrays, through checkpoints and crashes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given
from numpy.typing import NDArray

from hourwheel.types import DUE_MS_MAX
from storage.files.file_header import Identity
from storage.views.sequence_index import BLOCK_ENTRIES, SequenceIndex
from tests.support.checkpointed_world import CheckpointedWorld, steps_of
from tests.support.small_sizes import small_sizes

IDENTITY = Identity(bytes(range(16)), 3)


@dataclass
class Entries:
    due_ms: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.int64))
    state: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.uint8))


class World(CheckpointedWorld[SequenceIndex, Entries]):
    def __init__(self) -> None:
        super().__init__(Entries(), 0)

    def open(self, state: int) -> SequenceIndex:
        return SequenceIndex.open(self.disk, "sequences", IDENTITY, state)

    def state(self) -> int:
        return self.view.count

    def compare(self) -> None:
        count = len(self.model.due_ms)
        assert self.view.count == count
        rng = np.random.default_rng(count)
        for probes in (
            np.arange(max(0, count - 700), count + 5),
            rng.integers(0, count + 9, 30),
        ):
            due_ms, state = self.view.read_many(probes.astype(np.uint64))
            assert (due_ms == np.append(self.model.due_ms, np.zeros(9, int))[probes]).all()
            assert (state == np.append(self.model.state, np.zeros(9, int))[probes]).all()

    def append(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        count = rng.choice((1, 7, 100, BLOCK_ENTRIES, 300, 300, 9_000))
        due_ms = rng.integers(0, DUE_MS_MAX, count, endpoint=True)
        state = rng.integers(0, 3, count, np.uint8)
        self.view.append(due_ms, state)
        self.model = Entries(
            np.concatenate((self.model.due_ms, due_ms)), np.concatenate((self.model.state, state))
        )


@given(steps_of("append"))
def test_sequence_index_when_checkpointed_and_crashed(steps: list[tuple[str, int]]) -> None:
    with small_sizes():
        World().run(steps)
