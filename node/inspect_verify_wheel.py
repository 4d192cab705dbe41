"""`inspect --verify` of the wheel: every run, every slot directory, every body in the delay logs.

each run         header, footer, tables, directories and blocks by their CRCs; key order; what
                 directories count is what lies in the slots; the manifest says the same
chains           each previous run of an hour to come stands for an older one that exists
delay logs       length as in the manifest; each message's CRC, by the units that point to it
all together     the pending messages are as many as the manifest says
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import Key
from hourwheel.wire.state_pb2 import Checkpoint, RunState
from node.inspect_files import ShardFiles
from node.inspect_indexes import Cancelled
from node.inspect_report import READ_ERRORS, Report
from node.inspect_wheel import WHEEL, open_run
from storage.disk import File
from storage.file_header import FileType
from storage.unit import Units, count_to, is_sorted
from timewheel.levels import BUCKET_MS, SLOT_MS, SLOTS
from timewheel.run import Run
from timewheel.run_format import BLOCK_UNITS, Slots, delay_log_path, run_path, unit_at

_CHUNK_UNITS: Final = 64 * BLOCK_UNITS
_PIECE_BYTES_MAX: Final = 4 << 20
_GAP_BYTES_MAX: Final = 16_384
_NOTHING: Final = Key(-(1 << 62), 0)


class Blobs:
    """Verifies the bytes in delay logs that units point to; keeps their files open."""

    def __init__(self, files: ShardFiles, log_start: int) -> None:
        """`log_start`: where the commit log begins."""
        self._shard, self._log_start = files, log_start
        self._files: dict[int, File] = {}

    def verify(self, units: Units, of: str, report: Report) -> None:
        """Check each unit's bytes; those in the commit log are under its own CRCs.

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
            chosen = units[units["dlog_id"] == number]
            path = delay_log_path(self._shard.path(WHEEL), number)
            try:
                self._verify(chosen[np.argsort(chosen["position"], kind="stable")], number, report)
            except READ_ERRORS as error:
                report.caught(error, path)

    def _verify(self, units: Units, number: int, report: Report) -> None:
        """Units of one delay log, by position."""
        path = delay_log_path(self._shard.path(WHEEL), number)
        file = self._files.get(number)
        if file is None:
            file, _ = self._shard.open_checked(path, FileType.DELAY_LOG)
            self._files[number] = file
        starts = units["position"].astype(np.int64)
        lengths = units["body_len"].astype(np.int64) + units["meta_len"]
        crcs, sequences = units["crc"].tolist(), units["sequence"].tolist()
        for low, high in _pieces(starts, starts + lengths):
            first = int(starts[low])
            raw = memoryview(file.pread(int((starts + lengths)[low:high].max()) - first, first))
            for index in range(low, high):
                at = int(starts[index]) - first
                blob = raw[at : at + int(lengths[index])]
                if len(blob) != lengths[index] or crc32c(blob) != crcs[index]:
                    report.damaged(path, first + at, f"message {sequences[index]} fails its CRC32C")

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
    files: ShardFiles, manifest: Checkpoint, report: Report, *, log_start: int
) -> None:
    """Verify everything in the wheel's folder that the manifest names."""
    _verify_delay_logs(files, manifest, report)
    blobs = Blobs(files, log_start)
    pending, runs = 0, list[tuple[RunState, Run]]()
    try:
        cancelled = Cancelled(files, manifest)
    except READ_ERRORS:
        cancelled = None  # told by those who verify the tombstones
    try:
        for state in manifest.runs:
            path = run_path(files.path(WHEEL), state.covers_first, state.run_id)
            try:
                run = open_run(files, path, manifest)
            except READ_ERRORS as error:
                report.caught(error, path)
                continue
            runs.append((state, run))
            for units in verify_run(run, state, report):
                blobs.verify(units, path, report)
                ahead = units[count_to(units, manifest.cursor.due_ms, manifest.cursor.sequence) :]
                if cancelled is not None:
                    pending += int((~cancelled.contains(ahead["sequence"])).sum())
        _verify_chains(runs, manifest, report)
    finally:
        blobs.close()
        for _, run in runs:
            run.close()
    if report.is_good and cancelled is not None and pending != manifest.pending_count:
        report.damaged(
            files.path(WHEEL),
            None,
            f"the runs hold {pending} pending messages, and the manifest counts"
            f" {manifest.pending_count}",
        )


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


