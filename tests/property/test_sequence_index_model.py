"""The sequence index against a list, through checkpoints and crashes."""

from random import Random

import numpy as np
from hypothesis import given

from hourwheel.types import DUE_MS_MAX
from storage.file_header import Identity
from storage.sequence_index import BLOCK_ENTRIES, SequenceIndex
from tests.support.checkpointed_world import CheckpointedWorld, steps_of

IDENTITY = Identity(bytes(range(16)), 3)


class World(CheckpointedWorld[SequenceIndex, list[tuple[int, int]]]):
    def __init__(self) -> None:
        super().__init__([], 0)

    def open(self, state: int) -> SequenceIndex:
        return SequenceIndex.open(self.disk, "sequences", IDENTITY, state)

    def state(self) -> int:
        return self.view.count

    def compare(self) -> None:
        assert self.view.count == len(self.model)
        rng = Random(len(self.model))
        count = max(1, len(self.model))
        for probes in (
            np.arange(max(0, count - 700), count + 5),
            np.array([rng.randrange(count + 9) for _ in range(30)]),
        ):
            due_ms, state = self.view.read_many(probes.astype(np.uint64))
            expected = [
                self.model[probe] if probe < len(self.model) else (0, 0)
                for probe in probes.tolist()
            ]
            assert list(zip(due_ms.tolist(), state.tolist(), strict=True)) == expected

    def append(self, seed: int) -> None:
        rng = Random(seed)
        count = rng.choice((1, 7, BLOCK_ENTRIES, 500, 9_000))
        due_ms = [rng.randrange(DUE_MS_MAX + 1) for _ in range(count)]
        state = [rng.randrange(3) for _ in range(count)]
        self.view.append(np.array(due_ms), np.array(state, np.uint8))
        self.model = [*self.model, *zip(due_ms, state, strict=True)]


@given(steps_of("append"))
def test_sequence_index_when_checkpointed_and_crashed(steps: list[tuple[str, int]]) -> None:
    World().run(steps)
