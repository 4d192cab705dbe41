"""The delivery audit: prove from the logs that every message was delivered, once and on time.

    spark = build_session("audit")
    result = audit(spark, ["/var/lib/hourwheel/node-1", "s3://copies/node-2"])
    result.verdict.exit_code

What is proven, by which facts, is in `spark_jobs.audit.facts.result` and `findings.CHECKS`; the
steps are in `audit.shard`, `audit.join` and `audit.pending`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hourwheel import errors
from hourwheel.clock import SystemClock
from spark_jobs.audit.bodies import check_bodies
from spark_jobs.audit.causes import changed_records, with_causes
from spark_jobs.audit.checks.gaps import late_retries, lateness_findings
from spark_jobs.audit.checks.ledger import (
    AT_ONCE,
    CANCELLED,
    DISCARDED,
    HOUR_MS,
    PENDING,
    REJECTED,
    RELEASED,
)
from spark_jobs.audit.checks.structure import node_of
from spark_jobs.audit.facts.findings import CheckOutcome, FindingSet, of_problem
from spark_jobs.audit.facts.lateness import LateSums
from spark_jobs.audit.facts.result import (
    BIN_COUNT,
    AuditResult,
    Lateness,
    Ledger,
    PendingByHour,
    ReplicaAudit,
    ShardAudit,
    Totals,
)
from spark_jobs.audit.facts.sums import times_ms
from spark_jobs.audit.join import Joining
from spark_jobs.audit.manifest import check_manifests
from spark_jobs.audit.pending import check_checkpoints, compare_wheels, pending_hours
from spark_jobs.audit.recheck import recheck
from spark_jobs.audit.sequences import check_sequences
from spark_jobs.audit.shard import AuditOptions, Progress, ShardState, make_ledger, scan_logs
from spark_jobs.audit.tombstones import check_tombstones
from spark_jobs.logs.discovery import discover
from spark_jobs.runtime.paths import normalise
from spark_jobs.runtime.runner import Runner, SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX: Final = 500_000
"""Rows of the per-second ledger; with more, its steps become longer."""


def audit(
    spark: "SparkSession",
    uris: Sequence[str],
    options: AuditOptions | None = None,
    *,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit the nodes whose directories are in and below some places, with Spark.

    Args:
        spark: the session.
        uris: directories of nodes, or folders above them, paths or URIs.
        options: how.
        progress: receives each step that is done, in a few words for people.

    Raises:
        NoLogs: there is no log.
        MixedClusters: logs of several clusters.
        ConfigError: a place that cannot be opened.
    """
    return audit_with(SparkRunner(spark.sparkContext), uris, options, progress=progress)


def audit_with(
    runner: Runner,
    uris: Sequence[str],
    options: AuditOptions | None = None,
    *,
    progress: Progress | None = None,
) -> AuditResult:
    """The same wherever a runner runs tasks: `audit_runner.LocalRunner` needs no Java."""
    now_ms = SystemClock().monotonic_ms
    began = now_ms()
    options = options or AuditOptions()
    show = progress or _silent
    inventory = discover(list(uris), expected_nodes=options.expected_nodes)
    findings = FindingSet()
    findings.add(map(of_problem, inventory.problems))
    checks: list[CheckOutcome] = []
    shards: list[ShardAudit] = []
    seconds: dict[str, float] = {}
    for number in inventory.shards:
        if not any(copy.segments for _, copy in inventory.copies(number)):
            reason = "no replica has a segment of its log"
            checks.append(CheckOutcome("structure", number, "", "log-absent", reason))
            continue
        state = ShardState(number, inventory, runner, options, show, now_ms=now_ms)
        shards.append(audit_shard(state))
        findings.merge(state.findings)
        checks += state.checks
        for step, value in state.seconds.items():
            seconds[step] = round(seconds.get(step, 0.0) + value, 3)
    return AuditResult(
        inventory.cluster,
        tuple(shards),
        tuple(findings.sorted()),
        dict(findings.counts),
        tuple(checks),
        tuple(map(normalise, uris)),
        (now_ms() - began) / 1_000,
        {"step_seconds": seconds},
        late_ms_max=options.late_ms_max,
    )


def _silent(_: str) -> None:
    """The default: progress is not reported."""


def audit_shard(state: ShardState) -> ShardAudit:
    """Audit one shard; findings and outcomes of checks are in `state` then."""
    scan_logs(state)
    try:
        make_ledger(state)
        joining = Joining(state)
        joining.run()
    finally:
        if state.spread is not None:
            state.spread.close()
    wheel_units = compare_wheels(state, joining.retries)
    check_tombstones(state, joining)
    check_sequences(state)
    check_bodies(state)
    check_manifests(state, joining)
    check_checkpoints(state, joining)
    _tell_late(state, joining)
    recheck(state)
    _tell_causes(state, joining)
    return _result(state, joining, wheel_units)


