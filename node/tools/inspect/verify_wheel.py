"""`inspect --verify` of the wheel: every run, every slot directory, every body in the delay logs.

each run         header, footer, tables, directories and blocks by their CRCs; key order; what
                 directories count is what lies in the slots; the manifest says the same
chains           each previous run of an hour to come stands for an older one that exists
delay logs       length as in the manifest
bodies           where each unit points to, log or delay log, lies its message, by its CRC
all together     the pending messages are as many as the manifest says
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint, RunState
from hourwheel.types import Key, Offset
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.indexes import Cancelled
from node.tools.inspect.log import segment_file, segment_starts
from node.tools.inspect.report import READ_ERRORS, Report
from node.tools.inspect.wheel import WHEEL, open_run
from storage.files.disk import File
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.views.moved import Moved
from storage.views.unit import Units, count_to, is_sorted, join
from timewheel.levels import BUCKET_MS, SLOT_MS, SLOTS
from timewheel.run import Run
from timewheel.run_format import BLOCK_UNITS, delay_log_path, run_path, unit_at

_CHUNK_UNITS: Final = 64 * BLOCK_UNITS
_PIECE_BYTES_MAX: Final = 4 << 20
_GAP_BYTES_MAX: Final = 16_384
_NOTHING: Final = Key(-(1 << 62), 0)
_FAR: Final = 1 << 62
"""Behind the end of every file."""


class Blobs:
    """Verifies the bytes that units point to, in delay logs and in the log; keeps files open."""

    def __init__(self, files: ShardFiles, log_start: Offset) -> None:
        """`log_start`: where the commit log begins."""
        self._shard, self._log_start = files, log_start
        self._segments: NDArray[np.uint64] | None = None
        self._files: dict[str, File] = {}

    def verify(self, units: Units, of: str, report: Report) -> None:
        """Check each unit's bytes: at its place, and nowhere else, lies its message.

        Args:
            units: any.
            of: the file that they are in.
            report: for the damage.
        """
        in_log = units["dlog_id"] == 0
        lost = in_log & (units["position"] < self._log_start)
        if lost.any():
            at = int(units["position"][lost].min())
            report.damaged(of, None, f"needs offset {at} of a log that begins at {self._log_start}")
        for number in np.unique(units["dlog_id"][~in_log]).tolist():
            path = delay_log_path(self._shard.path(WHEEL), number)
            chosen = units[units["dlog_id"] == number]
            self._verify(chosen, of, (path, FileType.DELAY_LOG, 0), report)
        self._verify_in_log(units[in_log & ~lost], of, report)

    def _verify_in_log(self, units: Units, of: str, report: Report) -> None:
        if not len(units):
            return
        if self._segments is None:
            self._segments = np.array(segment_starts(self._shard), np.uint64)
        owners = np.searchsorted(self._segments, units["position"], "right") - 1
        if int(owners.min()) < 0:
            report.damaged(of, None, "needs bytes of the log, and no segment has them")
        for owner in np.unique(owners[owners >= 0]).tolist():
            start = Offset(int(self._segments[owner]))
            path = segment_file(self._shard, start)
            shift = FILE_HEADER_BYTES - start
            place = (path, FileType.LOG_SEGMENT, shift)
            self._verify(units[owners == owner], of, place, report)

    def _verify(
        self, units: Units, of: str, place: tuple[str, FileType, int], report: Report
    ) -> None:
        """Units that point into one file: (path, type, from their positions to its bytes)."""
        path, file_type, shift = place
        try:
            file = self._files.get(path)
            if file is None:
                file, _ = self._shard.open_checked(path, file_type)
                self._files[path] = file
            ordered = units[np.argsort(units["position"], kind="stable")]
            self._compare(ordered, of, (path, shift), report)
        except READ_ERRORS as error:
            report.caught(error, path)

    def _compare(self, units: Units, of: str, place: tuple[str, int], report: Report) -> None:
        """Units that point into an open file, by position."""
        path, shift = place
        file = self._files[path]
        size = file.size()
        starts = np.minimum(units["position"], np.uint64(_FAR)).astype(np.int64) + shift
        lengths = units["body_len"].astype(np.int64) + units["meta_len"]
        crcs, sequences = units["crc"].tolist(), units["sequence"].tolist()
        is_inside = (starts >= FILE_HEADER_BYTES) & (starts + lengths <= size)
        for index in np.flatnonzero(~is_inside).tolist():
            report.damaged(
                path,
                None,
                f"message {sequences[index]} of {of} should be at byte {int(starts[index])}, and"
                f" the file has {size}",
            )
        inside = np.flatnonzero(is_inside)
        starts, lengths = starts[inside], lengths[inside]
        for low, high in _pieces(starts, starts + lengths):
            first = int(starts[low])
            raw = memoryview(file.pread(int((starts + lengths)[low:high].max()) - first, first))
            for index in range(low, high):
                at, whose = int(starts[index]) - first, int(inside[index])
                blob = raw[at : at + int(lengths[index])]
                if len(blob) != lengths[index] or crc32c(blob) != crcs[whose]:
                    why = f"message {sequences[whose]} of {of} fails its CRC32C"
                    report.damaged(path, first + at, why)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.popitem()[1].close()


def _pieces(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """[low, high) of units that one read serves."""
    low = 0
    for index in range(1, len(starts)):
        is_far = starts[index] - ends[index - 1] > _GAP_BYTES_MAX
        if is_far or ends[index] - starts[low] > _PIECE_BYTES_MAX:
            yield low, index
            low = index
    if len(starts):
        yield low, len(starts)


def verify_wheel(
    files: ShardFiles, manifest: Checkpoint, report: Report, *, log_start: Offset
) -> None:
    """Verify everything in the wheel's folder that the manifest names."""
    _verify_delay_logs(files, manifest, report)
    blobs = Blobs(files, log_start)
    pending, moved = 0, Moved(manifest.moved)
    moved_here = [np.empty(0, np.uint64)]
    chains = [Chain(manifest, level) for level in range(len(SLOTS))]
    try:
        cancelled = Cancelled(files, manifest)
    except READ_ERRORS:
        cancelled = None  # the check of the tombstones reports it
    try:
        for state in manifest.runs:
            path = run_path(files.path(WHEEL), state.covers_first, state.run_id)
            try:
                run = open_run(files, path, manifest)
            except READ_ERRORS as error:
                report.caught(error, path)
                continue
            for units in verify_run(run, state, report, chains[state.level]):
                blobs.verify(units, path, report)
                ahead = units[count_to(units, manifest.cursor.due_ms, manifest.cursor.sequence) :]
                if cancelled is not None:
                    ahead = ahead[~cancelled.contains(ahead["sequence"])]
                    ahead, current = _live(ahead, moved)
                    pending += len(ahead)
                    moved_here.append(current)
            run.close()
    finally:
        blobs.close()
    pending += len(np.unique(np.concatenate(moved_here)))
    if report.is_good and cancelled is not None and pending != manifest.pending_count:
        report.damaged(
            files.path(WHEEL),
            None,
            f"the runs hold {pending} pending messages, and the manifest counts"
            f" {manifest.pending_count}",
        )


