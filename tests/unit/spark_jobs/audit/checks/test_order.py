"""Who overtakes in an ordered group, against the naive rule over random rows."""

import random
from typing import Any

import numpy as np
import pytest

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import GroupId, TopicId
from spark_jobs.audit.checks.catalog import Life, Timeline
from spark_jobs.audit.checks.groups import GroupFacts, StaticQueue
from spark_jobs.audit.checks.order import (
    KEYED,
    Keys,
    OrderRows,
    key_hash,
    ordered_topics,
    overtaking,
    plan_order,
)
from spark_jobs.audit.checks.releases import PLACE
from spark_jobs.audit.facts.records import RESOLVE
from storage.views.catalog_items import Group, GroupOrder, Subscription

QUEUE, COUNT = 256, 24


def line(order: GroupOrder = GroupOrder.BLOCK) -> Timeline:
    found = Timeline()
    found.topics, found.names = {1: Life(0, 1 << 62)}, {1: "orders"}
    found.group_names = {1: "g"}
    found.groups = {1: [(-1, Group(GroupId(1), "g", 3, 5, 5, 5, TopicId(0), order=order))]}
    found.subscriptions = {(1, 1): [(-1, Subscription(GroupId(1), TopicId(1), TopicId(2)))]}
    return found


def rows_of(rows: list[tuple[int, int, int, Outcome]]) -> Any:
    """(offset, first, end, outcome)."""
    found = np.zeros(len(rows), RESOLVE)
    found["group_id"], found["topic_queue"] = 1, QUEUE
    for at, row in enumerate(rows):
        for name, value in zip(("offset", "first", "end", "outcome"), row, strict=True):
            found[name][at] = value
    return found


def keys_of(names: list[str]) -> Keys:
    """Sequence 1,000 + position; empty: no key."""
    rows = [(1_000 + at, key_hash(name)) for at, name in enumerate(names) if name]
    return Keys(np.array(rows, KEYED))


def places() -> Any:
    found = np.zeros(COUNT, PLACE)
    found["topic_queue"], found["position"] = QUEUE, np.arange(COUNT)
    found["sequence"] = 1_000 + np.arange(COUNT)
    return found


def naive(
    names: list[str], rows: list[tuple[int, int, int, Outcome]], starts: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """(offset, position) of what overtakes."""
    resolved: set[int] = set()
    found = []
    for offset, first, end, outcome in rows:
        low = max((start for at, start in starts if at < offset), default=0)
        fresh = [at for at in range(max(first, low), end) if at not in resolved]
        if outcome != Outcome.HELD:
            resolved.update(fresh)
        if outcome in {Outcome.ACK, Outcome.DEAD, Outcome.HELD}:
            found += [
                (offset, at)
                for at in fresh
                if names[at]
                and any(names[one] == names[at] and one not in resolved for one in range(low, at))
            ]
    return sorted(found)


def winners_of(resolves: Any, starts: list[tuple[int, int]]) -> Any:
    found = np.full(COUNT, -1, np.int32)
    for index, row in enumerate(resolves):
        low = max((start for at, start in starts if at < row["offset"]), default=0)
        for at in range(max(low, int(row["first"])), int(row["end"])):
            found[at] = index if found[at] < 0 else found[at]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_overtaking_when_rows_are_random_is_what_the_naive_rule_says(seed: int) -> None:
    rng = random.Random(seed)
    names = [rng.choice(("", "a", "b", "c", "d")) for _ in range(COUNT)]
    outcomes = (Outcome.ACK, Outcome.ACK, Outcome.DEAD, Outcome.FILTERED, Outcome.HELD)
    rows = []
    for number in range(rng.randrange(1, 30)):
        first = rng.randrange(COUNT)
        end = min(COUNT, first + rng.choice((1, 1, 1, 3)))
        rows.append((100 * number + 100, first, end, rng.choice(outcomes)))
    starts = [(1_050, 4)] * rng.randrange(2)
    is_held = [row[3] == Outcome.HELD for row in rows]
    resolves = rows_of([row for row, held in zip(rows, is_held, strict=True) if not held])
    holds = rows_of([row for row, held in zip(rows, is_held, strict=True) if held])
    facts = GroupFacts(winners={(1, QUEUE): winners_of(resolves, starts)})
    every = OrderRows(resolves, holds, {QUEUE: StaticQueue(COUNT, starts)}, places())
    found = overtaking(every, facts, keys_of(names), line(), 0)
    assert sorted((one.offset, one.position) for one in found) == naive(names, rows, starts)
    assert all(one.sequence == 1_000 + one.position for one in found)


def test_message_when_no_filter_takes_the_earlier_one_overtakes_nobody() -> None:
    resolves = rows_of([(100, 1, 2, Outcome.ACK)])
    facts = GroupFacts(winners={(1, QUEUE): winners_of(resolves, [])})
    every = OrderRows(resolves, rows_of([]), {QUEUE: StaticQueue(COUNT)}, places())
    keys = keys_of(["a", "a", *[""] * (COUNT - 2)])
    (one,) = overtaking(every, facts, keys, line(), 0)
    assert (one.offset, one.sequence, one.position) == (100, 1_001, 1)
    assert "while sequence 1000, before it at 0" in one.detail
    keys.unwanted[1, 1] = [1_000]
    assert not overtaking(every, facts, keys, line(), 0)


def test_groups_when_they_are_not_ordered_are_not_looked_at() -> None:
    assert ordered_topics(line()) == {1}
    assert not plan_order(line(GroupOrder.NONE)).topics