def _tell_causes(state: ShardState, joining: Joining) -> None:
    """Name records that all replicas contradict, and say what follows from what."""
    plan = errors.required(state.plan, "a ledger has a plan")
    nodes = {replica.node for replica, copy in state.copies if copy.applied_offset}
    state.add(
        *changed_records(state.findings.kept, nodes, joining.look_up, plan.cancels, state.shard)
    )
    state.findings.kept = with_causes(state.findings.kept)


def _tell_late(state: ShardState, joining: Joining) -> None:
    """Name what was not on time, retries as well."""
    late, assumed = state.ledger.late, errors.required(state.plan, "a ledger has a plan")
    rows = late_retries(
        joining.retries.scheduled,
        state.dispatch,
        state.line,
        assumed.last_store_ms,
        assumed.late_ms_max,
    )
    state.ledger.late = late.plus(LateSums.of(rows))
    state.findings.merge(
        lateness_findings(
            state.ledger.late,
            state.dispatch,
            state.facts,
            state.line,
            state.shard,
            assumed.late_ms_max,
        )
    )


def _result(state: ShardState, joining: Joining, wheel_units: dict[str, int]) -> ShardAudit:
    facts, ledger = state.facts, state.ledger
    return ShardAudit(
        state.shard,
        state.start_offset,
        state.end_offset,
        facts.first.next_sequence if facts.first else 0,
        facts.last.next_sequence if facts.last else 0,
        facts.first_store_ms,
        facts.last.store_ms if facts.last else -1,
        dict(sorted(state.line.names.items())),
        _totals(state, joining),
        tuple(_replicas(state, joining, wheel_units)),
        tuple(joining.groups),
        _lateness(ledger.lateness.keys, ledger.lateness.counts[:, 0]),
        _ledger(state),
        PendingByHour(*pending_hours(state, joining.retries)),
        tuple((one.epoch, one.offset, one.store_ms, node_of(one)) for one in facts.epoch_starts),
        state.ledger.late.count,
    )


def _totals(state: ShardState, joining: Joining) -> Totals:
    states = state.ledger.states.tolist()
    retries = joining.retries
    return Totals(
        published=sum(states),
        void=states[REJECTED],
        released=states[AT_ONCE] + states[RELEASED],
        released_at_once=states[AT_ONCE],
        cancelled=states[CANCELLED],
        pending=states[PENDING],
        discarded=states[DISCARDED],
        redelivered=sum(retries.retried.values()),
        dead_lettered=len(retries.dead),
        cancel_requests=len(state.facts.cancels),
        dispatches=len(state.facts.dispatches),
    )


def _replicas(
    state: ShardState, joining: Joining, wheel_units: dict[str, int]
) -> list[ReplicaAudit]:
    found = []
    for replica, copy in state.copies:
        log = next(one for one in state.logs if one.node == replica.node)
        low, high = max(log.copy.start_offset, state.start_offset), log.end_offset
        entries = sum(
            diff.compared for place, diff in joining.diffs.items() if place.node == replica.node
        )
        found.append(
            ReplicaAudit(
                replica.node,
                replica.uri,
                copy.start_offset,
                log.end_offset,
                copy.committed_offset,
                copy.applied_offset,
                log.batches,
                log.messages,
                log.whole_bytes,
                log.damage_count,
                max(0, high - low - log.covers(low, high)),
                max(0, state.common_end - log.end_offset),
                state.diverges_at.get(replica.node, -1),
                entries,
                wheel_units.get(replica.node, 0),
            )
        )
    return found


def _lateness(keys: np.typing.NDArray[np.int64], counts: np.typing.NDArray[np.int64]) -> Lateness:
    cells, bins = np.divmod(keys, BIN_COUNT)
    return Lateness(cells >> 32, (cells & 0xFFFFFFFF) * HOUR_MS, bins, counts)


def _ledger(state: ShardState) -> Ledger:
    seconds, step = state.ledger.seconds, 1
    for longer in (60, 3_600, 86_400):
        if len(seconds.keys) <= SECONDS_MAX:
            break
        seconds, step = state.ledger.seconds.coarser(longer), longer
    columns = seconds.counts.T if seconds.counts.shape[1] == len(_COLUMNS) else np.zeros((4, 0))
    due, released, cancelled, pending = (column.astype(np.int64) for column in columns)
    starts = times_ms(seconds.keys, step * 1_000)
    return Ledger(step * 1_000, starts, due, released, cancelled, pending)


_COLUMNS: Final = ("due", "released", "cancelled", "pending")
