"""Writes what a survey says. It keeps copies of all that it changes or leaves out.

step                                                       a crash after it leaves
1  damaged files are copied to repaired-<n>/, durably,     what was there
with a report of what is given up
2  what is left of runs is written under new numbers       files that nothing names
3  the checkpoint names the new runs, and gives up what    files mended in part: run it again
is lost
4  mended files take the place of damaged ones, one by     the same
one, each as a whole
5  the report gets its last name                           a report called unfinished

What step 3 has given up the next look does not find any more: it is the report that names it.
"""

from typing import Final

import numpy as np

from hourwheel.internal.v1.state_pb2 import DelayLogState
from node.shard.checkpoint import MANIFEST, ShardPlace, run_state, write_manifest
from node.tools.repair.log_pieces import LogPieces
from node.tools.repair.survey import Survey
from storage.files.disk import Disk, parent_of
from storage.files.rewrite import REPAIR_SUFFIX
from storage.views.unit import Units, pick
from timewheel.bodies import Bodies
from timewheel.delay_log import DelayLogWriter
from timewheel.flush import sections_end_ms
from timewheel.levels import DAY_LEVEL, HOUR_LEVEL, SLOTS
from timewheel.run import open_run
from timewheel.run_format import run_path
from timewheel.run_writer import RunWriter

ASIDE: Final = "repaired-"
REPORT: Final = "report.json"
UNFINISHED: Final = "unfinished.json"
"""The report's name until all of it is done."""
_UNITS_AT_ONCE: Final = 4_096


def find_unfinished(disk: Disk) -> list[str]:
    """Reports of repairs that were interrupted, by their paths: they may name what was given up."""
    folders = sorted(one for one in disk.list("") if one.startswith(ASIDE))
    paths = (f"{one}/{UNFINISHED}" for one in folders)
    return [one for one in paths if disk.exists(one)]


def carry_out(place: ShardPlace, survey: Survey, report: bytes) -> str:
    """Make the directory startable, as `survey` says; no other process has it open.

    Args:
        place: of the shard.
        survey: what to do.
        report: what it says, for people: it is kept, beside the damaged files.

    Returns:
        The folder, beside the shard's, that damaged files are kept in.

    Raises:
        DiskFull: nothing that the node needs has changed.
        FsyncFailed, DiskFailed: look at it again.
    """
    aside = _set_aside(place, survey, report)
    manifest, writer = survey.manifest, _Runs(place, survey)
    for state, units in survey.kept_units:
        writer.write(state.level, units)
    due, split_ms = survey.from_log["due_ms"], sections_end_ms(manifest.hour_level_end_day)
    writer.write(HOUR_LEVEL, pick(survey.from_log, due < split_ms), with_bodies=True)
    writer.write(DAY_LEVEL, pick(survey.from_log, due >= split_ms), with_bodies=True)
    place.disk.sync_dir(place.under("wheel"))
    if survey.is_new_manifest:
        write_manifest(place, manifest)
    for image in survey.images:
        if image.path != place.under(MANIFEST) or not survey.is_new_manifest:
            _replace(place, image.path, bytes(image.raw))
    place.disk.rename(f"{aside}/{UNFINISHED}", f"{aside}/{REPORT}")
    place.disk.sync_dir(aside)
    return aside


def _set_aside(place: ShardPlace, survey: Survey, report: bytes) -> str:
    taken = [int(one[len(ASIDE) :]) for one in place.disk.list("") if one.startswith(ASIDE)]
    aside = f"{ASIDE}{max(taken, default=0) + 1}"
    paths = {one.path for one in survey.images}
    wheel = place.under("wheel")
    paths |= {run_path(wheel, one.covers_first, one.run_id) for one, _ in survey.kept_units}
    if survey.is_new_manifest:
        paths.add(place.under(MANIFEST))
    place.disk.make_dir(aside)
    for path in sorted(one for one in paths if place.disk.exists(one)):
        folder = f"{aside}/{parent_of(path)}"
        place.disk.make_dir(folder)
        _copy(place, path, f"{aside}/{path}")
        place.disk.sync_dir(folder)
    _replace(place, f"{aside}/{UNFINISHED}", report)
    return aside


def _copy(place: ShardPlace, old: str, new: str) -> None:
    source, target = place.disk.open(old), place.disk.open(new, create=True)
    try:
        step = 1 << 20
        for at in range(0, source.size(), step):
            target.pwrite((source.pread(step, at),), at)
        target.datasync()
    finally:
        source.close()
        target.close()


def _replace(place: ShardPlace, path: str, raw: bytes) -> None:
    copy = path + REPAIR_SUFFIX
    place.disk.make_dir(parent_of(path))
    file = place.disk.open(copy, create=True)
    try:
        file.truncate(0)
        file.pwrite((raw,), 0)
        file.datasync()
    finally:
        file.close()
    place.disk.rename(copy, path)
    place.disk.sync_dir(parent_of(path))


class _Runs:
    """Writes runs under the manifest's next numbers, and names them in it."""

    def __init__(self, place: ShardPlace, survey: Survey) -> None:
        self._place, self._manifest = place, survey.manifest

    def write(self, level: int, units: Units, *, with_bodies: bool = False) -> None:
        """One run, if there are any units; with a delay log for what only the log has."""
        if not len(units):
            return
        manifest, wheel = self._manifest, self._place.wheel
        number = max(1, manifest.next_run_id)
        manifest.next_run_id = number + 1
        where = (wheel.disk, wheel.directory, wheel.identity)
        writer = RunWriter(
            *where,
            level=level,
            covers_first=number,
            run_id=number,
            heads=lambda _: np.zeros(SLOTS[level], np.uint32),
        )
        delay_log = DelayLogWriter(*where, number) if with_bodies else None
        bodies = Bodies(
            wheel.disk, wheel.directory, LogPieces(wheel.disk, self._place.under("log"))
        )
        for low in range(0, len(units), _UNITS_AT_ONCE):
            part = units[low : low + _UNITS_AT_ONCE]
            if delay_log is not None:
                part = delay_log.append_blobs(part, *bodies.read(part))
            writer.append(part)
        bodies.close()
        footer = writer.finish()
        if delay_log is not None:
            delay_log.finish()
            manifest.delay_logs.append(
                DelayLogState(
                    delay_log_id=number, bytes=delay_log.size_bytes, due_ms_max=footer.due_ms_max
                )
            )
        run = open_run(*where, number, number)
        manifest.runs.append(run_state(run))
        run.close()
