"""The delay index of a replica, summed up to be compared with what the log has pending.

A checkpoint at applied offset A names runs; what they hold above the cursor, and what is not
cancelled by the checkpoint's tombstones, must be exactly the messages that were pending at A. Runs
are read in pieces of some hundred thousand units; what a piece gives is a count and a hash sum for
each due hour. Only where an hour differs are its units read again, one by one.

Of the delay logs, which hold the bodies of what is pending, it is checked that they are there, and
long enough for each unit. The CRCs of bodies are left to `hourwheel inspect --verify`.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import ShardId
from spark_jobs.audit.checks.directories import Directories
from spark_jobs.audit.facts.sums import HOUR_MS, HourSums, hash_units, tries_of
from spark_jobs.logs.replica import Replica, ShardCopy
from spark_jobs.logs.tombstone_reader import Marks, plan_marks, read_marks
from spark_jobs.runtime.paths import open_disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.views.bit_pages import BitPages
from storage.views.moved import Moved
from storage.views.unit import Units, pick
from timewheel.run import Run, open_run
from timewheel.run_format import BLOCK_UNITS, delay_log_path

Array = NDArray[Any]
_READ_UNITS: Final = 256 * BLOCK_UNITS
_TASK: Final = 1 << 20
_LOST_MAX: Final = 10
"""At most so many units of one piece whose bodies are gone are reported."""


class WheelRange(NamedTuple):
    """Units [first, end) of one run of one node; picklable."""

    uri: str
    node: str
    shard: int
    cluster: str
    folder: str
    """Of the shard."""
    covers_first: int
    run_id: int
    first: int
    end: int
    unit_count: int
    """Of the run, by the manifest."""
    cascaded_days: tuple[int, ...]
    cursor: tuple[int, int]
    marks: Marks
    """What is cancelled."""
    log_start: int
    first_sequence: int = 0
    """Above 0: units of older messages, and retries, do not count."""
    delay_logs: tuple[tuple[int, int], ...] = ()
    """(number, bytes) of those that exist, by the manifest."""
    moved: bytes = b""
    """What was moved to another due time, by the manifest: as storage/views/moved.py packs it."""

    @property
    def path(self) -> str:
        """The run's file in the node's directory."""
        return f"{self.folder}/wheel/{self.covers_first:010d}-{self.run_id:010d}.run"


@dataclass
class WheelPart:
    """What a range, or several together, give."""

    units: int = 0
    """Pending ones."""
    sums: HourSums = field(default_factory=HourSums)
    moved: list[Array] = field(default_factory=list)
    """UNIT_ROW[n] each: entries of moved messages, which are not in `sums`. A message that was
    moved back may have several, in different runs."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(file, why): what could not be read."""
    lost: list[tuple[str, int, str]] = field(default_factory=list)
    """(file, sequence, why): a unit that points to bytes that are gone."""
    misled: list[tuple[str, str]] = field(default_factory=list)
    """(file, why): a slot directory that does not lead to its units."""

    def merge(self, other: "WheelPart") -> None:
        """Take in what another one has."""
        self.units += other.units
        self.sums = self.sums.plus(other.sums)
        self.moved += other.moved
        self.faults += other.faults
        self.lost += other.lost
        self.misled += other.misled

    def settle_moved(self) -> None:
        """All parts are together: sum up each moved message once."""
        rows = np.unique(np.concatenate([np.empty(0, UNIT_ROW), *self.moved]))
        self.moved = []
        if len(rows):
            self.units += len(rows)
            self.sums = self.sums.plus(
                HourSums.of(
                    rows["due_ms"],
                    rows["sequence"],
                    rows["store_ms"],
                    rows["topic_queue"],
                    rows["facts"],
                    rows["tries"],
                )
            )


def plan_wheel(
    replica: Replica, copy: ShardCopy, manifest: Checkpoint, *, first_sequence: int = 0
) -> list[WheelRange]:
    """The pieces of all runs that a checkpoint names.

    Args:
        replica: the node.
        copy: of the shard.
        manifest: its checkpoint.
        first_sequence: of a log that does not begin at 0: older messages, and all retries, are left
            out, because the log does not tell about them.
    """
    return [
        WheelRange(
            replica.uri,
            replica.node,
            copy.shard,
            replica.cluster_id.hex(),
            copy.folder,
            run.covers_first,
            run.run_id,
            first,
            min(first + _TASK, run.unit_count),
            run.unit_count,
            tuple(run.cascaded_days),
            (manifest.cursor.due_ms, manifest.cursor.sequence),
            plan_marks(replica, copy, manifest),
            copy.start_offset,
            first_sequence,
            tuple((one.delay_log_id, one.bytes) for one in manifest.delay_logs),
            manifest.moved,
        )
        for run in manifest.runs
        for first in range(0, run.unit_count, _TASK)
    ]


