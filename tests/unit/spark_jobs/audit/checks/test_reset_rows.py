"""A group that begins anew is another one to the audit; a forged row is not of it."""

from typing import Any

import numpy as np
import pytest

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import GroupId, TopicId
from spark_jobs.audit.checks.catalog import Life, Reset, Timeline
from spark_jobs.audit.checks.groups import StaticQueue, check_rows
from spark_jobs.audit.checks.releases import COVER
from spark_jobs.audit.checks.resets import follow_resets
from spark_jobs.audit.facts.records import RESOLVE
from spark_jobs.audit.facts.scan import LogFacts
from storage.views.catalog_items import Subscription

QUEUE = 256
RESET_OFFSET = 1_000
STAND_IN = (1 << 31) - 1
"""Of the first reset, where no row has the number."""


def line() -> Timeline:
    found = Timeline()
    found.topics = {1: Life(0, 1 << 62)}
    found.groups = {1: [(0, None)]}
    changes = [(0, Subscription(GroupId(1), TopicId(1), TopicId(3)))]
    found.subscriptions = {(1, 1): list(changes), (1, 3): list(changes)}
    found.resets = [Reset(RESET_OFFSET, 1, 1, 3, ((QUEUE, 2),), 5)]
    return found


def facts_of(*rows: tuple[int, int, int]) -> LogFacts:
    """RESOLVE rows (offset, group, first position): each acknowledges one message."""
    found: Any = np.zeros(len(rows), RESOLVE)
    found["topic_queue"], found["store_ms"], found["outcome"] = QUEUE, 5, Outcome.ACK
    for at, (offset, group_id, first) in enumerate(rows):
        found["offset"][at], found["group_id"][at] = offset, group_id
        found["first"][at], found["end"][at] = first, first + 1
    return LogFacts(resolves=found)


def test_rows_behind_a_reset_are_of_a_group_of_their_own() -> None:
    facts, known = facts_of((900, 1, 0), (1_100, 1, 2)), line()
    follow_resets(facts, known)
    rows = facts.resolves
    assert rows["group_id"].tolist() == [1, STAND_IN, STAND_IN]
    assert rows["outcome"].tolist() == [Outcome.ACK, Outcome.SKIPPED, Outcome.ACK]
    assert known.real_groups == {STAND_IN: 1}


@pytest.mark.parametrize("forged", [STAND_IN, STAND_IN - 1])
def test_row_of_a_group_that_never_was_is_named_whatever_its_number_is(forged: int) -> None:
    facts, known = facts_of((1_100, 1, 2), (1_200, forged, 3)), line()
    follow_resets(facts, known)
    queues = {QUEUE: StaticQueue(9)}
    covers = np.empty(0, COVER)
    found = check_rows(facts.resolves, covers, queues, known, 0).findings
    unknown = [one.offset for one in found if one.check == "resolve-unknown"]
    assert unknown == [1_200]
