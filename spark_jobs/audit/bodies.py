"""Whether queue entries and pending units point to their messages' bytes, by their CRC.

A message has one place: an offset of the log, or a byte of a delay log, and one CRC over its
metadata and body. Where the log says at which offset a message lies, `checks.entries` compares that
number, and reads nothing. What is left is read here, in the order of the places: delay logs, and
of a log whose beginning is gone also the log. So a flipped bit in a delay log is found, too.

Delay logs that are missing or short are found by `checks.wheel.delay_log_faults`.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c_each, split
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.wheel import (
    DelayLogs,
    WheelRange,
    delay_log_faults,
    plan_delay_logs,
    plan_wheel,
    read_wheel,
)
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.shard import ShardState
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.queue_reader import QueueRange, plan_queues, read_queue
from spark_jobs.logs.replica import ERROR, SegmentFile
from spark_jobs.runtime.paths import open_disk
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES
from storage.views.unit import Units

Array = NDArray[Any]
_PIECE_BYTES: Final = 4 << 20
_GAP_BYTES: Final = 16_384
_WRONG_MAX: Final = 100
"""At most so many of one range are reported."""
_FAR: Final = np.uint64(1 << 62)
"""Behind the end of every file."""


class BodyTask(NamedTuple):
    """Units of one node whose messages are looked for; picklable."""

    node: str
    logs: DelayLogs
    queue: QueueRange | None = None
    wheel: WheelRange | None = None
    segments: tuple[SegmentFile, ...] = ()
    """Of the log, if what lies there is to be read as well."""


class WrongBody(NamedTuple):
    """A unit that points to other bytes than its message's."""

    file: str
    """That the unit is in."""
    sequence: int
    position: int
    """In the queue; -1: the unit is in a run."""
    due_ms: int
    topic_queue: int
    detail: str


class _Place(NamedTuple):
    """A file that units point into."""

    path: str
    shift: int
    """From what units say to bytes of the file."""


def check_bodies(state: ShardState) -> None:
    """Look at the messages of every replica's queues and runs, as far as its checkpoint goes."""
    began, tasks = state.now_ms(), list[BodyTask]()
    for replica, copy in state.copies:
        manifest = copy.manifest
        if manifest is None or not copy.applied_offset:
            continue
        logs = plan_delay_logs(replica, copy, manifest)
        segments = () if state.is_whole else copy.segments
        queues = plan_queues(replica, copy)
        tasks += [BodyTask(replica.node, logs, queue=one, segments=segments) for one in queues]
        runs = plan_wheel(replica, copy, manifest)
        tasks += [BodyTask(replica.node, logs, wheel=one, segments=copy.segments) for one in runs]
    for task, part in zip(tasks, state.runner.map(find_wrong, tasks), strict=True):
        for one in part:
            topic = state.line.name_of(one.topic_queue >> QUEUE_BITS)
            state.add(body_finding(one, state.shard, task.node, topic))
    state.timed("bodies", began)


def find_wrong(task: BodyTask) -> list[WrongBody]:
    """Those units whose bytes are not their messages'."""
    disk, found = open_disk(task.logs.uri), list[WrongBody]()
    lost = {path for path, _ in delay_log_faults(task.logs)}
    for file, first, units in _units_of(task):
        for place, chosen in _places_of(task, units):
            if len(found) >= _WRONG_MAX:
                return found
            if place is not None and place.path in lost:
                continue
            mine = units[chosen]
            for at, why in _wrong_in(disk, place, mine, is_reported=task.wheel is not None):
                unit = mine[at]
                found.append(
                    WrongBody(
                        file,
                        int(unit["sequence"]),
                        -1 if first < 0 else first + int(chosen[at]),
                        int(unit["due_ms"]),
                        int(unit["topic_queue"]),
                        why,
                    )
                )
    return found


def body_finding(one: WrongBody, shard: int, node: str, topic: str) -> Finding:
    """The finding that it is."""
    where = f"queue {one.topic_queue:08x}"
    where += f", position {one.position}" if one.position >= 0 else ", pending"
    return Finding(
        ERROR,
        "body-wrong",
        shard,
        node,
        one.file,
        sequence=one.sequence,
        position=one.position,
        topic=topic,
        due_ms=one.due_ms,
        detail=f"{where}: {one.detail}",
    )


