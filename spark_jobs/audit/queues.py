"""Put what was found in queues into words: what is missing, too much, early, resurrected.

What is wrong with an entry depends on what the log says about its message, so messages with an
entry too much are looked up in the log once more.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.entries import EntryDiff, Odd, Place
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.steps import Known
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.replica import ERROR, WARNING

LookUp = Callable[[Sequence[int]], dict[int, Known]]
"""Sequences -> what the log says about each that it has."""
_LOOKED_UP_MAX: Final = 100_000


def queue_findings(
    diffs: dict[Place, EntryDiff],
    applied: dict[str, int],
    line: Timeline,
    shard: int,
    look_up: LookUp,
) -> list[Finding]:
    """One finding for each entry that is missing, too much or wrong.

    Args:
        diffs: settled (`audit_entries.settle`), by queue and node.
        applied: node -> applied offset of its checkpoint; without one, where the log ends.
        line: topics and groups.
        shard: for the findings.
        look_up: finds messages in the log.
    """
    strange = {one.sequence for diff in diffs.values() for one in diff.extra}
    known = look_up(sorted(strange)[:_LOOKED_UP_MAX]) if strange else {}
    found: list[Finding] = []
    for place, diff in sorted(diffs.items()):
        topic = line.name_of(place.topic_queue >> QUEUE_BITS)
        queue = f"queue {place.topic_queue:08x}"
        is_dynamic = place.topic_queue >> QUEUE_BITS in line.internal
        for one in diff.missing:
            detail = (
                f"{queue} has no entry of it, attempt {one.attempt}, which the record at"
                f" {one.offset} released to position {one.position}"
            )
            found.append(_finding("queue-missing", shard, place, topic, one, detail))
        for one in diff.extra:
            check, detail = _classify(
                one, place, known.get(one.sequence), applied[place.node], is_dynamic=is_dynamic
            )
            detail = f"{queue}, position {one.position}: {detail}"
            found.append(_finding(check, shard, place, topic, one, detail))
        found += [
            Finding(
                ERROR,
                each.check,
                shard,
                place.node,
                each.file,
                sequence=each.sequence,
                position=each.position,
                topic=topic,
                due_ms=each.due_ms,
                detail=f"{queue}, position {each.position}: {each.detail}",
            )
            for each in diff.wrong
        ]
        if diff.uncounted:
            detail = f"{queue}: {diff.uncounted} more entries are missing or too much"
            found.append(
                Finding(ERROR, "queue-missing", shard, place.node, topic=topic, detail=detail)
            )
    return found


def _classify(
    one: Odd, place: Place, known: Known | None, applied: int, *, is_dynamic: bool
) -> tuple[str, str]:
    """(check, why) of an entry too much."""
    if known is None:
        return "queue-unknown", "an entry of a sequence that the log does not have"
    if is_dynamic:
        return "queue-doubled", f"attempt {one.attempt}, which the log does not release to it"
    if known.state in _NEVER_RELEASED:
        return "queue-void", f"an entry of a message that is {known.state}"
    if known.state not in _RELEASED or known.end >= applied:
        return _too_soon(known, applied)
    if known.topic_queue != place.topic_queue:
        return "queue-misplaced", f"its message was released to queue {known.topic_queue:08x}"
    return "queue-doubled", f"one more entry of a message that was released once, at {known.end}"


_NEVER_RELEASED: Final = ("void", "discarded")
_RELEASED: Final = ("released", "released at once")


def _too_soon(known: Known, applied: int) -> tuple[str, str]:
    if known.state == "cancelled" and known.end < applied:
        return "queue-cancelled", f"the message was cancelled by the record at {known.end}"
    return "queue-early", "an entry of a message that is not released yet"


def _finding(check: str, shard: int, place: Place, topic: str, one: Odd, detail: str) -> Finding:
    return Finding(
        ERROR,
        check,
        shard,
        place.node,
        one.file,
        one.offset,
        one.sequence,
        one.position,
        topic,
        one.due_ms,
        detail,
    )


def chunk_findings(faults: Iterable[Damage], shard: int) -> list[Finding]:
    """One finding a chunk that cannot be read, however many stretches came upon it.

    A warning where a crash may have left it so: see `queue_reader.plan_by_seals`.
    """
    named: dict[tuple[str, str], Damage] = {}
    for one in faults:
        named.setdefault((one.node, one.file), one)
    return [
        Finding(
            WARNING if one.is_expected else ERROR,
            "queue-damaged",
            shard,
            one.node,
            one.file,
            detail=one.detail,
        )
        for one in named.values()
    ]
