from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from storage.views.unit import Units, join, sort_by_key
from tests.sim.disk import SimulatedDisk
from tests.support.runs import KeyPair, keyed, pairs_of, write_run
from timewheel.levels import (
    BUCKET_MS,
    DAY_LEVEL,
    DAY_MS,
    HOUR_LEVEL,
    HOUR_MS,
    SECOND_MS,
    SLOT_MS,
    SLOTS,
    SLOTS_PER_DAY,
)
from timewheel.run import Run
from timewheel.run_set import RunSet

HOURS = [10, 11, 12, 34, 35, 58]
"""Of three days: few, so that runs share buckets and slots."""
DUE_MS = st.builds(
    lambda hour, second, ms: hour * HOUR_MS + second * SECOND_MS + ms,
    st.sampled_from(HOURS),
    st.sampled_from([0, 1, 3_599]),
    st.sampled_from([0, 999]),
)
KEYS = st.lists(st.tuples(DUE_MS, st.integers(0, 9)), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("flush"), st.sampled_from([HOUR_LEVEL, DAY_LEVEL]), KEYS),
        st.tuples(st.just("merge"), st.sampled_from([HOUR_LEVEL, DAY_LEVEL]), st.integers(0, 60)),
        st.tuples(st.just("cascade"), st.integers(0, 2), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 9), st.none()),
    ),
    max_size=12,
)


