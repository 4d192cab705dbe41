"""What consumer groups made of what was released to them, by the log alone.

A RESOLVE row counts for a position where the group reads that queue, the position was released
before and not yet trimmed, and no row before it was about that position. So of all rows about a
position the first one counts, whatever it says; for a topic's own queues that is computed for all
positions at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import FOREVER, Timeline
from spark_jobs.audit.checks.releases import COVER
from spark_jobs.audit.checks.retries import Retries
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.result import GroupAudit
from spark_jobs.logs.replica import ERROR, INFO

Array = NDArray[Any]
_NOBODY: Final = np.int32(-1)
_PIECE: Final = 1 << 22
EARLY_MS: Final = 1_000
"""Clocks of masters may differ so far: a RESOLVE by another one's clock is not called early."""
_OUTCOMES: Final = {int(one): one.name.lower() for one in Outcome}

OldestMs = Callable[[int, int], int]
"""(topic_queue, position) -> release time of that entry, -1 where it is unknown."""


@dataclass
class StaticQueue:
    """A topic's own queue: what is known of it when the log ends."""

    released: int
    starts: list[tuple[int, int]] = field(default_factory=list)
    """(offset of a TRIM record, first position that is left behind it), ascending."""

    @property
    def start(self) -> int:
        """First position that is left in the end."""
        return self.starts[-1][1] if self.starts else 0


def trim_queue(
    released: int, chunks: Array, trims: list[tuple[int, int]], chunk_entries: int
) -> StaticQueue:
    """Where TRIM records have moved the start of a queue to.

    Args:
        released: entries that it ever got.
        chunks: `audit_releases.CHUNK_FACT` of this queue, by chunk.
        trims: (offset of a TRIM record, what is released from when on it leaves), in order.
        chunk_entries: entries of a chunk.
    """
    queue, number = StaticQueue(released), 0
    rows = chunks.tolist()
    for offset, from_ms in trims:
        before = number
        while number < len(rows):
            _, _, count, full_at, latest_ms = rows[number]
            if count < chunk_entries or full_at >= offset or latest_ms >= from_ms:
                break
            number += 1
        if number > before:
            queue.starts.append((offset, number * chunk_entries))
    return queue


@dataclass
class GroupFacts:
    """What the RESOLVE rows of a shard come to."""

    findings: list[Finding] = field(default_factory=list)
    winners: dict[tuple[int, int], Array] = field(default_factory=dict)
    """(group, topic_queue) -> int32[released]: index of the row that counts, -1 for none."""
    counts: Array = field(default_factory=lambda: np.empty(0, np.bool_))
    """bool[n]: rows of groups that read the queue."""


def check_rows(
    resolves: Array,
    covers: Array,
    queues: dict[int, StaticQueue],
    line: Timeline,
    shard: int,
) -> GroupFacts:
    """Decide which RESOLVE rows about topics' own queues count, and for which positions.

    Args:
        resolves: `audit_records.RESOLVE`[n], in the order of the log.
        covers: `audit_releases.COVER` rows, any number a row.
        queues: topics' own queues by topic_queue.
        line: topics, groups and subscriptions.
        shard: for the findings.
    """
    facts = GroupFacts()
    cover = _merged(covers, len(resolves))
    facts.findings += _unknown(resolves, line, shard)
    facts.counts = _subscribed(resolves, line)
    static = facts.counts & ~np.isin(resolves["topic_queue"] >> QUEUE_BITS, list(line.internal))
    size = resolves["end"] - resolves["first"]
    unborn = static & ((cover["count"] < size) | (cover["offset"] >= resolves["offset"]))
    for index in np.flatnonzero(unborn).tolist():
        known = queues.get(int(resolves["topic_queue"][index]), StaticQueue(0))
        facts.findings.append(undelivered(resolves[index], known.released, line, shard))
    early = static & ~unborn & (cover["ms"] > resolves["store_ms"] + EARLY_MS)
    for index in np.flatnonzero(early).tolist():
        row = resolves[index]
        ahead = int(cover["ms"][index]) - int(row["store_ms"])
        detail = f"{_what(row, line)} {ahead} ms before the last of them could be seen"
        facts.findings.append(_finding("ack-early", row, line, shard, detail))
    keys = resolves["group_id"].astype(np.int64) << 32 | resolves["topic_queue"]
    for key in np.unique(keys[static]).tolist():
        group_id, topic_queue = key >> 32, key & 0xFFFFFFFF
        queue = queues.get(topic_queue)
        if queue is not None:
            mine = np.flatnonzero(static & (keys == key))
            facts.winners[group_id, topic_queue] = _winners(resolves, mine, queue)
    return facts


