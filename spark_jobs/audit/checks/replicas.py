"""Compare the replicas of a shard, and choose whose bytes the audit goes by.

Each node's log was summed up MiB by MiB (`audit_scan.BLOCK`). Where nodes disagree about a MiB, it
is read again batch by batch, and the first batch that differs is named. What most nodes have is
taken for right; in a tie, what the replica has that the audit goes by. The log that is audited is
put together from valid batches: where a node's bytes are missing or damaged, another's are taken.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.scan import BLOCK_SHIFT, ScanPart, merge_blocks
from spark_jobs.logs.replica import ERROR, INFO, ShardCopy

Array = NDArray[Any]
_NO_TAIL: Final = 1 << 62
_BLOCKS_READ_MAX: Final = 64
"""So many differing MiB are compared batch by batch; the others are only counted."""


OffsetRange = tuple[int, int]
"""[first, end) of the log."""


class Span(NamedTuple):
    """Valid batches [from_offset, to_offset) of one file of one node, one behind the other."""

    node: str
    path: str
    from_offset: int
    to_offset: int


@dataclass
class NodeLog:
    """One node's log of a shard, as a scan found it."""

    node: str
    copy: ShardCopy
    spans: list[Span] = field(default_factory=list)
    """Ascending; gaps are missing or damaged."""
    blocks: Array = field(default_factory=lambda: merge_blocks([]))
    batches: int = 0
    messages: int = 0
    whole_bytes: int = 0
    damage_count: int = 0
    tail_offset: int = _NO_TAIL
    """From here on it has other bytes than those that were committed, and knew of no commit: what a
    master wrote that was cut off. It goes when the node follows again."""

    @property
    def end_offset(self) -> int:
        """Behind the last valid batch."""
        return self.spans[-1].to_offset if self.spans else self.copy.start_offset

    def covers(self, from_offset: int, to_offset: int) -> int:
        """How many bytes of a range are valid here."""
        return sum(
            max(0, min(one.to_offset, to_offset) - max(one.from_offset, from_offset))
            for one in self.spans
        )


def collect(node: str, copy: ShardCopy, parts: Sequence[ScanPart]) -> NodeLog:
    """Put the parts of one node's log together."""
    log = NodeLog(node, copy)
    for part in sorted(parts, key=lambda one: one.where.from_offset):
        log.batches += part.batches
        log.messages += part.messages
        log.whole_bytes += part.whole_bytes
        log.damage_count += sum(1 for one in part.damages if not one.is_expected)
        at = part.where.from_offset
        for damage in sorted(part.damages, key=lambda one: one.offset):
            if is_readable(damage.reason):
                continue
            _extend(log.spans, Span(node, part.where.path, at, min(damage.offset, part.end_offset)))
            at = max(at, damage.offset + damage.length)
        _extend(log.spans, Span(node, part.where.path, at, part.end_offset))
    log.blocks = merge_blocks([part.blocks for part in parts if len(part.blocks)])
    return log


def is_readable(reason: str) -> bool:
    """Whether a range that is reported is a valid batch all the same: one of an unknown kind."""
    return reason == "unknown-kind"


def _extend(spans: list[Span], one: Span) -> None:
    if one.from_offset >= one.to_offset:
        return
    last = spans[-1] if spans else None
    if last and (last.node, last.path, last.to_offset) == (one.node, one.path, one.from_offset):
        spans[-1] = spans[-1]._replace(to_offset=one.to_offset)
    else:
        spans.append(one)


def common_end(logs: Sequence[NodeLog]) -> int:
    """How far the shard's log is known to be committed.

    The highest that any replica knows; of nodes without peers, what they have.
    """
    marks = [log.copy.committed_offset for log in logs if log.copy.high_watermark is not None]
    marks += [log.end_offset for log in logs if log.copy.high_watermark is None]
    applied = [log.copy.applied_offset for log in logs]
    return max([*marks, *applied], default=0)


def is_hole(logs: Sequence[NodeLog], end: int) -> bool:
    """Whether something behind the audited log's end is lost on all nodes that are here.

    Else it is still to be written, or lies on other nodes: a follower may learn of a high watermark
    before it has written up to it.
    """
    return any(max(log.end_offset, log.copy.durable_offset) > end for log in logs)