def sum_wheel(where: WheelRange, cancelled: BitPages | None = None) -> WheelPart:
    """Sum up one range. `cancelled`: its checkpoint's tombstones; None: they are read."""
    part = WheelPart()
    try:
        for found in read_wheel(where, cancelled, misled=part.misled):
            part.lost += _lost_bodies(found, where)
            was_moved = found["attempt"] == 0
            part.moved.append(_rows_of(pick(found, was_moved)))
            units = pick(found, ~was_moved) if was_moved.any() else found
            part.units += len(units)
            part.sums = part.sums.plus(
                HourSums.of(
                    units["due_ms"],
                    units["sequence"],
                    units["store_ms"],
                    units["topic_queue"],
                    hash_units(
                        units["tag_gene"], units["crc"], units["body_len"], units["meta_len"]
                    ),
                    tries_of(units["attempt"], units["origin_topic"], units["topic_queue"]),
                )
            )
    except (errors.HourwheelError, OSError) as error:
        file = error.params.get("file", "") if isinstance(error, errors.HourwheelError) else ""
        part.faults.append((file or where.path, str(error)))
    return part


def _lost_bodies(units: Units, where: WheelRange) -> list[tuple[str, int, str]]:
    """Some of the units whose meta and body are in no file."""
    ids, starts = units["dlog_id"], units["position"]
    in_log = ids == 0
    below = np.flatnonzero(in_log & (starts < where.log_start))
    found = [(at, f"points to offset {int(starts[at])} of a log that begins later") for at in below]
    names = np.array([0, *(number for number, _ in where.delay_logs)], np.int64)
    sizes = np.array([0, *(size for _, size in where.delay_logs)], np.uint64)
    order = np.argsort(names, kind="stable")
    names, sizes = names[order], sizes[order]
    place = np.minimum(np.searchsorted(names, ids), len(names) - 1)
    ends = starts + units["body_len"] + units["meta_len"]
    outside = ~in_log & ((names[place] != ids) | (ends > sizes[place]))
    found += [
        (at, f"points to byte {int(starts[at])} of delay log {int(ids[at])}, which is not there")
        for at in np.flatnonzero(outside)
    ]
    return [(where.path, int(units["sequence"][at]), why) for at, why in found[:_LOST_MAX]]


class DelayLogs(NamedTuple):
    """The delay logs of one node's shard, by its checkpoint; picklable."""

    uri: str
    shard: int
    cluster: str
    folder: str
    """Of the shard."""
    sizes: tuple[tuple[int, int], ...]
    """(number, bytes)."""

    def path(self, number: int) -> str:
        """A delay log's file in the node's directory."""
        return delay_log_path(f"{self.folder}/wheel", number)


def plan_delay_logs(replica: Replica, copy: ShardCopy, manifest: Checkpoint) -> DelayLogs:
    """What there is to look at."""
    sizes = tuple((one.delay_log_id, one.bytes) for one in manifest.delay_logs)
    return DelayLogs(replica.uri, copy.shard, replica.cluster_id.hex(), copy.folder, sizes)


def delay_log_faults(logs: DelayLogs) -> list[tuple[str, str]]:
    """(file, why) of each delay log that is missing, foreign, or not as long as it must be."""
    disk, found = open_disk(logs.uri), list[tuple[str, str]]()
    identity = Identity(bytes.fromhex(logs.cluster), ShardId(logs.shard))
    for number, size in logs.sizes:
        path = logs.path(number)
        try:
            with closing(disk.open(path)) as file:
                head, there = file.pread(FILE_HEADER_BYTES, 0), file.size()
            check_file_header(head, path, FileType.DELAY_LOG, identity, number)
        except FileNotFoundError:
            found.append((path, "it is missing, and bodies of messages are in it"))
        except (errors.HourwheelError, OSError) as error:
            found.append((path, str(error)))
        else:
            if there != size:
                found.append((path, f"it has {there} bytes, and {size} by the checkpoint"))
    return found


