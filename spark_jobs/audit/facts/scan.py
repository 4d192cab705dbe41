"""What one pass over a range of one node's log gives the audit: digests, damage, the small records.

Of PUBLISH batches nothing but counts, digests and who sent them goes to the driver; of the other
kinds every row, since they are what moves messages on:

    blocks      per MiB of the log: how many batches, and a sum of hashes over their headers. Both
                CRCs of a batch are in its header, so equal sums of verified batches are equal bytes
    facts       DISPATCH, CANCEL, RESCHEDULE, RESOLVE, TRIM, EXPIRE, PREPARE, TRANSACT rows, CONFIG
                and EPOCH_START blobs, requests of producers, commits of transactions, messages in
                a queue of another priority; only of the node whose log the audit goes by
    edges       first and last batch, so that ranges can be put together
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.facts.aims import AIM, aims_of
from spark_jobs.audit.facts.crcs import bad_in_log
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.occurrences import OCCURRENCE, Change, occurrences_of
from spark_jobs.audit.facts.priorities import MISPLACED, misplaced_of
from spark_jobs.audit.facts.records import (
    CANCEL,
    DISPATCH,
    EXPIRE,
    FIELDS,
    FLOOR,
    MOVE,
    PREPARE,
    RESOLVE,
    ROW_BUILDERS,
    STEP,
    TRIM,
)
from spark_jobs.audit.facts.requests import REQUEST, Request, requests_of
from spark_jobs.audit.facts.transactions import COMMIT, commits_of
from spark_jobs.audit.facts.uniqueness import DEDUP, dedups_of
from spark_jobs.logs.block_table import BlockTable, Damage
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR, WARNING
from spark_jobs.runtime.instants import exact_instant_text
from storage.queues.ack_state import IN_PLACE

BLOCK_SHIFT: Final = 20
"""Replicas are compared by pieces of 1 MiB of the log, by the offsets of batches."""
BLOCK: Final = np.dtype([("block", "<u8"), ("batches", "<u4"), ("sum_a", "<u8"), ("sum_b", "<u8")])
Array = NDArray[Any]
FINDINGS_MAX: Final = 100
_STARTS: Final = (int(Kind.EPOCH_START), int(Kind.FEATURE_LEVEL))
_SEEDS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT: Final = np.uint64(32)


class Edge(NamedTuple):
    """Where a part of a log ends, and what must follow on it."""

    end_offset: int
    next_sequence: int
    epoch: int
    store_ms: int
    is_start: bool = False
    """The last batch opens an epoch: it is stamped by the new master's own clock, before the
    clocks of the others are known, and so what follows may go back. Of what a batch demands: this
    batch itself does."""


class Moment(NamedTuple):
    """How things stand where records below an offset are applied."""

    next_sequence: int
    """-1: no record ends there."""
    store_ms: int
    """Largest of these records; -1: there is none."""


NO_MOMENT: Final = Moment(-1, -1)


class Blob(NamedTuple):
    """A CONFIG or EPOCH_START record."""

    offset: int
    epoch: int
    store_ms: int
    next_sequence: int
    raw: bytes


@dataclass
class LogFacts:
    """What the records of a part of the log say, in its order. Parts are joined by `join_facts`."""

    first: Edge | None = None
    """What a batch before this part must leave; None: there is no batch."""
    last: Edge | None = None
    dispatches: Array = field(default_factory=lambda: np.empty(0, DISPATCH))
    cancels: Array = field(default_factory=lambda: np.empty(0, CANCEL))
    moves: Array = field(default_factory=lambda: np.empty(0, MOVE))
    resolves: Array = field(default_factory=lambda: np.empty(0, RESOLVE))
    holds: Array = field(default_factory=lambda: np.empty(0, RESOLVE))
    """Rows of RESOLVE that resolve nothing."""
    trims: Array = field(default_factory=lambda: np.empty(0, TRIM))
    expires: Array = field(default_factory=lambda: np.empty(0, EXPIRE))
    floors: Array = field(default_factory=lambda: np.empty(0, FLOOR))
    requests: Array = field(default_factory=lambda: np.empty(0, REQUEST))
    prepares: Array = field(default_factory=lambda: np.empty(0, PREPARE))
    steps: Array = field(default_factory=lambda: np.empty(0, STEP))
    commits: Array = field(default_factory=lambda: np.empty(0, COMMIT))
    occurrences: Array = field(default_factory=lambda: np.empty(0, OCCURRENCE))
    recurrences: list[Change] = field(default_factory=list)
    dedups: Array = field(default_factory=lambda: np.empty(0, DEDUP))
    misplaced: Array = field(default_factory=lambda: np.empty(0, MISPLACED))
    aims: Array = field(default_factory=lambda: np.empty(0, AIM))
    configs: list[Blob] = field(default_factory=list)
    epoch_starts: list[Blob] = field(default_factory=list)
    levels: list[tuple[int, int]] = field(default_factory=list)
    """(offset, feature level)."""
    moments: dict[int, Moment] = field(default_factory=dict)
    """Offset of a checkpoint -> how things stand there."""
    first_store_ms: int = -1
    batches: int = 0
    messages: int = 0
    findings: list[Finding] = field(default_factory=list)
    """Of the structure."""


@dataclass
class ScanPart:
    """What a scan of one range gives."""

    where: SegmentRange
    batches: int = 0
    messages: int = 0
    whole_bytes: int = 0
    end_offset: int = 0
    """Behind the last whole batch; where the range begins without any."""
    blocks: Array = field(default_factory=lambda: np.empty(0, BLOCK))
    damages: list[Damage] = field(default_factory=list)
    facts: LogFacts | None = None


def scan(
    where: SegmentRange,
    tables: Iterable[BlockTable],
    *,
    with_facts: bool,
    moments_at: Sequence[int] = (),
) -> ScanPart:
    """Go over a range once.

    Args:
        where: the range.
        tables: its batches: `segment_reader.read_blocks(where)`.
        with_facts: also collect the records: for the node that the audit goes by.
        moments_at: offsets of checkpoints.
    """
    part = ScanPart(where, end_offset=where.from_offset)
    collector = _Collector(where, moments_at) if with_facts else None
    blocks: list[Array] = []
    for table in tables:
        part.damages += table.damages
        headers = table.headers[table.is_whole]
        if not len(headers):
            continue
        counts = headers["count"][headers["kind"] == Kind.PUBLISH]
        part.batches += len(headers)
        part.messages += int(counts.sum(dtype=np.int64))
        part.whole_bytes += int(headers["total_bytes"].sum(dtype=np.int64))
        part.end_offset = int(headers["offset"][-1]) + int(headers["total_bytes"][-1])
        blocks.append(block_sums(header_words(table.headers)[table.is_whole], headers["offset"]))
        if collector:
            collector.take(table, headers)
    part.blocks = merge_blocks(blocks)
    if collector:
        part.facts = collector.finish()
    return part


def header_words(headers: Array) -> Array:
    """uint64[n, 12]: headers as they lie in the log.

    Taken before anything is chosen among them: a copy of headers is one of their named fields only,
    and not of the bytes between them.
    """
    words: Array = headers.view("<u8").reshape(len(headers), -1)
    return words


def block_sums(words: Array, offsets: Array) -> Array:
    """BLOCK[m]: the sums over the hashes of headers, a row for each MiB that a batch begins in.

    Args:
        words: `header_words` of n batches.
        offsets: uint64[n], ascending: theirs.
    """
    sums = np.zeros((2, len(words)), np.uint64)
    for row, seed in enumerate(_SEEDS):
        value = np.full(len(words), seed, np.uint64)
        for column in range(words.shape[1]):
            value = (value ^ words[:, column]) * _FACTOR
            value ^= value >> _SHIFT
        sums[row] = value
    numbers = offsets >> np.uint64(BLOCK_SHIFT)
    firsts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    found = np.zeros(len(firsts), BLOCK)
    found["block"] = numbers[firsts]
    found["batches"] = np.diff(firsts, append=len(words))
    found["sum_a"] = np.add.reduceat(sums[0], firsts)
    found["sum_b"] = np.add.reduceat(sums[1], firsts)
    return found


def merge_blocks(parts: list[Array]) -> Array:
    """One row a block, ascending: where a block lies in several parts, their sums."""
    if not parts:
        return np.empty(0, BLOCK)
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows["block"], kind="stable")]
    firsts = np.flatnonzero(np.concatenate(([True], rows["block"][1:] != rows["block"][:-1])))
    found = rows[firsts].copy()
    for name in ("batches", "sum_a", "sum_b"):
        found[name] = np.add.reduceat(rows[name], firsts)
    return found


class _Collector:
    """Collects the facts of a range."""

    def __init__(self, where: SegmentRange, moments_at: Sequence[int]) -> None:
        self._where, self._moments_at = where, moments_at
        self._facts = LogFacts()
        self._rows: dict[int, list[Array]] = {}
        self._requests: list[Array] = []
        self._commits: list[Array] = []
        self._occurrences: list[Array] = []
        self._dedups: list[Array] = []
        self._misplaced: list[Array] = []
        self._aims: list[Array] = []
        self._bad_count = self._bad_reported = 0
        """Messages whose own CRC is wrong, and how many of them are reported one by one."""

    def take(self, table: BlockTable, headers: Array) -> None:
        facts = self._facts
        self._check(headers)
        self._note_moments(headers)
        facts.batches += len(headers)
        publishes = headers["kind"] == Kind.PUBLISH
        facts.messages += int(headers["count"][publishes].sum(dtype=np.int64))
        for kind, build in ROW_BUILDERS.items():
            owners, rows = table.rows(kind)
            if len(rows):
                self._rows.setdefault(kind, []).append(build(table.headers[owners], rows))
        for kind, found in (
            (Kind.CONFIG, facts.configs),
            (Kind.EPOCH_START, facts.epoch_starts),
        ):
            for one in table.select(kind).tolist():
                found.append(_blob(table, one))
        owners, rows = table.rows(Kind.FEATURE_LEVEL)
        offsets = table.headers["offset"][owners]
        facts.levels += zip(offsets.tolist(), rows["level"].tolist(), strict=True)
        self._requests.append(requests_of(table))
        self._commits.append(commits_of(table))
        self._occurrences.append(occurrences_of(table))
        for one in table.select(Kind.RECURRENCE).tolist():
            facts.recurrences.append(Change(int(table.headers["offset"][one]), table.blob(one)))
        self._dedups.append(dedups_of(table))
        self._misplaced.append(misplaced_of(table))
        self._aims.append(aims_of(table))
        self._verify_messages(table)

    def _verify_messages(self, table: BlockTable) -> None:
        """Each message's own CRC."""
        if not len(table.messages):
            return
        messages, bad = table.messages, bad_in_log(table)
        self._bad_count += len(bad)
        room = max(0, FINDINGS_MAX - self._bad_reported)
        self._bad_reported += len(bad[:room])
        for at in bad[:room].tolist():
            due_ms = int(messages.column("due_ms")[at])
            self._facts.findings.append(
                _finding(
                    "message-corrupt",
                    int(messages.column("offset")[at]),
                    self._where,
                    f"due {exact_instant_text(due_ms)}: its meta and body fail its own CRC32C, in"
                    " a batch whose CRCs are right, on every replica that has the same bytes",
                    int(messages.column("sequence")[at]),
                )._replace(due_ms=due_ms)
            )

    def _check(self, headers: Array) -> None:
        """What neighbouring batches must have in common; see `LogFacts.findings`."""
        facts = self._facts
        if facts.first is None:
            facts.first, facts.first_store_ms = _edge_of(headers[0]), int(headers[0]["store_ms"])
        elif facts.last is not None:
            facts.findings += edge_findings(facts.last, _edge_of(headers[0]), self._where)
        facts.findings += check_neighbours(headers, self._where)
        last = headers[-1]
        given = int(last["count"]) if int(last["kind"]) == Kind.PUBLISH else 0
        facts.last = Edge(
            int(last["offset"]) + int(last["total_bytes"]),
            int(last["base_sequence"]) + given,
            int(last["epoch"]),
            int(last["store_ms"]),
            int(last["kind"]) in _STARTS,
        )

    def _note_moments(self, headers: Array) -> None:
        moments, offset = self._facts.moments, headers["offset"].astype(np.int64)
        for at in self._moments_at:
            before = headers[offset < at]
            if not len(before):
                continue
            last = before[-1]
            given = int(last["count"]) if int(last["kind"]) == Kind.PUBLISH else 0
            is_end = int(last["offset"]) + int(last["total_bytes"]) == at
            following = int(last["base_sequence"]) + given if is_end else -1
            moment = Moment(following, int(before["store_ms"].max()))
            moments[at] = _later(moments.get(at, NO_MOMENT), moment)

    def finish(self) -> LogFacts:
        facts = self._facts
        for name, kind in FIELDS.items():
            if kind in self._rows:
                setattr(facts, name, np.concatenate(self._rows[kind]))
        named = self._rows.get(int(Kind.RECURRENCE))
        if named:
            cancels = np.concatenate((facts.cancels, *named))
            facts.cancels = cancels[np.argsort(cancels["offset"], kind="stable")]
        if self._occurrences:
            facts.occurrences = np.concatenate(self._occurrences)
        if self._dedups:
            facts.dedups = np.concatenate(self._dedups)
            facts.misplaced = np.concatenate(self._misplaced)
            facts.aims = np.concatenate(self._aims)
        facts.resolves = facts.resolves[~np.isin(facts.resolves["outcome"], list(IN_PLACE))]
        facts.holds = facts.holds[np.isin(facts.holds["outcome"], list(IN_PLACE))]
        if self._requests:
            more = [*(one.offset for one in facts.configs), *self._moments_at]
            at = np.sort(np.concatenate((facts.expires["offset"], np.array(more, np.uint64))))
            facts.requests = Request.shortened(np.concatenate(self._requests), at)
            facts.commits = np.concatenate(self._commits)
        if self._bad_count > self._bad_reported:
            rest = f"{self._bad_count - self._bad_reported:,} more messages of this part of the log"
            detail = f"{rest} fail their own CRC32C"
            begin = self._where.from_offset
            facts.findings.append(_finding("message-corrupt", begin, self._where, detail))
        return facts


