"""What a delivery audit gives: the verdict, the findings and the facts that a report shows.

    result = audit(spark, ["/var/lib/hourwheel"])
    result.verdict        CLEAN, LATE, FAULTY or INCOMPLETE; `verdict.exit_code` for a process
    result.findings       rows for people and for Parquet (`findings_table`)
    result.shards         per shard: replicas, ledger, groups, pending, lateness
    result.summary()      all of it that fits on a page, ready for `json.dumps`

Everything is plain values and numpy arrays on the driver, bounded whatever the size of the logs:
histograms, one row a second (or a longer step where the span is long), one row an hour.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.audit.facts.findings import (
    FINDING_COLUMNS,
    LATE_CHECKS,
    SEVERITIES,
    CheckOutcome,
    Finding,
    columns_of,
)
from spark_jobs.audit.facts.lateness import LATE_MS_MAX
from spark_jobs.logs.replica import ERROR

if TYPE_CHECKING:
    import pyarrow as pa

I64 = NDArray[np.int64]

EXACT_MS: Final = 10_000
"""Lateness is counted by the millisecond up to here (bins 0 .. EXACT_MS), then in wider bins."""
_STEPS_PER_OCTAVE: Final = 4
BIN_COUNT: Final = EXACT_MS + 1 + 36 * _STEPS_PER_OCTAVE
"""Bins of a lateness histogram; the last one has no upper end."""


def lateness_bins(late_ms: I64) -> I64:
    """int64[n]: the bin of each lateness, an integer in ms, 0 or more."""
    bins = np.minimum(late_ms, EXACT_MS)
    far = late_ms > EXACT_MS
    if far.any():
        octaves = np.log2(late_ms[far] / EXACT_MS)
        steps = np.ceil(octaves * _STEPS_PER_OCTAVE - 1e-9).astype(np.int64)
        bins[far] = EXACT_MS + np.clip(steps, 1, BIN_COUNT - 1 - EXACT_MS)
    return bins


def bin_upper_ms(bins: I64) -> I64:
    """int64[n]: the largest lateness in ms that falls into each bin."""
    steps = np.maximum(bins - EXACT_MS, 0)
    far = np.floor(EXACT_MS * 2.0 ** (steps / _STEPS_PER_OCTAVE)).astype(np.int64)
    return np.where(bins <= EXACT_MS, bins, far)


class Verdict(Enum):
    """What the audit says in one word; the worst: faulty, incomplete, late, clean."""

    CLEAN = "clean"
    """Everything was checked, nothing is wrong, and everything was on time."""
    FAULTY = "faulty"
    """At least one error was found."""
    INCOMPLETE = "incomplete"
    """No error was found, and something was left out: see `AuditResult.left_out`."""
    LATE = "late"
    """Everything was checked, nothing is wrong, and something was not on time."""

    @property
    def exit_code(self) -> int:
        """Of a command."""
        return {Verdict.CLEAN: 0, Verdict.FAULTY: 1, Verdict.INCOMPLETE: 2, Verdict.LATE: 3}[self]


@dataclass(frozen=True)
class Lateness:
    """How late messages of the wheel were released, as a sparse histogram.

    Lateness is `max(0, store_ms of the DISPATCH - due_ms)` of messages that went through the wheel
    (attempt 1). One row a (topic, hour of the due time, bin) that has messages, in that order. All
    arrays have one length.
    """

    topic_id: I64
    hour_ms: I64
    """Start of the hour, epoch ms."""
    bin: I64
    """See `lateness_bins`; `bin_upper_ms` gives the ms."""
    count: I64

    def percentiles(self, at: tuple[float, ...] = (0.5, 0.9, 0.99, 1.0)) -> list[int]:
        """Lateness in ms at these quantiles, of all rows; [] without any message.

        Exact up to `EXACT_MS`; above it the upper end of the bin.
        """
        return percentiles_of(self.bin, self.count, at)

    def select(self, *, topic_id: int | None = None, hour_ms: int | None = None) -> "Lateness":
        """The rows of one topic, one hour, or both."""
        chosen = np.ones(len(self.bin), np.bool_)
        if topic_id is not None:
            chosen &= self.topic_id == topic_id
        if hour_ms is not None:
            chosen &= self.hour_ms == hour_ms
        columns = (self.topic_id, self.hour_ms, self.bin, self.count)
        return Lateness(*(column[chosen] for column in columns))

    def histogram(self) -> tuple[I64, I64]:
        """(bins ascending, counts) of all rows together."""
        bins, inverse = np.unique(self.bin, return_inverse=True)
        counts = np.bincount(inverse, self.count, len(bins)).astype(np.int64)
        return bins, counts

    def by_topic_and_hour(self) -> list[tuple[int, int, int, list[int]]]:
        """(topic_id, hour_ms, messages, [p50, p90, p99, max] in ms), by topic, then hour."""
        found = []
        keys = np.stack((self.topic_id, self.hour_ms), axis=1)
        for topic_id, hour_ms in np.unique(keys, axis=0).tolist():
            part = self.select(topic_id=topic_id, hour_ms=hour_ms)
            found.append((topic_id, hour_ms, int(part.count.sum()), part.percentiles()))
        return found


def percentiles_of(bins: I64, counts: I64, at: tuple[float, ...]) -> list[int]:
    """Nearest-rank percentiles in ms of a histogram given in any order of its bins."""
    total = int(counts.sum())
    if not total:
        return []
    order = np.argsort(bins, kind="stable")
    ends = np.cumsum(counts[order])
    ranks = np.array([max(1, int(np.ceil(total * share - 1e-9))) for share in at])
    found = bins[order][np.searchsorted(ends, ranks, "left")]
    return [int(value) for value in bin_upper_ms(found)]


@dataclass(frozen=True)
class Ledger:
    """What fell due and what became of it, per step of time; only steps with something in them.

    All arrays have one length and are ordered by `start_ms`.
    """

    step_ms: int
    """1,000, or a multiple where the messages' due times span very long."""
    start_ms: I64
    due: I64
    """Accepted messages (attempt 1) with a due time in this step."""
    released: I64
    """Released in this step: at `max(due_ms, store_ms)` of the message or, where the DISPATCH was
    later, at its store_ms."""
    cancelled: I64
    """Of those due in this step: cancelled."""
    pending: I64
    """Of those due in this step: neither released nor cancelled when the log ends."""


