"""What no master writes, though each byte of it is a record: what it says cannot be meant.

Nodes do what the log says, and so does the audit: a TRIM of the future lets go of all that is
released, and all views agree. So what masters must not write is looked for in the log itself.
"""

from typing import Any

from numpy.typing import NDArray

from hourwheel.priorities import has_room, is_priority_queue
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.scan import LogFacts
from spark_jobs.logs.replica import ERROR

Array = NDArray[Any]


def impossible_findings(facts: LogFacts, shard: int) -> list[Finding]:
    """One finding for each record.

    A TRIM never reaches further than its own time.
    """
    found = []
    for offset, from_ms, store_ms in facts.trims.tolist():
        if from_ms > store_ms:
            detail = f"a TRIM of all before {from_ms}, which is {from_ms - store_ms} ms ahead"
            found.append(_finding(offset, detail, shard))
    return found


def _finding(offset: int, detail: str, shard: int) -> Finding:
    return Finding(ERROR, "record-impossible", shard, "", offset=offset, detail=detail)


def aim_findings(aims: Array, line: Timeline, shard: int) -> list[Finding]:
    """One finding for each queue that is not there.

    Args:
        aims: AIM[n], in the order of the log.
        line: topics. Of a log that does not begin at 0 those that were deleted are not known.
        shard: of which shard.
    """
    found: dict[int, Finding] = {}
    for offset, sequence, number in aims.tolist():
        detail = _wrong(number, offset, line)
        if detail and number not in found:
            found[number] = Finding(
                ERROR,
                "queue-absent",
                shard,
                "",
                offset=offset,
                sequence=sequence,
                topic=line.name_of(number >> QUEUE_BITS),
                detail=f"{detail}: no group gets this message, nor perhaps others behind it",
            )
    return list(found.values())


def _wrong(number: int, offset: int, line: Timeline) -> str:
    topic_id, queue = number >> QUEUE_BITS, number & ((1 << QUEUE_BITS) - 1)
    life = line.topics.get(topic_id)
    if life is None or life.born > offset:
        return f"topic {topic_id} was not there" if line.is_whole else ""
    count = line.queue_counts[topic_id]
    if queue < count or (has_room(count) and is_priority_queue(number)):
        return ""
    return f"its topic has {count} queues, and it is for queue {queue}"