def _later(one: Moment, other: Moment) -> Moment:
    """Of two parts of a log."""
    return Moment(*map(max, one, other))


def _blob(table: BlockTable, ordinal: int) -> Blob:
    header = table.headers[ordinal]
    return Blob(
        int(header["offset"]),
        int(header["epoch"]),
        int(header["store_ms"]),
        int(header["base_sequence"]),
        table.blob(ordinal),
    )


def _edge_of(header: Array) -> Edge:
    """What a batch demands of the one before it."""
    return Edge(
        int(header["offset"]),
        int(header["base_sequence"]),
        int(header["epoch"]),
        int(header["store_ms"]),
        int(header["kind"]) in _STARTS,
    )


# --- the structure ------------------------------------------------------------------------------


def check_neighbours(headers: Array, where: SegmentRange) -> list[Finding]:
    """What is wrong between batches of one piece that follow on one another, and in each."""
    offset = headers["offset"].astype(np.int64)
    ends = offset + headers["total_bytes"]
    follows = offset[1:] == ends[:-1]
    given = np.where(headers["kind"] == Kind.PUBLISH, headers["count"], 0).astype(np.int64)
    base = headers["base_sequence"].astype(np.int64)
    expected = base[:-1] + given[:-1]
    epoch, store = headers["epoch"].astype(np.int64), headers["store_ms"]
    kind = headers["kind"]
    same = (epoch[1:] == epoch[:-1]) & ~np.isin(kind[:-1], _STARTS)
    later = (epoch[1:] >= epoch[:-1]) & ~same
    bad: list[tuple[Array, str]] = [
        (follows & (base[1:] != expected), "sequence-gap"),
        (follows & (epoch[1:] < epoch[:-1]), "epoch-back"),
        (follows & (epoch[1:] > epoch[:-1]) & ~np.isin(kind[1:], _STARTS), "epoch-start"),
        (follows & same & (store[1:] < store[:-1]), "store-back"),
        (follows & later & (store[1:] < store[:-1]), "clock-skew"),
    ]
    found = []
    for mask, check in bad:
        for one in (np.flatnonzero(mask)[:FINDINGS_MAX] + 1).tolist():
            before = Edge(
                int(ends[one - 1]),
                int(expected[one - 1]),
                int(epoch[one - 1]),
                int(store[one - 1]),
            )
            found.append(_structural(check, before, _edge_of(headers[one]), where))
    ahead = headers["flushed_end_offset"] > headers["offset"]
    for one in np.flatnonzero(ahead)[:FINDINGS_MAX].tolist():
        at = int(headers["flushed_end_offset"][one])
        detail = f"says that the log was durable up to {at}"
        found.append(_finding("flushed-ahead", int(offset[one]), where, detail))
    return found


