"""Groups that begin anew in a topic: to the audit, what comes behind a reset is another group's.

A window of a group is the union of its RESOLVE rows, in whatever order they come; a reset ends
that. So its rows behind one get a number that no group has. That group has the same name and
settings, reads the topic from the reset on, and has skipped what stands before its beginning. All
checks go by numbers of groups: what is delivered again because of a reset is right, what else comes
twice is found as before.
"""

from collections import defaultdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import FOREVER, Reset, Timeline
from spark_jobs.audit.facts.records import RESOLVE
from spark_jobs.audit.facts.scan import LogFacts

Array = NDArray[Any]
_NUMBER_MAX: Final = (1 << 31) - 1
"""Of such a group; real ones are numbered from 1. A number that some row names is none of them: a
forged row must not pass for one of such a group."""


def follow_resets(facts: LogFacts, line: Timeline) -> None:
    """Give the rows behind resets, and what the timeline says of their groups, new numbers."""
    if not line.resets:
        return
    rows = np.concatenate((facts.resolves["group_id"], facts.holds["group_id"]))
    named = set(np.unique(rows).tolist()) | line.groups.keys()
    numbers = (one for one in range(_NUMBER_MAX, 0, -1) if one not in named)
    by_place: dict[tuple[int, int], list[tuple[int, Reset]]] = defaultdict(list)
    for number, reset in zip(numbers, line.resets, strict=False):
        by_place[reset.group_id, reset.topic_id].append((number, reset))
    for (group_id, topic_id), resets in by_place.items():
        ends = [*(one.offset for _, one in resets[1:]), FOREVER]
        line.window_ends[group_id, topic_id] = resets[0][1].offset
        for (number, reset), end in zip(resets, ends, strict=True):
            _add_group(line, number, reset, end)
    facts.resolves = _with_starts(_renumbered(facts.resolves, by_place), by_place)
    facts.holds = _renumbered(facts.holds, by_place)


def _add_group(line: Timeline, number: int, reset: Reset, end: int) -> None:
    line.real_groups[number] = reset.group_id
    line.group_names[number] = line.group_names.get(reset.group_id, f"#{reset.group_id}")
    line.groups[number] = list(line.groups.get(reset.group_id, []))
    line.window_ends[number, reset.topic_id] = end
    for topic_id in (reset.topic_id, reset.retry_topic_id):
        changes = line.subscriptions.get((reset.group_id, topic_id), [])
        # Its first row is that by which it skips, at the very place of the reset.
        line.subscriptions[number, topic_id] = [
            (offset - (offset == reset.offset), one)
            for offset, one in changes
            if reset.offset <= offset <= end
        ]


def _renumbered(rows: Array, by_place: dict[tuple[int, int], list[tuple[int, Reset]]]) -> Array:
    rows, topics = rows.copy(), rows["topic_queue"] >> QUEUE_BITS
    numbers = rows["group_id"].copy()
    for (group_id, topic_id), resets in by_place.items():
        mine = np.flatnonzero(numbers == group_id)
        offsets, own = rows["offset"][mine].astype(np.int64), topics[mine] == topic_id
        for number, reset in resets:
            is_its = own & (offsets > reset.offset)
            is_its |= topics[mine] == reset.retry_topic_id
            rows["group_id"][mine[is_its]] = number
    return rows


def _with_starts(rows: Array, by_place: dict[tuple[int, int], list[tuple[int, Reset]]]) -> Array:
    """The rows, and of each new group those by which it skips what stands before its beginning."""
    starts = [
        (reset.offset, reset.store_ms, 0, 0, position, number, queue, Outcome.SKIPPED, row)
        for resets in by_place.values()
        for number, reset in resets
        for row, (queue, position) in enumerate(reset.positions)
        if position
    ]
    found = np.concatenate((rows, np.array(starts, RESOLVE))) if starts else rows
    return found[np.argsort(found["offset"], kind="stable")]