class RunSetBesideLists:
    """Does what flushes, merges and cascades do to a `RunSet`, and asks all units instead."""

    def __init__(self) -> None:
        self.disk, self.runs, self.ids = SimulatedDisk(), RunSet(), count(1)

    def write(self, level: int, units: Units, run_id: int, covers_first: int) -> Run:
        return write_run(
            self.disk,
            sort_by_key(units),
            level=level,
            run_id=run_id,
            covers_first=covers_first,
            heads=lambda bucket: self.runs.heads(level, bucket, covers_first),
        )

    def flush(self, level: int, keys: Iterable[KeyPair]) -> Run:
        number = next(self.ids)
        run = self.write(level, keyed(keys), number, number)
        self.runs.add(run)
        return run

    def merge(self, level: int, from_hour: int) -> None:
        """The two oldest become one, without what is past."""
        old = self.runs.of_level(level)[:2]
        if len(old) < 2:
            return
        units = join([run.read(*run.section(bucket)) for run in old for bucket in run.buckets()])
        first_bucket = from_hour * HOUR_MS // BUCKET_MS[level]
        kept = units[units["due_ms"] // BUCKET_MS[level] >= first_bucket]
        merged = self.write(level, kept, old[1].footer.run_id, old[0].footer.covers_first)
        self.runs.remove(old)
        if len(kept):
            self.runs.add(merged)

    def cascade(self, day: int, _: None) -> None:
        sources = self.runs.with_bucket(DAY_LEVEL, day)
        if sources:
            units = join([run.read(*run.section(day)) for run in sources])
            number = next(self.ids)
            run = self.write(HOUR_LEVEL, units, number, number)
            for source in sources:
                self.runs.mark_cascaded(source, day)
            self.runs.add(run)

    def drop(self, ordinal: int, _: None) -> None:
        runs = self.runs.all()
        if runs:
            self.runs.remove([runs[ordinal % len(runs)]])

    def dues_of(self, run: Run) -> list[int]:
        return [
            due_ms
            for bucket in run.buckets()
            for due_ms, _ in pairs_of(run.read(*run.section(bucket)))
        ]

    def check(self) -> None:
        by_level = {level: self.runs.of_level(level) for level in (HOUR_LEVEL, DAY_LEVEL)}
        dues = {run: self.dues_of(run) for run in self.runs.all()}
        assert self.runs.all() == [*by_level[HOUR_LEVEL], *by_level[DAY_LEVEL]]
        hours = sorted({due // HOUR_MS for each in dues.values() for due in each})
        for hour in [*HOURS, 0, 9, 13, 59]:
            assert self.runs.next_hour(hour) == min(
                (one for one in hours if one >= hour), default=None
            )
            self.check_hour(hour, dues)
        of_days = [due for run in by_level[DAY_LEVEL] for due in dues[run]]
        assert self.runs.first_day() == min((due // DAY_MS for due in of_days), default=None)
        for day in range(3):
            expected = sorted({due // HOUR_MS for due in of_days if due // DAY_MS == day})
            assert self.runs.hours_of_day(day) == expected
        for level, runs in by_level.items():
            for bucket in {due // BUCKET_MS[level] for run in runs for due in dues[run]}:
                self.check_bucket(level, bucket, dues)

    def check_hour(self, hour: int, dues: dict[Run, list[int]]) -> None:
        found = [
            (run, due)
            for run, first, end in self.runs.pieces_of_hour(hour)
            for due, _ in pairs_of(run.read(first, end))
        ]
        expected = [(run, due) for run in dues for due in dues[run] if due // HOUR_MS == hour]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        seconds = {due % HOUR_MS // SECOND_MS for _, due in found}
        occupied = set(np.flatnonzero(self.runs.occupied_seconds(hour)).tolist())
        has_days = any(run.footer.level == DAY_LEVEL for run, _ in found)
        assert occupied == (set(range(3_600)) if has_days else seconds)

    def check_bucket(self, level: int, bucket: int, dues: dict[Run, list[int]]) -> None:
        """Heads and chain of each slot, against all runs of the level, newest first."""
        newest_first = self.runs.of_level(level)[::-1]
        for slot in (0, 1, 10, 11, 12, SLOTS[level] - 1):
            start = bucket * BUCKET_MS[level] + slot * SLOT_MS[level]
            having = [
                run
                for run in newest_first
                if any(start <= due < start + SLOT_MS[level] for due in dues[run])
            ]
            if level == HOUR_LEVEL:
                assert self.runs.chain(bucket, slot) == having
            for before in (1 << 32, *(run.footer.covers_first for run in newest_first)):
                older = [run for run in having if run.footer.run_id < before]
                head = int(self.runs.heads(level, bucket, before)[slot])
                # What it names may be merged or gone by now, but nothing is passed over.
                assert head < before
                assert (head >= older[0].footer.covers_first) if older else True


@given(STEPS)
def test_run_set_when_runs_come_merge_cascade_and_go(steps: list[tuple[str, Any, Any]]) -> None:
    world = RunSetBesideLists()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()


def at(hour: int, second: int = 0) -> KeyPair:
    return hour * HOUR_MS + second * SECOND_MS, 0


def ids(runs: list[Run]) -> list[int]:
    return [run.footer.run_id for run in runs]


def test_chain_when_a_merge_lost_the_hour_goes_on_behind_it() -> None:
    # Run 4 was flushed when 2 and 3 had the hour, which 2-3 left out when they were merged; run 1,
    # which was too big to be merged with them, has it still.
    world = RunSetBesideLists()
    world.flush(HOUR_LEVEL, [at(10, 7)])
    middle = [world.flush(HOUR_LEVEL, [at(10, 7), at(12)]) for _ in range(2)]
    world.flush(HOUR_LEVEL, [at(10, 7)])
    assert ids(world.runs.chain(10, 7)) == [4, 3, 2, 1]
    merged = world.write(HOUR_LEVEL, keyed([at(12), at(12)]), 3, 2)
    world.runs.remove(middle)
    world.runs.add(merged)
    assert ids(world.runs.chain(10, 7)) == [4, 1]
    assert ids(world.runs.chain(12, 0)) == [3]


def test_chain_when_a_merge_lost_all_of_its_hours_goes_on_behind_it() -> None:
    world = RunSetBesideLists()
    world.flush(HOUR_LEVEL, [at(10, 7)])
    middle = [world.flush(HOUR_LEVEL, [at(10, 7)]) for _ in range(2)]
    world.flush(HOUR_LEVEL, [at(10, 8)])  # knows the heads of slots that it has no units in
    world.runs.remove(middle)
    assert ids(world.runs.chain(10, 7)) == [1]
    assert ids(world.runs.chain(10, 8)) == [4]
    assert ids(world.runs.chain(10, 9)) == []


def test_chain_when_run_is_merged_leads_to_what_stands_for_it() -> None:
    world = RunSetBesideLists()
    for _ in range(2):
        world.flush(HOUR_LEVEL, [at(10, 7)])
    world.flush(HOUR_LEVEL, [at(10, 7)])
    world.merge(HOUR_LEVEL, 0)
    assert ids(world.runs.chain(10, 7)) == [3, 2]
    assert world.runs.resolve(HOUR_LEVEL, 1) is world.runs.resolve(HOUR_LEVEL, 2)
    assert world.runs.resolve(HOUR_LEVEL, 4) is None
    assert world.runs.resolve(DAY_LEVEL, 1) is None


def test_next_hour_when_a_day_run_has_one_between_those_of_hour_runs() -> None:
    world = RunSetBesideLists()
    world.flush(HOUR_LEVEL, [at(10), at(14)])
    world.flush(DAY_LEVEL, [at(12), at(30)])
    found = [world.runs.next_hour(hour) for hour in (-1, 10, 11, 12, 13, 14, 15, 30, 31)]
    assert found == [10, 10, 12, 12, 14, 14, 30, 30, None]


def test_next_hour_when_all_of_todays_day_units_are_past_looks_at_the_next_day() -> None:
    world = RunSetBesideLists()
    world.flush(DAY_LEVEL, [at(1), at(2 * SLOTS_PER_DAY)])
    assert world.runs.next_hour(2) == 2 * SLOTS_PER_DAY


def test_buckets_when_a_day_has_cascaded_are_gone_at_the_day_level() -> None:
    world = RunSetBesideLists()
    run = world.flush(DAY_LEVEL, [at(1), at(25)])
    world.runs.mark_cascaded(run, 0)
    assert world.runs.first_day() == 1
    assert world.runs.with_bucket(DAY_LEVEL, 0) == []
    assert world.runs.pieces_of_hour(1) == []
    assert world.runs.hours_of_day(0) == []
    assert world.runs.next_hour(0) == 25


def test_add_when_runs_come_in_any_order_keeps_the_oldest_first() -> None:
    disk, runs = SimulatedDisk(), RunSet()
    for run_id, covers_first in [(9, 9), (2, 1), (8, 3)]:
        runs.add(write_run(disk, keyed([at(10)]), run_id=run_id, covers_first=covers_first))
    assert ids(runs.all()) == [2, 8, 9]
    assert ids(runs.with_bucket(HOUR_LEVEL, 10)) == [2, 8, 9]


def test_version_when_nothing_is_removed_stays_and_with_each_change_is_another() -> None:
    world = RunSetBesideLists()
    versions = [world.runs.version]
    run = world.flush(DAY_LEVEL, [at(1), at(25)])
    versions.append(world.runs.version)
    world.runs.mark_cascaded(run, 0)
    versions.append(world.runs.version)
    world.runs.remove([])
    world.runs.remove([write_run(world.disk, keyed([at(10)]), run_id=9)])
    assert world.runs.version == versions[-1]
    world.runs.remove([run])
    assert len({*versions, world.runs.version}) == 4


def test_change_when_there_are_many_runs_looks_at_the_buckets_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, runs, asked = SimulatedDisk(), RunSet(), list[int]()
    written = [write_run(disk, keyed([at(10), at(11)]), run_id=one) for one in range(1, 30)]
    buckets_of = Run.buckets

    def counted(run: Run) -> list[int]:
        asked.append(run.footer.run_id)
        return buckets_of(run)

    monkeypatch.setattr(Run, "buckets", counted)
    for run in written:
        runs.add(run)
    runs.remove(written[3:5])
    assert asked == [*range(1, 30), 4, 5]


@pytest.mark.parametrize(("covers_first", "run_id"), [(3, 3), (1, 1), (2, 5), (0, 1), (0, 9)])
def test_add_when_ranges_overlap_stops(covers_first: int, run_id: int) -> None:
    disk, runs = SimulatedDisk(), RunSet()
    runs.add(write_run(disk, keyed([at(10)]), run_id=3, covers_first=1))
    with pytest.raises(errors.InvariantViolated):
        runs.add(write_run(disk, keyed([at(10)]), run_id=run_id, covers_first=covers_first))


def test_add_when_ranges_of_two_levels_overlap() -> None:
    world, runs = RunSetBesideLists(), RunSet()
    runs.add(world.write(HOUR_LEVEL, keyed([at(10)]), 3, 1))
    runs.add(write_run(world.disk, keyed([at(10)]), level=DAY_LEVEL, run_id=2))
    assert [run.footer.run_id for run in runs.all()] == [3, 2]


def test_lists_when_changed_by_the_caller_leave_the_set_alone() -> None:
    world = RunSetBesideLists()
    world.flush(HOUR_LEVEL, [at(10)])
    world.flush(DAY_LEVEL, [at(40)])
    for found in (
        world.runs.all(),
        world.runs.of_level(HOUR_LEVEL),
        world.runs.with_bucket(HOUR_LEVEL, 10),
    ):
        found.clear()
    world.check()
    assert len(world.runs.all()) == 2