def put_together(
    logs: Sequence[NodeLog], base: str, bad: dict[str, list[OffsetRange]]
) -> tuple[list[Span], int, int]:
    """The log that is audited, from valid batches of all nodes.

    Args:
        logs: of all nodes.
        base: the node to prefer.
        bad: node -> stretches in which it differs from most others: not taken if any other is
            there.

    Returns:
        (spans one behind the other, where they begin, where they end): they end at the first range
        that no node has, or at the end of the longest log.
    """
    order = sorted(logs, key=lambda log: log.node != base)
    begin = min((log.spans[0].from_offset for log in logs if log.spans), default=0)
    at, found = begin, list[Span]()
    while True:
        best = _span_at(order, at, bad) or _span_at(order, at, {})
        if best is not None:
            _extend(found, best)
            at = best.to_offset
            continue
        later = _begins_later(logs, at)
        if later is None:
            return found, begin, at
        begin = at = later
        found = []


def _begins_later(logs: Sequence[NodeLog], at: int) -> int | None:
    """Where the log begins for all nodes that go on behind an offset; None: some have a gap there.

    What ends at `at` is then the log of a node that was away for so long that the others have
    trimmed theirs: it needs a snapshot, and no part of the log is lost.
    """
    beyond = [log for log in logs if log.end_offset > at]
    starts = [log.spans[0].from_offset for log in beyond if log.copy.start_offset > at]
    return min(starts) if starts and len(starts) == len(beyond) else None


def _span_at(order: Sequence[NodeLog], at: int, bad: dict[str, list[OffsetRange]]) -> Span | None:
    """The part of a preferred node's span that begins at an offset, up to a stretch to avoid."""
    for log in order:
        for span in log.spans:
            stop = min(span.to_offset, log.tail_offset)
            if not span.from_offset <= at < stop:
                continue
            avoided = bad.get(log.node, ())
            if any(first <= at < end for first, end in avoided):
                continue
            end = min([stop, *(first for first, _ in avoided if first > at)])
            return span._replace(from_offset=at, to_offset=end)
    return None


class Batches(NamedTuple):
    """The valid batches of one node that begin in a range of offsets."""

    offset: Array
    """uint64[n]."""
    end: Array
    digest: list[bytes]
    files: list[str]


ReadBatches = Callable[[str, int, int], Batches]
"""(node, from offset, to offset) -> its batches."""


@dataclass
class Comparison:
    """What comparing the replicas of a shard comes to."""

    findings: list[Finding] = field(default_factory=list)
    diverges_at: dict[str, int] = field(default_factory=dict)
    """Node -> first offset at which it differs."""
    bad: dict[str, list[OffsetRange]] = field(default_factory=dict)
    """Node -> [first, end) of stretches in which it differs from what most have. Both are edges of
    batches of those who are right: the log can be cut there."""
    counts: Counter[str] = field(default_factory=Counter)
    """Node -> batches in which it differs, as far as they were looked at."""
    unread: int = 0
    """Differing blocks beyond those that were looked at."""


def compare(
    logs: Sequence[NodeLog], base: str, end_offset: int, shard: int, read: ReadBatches
) -> Comparison:
    """Compare all logs below `end_offset`, and name what differs.

    Args:
        logs: of all nodes.
        base: the node that the audit goes by, where there is no majority.
        end_offset: of what is committed; what lies above may differ.
        shard: for the findings.
        read: gives the batches of a node, for the few MiB that differ.
    """
    result, left = Comparison(), _BLOCKS_READ_MAX
    for block in _differing_blocks(logs, end_offset):
        rows = {_row(log, block) for log in logs if block << BLOCK_SHIFT < log.tail_offset}
        if len(rows - {None}) < 2:  # noqa: PLR2004 - all that are left agree
            continue
        if left:
            left -= 1
            _look_into(block, logs, base, end_offset, shard, read, result)
        else:
            result.unread += 1
    for node, count in result.counts.items():
        result.findings = [
            one._replace(detail=f"{one.detail}; {count} or more batches differ")
            if one.node == node and count > 1 and one.check == "replica-diverges"
            else one
            for one in result.findings
        ]
    return result


def _row(log: NodeLog, block: int) -> bytes | None:
    at = int(np.searchsorted(log.blocks["block"], np.uint64(block)))
    if at == len(log.blocks) or int(log.blocks["block"][at]) != block:
        return None
    raw: bytes = log.blocks[at].tobytes()
    return raw


def _differing_blocks(logs: Sequence[NodeLog], end_offset: int) -> list[int]:
    """Blocks that two nodes have and sum up differently; those the log ends in, too."""
    known: dict[int, set[bytes]] = {}
    for log in logs:
        last = (end_offset - 1) >> BLOCK_SHIFT
        for row in log.blocks[log.blocks["block"] <= np.uint64(max(last, 0))]:
            known.setdefault(int(row["block"]), set()).add(row.tobytes())
    return sorted(block for block, rows in known.items() if len(rows) > 1)


