"""Which findings are causes, and which follow from them.

One changed record makes sums, counts and positions wrong all over a shard. The finding nearest to
the cause is reported first, and what follows from it is kept below it (`Finding.cause`):

    the record        every replica's views agree with one another, and not with the log: then it
                      is the log's record that was changed behind them, and it is named itself
    its message       what queues and delay indexes have of it
    its consequences  positions, and so retries and acknowledgements by position; sums and counts
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.audit.facts.findings import SUM_CHECKS, Finding
from spark_jobs.audit.steps import Known
from spark_jobs.logs.replica import ERROR
from spark_jobs.runtime.instants import exact_instant_text

Array = NDArray[Any]
LookUp = Callable[[Sequence[int]], dict[int, Known]]
_LOOKED_UP_MAX: Final = 1_000
_SEEN: Final = ("queue-fields", "wheel-extra", "queue-early", "sequence-wrong")
"""Their due time is that of a view."""
_GONE: Final = ("wheel-missing", "queue-missing", "tombstone-wrong")
_KEPT: Final = ("wheel-extra", "queue-cancelled", "tombstone-wrong")
_BY_POSITION: Final = ("ack-", "filter", "order-")
_OF_RESOLVES: Final = frozenset({"ack-undelivered", "ack-early", "resolve-unknown"})
_OF_THE_LEDGER: Final = frozenset(
    {"message-changed", "cancel-changed", "log-hole", "sequence-gap", "dispatch-chain"}
)
"""Causes that change what the whole log comes to."""


def changed_records(
    found: Iterable[Finding], nodes: set[str], look_up: LookUp, cancels: Array, shard: int
) -> list[Finding]:
    """The records of the log that all replicas contradict in the same way.

    Args:
        found: what was found of one shard.
        nodes: whose views were compared with the log; fewer than two prove nothing.
        look_up: finds messages in the log.
        cancels: `audit_records.CANCEL`[n], by sequence, then offset.
        shard: for the findings.
    """
    if len(nodes) < 2:  # noqa: PLR2004 - it is one's word against the log's
        return []
    by_sequence: dict[int, dict[str, dict[str, Finding]]] = {}
    for one in found:
        if one.severity == ERROR and one.sequence >= 0 and one.node in nodes:
            of_node = by_sequence.setdefault(one.sequence, {}).setdefault(one.node, {})
            of_node.setdefault(one.check, one)
    common = sorted(sequence for sequence, every in by_sequence.items() if every.keys() == nodes)
    known = look_up(common[:_LOOKED_UP_MAX]) if common else {}
    causes = []
    for sequence, message in known.items():
        every = list(by_sequence[sequence].values())
        cause = _changed_message(message, every, shard)
        causes.append(cause or _changed_cancel(message, every, cancels, look_up, shard))
    return [one for one in causes if one is not None]


def _changed_message(
    message: Known, every: Sequence[dict[str, Finding]], shard: int
) -> Finding | None:
    """The message's own record, if all views have another due time, and the same."""
    due = {
        next((of_node[check].due_ms for check in _SEEN if check in of_node), -1)
        for of_node in every
    }
    if len(due) != 1 or due & {-1, message.due_ms}:
        return None
    detail = f"due {exact_instant_text(message.due_ms)} by the log, and"
    detail += f" {exact_instant_text(due.pop())} by the views of all {len(every)} replicas: the"
    detail += " record is not the one that they have applied"
    return _cause("message-changed", message, message.offset, every, detail, shard)


def _changed_cancel(
    message: Known,
    every: Sequence[dict[str, Finding]],
    cancels: Array,
    look_up: LookUp,
    shard: int,
) -> Finding | None:
    """The CANCEL that should have named a message, or should not have."""
    which = f"sequence {message.sequence}, due {exact_instant_text(message.due_ms)}"
    if message.state == "cancelled" and all(_has(one, _KEPT) for one in every):
        detail = f"it cancels {which}, and all {len(every)} replicas have that message"
        return _cause("cancel-changed", message, message.end, every, detail, shard)
    if message.state == "cancelled" or not all(_has(one, _GONE) for one in every):
        return None
    near = (cancels["due_ms"] == message.due_ms) | (cancels["sequence"] == message.sequence)
    rows = cancels[near & (cancels["offset"] > np.uint64(message.offset))]
    named = look_up(sorted({int(one) for one in rows["sequence"][:_LOOKED_UP_MAX]}))
    for row in rows[:_LOOKED_UP_MAX]:
        other = named.get(int(row["sequence"]))
        if other is not None and other.state == "cancelled" and other.due_ms == row["due_ms"]:
            continue  # it does what it says
        detail = f"it names sequence {int(row['sequence'])}, due"
        detail += f" {exact_instant_text(int(row['due_ms']))}, epoch {int(row['epoch'])}, which is"
        detail += f" no message; all {len(every)} replicas have {which}, as cancelled"
        return _cause("cancel-changed", message, int(row["offset"]), every, detail, shard)
    return None


