"""The key index against a list of rows, through checkpoints, merges, crashes and damage."""

import copy
from random import Random

import numpy as np
from hypothesis import given

from storage.files.file_header import Identity
from storage.views.key_index import KeyIndex, KeyState
from storage.views.key_merge import merged
from storage.views.key_rows import Hashes, KeyRows, hash_keys
from tests.support.checkpointed_world import CheckpointedWorld, steps_of

IDENTITY = Identity(bytes(range(16)), 3)
TOPICS = (1, 2)

Model = list[tuple[int, bytes, int, int]]
"""(topic, key, sequence, due_ms)."""


class World(CheckpointedWorld[KeyIndex, Model]):
    def __init__(self) -> None:
        super().__init__([], KeyState())

    def open(self, state: KeyState) -> KeyIndex:
        return KeyIndex.open(self.disk, "keys", IDENTITY, state)

    def state(self) -> KeyState:
        return self.view.state

    def compare(self) -> None:
        view = self.view
        assert view.row_count == len(self.model)
        asked = [(topic, b"k%d" % key) for topic in TOPICS for key in range(12)]
        hashes = hash_keys(*map(list, zip(*asked, strict=True)))
        expected = [self.expected(*one) for one in asked]
        found = view.find(hashes)
        many = set(found.many.tolist())
        rows: dict[int, list[tuple[int, int]]] = {at: [] for at in range(len(asked))}
        for at, *row in zip(
            found.ordinals.tolist(), found.sequences.tolist(), found.due_ms.tolist(), strict=True
        ):
            rows[at].append((row[0], row[1]))
        for at, wanted in enumerate(expected):
            if at in many:
                assert len(wanted) > 16
                rows[at] = self.read_apart(hashes, at)
            assert sorted(rows[at]) == wanted
            below = wanted[len(wanted) // 2][0] + 1 if wanted else 9
            for count in (1, 20):
                newest = view.newest(hashes, at, below, count)
                pairs = [*zip(newest.sequence.tolist(), newest.due_ms.tolist(), strict=True)]
                assert pairs == [row for row in wanted[::-1] if row[0] < below][:count]

    def expected(self, topic: int, key: bytes) -> list[tuple[int, int]]:
        return sorted(row[2:] for row in self.model if row[:2] == (topic, key))

    def read_apart(self, hashes: Hashes, at: int) -> list[tuple[int, int]]:
        pieces = list(self.view.pieces(hashes, at))
        return [
            pair
            for piece in pieces
            for pair in zip(piece.sequence.tolist(), piece.due_ms.tolist(), strict=True)
        ]

    def insert(self, seed: int) -> None:
        rng = Random(seed)
        first = max((row[2] for row in self.model), default=-1) + 1
        spread = rng.choice((1, 3, 13))
        rows = [
            (rng.choice(TOPICS), b"k%d" % rng.randrange(spread), first + at, rng.randrange(1_000))
            for at in range(rng.choice((1, 5, 40)))
        ]
        topics, keys, sequences, due_ms = zip(*rows, strict=True)
        self.view.insert(
            KeyRows(
                *hash_keys(topics, keys),
                np.array(sequences, np.uint64),
                np.array(due_ms, np.int64),
            )
        )
        self.model += rows

    def merge(self, seed: int) -> None:
        """Also trims; not while a checkpoint is under way."""
        rng = Random(seed)
        if self._is_under_way:
            return
        self.finish(seed)
        runs = self.view.plan_merge(rng.choice((1, 2)))
        if not runs:
            return
        floor = rng.choice((0, max((row[2] for row in self.model), default=0)))
        held = {one for run in runs for one in run.sample(1 << 20).sequence.tolist()}

        def kept(rows: KeyRows) -> KeyRows:
            return rows.take(rows.sequence >= np.uint64(floor))

        run_id = self.view.take_run_id()
        total = sum(run.row_count for run in runs)
        run = self.view.write_run(run_id, map(kept, merged(runs, 16)), total)
        replaced = [one.run_id for one in runs]
        self.view.install(runs, run)
        saved = copy.deepcopy(self._durable[1])
        saved = [row for row in saved if row[2] >= floor or row[2] not in held]
        state = self.view.state
        assert not set(replaced) & set(state.run_ids)
        self._durable = (state, saved)
        self.model = [row for row in self.model if row[2] >= floor or row[2] not in held]
        for remove in self.view.removals():
            remove()


@given(steps_of("insert", "insert", "merge"))
def test_key_index_when_checkpointed_merged_and_crashed(steps: list[tuple[str, int]]) -> None:
    World().run(steps)
