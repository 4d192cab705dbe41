"""Findings about the log itself: damage, the seams between its parts, epochs, what is not known."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from hourwheel.formats.record_batch import FEATURE_LEVEL_ROW, HEADER_BYTES
from hourwheel.internal.v1.state_pb2 import EpochStart
from spark_jobs.audit.checks.replicas import NodeLog
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.scan import Blob, Edge, LogFacts, edge_findings, join_facts
from spark_jobs.logs.block_table import TORN_TAIL, UNKNOWN_KIND, UNKNOWN_VERSION, UNREADABLE, Damage
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR, INFO

FEATURE_LEVEL: Final = 14
"""The newest semantics of records that this audit knows."""
_NAMES: Final = {
    TORN_TAIL: "log-torn-tail",
    UNKNOWN_KIND: "kind-unknown",
    UNKNOWN_VERSION: "format-unknown",
    UNREADABLE: "log-missing",
}


def damage_findings(damages: Iterable[Damage]) -> list[Finding]:
    """One finding a damaged range."""
    return [
        Finding(
            INFO if one.is_expected else ERROR,
            _NAMES.get(one.reason, "log-corrupt"),
            one.shard,
            one.node,
            one.file,
            one.offset,
            one.base_sequence,
            detail=f"{one.length} bytes: {one.detail}" + _messages(one),
        )
        for one in damages
    ]


def _messages(one: Damage) -> str:
    if one.base_sequence < 0 or not one.row_count:
        return ""
    return (
        f"; its header tells of {one.row_count} messages or rows from sequence {one.base_sequence}"
    )


def joined_facts(parts: Sequence[tuple[SegmentRange, LogFacts]]) -> tuple[LogFacts, list[Finding]]:
    """The facts of neighbouring ranges as one, and what is wrong in them and at their seams."""
    found: list[Finding] = []
    last: Edge | None = None
    for where, part in parts:
        if part.first is None:
            continue
        if last is not None:
            found += edge_findings(last, part.first, where)
        found += part.findings
        last = part.last
    whole = join_facts(part for _, part in parts)
    first = whole.first
    if first is not None and first.end_offset == 0 and first.next_sequence != 0:
        where = parts[0][0]
        detail = f"sequence 0 was expected and {first.next_sequence} was found"
        found.append(
            Finding(ERROR, "sequence-gap", where.shard, where.node, where.path, 0, 0, detail=detail)
        )
    return whole, found


def start_findings(logs: Sequence[NodeLog], shard: int) -> list[Finding]:
    """A log may begin behind 0 only where a checkpoint stands for what is gone."""
    return [
        Finding(
            ERROR,
            "log-begins-late",
            shard,
            log.node,
            log.copy.segments[0].path,
            log.copy.start_offset,
            detail=f"the log begins at {log.copy.start_offset}, and its checkpoint stands at"
            f" {log.copy.applied_offset}",
        )
        for log in logs
        if log.copy.segments and log.copy.applied_offset < log.copy.start_offset
    ]


class Unknown(NamedTuple):
    """The first record that this version does not know: what follows it cannot be checked."""

    offset: int
    why: str
    findings: tuple[Finding, ...] = ()


def first_unknown(
    facts: LogFacts, damages: Sequence[Damage], end_offset: int, shard: int
) -> Unknown | None:
    """The first unknown kind or feature level below `end_offset`."""
    found = [Unknown(one.offset, one.detail) for one in damages if one.reason == UNKNOWN_KIND]
    for offset, level in facts.levels:
        if level > FEATURE_LEVEL:
            why = f"the log asks for feature level {level}, and this program knows {FEATURE_LEVEL}"
            finding = Finding(ERROR, "format-unknown", shard, "", offset=offset, detail=why)
            found.append(Unknown(offset, why, (finding,)))
    found = [one for one in found if one.offset < end_offset]
    return min(found, default=None)


def cut_facts(facts: LogFacts, offset: int) -> LogFacts:
    """The facts of the log below an offset."""
    arrays = {
        name: getattr(facts, name)[getattr(facts, name)["offset"] < offset]
        for name in (
            "dispatches",
            "cancels",
            "moves",
            "resolves",
            "holds",
            "trims",
            "expires",
            "floors",
            "requests",
            "prepares",
            "steps",
            "commits",
            "occurrences",
            "dedups",
            "misplaced",
            "aims",
        )
    }
    return replace(
        facts,
        **arrays,
        configs=[one for one in facts.configs if one.offset < offset],
        recurrences=[one for one in facts.recurrences if one.offset < offset],
        epoch_starts=[one for one in facts.epoch_starts if one.offset < offset],
        levels=[one for one in facts.levels if one[0] < offset],
    )


def node_of(start: Blob) -> str:
    """Who began an epoch; empty where the record does not say it."""
    try:
        return EpochStart.FromString(start.raw).node_id
    except DecodeError:
        return ""


def epoch_findings(
    facts: LogFacts, logs: Sequence[NodeLog], start_offset: int, shard: int
) -> list[Finding]:
    """Each epoch begins once, with an EPOCH_START, and every node's `epochs` says where."""
    found: list[Finding] = []
    begun: dict[int, int] = {}
    last = 0
    for start in facts.epoch_starts:
        if start.epoch <= last:
            detail = f"epoch {start.epoch} begins, and {last} has begun before"
            found.append(
                Finding(ERROR, "epoch-start", shard, "", offset=start.offset, detail=detail)
            )
        last = max(last, start.epoch)
        begun.setdefault(start.epoch, start.offset)
    for log in logs:
        following = [int(one.start_offset) for one in log.copy.epochs[1:]]
        for entry, behind in zip(log.copy.epochs, [*following, -1], strict=False):
            if behind == int(entry.start_offset):
                continue  # it ended before it wrote anything
            offset = begun.get(int(entry.epoch))
            begin = int(entry.start_offset)
            is_inside = start_offset <= begin < min(log.end_offset, log.tail_offset)
            if (
                offset is None
                and is_inside
                and begin < facts_end(facts) - _level_bytes(facts, begin)
            ):
                detail = f"epoch {entry.epoch} begins at {begin}, and the log has no such epoch"
            elif offset is not None and is_inside and not _is_begin(facts, begin, offset):
                detail = f"epoch {entry.epoch} begins at {begin}, and in the log at {offset}"
            else:
                continue
            file = log.copy.path("epochs")
            found.append(
                Finding(ERROR, "epoch-history", shard, log.node, file, begin, detail=detail)
            )
        known = {int(entry.epoch) for entry in log.copy.epochs}
        end = min(log.end_offset, log.tail_offset)
        known |= {epoch for epoch in begun if epoch < min(known, default=0)}
        for epoch, offset in begun.items():
            if log.copy.epochs and epoch not in known and offset < end:
                detail = f"epoch {epoch} begins at {offset} in the log, and is not in this file"
                file = log.copy.path("epochs")
                found.append(
                    Finding(ERROR, "epoch-history", shard, log.node, file, offset, detail=detail)
                )
    return found


def _level_bytes(facts: LogFacts, begin: int) -> int:
    """Size of the FEATURE_LEVEL record that may stand before an EPOCH_START; 0 without it."""
    is_there = any(at == begin for at, _ in facts.levels)
    return HEADER_BYTES + FEATURE_LEVEL_ROW.itemsize if is_there else 0


def facts_end(facts: LogFacts) -> int:
    """Where the audited log ends, by its records."""
    return facts.last.end_offset if facts.last else 0


def _is_begin(facts: LogFacts, start: int, offset: int) -> bool:
    """Whether an epoch whose EPOCH_START is at `offset` may begin at `start`.

    A FEATURE_LEVEL record may stand in front of it, in the first epoch of a version.
    """
    return start == offset or any(start <= at < offset for at, _ in facts.levels if at == start)
