"""A wheel with everything around it that it needs, and the naive model it is held against.

The model is a sorted list of keys. Bodies are made from the sequence, so that a wrong byte anywhere
shows. Background jobs run to their end at once, or are thrown away half-done, as the test likes.
"""

from dataclasses import dataclass, field

import numpy as np

from hourwheel.crc32c import crc32c
from hourwheel.types import KEY_MIN, Key
from storage.disk import Disk
from storage.file_header import Identity
from storage.unit import UNIT, Units
from timewheel.bodies import Bodies
from timewheel.compaction import CascadeJob, MergeJob, plan_cascade, plan_merge
from timewheel.flush import FlushJob, Place
from timewheel.levels import day_of
from timewheel.run import open_run
from timewheel.wheel import Wheel, WheelConfig

IDENTITY = Identity(bytes(range(16)), 0)


class MemoryLog:
    """Stands for the commit log where only its bytes matter."""

    def __init__(self) -> None:
        self.data = bytearray()

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def read_many(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        return [self.read(*piece) for piece in zip(offsets, lengths, strict=True)]


def body_of(sequence: int) -> bytes:
    """The body that goes with a sequence: 0 to 200 bytes."""
    return bytes([sequence % 251]) * (sequence * 7 % 201)


@dataclass
class WheelWorld:
    """A wheel over a disk. `pending` is the model: key -> body."""

    disk: Disk
    config: WheelConfig = field(default_factory=WheelConfig)
    pending: dict[Key, bytes] = field(default_factory=dict)
    cursor: Key = KEY_MIN
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.disk.make_dir("wheel")
        self.place = Place(self.disk, "wheel", IDENTITY)
        self.log = MemoryLog()
        self.wheel = Wheel(self.config, self.cursor)
        self.bodies = Bodies(self.disk, "wheel", self.log)
        self.next_sequence = 0
        self.next_run_id = 1
        self.span_start = 0
        self.hour_level_end_day = 0

    def publish(self, due_ms: list[int]) -> None:
        """Append messages to the log and insert those with keys above the cursor."""
        units = np.zeros(len(due_ms), UNIT)
        for row, due in zip(units, due_ms, strict=True):
            body = body_of(self.next_sequence)
            row["due_ms"], row["sequence"] = due, self.next_sequence
            row["position"], row["body_len"] = len(self.log.data), len(body)
            row["crc"], row["attempt"] = crc32c(body), 1
            self.log.data += body
            key = Key(due, self.next_sequence)
            if key > self.cursor:
                self.pending[key] = body
            self.next_sequence += 1
        keys = [Key(int(row["due_ms"]), int(row["sequence"])) for row in units]
        self.wheel.insert(units[[key > self.cursor for key in keys]])

    def take(self, to: Key) -> None:
        """Release up to `to`, and compare order and bodies with the model."""
        units = self.wheel.take(to)
        expected = sorted(key for key in self.pending if key <= to)
        assert keys_of(units) == expected
        blobs, bad = self.bodies.read(units)
        assert not bad
        assert [bytes(blob) for blob in blobs] == [self.pending.pop(key) for key in expected]
        self.cursor = max(self.cursor, to)
        self.now_ms = max(self.now_ms, self.cursor.due_ms)

    def flush(self, *, install: bool = True) -> None:
        """Flush the memtable; without `install` the job's result is thrown away."""
        self.hour_level_end_day = max(
            self.hour_level_end_day, day_of(self.now_ms) + self.config.hour_level_days
        )
        table = self.wheel.freeze()
        job = FlushJob(
            self.place,
            table,
            self.cursor,
            log=self.log,
            span=(self.span_start, len(self.log.data)),
            run_ids=(self.next_run_id, self.next_run_id + 1),
            hour_level_end_day=self.hour_level_end_day,
            heads=self.wheel.runs.heads,
        )
        written = job.run()
        if not install:
            self.wheel.abandon_flush()
            return
        self.next_run_id += 2
        self.span_start = len(self.log.data)
        opened = [
            open_run(self.disk, "wheel", IDENTITY, one.footer.covers_first, one.footer.run_id)
            for one in written
        ]
        self.wheel.install_flush(opened)

    def merge(self) -> bool:
        """Merge what should be merged; whether there was anything."""
        for level in (0, 1):
            runs = plan_merge(self.wheel.runs, level, self.config.merge_run_count)
            if runs:
                job = MergeJob(
                    self.place, runs, self.cursor, heads=self.wheel.runs.heads, slice_units=16
                )
                written = job.run(lambda: None).footer
                self.wheel.runs.remove(runs)
                if written.unit_count:
                    self.wheel.runs.add(
                        open_run(self.disk, "wheel", IDENTITY, written.covers_first, written.run_id)
                    )
                return True
        return False

    def cascade(self) -> bool:
        """Cascade the first day that is due for it; whether there was any."""
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
        written = job.run(lambda: None).footer
        self.next_run_id += 1
        for run in job.sources:
            self.wheel.runs.mark_cascaded(run, day)
        self.wheel.runs.add(
            open_run(self.disk, "wheel", IDENTITY, written.covers_first, written.run_id)
        )
        return True

    def reopen(self) -> None:
        """A new wheel from the runs on disk, with what is not in them inserted again."""
        runs = self.wheel.runs.all()
        table = self.wheel.memtable.units.copy()
        self.wheel = Wheel(self.config, self.cursor)
        for run in runs:
            again = open_run(
                self.disk, "wheel", IDENTITY, run.footer.covers_first, run.footer.run_id
            )
            again.cascaded_days.update(run.cascaded_days)
            self.wheel.runs.add(again)
        keys = [key > self.cursor for key in keys_of(table)]
        self.wheel.insert(table[keys])


def keys_of(units: Units) -> list[Key]:
    """The keys of units, in their order."""
    pairs = zip(units["due_ms"].tolist(), units["sequence"].tolist(), strict=True)
    return [Key(due_ms, sequence) for due_ms, sequence in pairs]