def verify_run(run: Run, state: RunState, report: Report) -> Iterator[Units]:
    """Verify a run; yields the units that are its own, in key order, chunk by chunk."""
    footer, path = run.footer, run.path
    told = (state.level, state.unit_count, state.due_ms_min, state.due_ms_max)
    found = (footer.level, footer.unit_count, footer.due_ms_min, footer.due_ms_max)
    if told != found:
        report.damaged(path, None, f"level, units, first and last due are {found}, not {told}")
    next_index, last, ends = 0, _NOTHING, list[int]()
    for section in run.sections:
        bucket, first, count = int(section["bucket"]), int(section["first"]), int(section["count"])
        if first != next_index:
            report.damaged(path, None, f"bucket {bucket} begins at unit {first}, not {next_index}")
        next_index = first + count
        is_own = bucket not in run.cascaded_days
        counts = np.zeros(SLOTS[footer.level], np.int64)
        try:
            for units in _chunks(run, first, min(next_index, footer.unit_count)):
                last = _verify_order(units, last, path, first, report)
                counts += _count_slots(units, footer.level, bucket, path, report)
                ends += [int(units["due_ms"][0]), int(units["due_ms"][-1])]
                if is_own:
                    yield units
            if is_own:
                _verify_directory(run, bucket, first, counts, report)
        except READ_ERRORS as error:
            report.caught(error, path)
    if next_index != footer.unit_count:
        report.damaged(path, None, f"has {footer.unit_count} units, and buckets of {next_index}")
    if ends and report.is_good and (ends[0], ends[-1]) != found[2:]:
        report.damaged(path, None, f"begins and ends at {ends[0]} and {ends[-1]}")


def _chunks(run: Run, first: int, end: int) -> Iterator[Units]:
    while first < end:
        units = run.read(first, min(first + _CHUNK_UNITS, end))
        yield units
        first += len(units)


def _verify_order(units: Units, last: Key, path: str, index: int, report: Report) -> Key:
    """That keys do not fall; gives the last one."""
    begins = Key(int(units["due_ms"][0]), int(units["sequence"][0]))
    if begins < last or not is_sorted(units):
        report.damaged(path, unit_at(index), "its units are not in key order")
    return Key(int(units["due_ms"][-1]), int(units["sequence"][-1]))


def _count_slots(
    units: Units, level: int, bucket: int, path: str, report: Report
) -> NDArray[np.int64]:
    inside = units["due_ms"] - bucket * BUCKET_MS[level]
    if int(inside.min()) < 0 or int(inside.max()) >= BUCKET_MS[level]:
        report.damaged(path, None, f"bucket {bucket} has units of another one")
        return np.zeros(SLOTS[level], np.int64)
    return np.bincount(inside // SLOT_MS[level], minlength=SLOTS[level])


def _verify_directory(
    run: Run, bucket: int, first: int, counts: NDArray[np.int64], report: Report
) -> None:
    directory = run.directory(bucket)
    if directory is None:
        raise errors.CorruptFile(f"bucket {bucket} has no slot directory", file=run.path)
    starts = first + np.cumsum(counts) - counts
    if (directory["count"] != counts).any() or (directory["first"] != starts).any():
        report.damaged(
            run.path, None, f"the slot directory of bucket {bucket} counts other units than it has"
        )
    newest = int(directory["previous_run"].max())
    if newest >= run.footer.covers_first:
        report.damaged(
            run.path, None, f"the chain of bucket {bucket} goes on to run {newest}, a newer one"
        )


# --- chains -------------------------------------------------------------------------------------


def _verify_chains(runs: list[tuple[RunState, Run]], manifest: Checkpoint, report: Report) -> None:
    """That each link of a bucket to come leads to a run that is there."""
    for state, run in runs:
        for bucket in run.buckets():
            if bucket * BUCKET_MS[state.level] <= manifest.cursor.due_ms:
                continue  # what is past may be gone already
            try:
                directory = run.directory(bucket)
            except READ_ERRORS as error:
                report.caught(error, run.path)
                continue
            if directory is not None:
                _verify_links(directory, bucket, run, state, manifest, report)


def _verify_links(
    directory: Slots,
    bucket: int,
    run: Run,
    state: RunState,
    manifest: Checkpoint,
    report: Report,
) -> None:
    for number in np.unique(directory["previous_run"]).tolist():
        stands = any(
            other.level == state.level and other.covers_first <= number <= other.run_id
            for other in manifest.runs
        )
        if number and not stands:
            report.damaged(
                run.path,
                None,
                f"the chain of bucket {bucket} goes on to run {number}, which no run stands for",
            )
