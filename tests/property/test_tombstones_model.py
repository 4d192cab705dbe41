"""Tombstones against a set of integers, through checkpoints and crashes."""

from random import Random

import numpy as np
from hypothesis import given

from storage.files.file_header import Identity
from storage.views.bit_pages import PAGE_BITS_LOG2
from storage.views.tombstones import Tombstones, TombstoneState
from tests.support.checkpointed_world import CheckpointedWorld, steps_of

IDENTITY = Identity(bytes(range(16)), 3)
SEQUENCE_MAX = 200 << PAGE_BITS_LOG2


class World(CheckpointedWorld[Tombstones, set[int]]):
    def __init__(self) -> None:
        super().__init__(set(), TombstoneState())

    def open(self, state: TombstoneState) -> Tombstones:
        return Tombstones.open(self.disk, "tombstones", IDENTITY, state)

    def state(self) -> TombstoneState:
        return self.view.state

    def compare(self) -> None:
        assert self.view.count == len(self.model)
        probes = np.array(sorted(self.model | {each ^ 1 for each in self.model}), np.uint64)
        expected = [probe in self.model for probe in probes.tolist()]
        assert self.view.contains(probes).tolist() == expected

    def add(self, seed: int) -> None:
        rng = Random(seed)
        near = rng.randrange(SEQUENCE_MAX)
        spread = rng.choice((1, 100, 1 << 17, SEQUENCE_MAX))
        sequences = [
            (near + rng.randrange(spread)) % SEQUENCE_MAX for _ in range(rng.randrange(40))
        ]
        fresh = len(set(sequences) - self.model)
        assert self.view.add(np.array(sequences, np.uint64)) == fresh
        self.model.update(sequences)

    def forget(self, seed: int) -> None:
        rng = Random(seed)
        bound = rng.randrange(SEQUENCE_MAX)
        pages = self.view.pages_below(bound).tolist()
        assert pages == sorted({one >> 16 for one in self.model if one >> 16 << 16 < bound})
        for page in pages:
            members = self.view.members_of(page)
            gone = members[[rng.random() < 0.6 for _ in range(len(members))]]
            if len(gone):
                self.view.forget(page, gone)
                self.model.difference_update(gone.tolist())


@given(steps_of("add", "add", "forget"))
def test_tombstones_when_checkpointed_and_crashed(steps: list[tuple[str, int]]) -> None:
    World().run(steps)