def _unknown(resolves: Array, line: Timeline, shard: int) -> list[Finding]:
    """Rows that no node writes: of groups that there never were by then, with unknown outcomes.

    What a group had in hand when it was deleted may still be resolved.
    """
    found = []
    for group_id in np.unique(resolves["group_id"]).tolist():
        born = min((at for at, _ in line.groups.get(group_id, [])), default=FOREVER)
        rows = resolves[(resolves["group_id"] == group_id)]
        early = rows["offset"].astype(np.int64) <= born
        for row in rows[early]:
            detail = f"{_what(row, line)}: there was no such group"
            found.append(_finding("resolve-unknown", row, line, shard, detail))
    odd = resolves[~np.isin(resolves["outcome"], list(_OUTCOMES))]
    found += [_finding("resolve-unknown", row, line, shard, _what(row, line)) for row in odd]
    return found


def _merged(covers: Array, count: int) -> Array:
    found = np.zeros(count, COVER)
    found["ms"] = -FOREVER
    np.add.at(found["count"], covers["index"].astype(np.int64), covers["count"])
    np.maximum.at(found["offset"], covers["index"].astype(np.int64), covers["offset"])
    np.maximum.at(found["ms"], covers["index"].astype(np.int64), covers["ms"])
    return found


def _subscribed(resolves: Array, line: Timeline) -> NDArray[np.bool_]:
    """bool[n]: whether the group reads the queue where the row is applied."""
    found = np.zeros(len(resolves), np.bool_)
    keys = resolves["group_id"].astype(np.int64) << 32 | (resolves["topic_queue"] >> QUEUE_BITS)
    for key in np.unique(keys).tolist():
        mine = np.flatnonzero(keys == key)
        offsets = resolves["offset"][mine]
        for begin, value in line.subscriptions.get((key >> 32, key & 0xFFFFFFFF), []):
            behind = offsets.astype(np.int64) > begin
            found[mine[behind]] = value is not None
    for index in np.flatnonzero(resolves["outcome"] == Outcome.REDRIVE).tolist():
        row = resolves[index]
        group_id, topic_queue = int(row["group_id"]), int(row["topic_queue"])
        found[index] = line.owns_letters(group_id, topic_queue, int(row["offset"]))
    return found


def _winners(resolves: Array, mine: Array, queue: StaticQueue) -> Array:
    """int32[released]: the first row about each position."""
    found = np.full(queue.released, _NOBODY, np.int32)
    offsets = np.array([0, *(offset for offset, _ in queue.starts)], np.uint64)
    starts = np.array([0, *(start for _, start in queue.starts)], np.uint64)
    rows = resolves[mine]
    start = starts[np.searchsorted(offsets, rows["offset"], "left") - 1]
    released = np.uint64(queue.released)
    low = np.minimum(np.maximum(rows["first"], start), released).astype(np.int64)
    high = np.minimum(rows["end"], released).astype(np.int64)
    counts = np.maximum(high - low, 0)
    # From the last row back, so that what the first one says is stored last; a piece at a time.
    ends = np.cumsum(counts[::-1])
    begin = 0
    while begin < len(mine):
        taken = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, taken + _PIECE, "right")))
        part = np.arange(len(mine) - 1 - begin, len(mine) - 1 - end, -1)
        sizes = counts[part]
        inside = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found[np.repeat(low[part], sizes) + inside] = np.repeat(mine[part], sizes)
        begin = end
    return found


def effective(named: Array, facts: GroupFacts, resolves: Array) -> Array:
    """Of NAMED entries those that their row counts for."""
    index = named["index"].astype(np.int64)
    keys = resolves["group_id"].astype(np.int64) << 32 | resolves["topic_queue"]
    chosen = np.zeros(len(named), np.bool_)
    for (group_id, topic_queue), winners in facts.winners.items():
        mine = np.flatnonzero(keys[index] == (group_id << 32 | topic_queue))
        at = named["position"][mine].astype(np.int64)
        chosen[mine] = winners[at] == index[mine]
    chosen &= named["offset"] < resolves["offset"][index]
    return named[chosen]


