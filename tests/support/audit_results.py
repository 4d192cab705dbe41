"""Audit results made up for tests of reports: a clean one, and one with everything wrong."""

import numpy as np

from spark_jobs.audit.facts.findings import CheckOutcome, Finding
from spark_jobs.audit.facts.result import (
    AuditResult,
    GroupAudit,
    Lateness,
    Ledger,
    PendingByHour,
    ReplicaAudit,
    ShardAudit,
    Totals,
    lateness_bins,
)
from spark_jobs.logs.replica import ERROR, INFO

START_MS = 1_803_000_000_000
HOUR_MS = 3_600_000
_HOUR_START_MS = START_MS // HOUR_MS * HOUR_MS


def clean_result(seed: int = 7) -> AuditResult:
    """Two hours of messages on three nodes, and pending ones for half a year."""
    return _result(seed, (), ())


def bad_result(seed: int = 7) -> AuditResult:
    """As `clean_result`, with errors and a check that could not be made."""
    found = (
        Finding(
            ERROR,
            "queue-missing",
            0,
            "node-2",
            file="shard-0/queues/00000100/000000000000.cq",
            sequence=4_711,
            topic="orders <b>&",
            due_ms=START_MS + 5_000,
            detail="released by the log at offset 81,920 and in no queue",
        ),
        Finding(ERROR, "log-corrupt", 0, "node-3", file="shard-0/log/0.log", offset=65_536),
        Finding(INFO, "replica-short", 0, "node-3", detail="it ends 4,096 bytes below the mark"),
    )
    checks = (CheckOutcome("wheel", 0, "node-3", "file-unread", "its checkpoint is damaged"),)
    return _result(seed, found, checks)


def _result(seed: int, found: tuple[Finding, ...], checks: tuple[CheckOutcome, ...]) -> AuditResult:
    counts = {(one.severity, one.check, one.shard): 1 for one in found}
    return AuditResult(
        cluster="8e48935ab9f548a19bd56f3fe600824b",
        shards=(_shard(seed),),
        findings=found,
        finding_counts=counts,
        checks=(
            CheckOutcome("ledger", 0, ""),
            CheckOutcome("queues", 0, "node-1", "checkpoint-behind", "its queues are behind it"),
            *checks,
        ),
        inputs=("/srv/node-1", "/srv/node-2", "/srv/node-3"),
        seconds=12.34,
        facts={"options": {"verify": "full"}, "hourwheel": "0.1.0"},
        late_ms_max=120_000,
    )


def _shard(seed: int) -> ShardAudit:
    rng = np.random.default_rng(seed)
    late_ms = np.concatenate((rng.gamma(2.0, 3.0, 20_000), [900, 12_000, 70_000])).astype(np.int64)
    bins, counts = np.unique(lateness_bins(late_ms), return_counts=True)
    half = len(bins) // 2
    topics = np.where(np.arange(len(bins)) < half, 1, 2)
    seconds = np.arange(7_200, dtype=np.int64)
    due = rng.poisson(40 + 30 * np.sin(seconds / 700)).astype(np.int64)
    cancelled = rng.binomial(due, 0.05).astype(np.int64)
    hours = np.arange(24 * 180, dtype=np.int64)
    return ShardAudit(
        shard=0,
        start_offset=0,
        end_offset=123_456_789,
        first_sequence=0,
        next_sequence=1_000_000,
        first_store_ms=START_MS - HOUR_MS,
        last_store_ms=START_MS + 2 * HOUR_MS,
        topics={1: "orders <b>&", 2: "reminders"},
        totals=Totals(1_000_000, 40, 700_000, 3_000, 9_000, 290_960, 0, 1_200, 3, 9_100, 70_000),
        replicas=tuple(
            ReplicaAudit(
                f"node-{n}", f"/srv/node-{n}", 0, 123_456_789 - 4_096 * (n == 3), 123_000_000,
                120_000_000, 50_000, 1_000_000, 123_456_789, int(n == 3), 0, 4_096 * (n == 3),
                -1 if n < 3 else 65_536, 701_200, 290_960,
            )
            for n in (1, 2, 3)
        ),
        groups=(
            GroupAudit(
                1, "billing", 1, "orders <b>&", 400_000, 399_000, 5, 900, 3, 97, 12, START_MS, 0,
                {1: 400_000, 2: 880, 3: 20},
            ),
        ),
        lateness=Lateness(
            topics, np.full(len(bins), _HOUR_START_MS), bins, counts.astype(np.int64)
        ),
        ledger=Ledger(
            1_000, START_MS + 1_000 * seconds, due, due - cancelled, cancelled, 0 * seconds
        ),
        pending=PendingByHour(
            _HOUR_START_MS + HOUR_MS * hours,
            (2_000 * np.exp(-hours / 900) * (1 + np.sin(hours * np.pi / 12))).astype(np.int64),
        ),
        epochs=((1, 0, START_MS - HOUR_MS, "node-1"), (2, 5_000_000, START_MS, "node-2")),
    )  # fmt: skip