class _Batch(NamedTuple):
    """What a node has at an offset."""

    end: int
    digest: bytes
    """Empty: the offset is inside of a batch."""
    file: str


def _note_insides(found: dict[int, dict[str, _Batch]], logs: Sequence[NodeLog]) -> None:
    """Where others begin a batch, and a node has valid bytes and no beginning, it has another one.

    Without this a node whose batches have other lengths than the others' would differ in the first
    of them only.
    """
    for offset, every in found.items():
        for log in logs:
            if log.node not in every:
                for span in log.spans:
                    if span.from_offset <= offset < span.to_offset:
                        every[log.node] = _Batch(offset, b"", span.path)


def _avoid(ranges: list[OffsetRange], first: int, end: int) -> None:
    if end <= first:  # most have no batch there: it is inside of the stretch before
        return
    if ranges and ranges[-1][1] >= first:
        ranges[-1] = (ranges[-1][0], max(ranges[-1][1], end))
    else:
        ranges.append((first, end))


def _look_into(
    block: int,
    logs: Sequence[NodeLog],
    base: str,
    end_offset: int,
    shard: int,
    read: ReadBatches,
    result: Comparison,
) -> None:
    """Compare the batches of one block; the logs' `tail_offset` is set where one begins."""
    begin, end = block << BLOCK_SHIFT, min(end_offset, (block + 1) << BLOCK_SHIFT)
    found: dict[int, dict[str, _Batch]] = {}
    by_node = {log.node: log for log in logs}
    for log in logs:
        batches = read(log.node, begin, min(end, log.tail_offset))
        columns = (batches.end.tolist(), batches.digest, batches.files)
        for offset, *one in zip(batches.offset.tolist(), *columns, strict=True):
            found.setdefault(offset, {})[log.node] = _Batch(*one)
    _note_insides(found, logs)
    for offset, every in sorted(found.items()):
        nodes = {node: one for node, one in every.items() if offset < by_node[node].tail_offset}
        knowing = [node for node in nodes if by_node[node].copy.committed_offset > offset]
        votes = Counter(nodes[node].digest for node in knowing or nodes)
        if len({one.digest for one in nodes.values()}) < 2:  # noqa: PLR2004 - all agree
            continue
        top = max(votes.values())
        right = next(digest for digest, count in votes.items() if count == top)
        if base in nodes and votes[nodes[base].digest] == top:
            right = nodes[base].digest
        last = max(one.end for one in nodes.values() if one.digest == right)
        agreeing = ", ".join(sorted(node for node, one in nodes.items() if one.digest == right))
        for node, (_, digest, file) in sorted(nodes.items()):
            if digest == right:
                continue
            if knowing and node not in knowing:
                by_node[node].tail_offset = offset
                detail = f"what it has from here on was not committed, and is not what {agreeing}"
                detail += " have: it goes when the node follows again"
                result.findings.append(
                    Finding(INFO, "replica-uncommitted", shard, node, file, offset, detail=detail)
                )
                continue
            _avoid(result.bad.setdefault(node, []), offset, last)
            result.counts[node] += 1
            if node not in result.diverges_at:
                result.diverges_at[node] = offset
                detail = f"the batch at offset {offset} is not the one of {agreeing}"
                result.findings.append(
                    Finding(ERROR, "replica-diverges", shard, node, file, offset, detail=detail)
                )


def check_lengths(logs: Sequence[NodeLog], end_offset: int, shard: int) -> list[Finding]:
    """Who is behind, and who has more than is known to be committed."""
    found = []
    for log in logs:
        if log.tail_offset < _NO_TAIL:
            continue  # `_look_into` has reported it
        if log.end_offset < end_offset and log.copy.segments:
            found.append(
                Finding(
                    INFO,
                    "replica-short",
                    shard,
                    log.node,
                    log.copy.segments[-1].path,
                    log.end_offset,
                    detail=f"ends {end_offset - log.end_offset} bytes below the high watermark"
                    f" {end_offset}",
                )
            )
        if log.end_offset > end_offset:
            found.append(
                Finding(
                    INFO,
                    "replica-uncommitted",
                    shard,
                    log.node,
                    log.spans[-1].path,
                    end_offset,
                    detail=f"{log.end_offset - end_offset} bytes above the high watermark"
                    " may still go",
                )
            )
    return found