def sum_up(
    resolves: Array,
    facts: GroupFacts,
    queues: dict[int, StaticQueue],
    retries: Retries,
    line: Timeline,
    oldest_ms: OldestMs,
) -> list[GroupAudit]:
    """One row for each group and topic that it reads, as of the end of the log."""
    found = []
    for (group_id, topic_id), changes in sorted(line.subscriptions.items()):
        subscription = changes[-1][1]
        if subscription is None or topic_id == subscription.retry_topic_id:
            continue
        if line.window_ends.get((group_id, topic_id), FOREVER) < FOREVER:
            continue  # it has begun anew since
        own = {key: queue for key, queue in queues.items() if key >> QUEUE_BITS == topic_id}
        counts = [
            _count(resolves, facts.winners.get((group_id, key)), queue)
            for key, queue in own.items()
        ]
        acked, filtered, waiting, trimmed = (sum(one[at] for one in counts) for at in range(4))
        ages = [oldest_ms(key, one[4]) for key, one in zip(own, counts, strict=True) if one[4] >= 0]
        dynamic = [
            key
            for key in retries.queues
            if key >> QUEUE_BITS == subscription.retry_topic_id or key >> QUEUE_BITS == topic_id
        ]
        attempts = {1: sum(queue.released for queue in own.values())}
        for key in dynamic:
            queue = retries.queues[key]
            window = retries.windows.get((group_id, key))
            resolved = window.floor + sum(b - a for a, b in window.ranges()) if window else 0
            waiting += len(queue.entries) - max(resolved, queue.start)
            acked += retries.acked[group_id, key]
            filtered += retries.filtered[group_id, key]
            first = window.floor if window else 0
            if first < len(queue.entries):
                ages.append(max(queue.entries[first].due_ms, queue.entries[first].store_ms))
            for one in queue.entries:
                attempts[one.tried] = attempts.get(one.tried, 0) + 1
        retry_topic_id = subscription.retry_topic_id
        pending = sum(
            one.topic_queue >> QUEUE_BITS == retry_topic_id and one.end >= FOREVER
            for one in retries.scheduled
        )
        sources = {topic_id, int(subscription.retry_topic_id)}
        found.append(
            GroupAudit(
                line.real_groups.get(group_id, group_id),
                line.group_names.get(group_id, f"#{group_id}"),
                topic_id,
                line.name_of(topic_id),
                released=sum(queue.released for queue in own.values()),
                acked=acked,
                filtered=filtered,
                retries=sum(retries.retried[group_id, one] for one in sources),
                dead=sum(
                    1
                    for one in retries.dead
                    if one.group_id == group_id and one.topic_id in sources
                ),
                outstanding=waiting,
                retry_pending=pending,
                oldest_outstanding_ms=min((age for age in ages if age >= 0), default=-1),
                trimmed_unacked=trimmed,
                attempts=dict(sorted(attempts.items())),
            )
        )
    return found


def _count(
    resolves: Array, winners: Array | None, queue: StaticQueue
) -> tuple[int, int, int, int, int]:
    """Of one queue: acked, filtered, outstanding, trimmed unacked, first outstanding or -1."""
    start = queue.start
    if winners is None:
        left = queue.released - start
        return 0, 0, left, start, start if left else -1
    taken = winners != _NOBODY
    outcomes = resolves["outcome"][winners[taken]]
    open_at = np.flatnonzero(~taken[start:])
    first = start + int(open_at[0]) if len(open_at) else -1
    acked = int((outcomes == Outcome.ACK).sum())
    filtered = int((outcomes == Outcome.FILTERED).sum())
    return acked, filtered, len(open_at), int((~taken[:start]).sum()), first


def dead_letters(retries: Retries, line: Timeline, shard: int) -> list[Finding]:
    """Each dead letter, for information."""
    return [
        Finding(
            INFO,
            "dead-letter",
            shard,
            "",
            offset=one.offset,
            sequence=one.unit.sequence,
            topic=line.name_of(one.unit.origin_topic),
            due_ms=one.unit.due_ms,
            detail=f"given up by group {line.group_names.get(one.group_id, one.group_id)}"
            f" at attempt {one.unit.tried}",
        )
        for one in retries.dead
    ]


def undelivered(row: Array, released: int, line: Timeline, shard: int) -> Finding:
    """The finding that a RESOLVE row is which names what was never released."""
    detail = f"{_what(row, line)}, of which {released} were released when the log ends"
    return _finding("ack-undelivered", row, line, shard, detail)


def _what(row: Array, line: Timeline) -> str:
    group = line.group_names.get(int(row["group_id"]), f"#{int(row['group_id'])}")
    outcome = _OUTCOMES.get(int(row["outcome"]), f"outcome {int(row['outcome'])}")
    return (
        f"{outcome} by group {group} of positions [{int(row['first'])}, {int(row['end'])}) of"
        f" queue {int(row['topic_queue']):08x}"
    )


def _finding(check: str, row: Array, line: Timeline, shard: int, detail: str) -> Finding:
    return Finding(
        ERROR,
        check,
        shard,
        "",
        offset=int(row["offset"]),
        position=int(row["first"]),
        topic=line.name_of(int(row["topic_queue"]) >> QUEUE_BITS),
        detail=detail,
    )
