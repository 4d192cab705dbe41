"""Every replica's set of cancelled sequences against the log.

By it a DISPATCH leaves out what was cancelled, and a second cancel is answered as the first. One
mark too much loses a message that is pending, or makes the answer to a late cancel a false one; one
too few releases a message that was cancelled. Below the checkpoint's sequence floor a mark may be
gone when its message is past; where it is not past, the check of the wheel tells. What must be in
the set is known when the ledger is made; a task a replica reads its file. Of a log whose beginning
is gone only the log's own messages are compared.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.shard import ShardState
from spark_jobs.logs.replica import ERROR
from spark_jobs.logs.tombstone_reader import Marks, marked_in, plan_marks, read_marks
from spark_jobs.runtime.paths import open_disk
from spark_jobs.runtime.runner import Shared

if TYPE_CHECKING:
    from spark_jobs.audit.join import Joining

U64 = NDArray[np.uint64]
Array = NDArray[Any]
_REPORTED_MAX: Final = 1_000
"""Of one replica, of either kind."""


class MarkTask(NamedTuple):
    """One replica's file, and up to where it must agree with the log; picklable."""

    marks: Marks
    applied_offset: int
    first_sequence: int
    end_sequence: int
    sequence_floor: int


class MarkDiff(NamedTuple):
    """How a replica's set differs from the log's."""

    lost: U64
    """Cancelled by the log, and not in the set."""
    extra: U64
    """In the set, and not cancelled by the log."""
    fault: str = ""
    """Why it could not be read."""


def check_tombstones(state: ShardState, joining: "Joining") -> None:
    """Compare every replica's set, as far as its checkpoint and the log go."""
    began, tasks = state.now_ms(), list[MarkTask]()
    first = state.first_sequence
    for replica, copy in state.copies:
        manifest = copy.manifest
        if manifest is None or not 0 < copy.applied_offset <= state.end_offset:
            continue
        marks = plan_marks(replica, copy, manifest)
        end, floor = manifest.next_sequence, manifest.sequence_floor
        tasks.append(MarkTask(marks, copy.applied_offset, first, end, floor))
    cancelled = state.runner.share(state.ledger.cancelled)
    for task, diff in zip(
        tasks, state.runner.map(partial(compare_marks, cancelled), tasks), strict=True
    ):
        _tell(state, joining, task, diff)
    state.timed("tombstones", began)


def compare_marks(cancelled: Shared[Array], task: MarkTask) -> MarkDiff:
    """Compare one replica's set with `audit_ledger.ENDED` rows of what the log has cancelled."""
    none = np.empty(0, np.uint64)
    rows = cancelled.value
    wanted = np.sort(rows["sequence"][rows["end"] < np.uint64(task.applied_offset)])
    try:
        found = marked_in(read_marks(open_disk(task.marks.uri), task.marks))
    except (errors.HourwheelError, OSError) as error:
        return MarkDiff(none, none, str(error))
    found = found[found >= np.uint64(task.first_sequence)]
    return MarkDiff(
        np.setdiff1d(wanted[wanted >= np.uint64(task.sequence_floor)], found, assume_unique=True),
        np.setdiff1d(found, wanted, assume_unique=True),
    )


def _tell(state: ShardState, joining: "Joining", task: MarkTask, diff: MarkDiff) -> None:
    node, file = task.marks.node, task.marks.path
    if diff.fault:
        known = {(one.check, one.node, one.file) for one in state.findings.kept}
        if ("wheel-damaged", node, file) not in known:
            state.add(Finding(ERROR, "wheel-damaged", state.shard, node, file, detail=diff.fault))
            reason = "its cancelled messages cannot be read"
            state.note("wheel", "file-unread", reason, node)
        return
    shown = (diff.lost[:_REPORTED_MAX], diff.extra[:_REPORTED_MAX])
    if not len(shown[0]) and not len(shown[1]):
        return
    known_messages = joining.look_up(np.concatenate(shown).tolist())
    for sequences, what in zip(shown, ("was cancelled, and is not marked", ""), strict=True):
        for sequence in sequences.tolist():
            message = known_messages.get(sequence)
            by_log = f"by the log it is {message.state}" if message else "the log has no such one"
            state.add(
                Finding(
                    ERROR,
                    "tombstone-wrong",
                    state.shard,
                    node,
                    file,
                    sequence=sequence,
                    topic=state.line.name_of(message.topic_queue >> QUEUE_BITS) if message else "",
                    due_ms=message.due_ms if message else -1,
                    detail=what or f"is marked as cancelled, and {by_log}",
                )
            )
    more = len(diff.lost) + len(diff.extra) - len(shown[0]) - len(shown[1])
    state.findings.count_more(ERROR, "tombstone-wrong", state.shard, more)
