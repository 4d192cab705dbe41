"""The wheel as an inspection shows it: runs, buckets, the slots of an hour and their chains."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.tools.inspect.files import ShardFiles, header_of
from node.tools.inspect.report import READ_ERRORS, Report, Row, instant
from storage.files.disk import parent_of
from storage.files.file_header import FileType
from storage.views.unit import Units
from timewheel.levels import BUCKET_MS, DAY_LEVEL, HOUR_LEVEL, HOUR_MS, SLOT_MS, SLOTS_PER_DAY
from timewheel.run import Run
from timewheel.run_format import delay_log_path, run_path

WHEEL: Final = "wheel"
RUN_SUFFIX: Final = ".run"
DELAY_LOG_SUFFIX: Final = ".dlog"
LEVELS: Final = ("hours", "days")
assert LEVELS[HOUR_LEVEL] == "hours"


def open_run(files: ShardFiles, path: str, manifest: Checkpoint | None = None) -> Run:
    """A run, with what the manifest says was cascaded away. The caller closes it.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: it cannot be used.
    """
    header = header_of(files.disk, path)
    files.check_header(header, path, FileType.RUN)
    run = Run(files.disk, path, header.identity)
    for state in manifest.runs if manifest else ():
        if (state.covers_first, state.run_id) == (run.footer.covers_first, run.footer.run_id):
            run.cascaded_days.update(state.cascaded_days)
    return run


def is_named(manifest: Checkpoint | None, run: Run) -> bool:
    """Whether the manifest names a run."""
    return _names(manifest, run.path)


def _names(manifest: Checkpoint | None, path: str) -> bool:
    """Whether the manifest names a file of the wheel."""
    if manifest is None:
        return False
    folder = parent_of(path)
    runs = (run_path(folder, state.covers_first, state.run_id) for state in manifest.runs)
    logs = (delay_log_path(folder, state.delay_log_id) for state in manifest.delay_logs)
    return path in runs or path in logs


def tell_bad_file(
    files: ShardFiles, manifest: Checkpoint | None, path: str, error: Exception, report: Report
) -> None:
    """A run or delay log that cannot be used: damage, if a checkpoint needs it."""
    if not files.disk.exists(path):
        return  # removed since it was listed: what refers to it will miss it
    if _names(manifest, path) and _names(files.find_manifest(), path):
        report.caught(error, path)
    else:
        report.remark(f"{path}: no checkpoint needs it: being written, or left by a crash")


def runs_of(
    files: ShardFiles, manifest: Checkpoint | None, report: Report
) -> Iterator[tuple[str, Run]]:
    """(path, run) of all runs in the folder; of bad ones the report tells."""
    for name in files.list(WHEEL, RUN_SUFFIX):
        path = files.path(WHEEL, name)
        try:
            run = open_run(files, path, manifest)
        except READ_ERRORS as error:
            tell_bad_file(files, manifest, path, error, report)
            continue
        with closing(run):
            yield path, run


# --- tables -------------------------------------------------------------------------------------


def show_runs(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a run."""

    def rows() -> Iterator[Row]:
        for path, run in runs_of(files, manifest, report):
            yield run_row(path, run, manifest)

    report.add("runs", files.path(WHEEL), rows())


def run_row(path: str, run: Run, manifest: Checkpoint | None) -> Row:
    """What a run's footer says."""
    footer = run.footer
    return {
        "run": footer.run_id,
        "covers": f"{footer.covers_first} .. {footer.run_id}",
        "level": LEVELS[footer.level],
        "units": footer.unit_count,
        "buckets": footer.section_count,
        "cascaded": len(run.cascaded_days),
        "first_due": instant(footer.due_ms_min),
        "last_due": instant(footer.due_ms_max),
        "delay_logs": f"{footer.delay_log_first} .. {footer.delay_log_last}",
        "in_manifest": _yes(is_named(manifest, run)) if manifest else None,
        "file": path,
    }


