"""A wheel with everything around it that it needs, and the naive model it is held against.

The model is a bag of keys with the queues they go to. Bodies are made from the sequence, so that a
wrong byte anywhere shows. Background jobs run at once, but what they wrote is put in place when the
test says so, and may be thrown away; power may fail at any operation of the disk.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np

from hourwheel.crc32c import crc32c
from hourwheel.types import FIRST_OFFSET, FIRST_SHARD, KEY_MIN, SEQUENCE_MAX, Key, Offset
from storage.files.file_header import Identity
from storage.views.unit import NO_UNITS, UNIT, UNIT_BYTES, Units, is_sorted
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from timewheel.bodies import Bodies
from timewheel.compaction import CascadeJob, MergeJob, plan_cascade, plan_merge
from timewheel.flush import FlushJob, FlushSource, Place, WrittenRun
from timewheel.levels import DAY_MS, HOUR_MS, day_of
from timewheel.memtable import within
from timewheel.run import Run, open_run
from timewheel.run_format import delay_log_path
from timewheel.wheel import Wheel, WheelConfig

IDENTITY = Identity(bytes(range(16)), FIRST_SHARD)
DIRECTORY: Final = "wheel"
START_MS: Final = 20_000 * DAY_MS + 10 * HOUR_MS
"""Ten o'clock of some day."""
END: Final = Key(1 << 62, 0)
"""Above every message."""
Entry = tuple[Key, int]
"""(key, topic_queue) of a unit: one key may be pending for several groups."""


