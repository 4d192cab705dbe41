"""Files that a running node has replaced while they were read are no damage: look at them again.

A checkpoint names runs, tombstones and the chunks of queues. Two checkpoints later a run may have
been merged, and the seal of a queue's last chunk been written over; retention removes chunks and
segments. An audit of some minutes comes upon that, so before it reports that a file could not be
read, it tries again by the node's newest checkpoint: a file that this one does not rely on, or that
can be read by it, was only replaced. A check that could not be made for that reason is *limited*.

If a segment of the very log that the audit goes by has gone, almost nothing that was found is
certain: then it is left out, and the audit says that it could not be made.
"""

from collections.abc import Sequence
from typing import Final

from hourwheel import errors
from spark_jobs.audit.checks.wheel import (
    delay_log_faults,
    plan_delay_logs,
    plan_wheel,
    sum_wheel,
)
from spark_jobs.audit.facts.findings import CheckOutcome, Finding
from spark_jobs.audit.shard import ShardState
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.discovery import read_replica
from spark_jobs.logs.queue_reader import QueueRange, plan_by_seals, plan_queues, read_queue
from spark_jobs.logs.replica import ERROR, WARNING, Replica, ShardCopy
from spark_jobs.logs.tombstone_reader import Marks, plan_marks, read_marks

_AREAS: Final = {"queue-damaged": "queues", "wheel-damaged": "wheel"}
"""What is said of a file that cannot be read -> the check that needs it."""
_CERTAIN: Final = ("log-corrupt", "kind-unknown", "format-unknown")
"""What a file says that was read, whatever became of others."""
_TRIES: Final = 5
"""So often a file is looked at anew, if checkpoint after checkpoint comes in between."""


def recheck(state: ShardState) -> None:
    """Take back what was said of files that a node has replaced since. Changes `state`."""
    for replica, copy in state.copies:
        mine = [
            one
            for one in state.findings.kept
            if one.node == replica.node and one.severity == ERROR and _is_of_a_view(one)
        ]
        if mine:
            _take_back(state, replica.node, mine, _bad_files(replica, copy, mine))
    _recheck_segments(state)


def _is_of_a_view(one: Finding) -> bool:
    """Whether it is about a file that checkpoints replace."""
    return one.check in _AREAS or (one.check == "body-lost" and one.file.endswith(".dlog"))


def _bad_files(replica: Replica, copy: ShardCopy, found: Sequence[Finding]) -> set[str]:
    """Those of the findings' files that cannot be read by the newest checkpoint either."""
    bad, seen = {one.file for one in found}, copy.manifest_raw
    for _ in range(_TRIES):
        newest = read_replica(replica.uri).shard(copy.shard)
        if newest is not None and not newest.manifest_raw and not seen:
            return {file for file in bad if _is_bad(replica, newest, file)}
        if newest is None or newest.manifest_raw == seen:
            break  # nothing has been replaced: it is damage
        seen = newest.manifest_raw
        bad = {file for file in bad if _is_bad(replica, newest, file)}
        if not bad:
            break
    return bad


def _is_bad(replica: Replica, copy: ShardCopy, file: str) -> bool:
    """Whether a checkpoint relies on a file, and it cannot be read."""
    manifest = copy.manifest
    if manifest is None:
        return not file.startswith(copy.path("queues")) or _is_bad_chunk(
            plan_by_seals(replica, copy), file
        )
    if any(file == path for path, _ in delay_log_faults(plan_delay_logs(replica, copy, manifest))):
        return True
    for one in plan_wheel(replica, copy, manifest):
        if file in {one.path, one.marks.path} and sum_wheel(one).faults:
            return True
    if file == plan_marks(replica, copy, manifest).path:
        return _is_unreadable(replica, plan_marks(replica, copy, manifest))
    return _is_bad_chunk(plan_queues(replica, copy), file)


def _is_unreadable(replica: Replica, marks: Marks) -> bool:
    try:
        read_marks(replica.open_disk(), marks)
    except (errors.HourwheelError, OSError):
        return True
    return False


def _is_bad_chunk(queues: Sequence[QueueRange], file: str) -> bool:
    return any(
        isinstance(piece, Damage) and not piece.is_expected
        for one in queues
        for part in part_in(one, file)
        for piece in read_queue(part)
    )


def part_in(one: QueueRange, file: str) -> list[QueueRange]:
    """What of a queue's range lies in a file; the queue's folder stands for all of it."""
    if file == one.folder:
        return [one]
    low, size = one.start_position, max(1, one.chunk_entries)
    found = []
    while low < one.end_position:
        high = min(one.end_position, (low // size + 1) * size)
        if one.chunk_path(low // size) == file:
            found.append(one._replace(start_position=low, end_position=high))
        low = high
    return found


def _take_back(state: ShardState, node: str, found: Sequence[Finding], bad: set[str]) -> None:
    gone = [one for one in found if one.file not in bad]
    state.findings.remove(gone)
    for check, area in _AREAS.items():
        count = sum(one.check == check for one in gone)
        if not count or any(one.check == check and one.file in bad for one in found):
            continue
        reason = f"{count} files were replaced by the node while they were read"
        state.checks = [
            CheckOutcome(area, state.shard, node, "file-replaced", reason)
            if (one.area, one.node, one.limit) == (area, node, "file-unread")
            else one
            for one in state.checks
        ]


# --- the log ------------------------------------------------------------------------------------


def _recheck_segments(state: ShardState) -> None:
    """What retention has removed since is not missing; but then nothing else is certain."""
    removed: dict[str, set[str]] = {}
    for replica, copy in state.copies:
        if any(_looks_gone(one, replica.node) for one in state.findings.kept) or any(
            where.node == replica.node for where in state.ranges
        ):
            removed[replica.node] = _removed(replica, copy)
    state.findings.remove(
        [
            one
            for one in state.findings.kept
            if _looks_gone(one, one.node) and one.file in removed.get(one.node, ())
        ]
    )
    lost = sorted({one.path for one in state.ranges if one.path in removed.get(one.node, ())})
    if lost:
        count = state.findings.drop(ERROR, but=_CERTAIN)
        count += state.findings.drop(WARNING, but=_CERTAIN)
        reason = f"{len(lost)} files of the log were removed by retention while it was read: audit"
        reason += f" again, or a copy; {count} findings that may come of it are left out"
        state.note("structure", "log-removed", reason)


def _looks_gone(one: Finding, node: str) -> bool:
    return one.check == "log-missing" and one.node == node and one.severity == ERROR


def _removed(replica: Replica, copy: ShardCopy) -> set[str]:
    """Segments at the beginning of a log that are not there any more."""
    newest = read_replica(replica.uri).shard(copy.shard)
    if newest is None or not newest.segments:
        return set()
    left = {one.path for one in newest.segments}
    return {
        one.path
        for one in copy.segments
        if one.path not in left and one.start_offset < newest.start_offset
    }
