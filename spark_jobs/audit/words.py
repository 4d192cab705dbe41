"""The verdict of an audit in sentences: what is claimed, how far it reaches, what was left out.

Nothing is claimed that was not checked: that replicas agree only of two or more, that messages were
on time only within the tolerance, and only where findings of lateness were not left out on request.
"""

from typing import Final

from spark_jobs.audit.facts.findings import LATE_CHECKS, CheckOutcome, Made
from spark_jobs.audit.facts.result import AuditResult, Verdict
from spark_jobs.runtime.instants import exact_instant_text, span_text

WORDS: Final = {
    Verdict.CLEAN: "Clean",
    Verdict.LATE: "Late",
    Verdict.FAULTY: "Faulty",
    Verdict.INCOMPLETE: "Incomplete",
}
_ENDS: Final = "released once, cancelled, or pending"


def sentences(result: AuditResult) -> list[str]:
    """What the verdict means here; the first sentence is the one that counts."""
    return [_claim(result), *_lateness(result), *_agreement(result), *_reach(result)]


def left_out_text(one: CheckOutcome) -> str:
    """One thing that was not checked, or only up to some place."""
    where = f"shard {one.shard}" + (f" of {one.node}" if one.node else "")
    return f"{one.area} of {where}: {one.reason} ({one.limit})"


def _claim(result: AuditResult) -> str:
    errors = sum(n for (severity, _, _), n in result.finding_counts.items() if severity == "error")
    if result.verdict is Verdict.FAULTY:
        count = "One error was found" if errors == 1 else f"{errors:,} errors were found"
        return f"Something that was promised is not kept: {count}."
    if result.verdict is Verdict.INCOMPLETE:
        return "No fault was found in what was checked, and not everything could be."
    end = max((shard.last_store_ms for shard in result.shards), default=-1)
    until = f" up to {exact_instant_text(end)} UTC" if end >= 0 else ""
    return f"Every message that was accepted{until} is {_ENDS}."


def _lateness(result: AuditResult) -> list[str]:
    tolerance = span_text(result.late_ms_max)
    if LATE_CHECKS & set(result.facts.get("ignored", ())):
        return ["Nothing is said of lateness: findings of it are left out."]
    late = sum(shard.late for shard in result.shards)
    worst = max((max(one.lateness.percentiles() or [0]) for one in result.shards), default=0)
    if late:
        were = "1 message was" if late == 1 else f"{late:,} messages were"
        return [f"{were} more than {tolerance} late."]
    if result.verdict is Verdict.CLEAN:
        latest = f"the latest by {span_text(worst)} or less"
        return [f"All were on time: within {tolerance} of the due time, {latest}."]
    return []


def _agreement(result: AuditResult) -> list[str]:
    if result.verdict is Verdict.FAULTY:
        return []
    counts = {
        sum(one.log_bytes > 0 for one in shard.replicas) or 1
        for shard in result.shards
        if shard.replicas
    }
    if not counts:
        return []
    if max(counts) == 1:
        return ["One replica was looked at: nothing is said of any other."]
    if any(check == "replica-diverges" for (_, check, _) in result.finding_counts):
        return []
    behind = [
        one for shard in result.shards for one in shard.replicas if one.log_bytes and one.lag_bytes
    ]
    said = f"The {max(counts)} replicas agree"
    if len(counts) > 1:
        said = "Replicas agree, where a shard has several"
    if behind:
        names = ", ".join(f"{one.node} by {one.lag_bytes:,} bytes" for one in behind)
        said += f", as far as each goes: {names} behind"
    return [f"{said}."]


def _reach(result: AuditResult) -> list[str]:
    """What was left out, and where claims end."""
    found = []
    if result.left_out:
        found.append("Not checked: " + "; ".join(map(left_out_text, result.left_out)) + ".")
    if not result.shards:
        found.append("There was no log to look at.")
    taken = [one for one in result.checks if one.made.leaves_out and one not in result.left_out]
    if taken:
        found.append("Not checked, and accepted: " + "; ".join(map(left_out_text, taken)) + ".")
    bounds = [one for one in result.checks if one.made is Made.BOUNDED]
    if bounds:
        found.append("Checked as far as it goes: " + "; ".join(map(left_out_text, bounds)) + ".")
    ignored = result.facts.get("ignored")
    if ignored:
        each = ", ".join(f"{name} ({count:,})" for name, count in sorted(ignored.items()))
        found.append(f"Findings of these checks are left out: {each}.")
    return found
