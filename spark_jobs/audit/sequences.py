"""Every replica's sequence index against the log.

By it a node answers cancels, and says what became of a message. An entry says when its message is
due, and whether it went into the wheel, was released at once, or is no message. All of that follows
from the message's record and what stands before it. So `steps.ledger_of`, which finds what became
of the messages of a range, compares their entries with it, 8 bytes a message and replica; here the
differences are put into words. Entries of messages that a trimmed log no longer has are read for
their checksums only.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.shard import ShardState, checkpoint_limit
from spark_jobs.logs.replica import ERROR
from spark_jobs.logs.sequence_reader import (
    FILE_ENTRIES,
    IndexCopy,
    IndexPart,
    SequenceReader,
    WrongEntry,
    plan_index,
)
from spark_jobs.runtime.instants import exact_instant_text

_WORDS: Final = ("no message", "put into the wheel", "released at once", "of no known state")
_REPORTED_MAX: Final = 1_000
"""At most so many wrong entries of a shard are reported; all are counted."""
_READ_ENTRIES: Final = 1 << 17


class RestTask(NamedTuple):
    """Entries [first, end) of an index that no message of the log tells about; picklable."""

    copy: IndexCopy
    first: int
    end: int


def check_sequences(state: ShardState) -> None:
    """Tell what is wrong in the indexes; read what the log does not tell about."""
    began, part = state.now_ms(), state.ledger.indexes
    rest: list[RestTask] = []
    for replica, copy in state.copies:
        manifest = copy.manifest
        if manifest is None or not copy.applied_offset:
            reason = "no checkpoint says how many sequences its index has"
            state.note("sequences", "checkpoint-missing", reason, replica.node)
            continue
        index = plan_index(replica, copy, manifest)
        rest += _rest_of(state, index)
    for more in state.runner.map(verify_rest, rest):
        part.merge(more)
    _note_areas(state, part)
    for node, file, why in sorted(set(part.faults)):
        state.add(Finding(ERROR, "sequence-damaged", state.shard, node, file, detail=why))
    shown = sorted(part.wrong, key=lambda one: (one.sequence, one.node))[:_REPORTED_MAX]
    state.add(*(wrong_entry(one, state) for one in shown))
    state.findings.count_more(ERROR, "sequence-wrong", state.shard, part.wrong_count - len(shown))
    state.timed("sequences", began)


def _rest_of(state: ShardState, index: IndexCopy) -> Iterator[RestTask]:
    """What of an index lies before the log's first message, or behind its last."""
    last = state.facts.last.next_sequence if state.facts.last else 0
    if not state.plan or not state.plan.indexes:
        last = 0
    for low, high in ((0, min(state.first_sequence, index.entry_count)), (last, index.entry_count)):
        for first in range(low, high, FILE_ENTRIES):
            yield RestTask(index, first, min(first + FILE_ENTRIES, high))


def _note_areas(state: ShardState, part: IndexPart) -> None:
    bad = {node for node, _, _ in part.faults}
    for replica, copy in state.copies:
        if not copy.applied_offset:
            continue
        if replica.node in bad:
            reason = "files of its sequence index cannot be read"
            state.note("sequences", "file-unread", reason, replica.node)
        elif not state.rejected.is_certain:
            reason = "only its checksums: which messages are rejected is not certain"
            state.note("sequences", "request-order", reason, replica.node)
        elif not state.is_whole:
            reason = f"not of the {state.first_sequence} sequences before the log begins"
            state.note("sequences", "log-trimmed", reason, replica.node)
        else:
            state.note("sequences", *checkpoint_limit(state, copy), node=replica.node)


def verify_rest(task: RestTask) -> IndexPart:
    """Read some entries for their checksums."""
    part = IndexPart()
    with SequenceReader(task.copy) as reader:
        for first in range(task.first, task.end, _READ_ENTRIES):
            try:
                reader.read(first, min(first + _READ_ENTRIES, task.end))
            except (errors.HourwheelError, OSError) as error:
                file = task.copy.path_of(first)
                if isinstance(error, errors.HourwheelError):
                    file = error.params.get("file", "") or file
                part.faults.append((task.copy.node, file, str(error)))
                break
    return part


def wrong_entry(one: WrongEntry, state: ShardState) -> Finding:
    """The finding that it is; its due time is the entry's."""
    found, wanted = _said(one.found), _said(one.wanted)
    return Finding(
        ERROR,
        "sequence-wrong",
        state.shard,
        one.node,
        one.file,
        sequence=one.sequence,
        topic=state.line.name_of(one.topic_queue >> QUEUE_BITS),
        due_ms=min(one.found >> 2, DUE_MS_MAX),
        detail=f"by the sequence index it is {found}; by the log {wanted}",
    )


def _said(entry: int) -> str:
    due_ms = entry >> 2
    due = exact_instant_text(due_ms) if due_ms <= DUE_MS_MAX else f"at {due_ms} ms"
    return f"{_WORDS[entry & 3]}, due {due}"
