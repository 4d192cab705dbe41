"""Messages in a queue that is not that of their priority."""

import numpy as np
import pytest

from hourwheel.priorities import FIRST_PRIORITY_QUEUE, priority_queue
from hourwheel.types import topic_queue
from spark_jobs.audit.facts.priorities import MISPLACED, priority_findings

COUNTS = {1: 8, 2: FIRST_PRIORITY_QUEUE + 1}


@pytest.mark.parametrize(
    ("number", "priority", "said"),
    [
        (int(topic_queue(1, 3)), 5, "it has priority 5, and its queue 3 is one without priority"),
        (int(priority_queue(1, 2)), 0, "it has priority 0, and its queue 248 is that of priority"),
        (int(priority_queue(2, 1)), 0, ""),
        (int(priority_queue(3, 1)), 4, ""),
    ],
    ids=["left behind", "put before others", "a topic without priorities", "no topic"],
)
def test_misplaced_message_is_told_when_its_topic_has_priorities(
    number: int, priority: int, said: str
) -> None:
    rows = np.array([(400, 7, 9_000, number, priority)], MISPLACED)
    found = priority_findings(rows, COUNTS, 0)
    assert [(one.check, one.offset, one.sequence, one.due_ms) for one in found] == (
        [("priority-misplaced", 400, 7, 9_000)] if said else []
    )
    assert all(said in one.detail for one in found)
