"""Queues whose ends have not moved for as long as what is released is retained."""

import pytest

from node.catalog.quiet_queues import QuietQueues
from storage.queues.consume_queues import ConsumeQueues

RETENTION_MS = 1_000


class Queues(ConsumeQueues):
    """Some of which just the ends are known."""

    def __init__(self) -> None:
        self.ends = {1: 0, 2: 5}

    def bounds(self, topic_queue: int) -> tuple[int, int]:
        return 0, self.ends[topic_queue]


@pytest.fixture
def queues() -> Queues:
    return Queues()


@pytest.fixture
def quiet(queues: Queues) -> QuietQueues:
    return QuietQueues(queues, lambda _: RETENTION_MS)


def test_empty_queue_is_over_at_once(quiet: QuietQueues) -> None:
    assert quiet.is_over(1, 0)


def test_queue_is_over_when_its_end_has_stood_for_longer_than_retention(
    quiet: QuietQueues,
) -> None:
    assert not quiet.is_over(2, 100)
    assert not quiet.is_over(2, 100 + RETENTION_MS)
    assert quiet.is_over(2, 101 + RETENTION_MS)


def test_time_begins_anew_when_something_is_released(quiet: QuietQueues, queues: Queues) -> None:
    assert not quiet.is_over(2, 0)
    queues.ends[2] += 1
    assert not quiet.is_over(2, 2 * RETENTION_MS)
    assert quiet.is_over(2, 3 * RETENTION_MS + 1)


def test_queue_is_forgotten_when_nobody_asks_for_it_in_a_whole_walk(quiet: QuietQueues) -> None:
    assert not quiet.is_over(2, 0)
    quiet.turn_over()
    assert quiet.is_over(2, 2 * RETENTION_MS), "it was asked for in the walk before"
    quiet.turn_over()
    quiet.turn_over()
    assert not quiet.is_over(2, 4 * RETENTION_MS)