def read_wheel(
    where: WheelRange,
    cancelled: BitPages | None = None,
    *,
    misled: list[tuple[str, str]] | None = None,
) -> Iterator[Units]:
    """The pending units of a range, in pieces.

    Args:
        where: the range.
        cancelled: its checkpoint's tombstones; None: they are read.
        misled: gets (file, why) of slot directories that do not lead to the units; None: they are
            not looked at.

    Raises:
        CorruptFile: the run or the tombstones are missing or damaged.
    """
    disk = open_disk(where.uri)
    if cancelled is None:
        cancelled = read_marks(disk, where.marks)
    moved = Moved(where.moved)
    identity = Identity(bytes.fromhex(where.cluster), ShardId(where.shard))
    run = open_run(disk, f"{where.folder}/wheel", identity, where.covers_first, where.run_id)
    with closing(run):
        if run.footer.unit_count != where.unit_count:
            raise errors.CorruptFile(
                f"{where.path} has {run.footer.unit_count} units, and {where.unit_count} by the"
                " checkpoint",
                file=where.path,
            )
        directories = Directories(run, where.cursor[0], where.cascaded_days)
        if misled is not None:
            directories.verify(where.first, where.end)
        for first, end in _own(run, where):
            for low in range(first, end, _READ_UNITS):
                units = run.read(low, min(low + _READ_UNITS, end))
                if misled is not None:
                    directories.follow(units, low)
                due, sequence = units["due_ms"], units["sequence"]
                due_ms, last = where.cursor
                ahead = (due > due_ms) | ((due == due_ms) & (sequence > np.uint64(last)))
                ahead &= ~cancelled.contains(sequence) & ~_are_left(units, moved)
                if where.first_sequence:
                    ahead &= (sequence >= np.uint64(where.first_sequence)) & (units["attempt"] <= 1)
                yield units if ahead.all() else pick(units, ahead)
        if misled is not None:
            misled += [(where.path, why) for why in directories.faults]


def _are_left(units: Units, moved: Moved) -> NDArray[np.bool_]:
    """bool[n]: which units lie where their message was before it was moved away."""
    rows = moved.find(np.ascontiguousarray(units["sequence"]))
    is_there = (units["attempt"] == 0) & (units["due_ms"] == rows.due_ms)
    found: NDArray[np.bool_] = rows.are_moved & (units["attempt"] <= 1) & ~is_there
    return found


def _own(run: Run, where: WheelRange) -> Iterator[tuple[int, int]]:
    """[first, end) of the range's units that are the run's own: cascaded days are not."""
    cascaded = set(where.cascaded_days)
    if not cascaded:
        yield where.first, where.end
        return
    for section in run.sections:
        if int(section["bucket"]) not in cascaded:
            first = max(where.first, int(section["first"]))
            end = min(where.end, int(section["first"]) + int(section["count"]))
            if first < end:
                yield first, end


UNIT_KEY: Final = np.dtype([("sequence", "<u8"), ("due_ms", "<i8"), ("topic_queue", "<u4")])

UNIT_ROW: Final = np.dtype(
    [*UNIT_KEY.descr, ("store_ms", "<i8"), ("facts", "<u4"), ("tries", "<u8")]
)
"""All that a unit says, as `HourSums` sum it up."""


def _rows_of(units: Units) -> Array:
    """UNIT_ROW[n] of n units."""
    rows = np.zeros(len(units), UNIT_ROW)
    for name in (*(UNIT_KEY.names or ()), "store_ms"):
        rows[name] = units[name]
    rows["facts"] = hash_units(
        units["tag_gene"], units["crc"], units["body_len"], units["meta_len"]
    )
    rows["tries"] = tries_of(units["attempt"], units["origin_topic"], units["topic_queue"])
    return rows


def keys_of_hours(where: WheelRange, hours: list[int]) -> tuple[Array, Array]:
    """(UNIT_ROW[n], UNIT_ROW[m]): the pending units of a range that are due in some hours.

    The second are entries of moved messages, of which others may have the same.
    """
    found, moved = [np.empty(0, UNIT_ROW)], [np.empty(0, UNIT_ROW)]
    for units in read_wheel(where):
        chosen = units[np.isin(units["due_ms"] // HOUR_MS, hours)]
        was_moved = chosen["attempt"] == 0
        found.append(_rows_of(pick(chosen, ~was_moved)))
        moved.append(_rows_of(pick(chosen, was_moved)))
    return np.concatenate(found), np.concatenate(moved)


def unit_keys(rows: Array) -> Array:
    """UNIT_KEY[n] of rows that have these fields."""
    keys = np.zeros(len(rows), UNIT_KEY)
    for name in UNIT_KEY.names or ():
        keys[name] = rows[name]
    return keys


def not_in(mine: Array, theirs: Array) -> Array:
    """UNIT_KEY rows of `mine`, sorted, that `theirs` has fewer times."""
    names, counts = np.unique(mine, return_counts=True)
    others, their_counts = np.unique(theirs, return_counts=True)
    at = np.searchsorted(others, names) if len(others) else np.zeros(len(names), np.int64)
    at = np.minimum(at, max(len(others) - 1, 0))
    there = np.zeros(len(names), np.int64)
    if len(others):
        there = np.where(others[at] == names, their_counts[at], 0)
    return names[counts > there]
