"""Whole audits in this process, and what they find, for tests."""

from pathlib import Path

from spark_jobs.audit.delivery import audit_with
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.result import AuditResult
from spark_jobs.audit.shard import AuditOptions
from spark_jobs.runtime.runner import LocalRunner

SMALL = AuditOptions(partition_bytes=1 << 14, bucket_messages=64, late_ms_max=60_000)
"""The clock of the logs that tests make jumps by 20 s."""
QUEUE = 1 << 8
"""`orders` has one queue."""


def run_audit(*directories: Path, options: AuditOptions = SMALL) -> AuditResult:
    return audit_with(LocalRunner(), [str(one) for one in directories], options)


def errors_of(result: AuditResult) -> list[Finding]:
    return [one for one in result.findings if one.severity == "error"]


def checks_of(result: AuditResult) -> set[str]:
    return {one.check for one in errors_of(result)}


def facts_of(result: AuditResult, check: str) -> set[int]:
    """Sequences that findings of a check name."""
    return {one.sequence for one in errors_of(result) if one.check == check}
