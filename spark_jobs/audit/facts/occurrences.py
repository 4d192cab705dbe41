"""Recurring messages, checked again by the log alone: which messages are occurrences.

A RECURRENCE record gives a recurrence another version, its own offset. A message that says it is an
occurrence is one where it is the next of the current version, and due later than the one before;
else it counts as rejected, and not as a message. storage/views/recurrences.py has the same rules,
and no line in common with this.

What recurs is rare among messages: this goes one by one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag
from hourwheel.internal.v1.state_pb2 import RecurrenceChange
from hourwheel.types import QUEUE_BITS
from spark_jobs.logs.block_table import BlockTable

OCCURRENCE: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("version", "<u8"),
        ("index", "<u8"),
        ("due_ms", "<i8"),
        ("sequence", "<u8"),
        ("topic_id", "<u4"),
    ]
)
"""A message that says it is an occurrence."""
_FLAG: Final = int(Flag.OCCURRENCES)

Array = NDArray[Any]


class Change(NamedTuple):
    """A RECURRENCE record."""

    offset: int
    raw: bytes


class Repeated(NamedTuple):
    """An occurrence that is due at an instant at which its recurrence had one before."""

    name: str
    offset: int
    sequence: int
    due_ms: int
    before: int
    """Sequence of the one before."""


@dataclass(slots=True)
class _Recurrence:
    version: int
    is_paused: bool = False
    next_index: int = 0
    last_ms: int = -1
    """When the last one of this version is due."""
    last: tuple[int, int] | None = None
    """(due time, sequence) of the last one of any version."""


class Occurrences(NamedTuple):
    """What a log says of recurrences."""

    rejected: list[int]
    """Sequences that are no messages, ascending."""
    repeated: list[Repeated]


def occurrences_of(table: BlockTable) -> Array:
    """OCCURRENCE[n] of a piece of a log, in its order."""
    messages = table.messages
    if not len(messages):
        return np.empty(0, OCCURRENCE)
    chosen = np.flatnonzero((messages.of_batch("flags") & _FLAG) != 0)
    found = np.zeros(len(chosen), OCCURRENCE)
    if len(chosen):
        found["offset"] = messages.of_batch("offset")[chosen]
        for name, source in {
            "version": "producer_id",
            "index": "producer_sequence",
            "due_ms": "due_ms",
            "sequence": "sequence",
        }.items():
            found[name] = messages.column(source)[chosen]
        found["topic_id"] = messages.column("topic_queue")[chosen] >> QUEUE_BITS
    return found


def follow_recurrences(
    changes: Sequence[Change],
    occurrences: Array,
    deleted: dict[int, int],
    cancelled: Iterable[int],
    start_offset: int,
) -> Occurrences:
    """Play recurrences again.

    Args:
        changes: RECURRENCE records, in order.
        occurrences: OCCURRENCE[n], in the order of the log.
        deleted: topic id -> offset of the record that deleted it.
        cancelled: sequences that some record names to be cancelled.
        start_offset: of the log; what was changed before that counts as it is used first.
    """
    named: dict[str, _Recurrence] = {}
    versions: dict[int, str] = {}
    is_cancelled = set(cancelled)
    rejected: list[int] = []
    repeated: list[Repeated] = []
    waiting = iter([*changes, Change(1 << 63, b"")])
    change = next(waiting)
    for offset, version, index, due_ms, sequence, topic_id in occurrences.tolist():
        while change.offset < offset:
            _change(change, named, versions, start_offset)
            change = next(waiting)
        if version not in versions and version < start_offset:
            name = f"version {version}"
            named[name], versions[version] = _Recurrence(version, next_index=index), name
        one = named[versions[version]] if version in versions else None
        is_next = one is not None and not one.is_paused and index == one.next_index
        if (
            one is None
            or not is_next
            or due_ms <= one.last_ms
            or offset > deleted.get(topic_id, 1 << 63)
        ):
            rejected.append(sequence)
            continue
        before = one.last
        if before is not None and due_ms <= before[0] and before[1] not in is_cancelled:
            repeated.append(Repeated(versions[version], offset, sequence, due_ms, before[1]))
        one.next_index, one.last_ms, one.last = index + 1, due_ms, (due_ms, sequence)
    return Occurrences(rejected, repeated)


def _change(
    change: Change, named: dict[str, _Recurrence], versions: dict[int, str], start_offset: int
) -> None:
    try:
        said = RecurrenceChange.FromString(change.raw)
    except DecodeError:
        return
    what = said.WhichOneof("change") or ""
    name = said.put.name if what == "put" else str(getattr(said, what, ""))
    expected = said.expected_version
    old = named.get(name)
    if old is None and 0 < expected < start_offset:
        adopted = versions.get(expected)
        old = named.pop(adopted) if adopted in named else _Recurrence(expected)
        named[name], versions[expected] = old, name
    if expected != (old.version if old else 0):
        return
    versions.pop(expected, None)
    if what == "put":
        named[name] = _Recurrence(change.offset, last=old.last if old else None)
    elif old is None:
        return
    elif what == "delete_name":
        del named[name]
        return
    else:
        old.version, old.is_paused, old.last_ms = change.offset, what == "pause_name", -1
    versions[change.offset] = name