def _live(units: Units, moved: Moved) -> tuple[Units, NDArray[np.uint64]]:
    """(units of messages that were not moved, or were given back; sequences of other live ones).

    Several live entries may be of one message: it was moved away and back.
    """
    rows = moved.find(np.ascontiguousarray(units["sequence"]))
    is_first = rows.are_moved & (units["attempt"] <= 1)
    is_current = is_first & (units["attempt"] == 0) & (units["due_ms"] == rows.due_ms)
    return units[~is_first], units["sequence"][is_current]


def _verify_delay_logs(files: ShardFiles, manifest: Checkpoint, report: Report) -> None:
    for state in manifest.delay_logs:
        path = delay_log_path(files.path(WHEEL), state.delay_log_id)
        try:
            file, header = files.open_checked(path, FileType.DELAY_LOG)
            with closing(file):
                size = file.size()
            if header.base != state.delay_log_id:
                report.damaged(path, 0, f"is number {header.base} by its header")
            if size != state.bytes:
                report.damaged(path, min(size, state.bytes), f"has {size} bytes, not {state.bytes}")
        except READ_ERRORS as error:
            report.caught(error, path)


# --- one run ------------------------------------------------------------------------------------


class Chain:
    """Which runs of a level a link of a chain may lead to, as a manifest has them."""

    def __init__(self, manifest: Checkpoint, level: int) -> None:
        """Of one level."""
        ranges = [(one.covers_first, one.run_id) for one in manifest.runs if one.level == level]
        self._ranges = sorted(ranges)
        self._past_ms = manifest.cursor.due_ms
        self._bucket_ms = BUCKET_MS[level]
        self._known: dict[int, bool] = {0: True}

    def is_past(self, bucket: int) -> bool:
        """Whether runs of a bucket may be gone already."""
        return bucket * self._bucket_ms <= self._past_ms

    def stands(self, number: int) -> bool:
        """Whether some run stands for this number; 0 is the end of a chain."""
        found = self._known.get(number)
        if found is None:
            found = any(first <= number <= last for first, last in self._ranges)
            self._known[number] = found
        return found


