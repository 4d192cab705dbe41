"""Which RESOLVE rows count, against a plain reading of them one by one."""

from typing import Any

import numpy as np
import pytest

from hourwheel.formats.record_batch import Outcome
from hourwheel.types import GroupId, TopicId
from spark_jobs.audit.checks.catalog import Life, Timeline
from spark_jobs.audit.checks.groups import StaticQueue, check_rows, sum_up, trim_queue
from spark_jobs.audit.checks.ledger import RELEASE
from spark_jobs.audit.checks.releases import CHUNK_FACT, COVER, Resolves, Slice
from spark_jobs.audit.checks.retries import Retries
from spark_jobs.audit.facts.records import RESOLVE
from storage.views.catalog_items import Subscription

QUEUE = 256


def line() -> Timeline:
    found = Timeline()
    found.topics = {1: Life(0, 1 << 62)}
    found.names = {1: "orders"}
    found.group_names = {1: "g", 9: "other"}
    found.groups = {1: [(-1, None)], 9: [(-1, None)]}
    found.subscriptions = {(1, 1): [(-1, Subscription(GroupId(1), TopicId(1), TopicId(2)))]}
    return found


def slice_of(count: int) -> Slice:
    rows = np.zeros(count, RELEASE)
    rows["offset"] = 80 * np.arange(1, count + 1)
    rows["topic_queue"] = QUEUE
    return Slice(QUEUE, 0, rows)


def resolves(*rows: tuple[int, int, int, int]) -> Any:
    """(offset, first, end, outcome)."""
    found = np.zeros(len(rows), RESOLVE)
    found["group_id"], found["topic_queue"], found["store_ms"] = 1, QUEUE, 5
    for at, row in enumerate(rows):
        for name, value in zip(("offset", "first", "end", "outcome"), row, strict=True):
            found[name][at] = value
    return found


def judged(rows: Any, queue: StaticQueue) -> Any:
    covers, _, _ = Resolves(rows).cover(slice_of(queue.released))
    return check_rows(rows, covers, {QUEUE: queue}, line(), 0)


@pytest.mark.parametrize("seed", range(10))
def test_first_row_about_a_position_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 45, 60)
    high = low + rng.integers(1, 6, 60)
    rows = resolves(
        *(
            (10_000 + at, int(a), int(b), int(rng.integers(1, 5)))
            for at, (a, b) in enumerate(zip(low, high, strict=True))
        )
    )
    queue = StaticQueue(50, [(10_020, 7), (10_040, 12)])
    facts = judged(rows, queue)
    assert facts.findings == []
    wanted = [-1] * 50
    for index, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        start = 12 if index > 40 else 7 if index > 20 else 0
        for position in range(max(a, start), b):
            if wanted[position] < 0:
                wanted[position] = index
    assert facts.winners[1, QUEUE].tolist() == wanted
    (group,) = sum_up(rows, facts, {QUEUE: queue}, Retries(), line(), lambda _, at: at)
    outcomes = [int(rows["outcome"][one]) if one >= 0 else 0 for one in wanted]
    assert group.acked == outcomes.count(Outcome.ACK)
    assert group.filtered == outcomes.count(Outcome.FILTERED)
    assert group.outstanding == wanted[12:].count(-1)
    assert group.trimmed_unacked == wanted[:12].count(-1)
    first = next((at for at in range(12, 50) if wanted[at] < 0), -1)
    assert group.oldest_outstanding_ms == first


def test_ack_when_the_position_was_released_later_is_undelivered() -> None:
    rows = resolves((400, 0, 4, 1), (401, 4, 6, 1), (4_000, 9, 11, 1))
    found = judged(rows, StaticQueue(10)).findings
    assert [(one.check, one.offset, one.position) for one in found] == [
        ("ack-undelivered", 401, 4),
        ("ack-undelivered", 4_000, 9),
    ]


def test_ack_when_it_comes_before_the_release_time_is_early() -> None:
    one = slice_of(3)
    one.rows["due_ms"] = (0, 9_000, 0)
    rows = resolves((4_000, 0, 1, 1), (4_001, 1, 2, 1))
    covers, _, _ = Resolves(rows).cover(one)
    found = check_rows(rows, covers, {QUEUE: StaticQueue(3)}, line(), 0).findings
    assert [(each.check, each.offset) for each in found] == [("ack-early", 4_001)]


def test_row_of_a_group_that_does_not_read_the_queue_means_nothing() -> None:
    rows = resolves((400, 0, 99, 1))
    rows["group_id"] = 9
    facts = judged(rows, StaticQueue(10))
    assert facts.findings == []
    assert facts.winners == {}


def test_row_of_a_group_that_never_was_is_named_and_of_a_deleted_one_is_not() -> None:
    rows = resolves((400, 0, 1, 1), (401, 1, 2, 99))
    rows["group_id"] = (77, 9)
    known = line()
    known.groups[9] = [(100, None)]
    found = check_rows(rows, np.empty(0, COVER), {}, known, 0).findings
    assert [(one.check, one.offset) for one in found] == [
        ("resolve-unknown", 400),
        ("resolve-unknown", 401),
    ], "the one for its group, the other for its outcome"


def test_queue_is_trimmed_by_whole_old_chunks() -> None:
    chunks = np.zeros(4, CHUNK_FACT)
    chunks["count"], chunks["chunk"] = (16, 16, 16, 3), range(4)
    chunks["offset"], chunks["ms"] = (100, 200, 900, 950), (10, 20, 30, 40)
    trims = [(300, 15), (500, 25), (1_000, 100)]
    queue = trim_queue(51, chunks, trims, 16)
    assert queue.starts == [(300, 16), (500, 32), (1_000, 48)]
    assert queue.start == 48


@pytest.mark.parametrize("first", [1 << 62, 1 << 63, (1 << 64) - 2])
def test_row_when_it_names_positions_that_no_queue_can_have_is_undelivered(first: int) -> None:
    ack = int(Outcome.ACK)
    rows = resolves((900, first, (first + 3) % (1 << 64), ack), (901, 0, 2, ack))
    facts = judged(rows, StaticQueue(4))
    assert [one.check for one in facts.findings] == ["ack-undelivered"]
    ((winners),) = facts.winners.values()
    assert winners.tolist() == [1, 1, -1, -1]