def _units_of(task: BodyTask) -> Iterator[tuple[str, int, Units]]:
    """(file, position of the first or -1, units) of a task, piece by piece."""
    if task.queue is not None:
        for piece in read_queue(task.queue):
            if not isinstance(piece, Damage):
                yield piece.file, piece.first_position, piece.units
    if task.wheel is not None:
        try:
            for units in read_wheel(task.wheel):
                yield task.wheel.path, -1, units
        except (errors.HourwheelError, OSError):
            return  # `sum_wheel` tells


def _places_of(task: BodyTask, units: Units) -> Iterator[tuple[_Place | None, Array]]:
    """(file, ordinals of the units that point into it); None: the checkpoint has no such file."""
    known = {number for number, _ in task.logs.sizes}
    for number in np.unique(units["dlog_id"]).tolist():
        chosen = np.flatnonzero(units["dlog_id"] == number)
        if number:
            path = task.logs.path(number)
            yield (_Place(path, 0) if number in known else None), chosen
        elif task.segments:
            starts = np.array([one.start_offset for one in task.segments], np.uint64)
            owner = np.searchsorted(starts, units["position"][chosen], "right") - 1
            for index in np.unique(owner[owner >= 0]).tolist():
                segment = task.segments[index]
                place = _Place(segment.path, FILE_HEADER_BYTES - segment.start_offset)
                yield place, chosen[owner == index]


def _wrong_in(
    disk: Disk, place: _Place | None, units: Units, *, is_reported: bool
) -> Iterator[tuple[int, str]]:
    """(ordinal, why) of the units of one file whose bytes are not their messages'.

    `is_reported`: `checks.wheel` has a finding already for what lies outside of all files.
    """
    if place is None:
        if is_reported:
            return
        for at in range(min(len(units), _WRONG_MAX)):
            yield at, f"it points into delay log {int(units['dlog_id'][at])}, which there is not"
        return
    order = np.argsort(units["position"], kind="stable")
    starts = np.minimum(units["position"], _FAR).astype(np.int64)[order] + place.shift
    sizes = units["body_len"].astype(np.int64)[order] + units["meta_len"][order]
    crcs = units["crc"][order]
    try:
        with closing(disk.open(place.path)) as file:
            end = file.size()
            for low, high in _pieces(starts, starts + sizes):
                first = max(int(starts[low]), 0)
                last = min(int((starts + sizes)[low:high].max()), end)
                raw = file.pread(max(0, last - first), first)
                mine = _crcs(raw, starts[low:high] - first, sizes[low:high])
                wrong = (mine != crcs[low:high]) & ((mine >= 0) | (not is_reported))
                for at in np.flatnonzero(wrong).tolist():
                    where = int(starts[low + at])
                    why = f"the {int(sizes[low + at])} bytes at {where} of {place.path} are not"
                    yield int(order[low + at]), f"{why} its message's, by their CRC32C"
    except (errors.HourwheelError, OSError):
        return  # the check of that file itself reports it


def _crcs(raw: bytes, starts: Array, sizes: Array) -> Array:
    """int64[n]: CRC32C of each; -1 where a part of it is not there."""
    found = np.full(len(starts), -1, np.int64)
    is_there = (starts >= 0) & (starts + sizes <= len(raw))
    if is_there.all() and bool((starts[1:] == starts[:-1] + sizes[:-1]).all()):
        found[:] = crc32c_each(split(raw, int(starts[0]), sizes))
        return found
    view = memoryview(raw)
    there = np.flatnonzero(is_there)
    spans = zip(starts[there].tolist(), (starts + sizes)[there].tolist(), strict=True)
    found[there] = crc32c_each([view[low:high] for low, high in spans])
    return found


def _pieces(starts: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """[low, high) of units that one read serves."""
    if not len(starts):
        return
    is_far = np.flatnonzero(starts[1:] - ends[:-1] > _GAP_BYTES) + 1
    for begin, stop in zip([0, *is_far.tolist()], [*is_far.tolist(), len(starts)], strict=True):
        low = begin
        while low < stop:
            high = int(np.searchsorted(ends[low:stop], starts[low] + _PIECE_BYTES, "right")) + low
            high = max(low + 1, high)
            yield low, high
            low = high