def verify_run(
    run: Run, state: RunState, report: Report, chain: Chain | None = None
) -> Iterator[Units]:
    """Verify a run; yields the units that are its own, in key order, some thousands at once.

    Args:
        run: which.
        state: what the manifest says of it.
        report: for the damage.
        chain: of its level; None: links are not followed.
    """
    footer, path = run.footer, run.path
    expected = (state.level, state.unit_count, state.due_ms_min, state.due_ms_max)
    found = (footer.level, footer.unit_count, footer.due_ms_min, footer.due_ms_max)
    if expected != found:
        report.damaged(path, None, f"level, units, first and last due are {found}, not {expected}")
    next_index, order, waiting = 0, _Order(path, report), _Waiting()
    for section in run.sections:
        bucket, first, count = int(section["bucket"]), int(section["first"]), int(section["count"])
        if first != next_index:
            report.damaged(path, None, f"bucket {bucket} begins at unit {first}, not {next_index}")
        next_index = first + count
        is_own = bucket not in run.cascaded_days
        counts = np.zeros(SLOTS[footer.level], np.int64)
        try:
            for units in _chunks(run, first, min(next_index, footer.unit_count)):
                order.follow(units, first)
                counts += _count_slots(units, footer.level, bucket, path, report)
                if is_own:
                    yield from waiting.add(units)
            if is_own:
                _verify_directory(run, bucket, first, counts, report, chain)
        except READ_ERRORS as error:
            report.caught(error, path)
    yield from waiting.rest()
    if next_index != footer.unit_count:
        report.damaged(path, None, f"has {footer.unit_count} units, and buckets of {next_index}")
    if report.is_good and footer.unit_count and order.ends != found[2:]:
        report.damaged(path, None, f"begins and ends at {order.ends}, not {found[2:]}")


class _Waiting:
    """Units of small buckets, until there are enough to be worth a look."""

    def __init__(self) -> None:
        self._parts: list[Units] = []
        self._count = 0

    def add(self, units: Units) -> Iterator[Units]:
        self._parts.append(units)
        self._count += len(units)
        if self._count >= _CHUNK_UNITS:
            yield from self.rest()

    def rest(self) -> Iterator[Units]:
        parts, self._parts, self._count = self._parts, [], 0
        if parts:
            yield join(parts)


class _Order:
    """That the keys of a run never fall."""

    def __init__(self, path: str, report: Report) -> None:
        self._path, self._report = path, report
        self._last = _NOTHING
        self.ends = (0, 0)
        """Due times of the first and the last unit."""

    def follow(self, units: Units, index: int) -> None:
        begins = Key(int(units["due_ms"][0]), int(units["sequence"][0]))
        if begins < self._last or not is_sorted(units):
            self._report.damaged(self._path, unit_at(index), "its units are not in key order")
        first = begins.due_ms if self._last == _NOTHING else self.ends[0]
        self._last = Key(int(units["due_ms"][-1]), int(units["sequence"][-1]))
        self.ends = (first, self._last.due_ms)


def _chunks(run: Run, first: int, end: int) -> Iterator[Units]:
    while first < end:
        units = run.read(first, min(first + _CHUNK_UNITS, end))
        yield units
        first += len(units)


def _count_slots(
    units: Units, level: int, bucket: int, path: str, report: Report
) -> NDArray[np.int64]:
    inside = units["due_ms"] - bucket * BUCKET_MS[level]
    if int(inside.min()) < 0 or int(inside.max()) >= BUCKET_MS[level]:
        report.damaged(path, None, f"bucket {bucket} has units of another one")
        return np.zeros(SLOTS[level], np.int64)
    return np.bincount(inside // SLOT_MS[level], minlength=SLOTS[level])


def _verify_directory(
    run: Run,
    bucket: int,
    first: int,
    counts: NDArray[np.int64],
    report: Report,
    chain: Chain | None,
) -> None:
    directory = run.directory(bucket)
    if directory is None:
        raise errors.CorruptFile(f"bucket {bucket} has no slot directory", file=run.path)
    starts = first + np.cumsum(counts) - counts
    if (directory["count"] != counts).any() or (directory["first"] != starts).any():
        report.damaged(
            run.path, None, f"the slot directory of bucket {bucket} counts other units than it has"
        )
    links = set(directory["previous_run"].tolist())
    newer = max(links) >= run.footer.covers_first
    if newer or (
        chain is not None and not chain.is_past(bucket) and not all(map(chain.stands, links))
    ):
        report.damaged(
            run.path, None, f"the chain of bucket {bucket} does not lead to an older run"
        )
