"""Queues beside a log whose beginning is gone: sums instead of positions.

Where the log does not begin at 0, the positions of messages in queues are unknown, because entries
of older messages stand between. Two things can still be checked: of the messages that the log has,
a queue holds exactly the released ones (by count and hash sum over all fields), as long as nothing
of it was trimmed; and no entry points to bytes of the log that are gone, as it would if a segment
was lost and not let go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.audit.checks.releases import Slice
from spark_jobs.audit.facts.sums import hash_rows, hash_units
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.queue_reader import QueueRange, read_queue
from storage.views.unit import Units

_LOST_REPORTED: Final = 20
_MASK: Final = (1 << 64) - 1


class SetSum(NamedTuple):
    """How many entries, and the sum of their hashes."""

    entries: int = 0
    total: int = 0

    def plus(self, other: "SetSum") -> "SetSum":
        """Of both."""
        return SetSum(self.entries + other.entries, (self.total + other.total) & _MASK)


def sum_slice(one: Slice, applied: int) -> SetSum:
    """Of what the log released to a queue below an offset."""
    count = int(np.searchsorted(one.rows["offset"], np.uint64(applied), "left"))
    rows = one.rows[:count]
    value = hash_rows(
        rows["due_ms"], rows["sequence"], rows["store_ms"], rows["topic_queue"], rows["facts"]
    )
    return SetSum(count, int(value.sum(dtype=np.uint64)))


class PartialTask(NamedTuple):
    """Entries of one queue of one node."""

    where: QueueRange
    first_sequence: int
    """Entries of older messages, and later attempts, are not summed up."""
    log_start: int


@dataclass
class PartialPart:
    """What some entries give."""

    sums: SetSum = field(default_factory=SetSum)
    seen: int = 0
    """Entries that were read."""
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(file, position, sequence, offset): it points to bytes of the log that are gone."""
    lost_count: int = 0
    faults: list[Damage] = field(default_factory=list)

    def merge(self, other: "PartialPart") -> None:
        """Take in what another one has."""
        self.sums = self.sums.plus(other.sums)
        self.seen += other.seen
        self.lost += other.lost
        self.lost_count += other.lost_count
        self.faults += other.faults


def sum_entries(task: PartialTask) -> PartialPart:
    """Sum up the entries of a range."""
    part = PartialPart()
    for piece in read_queue(task.where):
        if isinstance(piece, Damage):
            part.faults.append(piece)
            continue
        units = piece.units
        part.seen += len(units)
        part.sums = part.sums.plus(_sum_units(units, task.first_sequence))
        gone = np.flatnonzero((units["dlog_id"] == 0) & (units["position"] < task.log_start))
        part.lost_count += len(gone)
        part.lost += [
            (
                piece.file,
                piece.first_position + at,
                int(units["sequence"][at]),
                int(units["position"][at]),
            )
            for at in gone[:_LOST_REPORTED].tolist()
        ]
    return part


def _sum_units(units: Units, first_sequence: int) -> SetSum:
    chosen = (units["sequence"] >= np.uint64(first_sequence)) & (units["attempt"] <= 1)
    found = units[chosen]
    value = hash_rows(
        found["due_ms"],
        found["sequence"],
        found["store_ms"],
        found["topic_queue"],
        hash_units(found["tag_gene"], found["crc"], found["body_len"], found["meta_len"]),
    )
    return SetSum(len(found), int(value.sum(dtype=np.uint64)))


def find_sum_difference(wanted: SetSum, found: SetSum, *, is_trimmed: bool) -> str:
    """What is wrong with a queue, in words; empty for nothing."""
    if is_trimmed:
        if found.entries <= wanted.entries:
            return ""
        return f"{found.entries} entries, and the log released {wanted.entries} messages to it"
    if found == wanted:
        return ""
    if found.entries != wanted.entries:
        return f"{found.entries} entries, and the log released {wanted.entries} messages to it"
    return f"{found.entries} entries, as many as the log released, and not the same"


def by_key(parts: Iterable[tuple[tuple[int, int], SetSum]]) -> dict[tuple[int, int], SetSum]:
    """(queue, applied offset) -> the sums of all parts."""
    found: dict[tuple[int, int], SetSum] = {}
    for key, one in parts:
        found[key] = found.get(key, SetSum()).plus(one)
    return found
