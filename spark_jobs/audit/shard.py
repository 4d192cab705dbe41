"""The audit of one shard, step by step. Each step is a stage of tasks, and small work between them.

scan      every replica's log: digests, damage, records          -> structure, replicas
ledger    the messages of the log that the audit goes by         -> states, histograms, releases
join      releases in order, and every replica's queue entries   -> queues, sums, RESOLVE rows
wheel     every replica's delay index                            -> pending
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.audit.checks import replicas
from spark_jobs.audit.checks.catalog import Timeline, build_timeline
from spark_jobs.audit.checks.dispatch import KEY_MIN, DispatchTable, begin_at, build_table
from spark_jobs.audit.checks.impossible import aim_findings, impossible_findings
from spark_jobs.audit.checks.ledger import LedgerPart, LedgerPlan
from spark_jobs.audit.checks.replicas import NodeLog, Span
from spark_jobs.audit.checks.resets import follow_resets
from spark_jobs.audit.checks.structure import (
    cut_facts,
    damage_findings,
    epoch_findings,
    first_unknown,
    joined_facts,
    node_of,
    start_findings,
)
from spark_jobs.audit.checks.trimmed_requests import rejected_among, rejected_firsts
from spark_jobs.audit.facts.findings import CheckOutcome, Finding, FindingSet
from spark_jobs.audit.facts.lateness import LATE_MS_MAX
from spark_jobs.audit.facts.occurrences import follow_recurrences
from spark_jobs.audit.facts.priorities import priority_findings
from spark_jobs.audit.facts.records import DISPATCH
from spark_jobs.audit.facts.requests import RejectedRanges, Request
from spark_jobs.audit.facts.scan import LogFacts, ScanPart
from spark_jobs.audit.facts.transactions import follow
from spark_jobs.audit.facts.uniqueness import Known, play, with_refused
from spark_jobs.audit.steps import ScanTask, ledger_of, scan_range
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.ranges import SegmentRange, plan_ranges
from spark_jobs.logs.replica import ERROR, Inventory, Replica, ShardCopy
from spark_jobs.logs.segment_reader import read_blocks
from spark_jobs.logs.sequence_reader import IndexCopy, plan_index
from spark_jobs.runtime.runner import Runner
from spark_jobs.runtime.shuffle import Spread

Array = NDArray[Any]
Progress = Callable[[str], None]
_BYTES_A_PARTITION_MIN: Final = 1 << 20


@dataclass(frozen=True)
class AuditOptions:
    """How an audit is made."""

    partition_bytes: int = 32 << 20
    """A task reads about so much of a log."""
    bucket_messages: int = 1 << 19
    """So many releases are put in order at once: about 200 MB of a Python process."""
    lead_ms_max: int = 1_000
    """A DISPATCH may reach so far ahead of its store_ms: the nodes' `dispatch.lead_ms_max`; by
    default the largest that can be configured."""
    late_ms_max: int = LATE_MS_MAX
    """What is released later after its due time is not on time."""
    checkpoint_lag_bytes_max: int = 6 * 64 * 1024 * 1024
    """A checkpoint that is further behind the log leaves too much unchecked. By default what a node
    with the default `memtable_span_bytes` lets it fall behind before publishing has to wait."""
    expected_nodes: tuple[str, ...] = ()
    """Ids of nodes that must be there."""
    chunk_entries: int = 0
    """Entries of a chunk of a queue; 0: as the files say."""


@dataclass
class ShardState:
    """All that the steps of one shard's audit pass on."""

    shard: int
    inventory: Inventory
    runner: Runner
    options: AuditOptions
    progress: Progress
    findings: FindingSet = field(default_factory=FindingSet)
    checks: list[CheckOutcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    logs: list[NodeLog] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    ranges: list[SegmentRange] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    """Of what is audited."""
    common_end: int = 0
    """High watermark, as far as anyone knows."""
    diverges_at: dict[str, int] = field(default_factory=dict)
    facts: LogFacts = field(default_factory=LogFacts)
    line: Timeline = field(default_factory=Timeline)
    dispatch: DispatchTable = field(
        default_factory=lambda: build_table(np.empty(0, DISPATCH), 0)[0]
    )
    rejected: RejectedRanges = field(
        default_factory=lambda: RejectedRanges(np.empty(0, np.uint64), np.empty(0, np.uint64), True)
    )
    answers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What was answered about dedup keys: `Uniqueness.answers`."""
    now_ms: Callable[[], float] = lambda: 0.0
    """The clock that steps are timed by."""
    plan: LedgerPlan | None = None
    shared_plan: Any = None
    ledger: LedgerPart = field(default_factory=LedgerPart)
    spread: Spread | None = None

    @property
    def is_whole(self) -> bool:
        """The audited log begins where the shard did."""
        return self.start_offset == 0

    @property
    def first_sequence(self) -> int:
        """Of the first message that the audited log has, or would have."""
        return self.facts.first.next_sequence if self.facts.first else 0

    @property
    def copies(self) -> tuple[tuple[Replica, ShardCopy], ...]:
        """Who has what of the shard."""
        return self.inventory.copies(self.shard)

    def add(self, *found: Finding) -> None:
        """Note findings."""
        self.findings.add(found)

    def note(self, area: str, limit: str = "", reason: str = "", node: str = "") -> None:
        """Note how far a check could be made; `limit`: of `findings.LIMITS`, empty for in full."""
        self.checks.append(CheckOutcome(area, self.shard, node, limit, reason))

    def timed(self, step: str, began: float) -> None:
        """Note how long a step took."""
        self.seconds[step] = self.seconds.get(step, 0.0) + (self.now_ms() - began) / 1_000
        self.progress(f"shard {self.shard}: {step} done")


# --- scan ---------------------------------------------------------------------------------------


def scan_logs(state: ShardState) -> None:
    """Scan every replica, compare them, and choose the log that is audited."""
    began = state.now_ms()
    base = _base_of(state.copies)
    tasks = [
        ScanTask(one, with_facts=replica.node == base, moments_at=_moments_at(state))
        for replica, copy in state.copies
        for one in plan_ranges(replica, copy, partition_bytes=state.options.partition_bytes)
    ]
    parts = state.runner.map(scan_range, tasks)
    by_node: dict[str, list[ScanPart]] = {}
    for part in parts:
        by_node.setdefault(part.where.node, []).append(part)
    state.logs = [
        replicas.collect(replica.node, copy, by_node.get(replica.node, []))
        for replica, copy in state.copies
    ]
    damages = [damage for part in parts for damage in part.damages]
    state.add(*damage_findings(damages))
    state.add(*start_findings(state.logs, state.shard))
    state.common_end = max(replicas.common_end(state.logs), _vouched_end(parts))
    state.timed("scan", began)
    began = state.now_ms()
    _compare(state, base)
    state.ranges = _ranges_of(state.spans, parts, state.end_offset)
    _collect_facts(state, parts, damages)
    state.timed("compare", began)


def _vouched_end(parts: Sequence[ScanPart]) -> int:
    """How far DISPATCH records say that the log was applied, and so committed, before them.

    Marks of what is committed may be older than the log, on all nodes, after a power failure.
    """
    found = [0]
    for part in parts:
        rows = part.facts.dispatches if part.facts else np.empty(0, DISPATCH)
        is_before = rows["check_offset"] <= rows["offset"]
        found += rows["check_offset"][is_before].astype(np.int64).tolist()[-1:]
    return max(found)


def _moments_at(state: ShardState) -> tuple[int, ...]:
    """Where the replicas' checkpoints stand."""
    return tuple(sorted({copy.applied_offset for _, copy in state.copies} - {0}))


def _base_of(copies: Sequence[tuple[Replica, ShardCopy]]) -> str:
    """The node whose log is the longest and the least troubled."""

    def rank(one: tuple[Replica, ShardCopy]) -> tuple[int, int, int, int]:
        replica, copy = one
        errors = sum(1 for each in replica.problems if each.severity == ERROR)
        gaps = sum(1 for each in replica.problems if each.check == "segment-missing")
        return (-gaps, copy.committed_offset, -copy.start_offset, -errors)

    return max(copies, key=rank)[0].node


def _compare(state: ShardState, base: str) -> None:
    logs, shard = state.logs, state.shard
    read = partial(_read_batches, {replica.node: (replica, copy) for replica, copy in state.copies})
    result = replicas.compare(logs, base, state.common_end, shard, read)
    state.add(*result.findings)
    state.add(*replicas.check_lengths(logs, state.common_end, shard))
    state.diverges_at = result.diverges_at
    state.spans, state.start_offset, end = replicas.put_together(logs, base, result.bad)
    state.end_offset = min(end, state.common_end)
    if end < state.common_end and not replicas.is_hole(logs, end):
        reason = f"{state.common_end} is known to be committed, and no log that is here goes so far"
        state.note("structure", "log-unfinished", f"{reason}: it ends at {end}")
    elif end < state.common_end:
        nodes = ", ".join(log.node for log in logs)
        detail = f"no valid batch begins here on any of {nodes}, and the log goes on up to"
        detail += f" {state.common_end}: the audit ends here"
        state.add(Finding(ERROR, "log-hole", shard, "", offset=end, detail=detail))
        reason = f"the log has a hole at offset {end}, and is audited up to it"
        state.note("structure", "log-broken", reason)
    else:
        state.note("structure")
    _note_replicas(state, result.unread)


def _note_replicas(state: ShardState, unread: int) -> None:
    """How far replicas could be held against one another."""
    there = [log for log in state.logs if log.copy.segments]
    if len(there) == 1 and there[0].copy.high_watermark is not None:
        reason = f"only the replica of {there[0].node} was given"
        state.note("replicas", "replica-single", reason)
    elif unread:
        reason = f"{unread} more MiB differ and were not looked at batch by batch"
        state.note("replicas", "replica-unread", reason)
    else:
        state.note("replicas")
    known = {log.node for log in there}
    for replica in state.inventory.replicas:
        if replica.node not in known:
            reason = f"{replica.uri} has nothing of the log of shard {state.shard}"
            state.note("replicas", "replica-empty", reason, replica.node)


def _note_masters(state: ShardState) -> None:
    """Name the masters whose directories are not among those given."""
    known = {replica.node.partition("@")[0] for replica in state.inventory.replicas}
    masters = {node_of(start): start.epoch for start in state.facts.epoch_starts}
    for node, epoch in sorted(masters.items()):
        if node and node not in known:
            reason = f"it was master of epoch {epoch}, and is not among the nodes given"
            state.note("replicas", "replica-absent", reason, node)


def _read_batches(
    copies: dict[str, tuple[Replica, ShardCopy]], node: str, begin: int, end: int
) -> replicas.Batches:
    replica, copy = copies[node]
    offsets: list[Array] = [np.empty(0, np.uint64)]
    ends: list[Array] = [np.empty(0, np.uint64)]
    digests: list[bytes] = []
    files: list[str] = []
    for where in plan_ranges(replica, copy, partition_bytes=_BYTES_A_PARTITION_MIN):
        if where.to_offset <= begin or where.from_offset >= end:
            continue
        for table in read_blocks(where):
            offset = table.headers["offset"]
            chosen = table.is_whole & (offset >= begin) & (offset < end)
            offsets.append(offset[chosen])
            ends.append(offset[chosen] + table.headers["total_bytes"][chosen])
            every = table.digests()
            digests += [every[at] for at in np.flatnonzero(chosen).tolist()]
            files += [where.path] * int(chosen.sum())
    return replicas.Batches(np.concatenate(offsets), np.concatenate(ends), digests, files)


def _ranges_of(
    spans: Sequence[Span], parts: Sequence[ScanPart], end_offset: int
) -> list[SegmentRange]:
    """The audited log as ranges to read: cut where the scan's ranges were."""
    found = []
    scanned = [part.where for part in parts]
    for span in spans:
        for where in scanned:
            low = max(where.from_offset, span.from_offset)
            high = min(where.to_offset, span.to_offset, end_offset)
            if where.node == span.node and where.path == span.path and low < high:
                found.append(where._replace(from_offset=low, to_offset=high, is_tail=False))
    return sorted(found, key=lambda one: one.from_offset)


def _collect_facts(state: ShardState, parts: Sequence[ScanPart], damages: Sequence[Damage]) -> None:
    """The records of the audited log; ranges that were taken from other nodes are read again."""
    ready = {
        (part.where.node, part.where.from_offset): part
        for part in parts
        if part.facts is not None and all(one.is_expected for one in part.damages)
    }
    again = []
    for where in state.ranges:
        part = ready.get((where.node, where.from_offset))
        if part is None or part.end_offset > where.to_offset:
            again.append(
                ScanTask(where, with_facts=True, is_verified=True, moments_at=_moments_at(state))
            )
    read = {
        (one.where.node, one.where.from_offset): one for one in state.runner.map(scan_range, again)
    }
    chosen: list[tuple[SegmentRange, LogFacts]] = []
    for where in state.ranges:
        part = read.get((where.node, where.from_offset)) or ready[where.node, where.from_offset]
        if part.facts is not None:
            chosen.append((where, part.facts))
    facts, edges = joined_facts(chosen)
    state.add(*edges)
    unknown = first_unknown(facts, damages, state.end_offset, state.shard)
    if unknown is not None:
        state.add(*unknown.findings)
        state.end_offset = unknown.offset
        state.ranges = [
            one._replace(to_offset=min(one.to_offset, unknown.offset))
            for one in state.ranges
            if one.from_offset < unknown.offset
        ]
        facts = cut_facts(facts, unknown.offset)
        reason = f"only up to offset {unknown.offset}: {unknown.why}"
        state.note("ledger", "record-unknown", reason)
    state.facts = facts
    _note_masters(state)
    state.add(*epoch_findings(facts, state.logs, state.start_offset, state.shard))


def checkpoint_limit(state: ShardState, copy: ShardCopy) -> tuple[str, str]:
    """(limit, reason): how far views that stand at a checkpoint can be held against the log."""
    applied, end = copy.applied_offset, state.end_offset
    if applied > end:
        return (
            "checkpoint-ahead",
            f"the audited log ends at {end}, and its checkpoint is of {applied}",
        )
    if applied == end:
        return "", ""
    reason = (
        f"up to its checkpoint at offset {applied}, {end - applied:,} bytes behind the log's end"
    )
    is_far = end - applied > state.options.checkpoint_lag_bytes_max
    return "checkpoint-far-behind" if is_far else "checkpoint-behind", reason


# --- ledger -------------------------------------------------------------------------------------


def make_ledger(state: ShardState) -> None:
    """Tell what became of every message, and spread the releases to where they are put in order."""
    began = state.now_ms()
    facts, shard = state.facts, state.shard
    manifest = None
    if not state.is_whole:
        manifests = [copy.manifest for _, copy in state.copies]
        manifest = max(
            (one for one in manifests if one is not None),
            key=lambda one: one.applied_offset,
            default=None,
        )
    state.line = build_timeline(
        facts.configs, manifest, shard, is_whole=state.is_whole, catalogs_at=_moments_at(state)
    )
    state.add(*state.line.findings)
    state.add(*priority_findings(facts.misplaced, state.line.queue_counts, shard))
    state.add(*aim_findings(facts.aims, state.line, shard))
    state.add(*impossible_findings(facts, shard))
    follow_resets(facts, state.line)
    state.dispatch, found = build_table(
        facts.dispatches, shard, lead_ms_max=state.options.lead_ms_max, is_whole=state.is_whole
    )
    state.add(*found)
    if not state.is_whole:
        state.dispatch = begin_at(
            state.dispatch, _first_cursor(state, manifest), state.start_offset
        )
    state.rejected = Request.find_rejected(
        facts.requests,
        facts.expires,
        state.line.deleted,
        is_whole=state.is_whole,
        rejected_before=() if state.is_whole else rejected_firsts(state.copies, facts.requests),
    )
    deals = follow(
        facts.prepares, facts.steps, facts.commits, state.line.deleted, state.start_offset
    )
    state.rejected = state.rejected.joined(deals.rejected)
    _follow_recurrences(state)
    if not state.rejected.is_certain:
        reason = "some producers' requests come in an order that does not tell which are rejected"
        state.note("ledger", "request-order", reason)
    unique = play(facts.dedups, _known(state), _look_up_of(state))
    state.rejected = with_refused(state.rejected, unique.refused)
    state.answers = unique.answers
    state.plan = _plan(state, unique.replaced)
    count = len(state.plan.bucket_edges) + 1
    state.shared_plan = state.runner.share(state.plan)
    state.spread = state.runner.spread(partial(ledger_of, state.shared_plan), state.ranges, count)
    for part in state.spread.facts():
        state.ledger.merge(part)
    _note_ledger(state)
    state.timed("ledger", began)


def _follow_recurrences(state: ShardState) -> None:
    """Tell which occurrences are none, and those that come twice."""
    facts = state.facts
    cancelled = facts.cancels["sequence"].tolist() if len(facts.occurrences) else []
    found = follow_recurrences(
        facts.recurrences,
        facts.occurrences,
        state.line.deleted,
        cancelled,
        state.start_offset,
    )
    state.rejected = state.rejected.with_others(found.rejected)
    for one in found.repeated:
        name = one.name.replace("\n", " / ")
        detail = f"of recurrence {name}: sequence {one.before} is due then, or later, too"
        state.add(
            Finding(
                ERROR,
                "occurrence-repeated",
                state.shard,
                "",
                offset=one.offset,
                sequence=one.sequence,
                due_ms=one.due_ms,
                detail=detail,
            )
        )


def _first_cursor(state: ShardState, manifest: Checkpoint | None) -> tuple[int, int]:
    """The cursor where a log begins that does not begin at 0."""
    records = state.facts.dispatches
    if len(records):
        return int(records["prev_due_ms"][0]), int(records["prev_sequence"][0])
    if manifest is not None and manifest.HasField("cursor"):
        return manifest.cursor.due_ms, manifest.cursor.sequence
    return KEY_MIN


def _note_ledger(state: ShardState) -> None:
    if any(one.area == "ledger" for one in state.checks):
        return
    if state.is_whole:
        state.note("ledger")
    else:
        reason = f"the log begins at offset {state.start_offset}: messages before it are not in it"
        state.note("ledger", "log-trimmed", reason)


def _known(state: ShardState) -> Known:
    """What decides about dedup keys."""
    born, died = state.line.lives()
    return Known(
        state.dispatch,
        _in_order(state.facts.cancels),
        _moves_in_order(state.facts.moves),
        state.rejected,
        born,
        died,
        state.facts.levels,
        state.is_whole,
    )


def _look_up_of(state: ShardState) -> Callable[[Array], set[int]] | None:
    """What the nodes took for no messages, where the log cannot tell."""
    return None if state.is_whole else partial(rejected_among, state.copies)


def _in_order(cancels: Array) -> Array:
    found: Array = cancels[np.lexsort((cancels["offset"], cancels["sequence"]))]
    return found


def _moves_in_order(moves: Array) -> Array:
    found: Array = moves[np.lexsort((moves["row"], moves["offset"], moves["sequence"]))]
    return found


def _plan(state: ShardState, replaced: Array) -> LedgerPlan:
    facts = state.facts
    cancels = _in_order(np.concatenate((facts.cancels, replaced)))
    born, died = state.line.lives()
    epochs = [(one.next_sequence, one.epoch) for one in facts.epoch_starts]
    if not state.is_whole and facts.first is not None:
        epochs.insert(0, (facts.first.next_sequence, facts.first.epoch))
    applied = sorted({copy.applied_offset for _, copy in state.copies if copy.applied_offset} - {0})
    applied = [one for one in applied if one <= state.end_offset]
    return LedgerPlan(
        state.shard,
        state.end_offset,
        state.dispatch,
        state.rejected,
        cancels,
        np.array([first for first, _ in epochs], np.uint64),
        np.array([epoch for _, epoch in epochs], np.uint32),
        born,
        died,
        state.line.genes(),
        _edges(state, applied),
        tuple(applied),
        state.options.late_ms_max,
        _last_store_ms(state),
        _indexes(state),
        _moves_in_order(facts.moves),
    )


def _indexes(state: ShardState) -> tuple[IndexCopy, ...]:
    """Of which sequence indexes the log tells what they must hold."""
    if not state.rejected.is_certain:
        return ()  # nor does the ledger: it says so
    return tuple(
        plan_index(replica, copy, copy.manifest)
        for replica, copy in state.copies
        if copy.manifest is not None and copy.applied_offset
    )


def _last_store_ms(state: ShardState) -> int:
    """When the audited log's last record was stored; -1 where the log goes on behind it."""
    last = state.facts.last
    return last.store_ms if last is not None and last.end_offset <= state.end_offset else -1


def _edges(state: ShardState, applied: list[int]) -> Array:
    """Where buckets of releases end, so that none has many more than it should.

    What a DISPATCH says was released before tells how releases spread over the log; so do the
    messages themselves, of which some are released where they are published. A wrong number makes
    unequal buckets, and nothing else. The checkpoints' offsets are edges too, so that counts are
    known there.
    """
    size = state.options.bucket_messages
    records = state.facts.dispatches
    found = [np.array(applied, np.uint64)]
    if len(records):
        counts = np.maximum.accumulate(records["check_count"])
        counts = np.minimum(counts - counts[0], np.uint64(4 * max(state.facts.messages, 1)))
        steps = counts // np.uint64(size)
        found.append(records["offset"][np.flatnonzero(steps[1:] != steps[:-1]) + 1])
    total, per_range = 0, max(1, state.facts.messages // max(1, len(state.ranges)))
    for where in state.ranges:
        total += per_range
        if total >= size:
            found.append(np.array([where.to_offset], np.uint64))
            total = 0
    return np.unique(np.concatenate(found))
