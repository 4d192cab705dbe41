"""The slot directories of runs: whether a node that follows them comes upon every unit.

A directory says at which ordinal of its run the units of each second (or hour) begin, how many they
are, and which older run of the level has units there as well. What lies before the cursor is not
looked up any more.

    units    each lies in the stretch that its slot is said to have, and the stretches are no longer
             than the section: so they are exactly the units of their slots
    chains   from each run on, no older run that has units of a slot is left out
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import ShardId
from spark_jobs.logs.replica import Replica, ShardCopy
from spark_jobs.runtime.paths import open_disk
from storage.files.file_header import Identity
from storage.views.unit import Units
from timewheel.levels import BUCKET_MS, SLOT_MS
from timewheel.run import Run, open_run
from timewheel.run_format import Slots, run_path

Array = NDArray[Any]
_REPORTED_MAX: Final = 20
"""Of one run."""


class Directories:
    """Holds a run's units against its directories, as they are read."""

    def __init__(self, run: Run, cursor_ms: int, cascaded_days: tuple[int, ...]) -> None:
        """Sections that the node does not look into any more are not checked."""
        self._run, self._level = run, run.footer.level
        rows = run.sections
        ends_ms = (rows["bucket"] + 1) * BUCKET_MS[self._level]
        self._live = rows[(ends_ms > cursor_ms) & ~np.isin(rows["bucket"], list(cascaded_days))]
        self._known: dict[int, Slots] = {}
        self.faults: list[str] = []

    def verify(self, first: int, end: int) -> None:
        """Read the directories of sections that begin in [first, end).

        Raises:
            CorruptFile: one fails its CRC32C.
        """
        for row in self._live:
            if first <= int(row["first"]) < end:
                bucket, count = int(row["bucket"]), int(row["count"])
                total = int(self._slots(bucket)["count"].sum(dtype=np.int64))
                if total != count:
                    self._tell(bucket, f"counts {total} units of the {count} that there are")

    def follow(self, units: Units, first: int) -> None:
        """Hold units that lie one behind the other in the run against them.

        Args:
            units: UNIT[n].
            first: ordinal in the run of the first one.

        Raises:
            CorruptFile: see `verify`.
        """
        end = first + len(units)
        begins, counts = self._live["first"].astype(np.int64), self._live["count"]
        for row in self._live[(begins < end) & (begins + counts > first)]:
            low = max(first, int(row["first"]))
            high = min(end, int(row["first"]) + int(row["count"]))
            self._follow_section(int(row["bucket"]), units[low - first : high - first], low)

    def _follow_section(self, bucket: int, units: Units, first: int) -> None:
        slots, level = self._slots(bucket), self._level
        inside = units["due_ms"] - bucket * BUCKET_MS[level]
        is_inside = (inside >= 0) & (inside < BUCKET_MS[level])
        slot = np.where(is_inside, inside, 0) // SLOT_MS[level]
        ordinals = np.arange(first, first + len(units))
        begins = slots["first"].astype(np.int64)[slot]
        is_led_to = (begins <= ordinals) & (ordinals < begins + slots["count"][slot])
        lost = np.flatnonzero(~is_inside | ~is_led_to)
        if len(lost):
            sequence = int(units["sequence"][lost[0]])
            self._tell(
                bucket, f"leads past {len(lost)} of its units, sequence {sequence} the first"
            )

    def _slots(self, bucket: int) -> Slots:
        found = self._known.get(bucket)
        if found is None:
            found = errors.required(self._run.directory(bucket), "a section has a directory")
            self._known = {bucket: found}  # they come one behind the other
        return found

    def _tell(self, bucket: int, what: str) -> None:
        if len(self.faults) < _REPORTED_MAX:
            self.faults.append(f"the slot directory of bucket {bucket} {what}")


class ChainTask(NamedTuple):
    """All runs of one node, by its checkpoint; picklable."""

    uri: str
    shard: int
    cluster: str
    folder: str
    """Of the wheel."""
    cursor_ms: int
    runs: tuple[tuple[int, int, int, tuple[int, ...]], ...]
    """(level, covers_first, run_id, cascaded days)."""


def plan_chains(replica: Replica, copy: ShardCopy, manifest: Checkpoint) -> ChainTask:
    """What there is to follow."""
    return ChainTask(
        replica.uri,
        copy.shard,
        replica.cluster_id.hex(),
        f"{copy.folder}/wheel",
        manifest.cursor.due_ms,
        tuple(
            (one.level, one.covers_first, one.run_id, tuple(one.cascaded_days))
            for one in manifest.runs
        ),
    )


def broken_chains(task: ChainTask) -> list[tuple[str, str]]:
    """(file, why) of each run from which the chain leaves an older run's units out.

    A file that cannot be read at all is left to `checks.wheel`, which reads the units.
    """
    found: list[tuple[str, str]] = []
    disk, identity = open_disk(task.uri), Identity(bytes.fromhex(task.cluster), ShardId(task.shard))
    for level in sorted({one[0] for one in task.runs}):
        with ExitStack() as opened:
            runs: list[Run] = []
            mine = sorted((last, first, days) for at, first, last, days in task.runs if at == level)
            try:
                for run_id, covers_first, cascaded in mine:
                    run = open_run(disk, task.folder, identity, covers_first, run_id)
                    opened.callback(run.close)
                    run.cascaded_days = set(cascaded)
                    runs.append(run)
                for run, why in _skips(runs, task.cursor_ms):
                    path = run_path(task.folder, run.footer.covers_first, run.footer.run_id)
                    found.append((path, why))
            except (errors.HourwheelError, OSError):
                continue
    return found


def _skips(runs: list[Run], cursor_ms: int) -> Iterator[tuple[Run, str]]:
    """(run, why) of chains that are broken. `runs`: of one level, oldest first."""
    heads: dict[int, Array] = {}
    """Bucket -> the least that `previous_run` of each slot may be: the newest run seen so far that
    has units there, by the first number that it stands for."""
    for run in runs:
        for bucket in run.buckets():
            if (bucket + 1) * BUCKET_MS[run.footer.level] <= cursor_ms:
                continue
            slots = errors.required(run.directory(bucket), "a section has a directory")
            least = heads.get(bucket)
            if least is None:
                least = np.zeros(len(slots), np.int64)
            links = slots["previous_run"].astype(np.int64)
            wrong = np.flatnonzero((links < least) | (links >= run.footer.covers_first))
            if len(wrong):
                at, link = int(wrong[0]), int(links[wrong[0]])
                why = f"from slot {at} of bucket {bucket} its chain leads to run {link}, "
                why += (
                    f"past run {int(least[at])}, which has units there"
                    if link < least[at]
                    else "which is not an older one"
                )
                yield run, f"{why}; so do {len(wrong)} slots"
            heads[bucket] = np.where(slots["count"] > 0, run.footer.covers_first, least)
