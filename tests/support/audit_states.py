"""A shard's audit up to some step, in this process, for tests of the steps behind it."""

from pathlib import Path

from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.shard import AuditOptions, ShardState, make_ledger, scan_logs
from spark_jobs.logs.discovery import discover
from spark_jobs.runtime.runner import LocalRunner

SMALL = AuditOptions(partition_bytes=1 << 14, bucket_messages=64)


def state_of(*directories: Path, options: AuditOptions = SMALL, ledger: bool = True) -> ShardState:
    """The state of shard 0, scanned and with a ledger."""
    inventory = discover([str(one) for one in directories])
    state = ShardState(0, inventory, LocalRunner(), options, lambda _: None)
    scan_logs(state)
    if ledger:
        make_ledger(state)
    return state


def errors_in(state: ShardState) -> list[Finding]:
    """What is wrong so far."""
    return [one for one in state.findings.kept if one.severity == "error"]