def edge_findings(before: Edge, after: Edge, where: SegmentRange) -> list[Finding]:
    """The same between the end of a part and the batch behind it, if that follows on it.

    `after` is what a batch before that one must leave: `LogFacts.first`.
    """
    if before.end_offset != after.end_offset:
        return []
    is_back = after.store_ms < before.store_ms
    same = after.epoch == before.epoch and not before.is_start
    wrong = {
        "sequence-gap": after.next_sequence != before.next_sequence,
        "epoch-back": after.epoch < before.epoch,
        "epoch-start": after.epoch > before.epoch and not after.is_start,
        "store-back": is_back and same,
        "clock-skew": is_back and not same and after.epoch >= before.epoch,
    }
    return [
        _structural(check, before, after, where) for check, is_wrong in wrong.items() if is_wrong
    ]


def _structural(check: str, before: Edge, after: Edge, where: SegmentRange) -> Finding:
    offset, base, epoch, store = after[:4]
    details = {
        "sequence-gap": f"sequence {before.next_sequence} was expected and {base} was found",
        "epoch-back": f"epoch {epoch} follows on {before.epoch}",
        "epoch-start": f"epoch {epoch} follows on {before.epoch} without an EPOCH_START",
        "store-back": f"store_ms {store} follows on {before.store_ms} in epoch {epoch}",
        "clock-skew": f"store_ms {store} of epoch {epoch} follows on {before.store_ms}",
    }
    sequence = before.next_sequence if check == "sequence-gap" else -1
    return _finding(check, offset, where, details[check], sequence)