@dataclass(frozen=True)
class PendingByHour:
    """Pending messages when the log ends, retries included, by the hour they are due in."""

    hour_ms: I64
    count: I64


class Totals(NamedTuple):
    """Counts of a shard's messages by what became of them, by the log alone."""

    published: int
    """Sequences given, refused ones included."""
    void: int
    """Of duplicate or refused batches: no message."""
    released: int
    """First releases: at once and by DISPATCH."""
    released_at_once: int
    cancelled: int
    pending: int
    """Without retries."""
    discarded: int
    """Of deleted topics, thrown away at their due time."""
    redelivered: int
    """Retries that were scheduled."""
    dead_lettered: int
    cancel_requests: int
    """CANCEL rows, those that came too late included."""
    dispatches: int
    """DISPATCH records."""


class ReplicaAudit(NamedTuple):
    """One replica of a shard beside the others."""

    node: str
    uri: str
    log_start: int
    log_end: int
    """End of the last valid batch."""
    committed_offset: int
    """What this node knows to be committed."""
    applied_offset: int
    """Of its checkpoint; 0 without any."""
    batches: int
    """Valid ones."""
    messages: int
    log_bytes: int
    """Verified."""
    damage_count: int
    """Ranges of its log that are no valid batches, below what was durable."""
    missing_bytes: int
    """Of its log, between its start and the common end, in no file or damaged."""
    lag_bytes: int
    """How far it ends below the common high watermark; 0: not at all."""
    diverges_at: int
    """Offset of the first batch that differs from the other replicas' below the common high
    watermark; -1: none does."""
    queue_entries: int
    """Entries of consume queues that were compared with the log."""
    wheel_units: int
    """Units of the delay index that were compared with the log."""


class GroupAudit(NamedTuple):
    """What one consumer group made of one topic, by the log alone."""

    group_id: int
    group: str
    topic_id: int
    topic: str
    released: int
    """Entries of the topic's queues (not of the retry topic) when the log ends."""
    acked: int
    """Messages resolved by an ack, first or later attempt."""
    filtered: int
    """Passed over, because the group's filter does not want them."""
    retries: int
    """RESOLVE retries that took effect."""
    dead: int
    """Dead letters."""
    outstanding: int
    """Released, first attempt or retry, and not resolved: waiting or leased."""
    retry_pending: int
    """Retries that wait in the wheel."""
    oldest_outstanding_ms: int
    """Release time of the oldest outstanding entry; -1 without any."""
    trimmed_unacked: int
    """Went by retention before the group acknowledged them."""
    attempts: dict[int, int]
    """Attempt -> entries released with it: the redelivery histogram."""


