"""Merging runs of keys: everything comes, in order, and little of it is in memory."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from storage.views.key_merge import merged
from storage.views.key_rows import KeyRows, in_order, joined
from storage.views.key_run import BLOCK_ROWS, KeyRun
from tests.sim.disk import SimulatedDisk
from tests.unit.storage.views.test_key_run import rows_of, write


def runs_of(parts: list[tuple[list[int], int]]) -> list[KeyRun]:
    """A run for each (keys, first sequence)."""
    disk = SimulatedDisk()
    return [write(disk, [rows_of(*part)], number) for number, part in enumerate(parts, 1)]


def held_rows(runs: list[KeyRun], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, KeyRows]]:
    """(rows that were read and not given yet, before a slice; the slice)."""
    count = 0
    read = KeyRun.read

    def counted(run: KeyRun, first: int, end: int) -> KeyRows:
        nonlocal count
        rows = read(run, first, end)
        count += rows.size
        return rows

    monkeypatch.setattr(KeyRun, "read", counted)
    for rows in merged(runs, 1_024):
        yield count, rows
        count -= rows.size
    assert count == 0


def places(rows: KeyRows) -> list[tuple[int, int]]:
    return [*zip(rows.high.tolist(), rows.sequence.tolist(), strict=True)]


def test_merged_when_runs_are_many() -> None:
    runs = runs_of([(list(range(at, 400, 3)), 1_000 * at) for at in range(3)])
    slices = list(merged(runs, 50))
    assert len(slices) > 1
    assert places(joined(slices)) == sorted(one for run in runs for one in places(run.sample(99)))


@pytest.mark.parametrize("overlap", [False, True])
def test_merged_when_one_key_is_on_very_many_messages_has_few_rows_in_memory(
    overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = Random(3)
    parts = [
        (
            [5] * 9_000 + [chooser.randrange(90) for _ in range(1_000)],
            (2_000 if overlap else 10_000) * (7 - at),
        )
        for at in range(8)
    ]
    runs = runs_of(parts)
    expected = in_order(joined([run.sample(1 << 20) for run in runs[::-1]]), by_sequence=False)
    found = []
    for held, rows in held_rows(runs, monkeypatch):
        assert held <= 1_024 + 8 * BLOCK_ROWS
        found.append(rows)
    assert places(joined(found)) == places(expected)


def test_merged_when_the_rows_of_a_key_are_in_no_order_loses_none() -> None:
    rows = rows_of([5] * 700)
    shuffled = rows.take(np.array(Random(1).sample(range(700), 700)))
    disk = SimulatedDisk()
    runs = [write(disk, [shuffled], 1), write(disk, [rows_of([5] * 700, 300)], 2)]
    found = joined(list(merged(runs, 128)))
    assert sorted(found.sequence.tolist()) == sorted([*range(700), *range(300, 1_000)])


def test_merged_when_there_is_nothing() -> None:
    assert list(merged([], 100)) == []