def _finding(
    check: str, offset: int, where: SegmentRange, detail: str, sequence: int = -1
) -> Finding:
    severity = WARNING if check == "clock-skew" else ERROR
    return Finding(
        severity, check, where.shard, where.node, where.path, offset, sequence, detail=detail
    )


def join_facts(parts: Iterable[LogFacts]) -> LogFacts:
    """Parts of one log that follow on one another, in its order, as one."""
    whole = LogFacts()
    names = (*FIELDS, "requests", "commits", "occurrences", "dedups", "misplaced", "aims")
    pieces: dict[str, list[Array]] = {name: [] for name in names}
    for part in parts:
        if whole.first is None:
            whole.first, whole.first_store_ms = part.first, part.first_store_ms
        whole.last = part.last or whole.last
        for name, found in pieces.items():
            found.append(getattr(part, name))
        whole.configs += part.configs
        whole.recurrences += part.recurrences
        whole.epoch_starts += part.epoch_starts
        whole.levels += part.levels
        whole.batches += part.batches
        whole.messages += part.messages
        whole.findings += part.findings
        for at, moment in part.moments.items():
            whole.moments[at] = _later(whole.moments.get(at, NO_MOMENT), moment)
    for name, found in pieces.items():
        if found:
            setattr(whole, name, np.concatenate(found))
    return whole