def show_delay_logs(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a delay log."""
    states = {state.delay_log_id: state for state in manifest.delay_logs} if manifest else {}

    def rows() -> Iterator[Row]:
        for name in files.list(WHEEL, DELAY_LOG_SUFFIX):
            path = files.path(WHEEL, name)
            try:
                row = delay_log_row(files, path)
            except READ_ERRORS as error:
                tell_bad_file(files, manifest, path, error, report)
                continue
            state = states.get(number_of(name))
            row["in_manifest"] = _yes(state is not None) if manifest else None
            row["last_due"] = instant(state.due_ms_max) if state else None
            yield row

    report.add("delay logs", files.path(WHEEL), rows())


def delay_log_row(files: ShardFiles, path: str) -> Row:
    """What a delay log says by itself. Raises as `ShardFiles.open_checked`."""
    file, header = files.open_checked(path, FileType.DELAY_LOG)
    with closing(file):
        return {"delay_log": header.base, "bytes": file.size(), "file": path}


def show_run(
    files: ShardFiles,
    path: str,
    manifest: Checkpoint | None,
    report: Report,
    *,
    hour: int | None,
    limit: int,
) -> None:
    """One run: its buckets; or, of an hour, its slots and units."""
    with closing(open_run(files, path, manifest)) as run:
        report.add("run", path, [run_row(path, run, manifest)])
        if hour is None:
            report.add("buckets", path, _buckets(run), limit)
            return
        bucket = hour if run.footer.level == HOUR_LEVEL else hour // SLOTS_PER_DAY
        report.add("slots", path, (slot.row() for slot in slots(run, bucket)), limit)
        report.add("units", path, _units(run, bucket), limit)


def _buckets(run: Run) -> Iterator[Row]:
    level = run.footer.level
    for section in run.sections:
        bucket = int(section["bucket"])
        yield {
            "bucket": bucket,
            "begins": instant(bucket * BUCKET_MS[level]),
            "global_index": int(section["first"]),
            "units": int(section["count"]),
            "cascaded": _yes(bucket in run.cascaded_days),
        }


class Slot(NamedTuple):
    """An occupied slot of a bucket, as a run's slot directory has it."""

    run_id: int
    level: int
    slot: int
    begins_ms: int
    global_index: int
    unit_count: int
    previous_run: int
    """0 for none."""

    def row(self) -> Row:
        """For a table."""
        return {
            "level": LEVELS[self.level],
            "run": self.run_id,
            "slot": self.slot,
            "begins": instant(self.begins_ms),
            "global_index": self.global_index,
            "count": self.unit_count,
            "previous_run": self.previous_run or None,
        }


def slots(run: Run, bucket: int) -> Iterator[Slot]:
    """The occupied slots of a bucket. Raises `CorruptFile`."""
    directory = run.directory(bucket)
    if directory is None:
        return
    level = run.footer.level
    for slot in np.flatnonzero(directory["count"]).tolist():
        begins_ms = bucket * BUCKET_MS[level] + slot * SLOT_MS[level]
        first, count, previous = directory[slot].tolist()
        yield Slot(
            run_id=run.footer.run_id,
            level=level,
            slot=slot,
            begins_ms=begins_ms,
            global_index=first,
            unit_count=count,
            previous_run=previous,
        )


def _units(run: Run, bucket: int) -> Iterator[Row]:
    first, end = run.section(bucket)
    for index in range(first, end):
        yield {"global_index": index, **unit_row(run.read(index, index + 1))}


def unit_row(units: Units) -> Row:
    """The first of some units."""
    unit = units[0]
    dlog_id = int(unit["dlog_id"])
    return {
        "due": instant(int(unit["due_ms"])),
        "sequence": int(unit["sequence"]),
        "stored": instant(int(unit["store_ms"])),
        "topic_queue": f"{int(unit['topic_queue']):08x}",
        "attempt": int(unit["attempt"]),
        "body_bytes": int(unit["body_len"]),
        "meta_bytes": int(unit["meta_len"]),
        "lies_in": f"delay log {dlog_id}" if dlog_id else "commit log",
        "at": int(unit["position"]),
    }


# --- an hour in all runs ------------------------------------------------------------------------


def show_hour(
    files: ShardFiles, manifest: Checkpoint | None, report: Report, *, hour: int, limit: int
) -> None:
    """The slots of one hour in all runs that the manifest names, and the chain of each second."""
    found: list[Slot] = []
    for path, run in runs_of(files, manifest, report):
        if manifest is not None and not is_named(manifest, run):
            continue
        is_hour_level = run.footer.level == HOUR_LEVEL
        day, hour_of_day = divmod(hour, SLOTS_PER_DAY)
        try:
            of_bucket = list(slots(run, hour if is_hour_level else day))
        except READ_ERRORS as error:
            report.caught(error, path)
            continue
        found += [slot for slot in of_bucket if is_hour_level or slot.slot == hour_of_day]
    found.sort(key=lambda slot: (slot.begins_ms, -slot.run_id))
    where = files.path(WHEEL)
    rows = (slot.row() for slot in found)
    report.add(f"slots of {instant(hour * HOUR_MS)}", where, rows, limit)
    report.add("chains, newest run first", where, _chains(found, manifest), limit)


def _chains(found: list[Slot], manifest: Checkpoint | None) -> Iterator[Row]:
    """How the runs of each second are found, each by the one before."""
    ranges = [
        (state.covers_first, state.run_id)
        for state in (manifest.runs if manifest else ())
        if state.level == HOUR_LEVEL
    ]
    links = {(one.slot, one.run_id): one.previous_run for one in found if one.level == HOUR_LEVEL}
    for slot in sorted({slot for slot, _ in links}):
        number = max(run_id for second, run_id in links if second == slot)
        chain: list[str] = []
        while number:
            number = min(
                (last for first, last in ranges if first <= number <= last), default=number
            )
            chain.append(str(number))
            if (slot, number) not in links or chain.count(chain[-1]) > 1:
                chain[-1] += " (has none of this second)"
                break
            number = links[slot, number]
        yield {"second": slot, "chain": " -> ".join(chain)}


def number_of(name: str) -> int:
    """The number in a delay log's name; -1 for other names."""
    stem = name.removesuffix(DELAY_LOG_SUFFIX)
    return int(stem) if stem.isascii() and stem.isdigit() else -1


def _yes(claim: bool) -> str:  # noqa: FBT001
    return "yes" if claim else "no"


assert LEVELS[DAY_LEVEL] == "days"