def _has(of_node: dict[str, Finding], checks: Sequence[str]) -> bool:
    return any(check in of_node for check in checks)


def _cause(
    check: str,
    message: Known,
    offset: int,
    every: Sequence[dict[str, Finding]],
    detail: str,
    shard: int,
) -> Finding:
    topic = next(iter(every[0].values())).topic
    return Finding(
        ERROR,
        check,
        shard,
        "",
        offset=offset,
        sequence=message.sequence,
        topic=topic,
        due_ms=message.due_ms,
        detail=detail,
    )


# --- what follows -------------------------------------------------------------------------------


def with_causes(found: Sequence[Finding]) -> list[Finding]:
    """The findings of one shard, each that follows from another with its cause."""
    errors = [one for one in found if one.severity == ERROR]
    causes = {one.sequence: one for one in errors if one.check.endswith("-changed")}
    of_all = next((one for one in errors if one.check in _OF_THE_LEDGER), None)
    bad_views = {one.node: one for one in reversed(errors) if _is_of_a_message(one)}
    marks = {(one.node, one.sequence): one for one in errors if one.check == "tombstone-wrong"}
    moved = {(one.node, one.file): causes[one.sequence] for one in errors if one.sequence in causes}
    resolves = {one.topic: one for one in reversed(errors) if one.check in _OF_RESOLVES}
    known = _Causes(causes, of_all, bad_views, moved, marks, resolves)
    return _folded([one._replace(cause=_cause_of(one, known)) for one in found])


def _folded(found: list[Finding]) -> list[Finding]:
    """Report wrong bytes once, however many entries and units of their message point to them."""
    corrupt = {one.sequence: one for one in found if one.check == "message-corrupt"}
    firsts: dict[tuple[str, int, str], Finding] = {}
    for at, one in enumerate(found):
        if one.check != "body-wrong" or one.cause:
            continue
        _, _, where = one.detail.partition(": ")
        first = firsts.setdefault((one.node, one.sequence, where), one)
        cause = corrupt.get(one.sequence, first)
        if cause is not one:
            found[at] = one._replace(cause=name_of(cause))
    return found


class _Causes(NamedTuple):
    """What findings of one shard may follow from."""

    records: dict[int, Finding]
    """Sequence -> its changed record."""
    of_all: Finding | None
    """What changes all that the log comes to."""
    bad_views: dict[str, Finding]
    """Node -> the first of its entries and units that is wrong."""
    moved: dict[tuple[str, str], Finding]
    """(node, file) -> the changed record that has moved entries in it."""
    marks: dict[tuple[str, int], Finding]
    """(node, sequence) -> a wrong mark, by which a unit counts or does not."""
    resolves: dict[str, Finding]
    """Topic -> the first RESOLVE that acknowledges something else than was delivered."""


def _cause_of(one: Finding, known: _Causes) -> str:
    if one.severity != ERROR or one.check in _OF_THE_LEDGER:
        return one.cause
    cause = known.records.get(one.sequence) if one.node else None
    if cause is None and one.check.startswith("wheel-"):
        cause = known.marks.get((one.node, one.sequence))
    is_of_all = one.check in SUM_CHECKS or one.check == "sequence-wrong" or _is_by_position(one)
    if cause is None and is_of_all:
        cause = known.of_all
    if cause is None and one.check == "queue-order":  # the log has the changed one elsewhere in it
        cause = known.moved.get((one.node, one.file))
    if cause is None and one.check == "checkpoint" and one.position >= 0:  # what is acknowledged
        cause = known.resolves.get(one.topic)
    if cause is None and one.check == "checkpoint":
        cause = known.bad_views.get(one.node)
    return "" if cause is None else name_of(cause)


def name_of(cause: Finding) -> str:
    """What `Finding.cause` of those says that follow from it."""
    if cause.sequence >= 0:
        return f"{cause.check} of sequence {cause.sequence}"
    return f"{cause.check} at offset {cause.offset}" if cause.offset >= 0 else cause.check


def _is_by_position(one: Finding) -> bool:
    """It names what stands at a position, which another message may have moved."""
    return one.check.startswith(_BY_POSITION) or one.topic.startswith("%")


def _is_of_a_message(one: Finding) -> bool:
    return one.sequence >= 0 and one.check.startswith(("queue-", "wheel-")) and bool(one.node)