@dataclass(frozen=True)
class ShardAudit:
    """All facts of one shard."""

    shard: int
    start_offset: int
    """Where the audited log begins: 0, or later where it was trimmed."""
    end_offset: int
    """Where it ends: the highest offset known to be committed, that some replica has."""
    first_sequence: int
    next_sequence: int
    first_store_ms: int
    """Of the first batch; -1 in an empty log."""
    last_store_ms: int
    topics: dict[int, str]
    """Id -> name, deleted ones included."""
    totals: Totals
    replicas: tuple[ReplicaAudit, ...]
    groups: tuple[GroupAudit, ...]
    lateness: Lateness
    ledger: Ledger
    pending: PendingByHour
    epochs: tuple[tuple[int, int, int, str], ...]
    """(epoch, start offset, store_ms, node id of the master), oldest first."""
    late: int = 0
    """Messages, retries as well, that were not on time, or wait and are not."""


@dataclass(frozen=True)
class AuditResult:
    """See the top of this file."""

    cluster: str
    """Hexadecimal; empty where no directory says it."""
    shards: tuple[ShardAudit, ...]
    findings: tuple[Finding, ...]
    """Errors first; at most `findings.FINDINGS_KEPT` of each check and shard."""
    finding_counts: dict[tuple[str, str, int], int]
    """(severity, check, shard) -> how many there are, kept or not."""
    checks: tuple[CheckOutcome, ...]
    """How far each area could be checked; what is not `FULL` says why."""
    inputs: tuple[str, ...]
    """The directories, normalised."""
    seconds: float = 0.0
    """How long the audit took."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Anything else worth a line in the summary: versions, options, phases' seconds."""
    late_ms_max: int = LATE_MS_MAX
    """What was released later after its due time was not on time."""
    accepted: tuple[str, ...] = ()
    """Limits (`findings.LIMITS`) that the caller accepts: the verdict disregards them."""

    @property
    def verdict(self) -> Verdict:
        """Errors first; else whether everything was checked; else whether it was on time."""
        if any(severity == ERROR for (severity, _, _) in self.finding_counts):
            return Verdict.FAULTY
        if not self.shards or self.left_out:
            return Verdict.INCOMPLETE
        if any(check in LATE_CHECKS for (_, check, _) in self.finding_counts):
            return Verdict.LATE
        return Verdict.CLEAN

    @property
    def left_out(self) -> list[CheckOutcome]:
        """What was not checked, though it should have been."""
        return [
            one for one in self.checks if one.made.leaves_out and one.limit not in self.accepted
        ]

    def findings_table(self) -> "pa.Table":
        """The findings as an Arrow table, for Parquet; the columns of `FINDING_COLUMNS`."""
        import pyarrow as pa  # noqa: PLC0415 - cores and their tests do without it

        schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in FINDING_COLUMNS])
        return pa.table(columns_of(self.findings), schema=schema)

    def summary(self) -> dict[str, Any]:
        """Plain values for `summary.json`: counts, totals, percentiles, checks. No arrays."""
        counts = dict.fromkeys(SEVERITIES, 0)
        by_check: dict[str, int] = {}
        for (severity, check, _), count in self.finding_counts.items():
            counts[severity] += count
            by_check[check] = by_check.get(check, 0) + count
        return {
            "verdict": self.verdict.value,
            "exit_code": self.verdict.exit_code,
            "cluster": self.cluster,
            "inputs": list(self.inputs),
            "seconds": round(self.seconds, 3),
            "findings": counts,
            "findings_by_check": dict(sorted(by_check.items())),
            "left_out": [one.as_dict() for one in self.left_out],
            "accepted": list(self.accepted),
            "late_ms_max": self.late_ms_max,
            "checks": [one.as_dict() for one in self.checks],
            "shards": [_shard_summary(one) for one in self.shards],
            **self.facts,
        }


def _shard_summary(shard: ShardAudit) -> dict[str, Any]:
    names = ("p50", "p90", "p99", "max")
    late = dict(zip(names, shard.lateness.percentiles(), strict=False))
    return {
        "shard": shard.shard,
        "start_offset": shard.start_offset,
        "end_offset": shard.end_offset,
        "first_sequence": shard.first_sequence,
        "next_sequence": shard.next_sequence,
        "first_store_ms": shard.first_store_ms,
        "last_store_ms": shard.last_store_ms,
        "totals": shard.totals._asdict(),
        "lateness_ms": late,
        "late": shard.late,
        "replicas": [one._asdict() for one in shard.replicas],
        "groups": [one._asdict() for one in shard.groups],
        "epochs": [list(one) for one in shard.epochs],
    }