class MemoryLog:
    """Stands for the commit log where only its bytes matter."""

    def __init__(self) -> None:
        self.data = bytearray()

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def read_many(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        return [self.read(*each) for each in zip(offsets, lengths, strict=True)]

    def locate(self, offset: int) -> tuple[str, int]:
        return "log/memory", offset


def body_of(sequence: int) -> bytes:
    """The body that goes with a sequence: 0 to 200 bytes."""
    return bytes([sequence % 251]) * (sequence * 7 % 201)


@dataclass
class Job:
    """A background job that has run: `install` puts its result in place, `abandon` does not."""

    install: Callable[[], None]
    abandon: Callable[[], None]


@dataclass
class WheelWorld:
    """A wheel over a disk. `pending` is the model."""

    disk: SimulatedDisk
    config: WheelConfig = field(default_factory=WheelConfig)
    cursor: Key = KEY_MIN
    now_ms: int = 0
    pending: Counter[Entry] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.disk.make_dir(DIRECTORY)
        self.place = Place(self.disk, DIRECTORY, IDENTITY)
        self.log = MemoryLog()
        self.wheel = Wheel(self.config, self.cursor)
        self.bodies = Bodies(self.disk, DIRECTORY, self.log)
        self.released: deque[Units] = deque(maxlen=50)
        self.next_sequence = 0
        self.next_run_id = 1
        self.span_start = FIRST_OFFSET
        self.hour_level_end_day = 0
        self.job: Job | None = None
        self._delay_logs: set[str] = set()

    # -- in and out -------------------------------------------------------------------------------

    def publish(self, due_ms: list[int]) -> None:
        """Append messages to the log and insert those with keys above the cursor."""
        count = len(due_ms)
        sequences = range(self.next_sequence, self.next_sequence + count)
        bodies = [body_of(sequence) for sequence in sequences]
        units = np.zeros(count, UNIT)
        units["due_ms"], units["sequence"] = due_ms, sequences
        units["body_len"] = [len(body) for body in bodies]
        units["position"] = len(self.log.data) + np.cumsum(units["body_len"]) - units["body_len"]
        units["crc"] = [crc32c(body) for body in bodies]
        units["attempt"], units["topic_queue"] = 1, 0x0100
        self.log.data += b"".join(bodies)
        self.next_sequence += count
        self._insert(units)

    def give_back(self, ordinal: int, due_ms: int, groups: int) -> None:
        """Some groups want a message again that was released before, at the same moment."""
        if not self.released:
            return
        units = np.repeat(self.released[ordinal % len(self.released)], groups)
        units["due_ms"] = due_ms
        units["attempt"] += 1
        units["topic_queue"] = 0x0200 + np.arange(groups)
        self._insert(units)

    def _insert(self, units: Units) -> None:
        waiting = within(units, self.cursor, END)
        self.wheel.insert(waiting)
        self.pending.update(entries_of(waiting))

    def pending_keys(self, to: Key = END) -> list[Key]:
        """The keys that are pending up to `to`, in order."""
        return sorted(key for key, _ in self.pending.elements() if key <= to)

    def take(self, to: Key) -> None:
        """Release up to `to`, and compare order and bodies with the model."""
        units = self.wheel.take(to)
        assert is_sorted(units)
        expected = Counter({one: count for one, count in self.pending.items() if one[0] <= to})
        assert Counter(entries_of(units)) == expected
        self.pending -= expected
        blobs, bad = self.bodies.read(units)
        assert not bad
        assert [bytes(one) for one in blobs] == [body_of(one) for one in units["sequence"].tolist()]
        self.released += [units[low : low + 1].copy() for low in range(len(units))][-50:]
        self.cursor = max(self.cursor, to)
        self.now_ms = max(self.now_ms, self.cursor.due_ms)

    # -- background jobs --------------------------------------------------------------------------

    def flush(self, *, install: bool = True) -> None:
        """Flush the memtable; without `install` the job's result is thrown away."""
        self.begin_flush()
        self.end_job(install=install)

    def merge(self) -> bool:
        """Merge what should be merged; whether there was anything."""
        found = self.begin_merge()
        self.end_job()
        return found

    def cascade(self) -> bool:
        """Cascade the first day that is due for it; whether there was any."""
        found = self.begin_cascade()
        self.end_job()
        return found

    def end_job(self, *, install: bool = True) -> None:
        """Put in place what the job wrote that is under way, if one is; or throw it away."""
        job, self.job = self.job, None
        if job is not None:
            (job.install if install else job.abandon)()

    def begin_flush(self, **limits: int) -> None:
        """Flush the memtable; whole runs that are past go with it. `limits`: of FlushJob."""
        past = [run for run in self.wheel.runs.all() if self._is_past(run)]
        self.wheel.runs.remove(past)
        self.hour_level_end_day = max(
            self.hour_level_end_day, day_of(self.now_ms) + self.config.hour_level_days
        )
        span_end = Offset(len(self.log.data))
        job = FlushJob(
            self.place,
            FlushSource(self.wheel.freeze(), self.cursor, self.log, (self.span_start, span_end)),
            run_ids=(self.next_run_id, self.next_run_id + 1),
            hour_level_end_day=self.hour_level_end_day,
            heads=self.wheel.runs.heads,
            **limits,
        )
        written = job.run()

        def install() -> None:
            self.next_run_id += 2
            self.span_start = span_end
            self.wheel.install_flush([self._open(one) for one in written])

        def abandon() -> None:
            self.wheel.abandon_flush()
            for run in past:
                self.wheel.runs.add(run)

        self.job = Job(install, abandon)

    def _is_past(self, run: Run) -> bool:
        return run.footer.due_ms_max < self.cursor.due_ms or not run.buckets()

    def begin_merge(self) -> bool:
        """Merge what should be merged; whether there is anything."""
        for level in (0, 1):
            runs = plan_merge(self.wheel.runs, level, self.config.merge_run_count)
            if runs:
                self._merge(runs)
                return True
        return False

    def _merge(self, runs: list[Run]) -> None:
        job = MergeJob(self.place, runs, self.cursor, heads=self.wheel.runs.heads, slice_units=16)
        written = job.run(lambda: None)

        def install() -> None:
            self.wheel.runs.remove(runs)
            if written.footer.unit_count:
                self.wheel.runs.add(self._open(written))

        self.job = Job(install, lambda: None)

    def begin_cascade(self) -> bool:
        """Cascade the first day that is due for it; whether there is any."""
        day = plan_cascade(self.wheel.runs, self.hour_level_end_day)
        if day is None:
            return False
        job = CascadeJob(
            self.place,
            day,
            self.wheel.runs,
            run_id=self.next_run_id,
            log=self.log,
            slice_units=16,
        )
        written = job.run(lambda: None)

        def install() -> None:
            self.next_run_id += 1
            for run in job.sources:
                self.wheel.runs.mark_cascaded(run, day)
            self.wheel.runs.add(self._open(written))

        self.job = Job(install, lambda: None)
        return True

    def _open(self, written: WrittenRun) -> Run:
        footer = written.footer
        if written.delay_log_id:
            self._delay_logs.add(delay_log_path(DIRECTORY, written.delay_log_id))
        return open_run(self.disk, DIRECTORY, IDENTITY, footer.covers_first, footer.run_id)

    # -- ends and beginnings ----------------------------------------------------------------------

    def reopen(self) -> None:
        """A new wheel from the runs that are in place, with what is not in them inserted again.

        A job under way leaves files that nothing names; they are removed. The log makes the
        memtables again.
        """
        self.job = None
        frozen = self.wheel.frozen.units if self.wheel.frozen else NO_UNITS
        units = np.concatenate([frozen, self.wheel.memtable.units])
        runs = self.wheel.runs.all()
        self.wheel = Wheel(self.config, self.cursor)
        self.bodies = Bodies(self.disk, DIRECTORY, self.log)
        named = {run.path for run in runs} | self._delay_logs
        for name in self.disk.list(DIRECTORY):
            if f"{DIRECTORY}/{name}" not in named:
                self.disk.remove(f"{DIRECTORY}/{name}")
        for run in runs:
            footer = run.footer
            again = open_run(self.disk, DIRECTORY, IDENTITY, footer.covers_first, footer.run_id)
            again.cascaded_days.update(run.cascaded_days)
            self.wheel.runs.add(again)
        self.wheel.insert(within(units, self.cursor, END))

    def lose_power(self, rng: Random) -> None:
        """Power fails, and comes back."""
        self.disk.crash(rng)
        self.reopen()

    def lose_power_in(
        self, begin: Callable[[], object], at: int, rng: Random, *, takes_effect: bool
    ) -> bool:
        """Begin a job, and lose power at its `at`-th durability operation; whether it has one."""
        self.disk.fail_after(at, takes_effect=takes_effect)
        try:
            begin()
        except SimulatedCrash:
            self.lose_power(rng)
            return True
        self.disk.kill()
        self.reopen()
        return False

    # -- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of `Wheel` and `Near`. Reads all runs."""
        self.check_near()
        wheel = self.wheel
        tables = [wheel.memtable] if wheel.frozen is None else [wheel.frozen, wheel.memtable]
        held = [table.units for table in tables]
        for run in wheel.runs.all():
            held += [run.read(*run.section(bucket)) for bucket in run.buckets()]
        waiting = [within(units, self.cursor, END) for units in held]
        assert entries_in(waiting) == self.pending

    def check_near(self) -> None:
        """Assert that the near level is what is pending up to its frontier."""
        near = self.wheel.near
        assert near.frontier >= self.cursor
        expected = Counter({e: n for e, n in self.pending.items() if e[0] <= near.frontier})
        assert entries_in(near.arrays()) == expected
        assert near.count == expected.total()


def keys_of(units: Units) -> list[Key]:
    """The keys of units, in their order."""
    pairs = zip(units["due_ms"].tolist(), units["sequence"].tolist(), strict=True)
    return [Key(due_ms, sequence) for due_ms, sequence in pairs]


def entries_of(units: Units) -> list[Entry]:
    """Keys and queues of units, in their order."""
    return list(zip(keys_of(units), units["topic_queue"].tolist(), strict=True))


def entries_in(arrays: list[Units]) -> Counter[Entry]:
    """How often each entry is in all of these together."""
    return Counter(entry for units in arrays for entry in entries_of(units))


def world_at_start(
    *, near_units: int = 1_000_000, load_units: int = 50, merge_run_count: int = 2
) -> WheelWorld:
    """An empty wheel at START_MS, with a small memtable, and loads of `load_units`."""
    config = WheelConfig(
        near_bytes_max=near_units * UNIT_BYTES,
        load_units=load_units,
        memtable_units_max=64,
        merge_run_count=merge_run_count,
    )
    return WheelWorld(SimulatedDisk(), config, after(0), START_MS)


def after(delay_ms: int) -> Key:
    """The last key of the millisecond that is so long after START_MS."""
    return Key(START_MS + delay_ms, SEQUENCE_MAX)
