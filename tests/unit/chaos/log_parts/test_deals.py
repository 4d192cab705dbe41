"""The naive reading of transactions notices a log in which one has two outcomes."""

import pytest

from chaos.log_parts.deals import Deal, Deals
from hourwheel.formats.committed_batch import of_transaction
from hourwheel.formats.record_batch import RecordBatch, build_publish


def commit(offset: int) -> RecordBatch:
    return of_transaction(build_publish([5], [b"paid"], topic_queues=[1 << 8]), offset)


def test_first_outcome_stands() -> None:
    deals = Deals({64: Deal((1, 2), 1)})
    assert deals.commit(commit(64), {2}) == ("unknown topic", 0, 0)
    assert deals.commit(commit(64), {1}) == ("new", 0, 1)
    assert deals.commit(commit(64), {1}) == ("duplicate", 0, 1)
    assert deals.commit(commit(72), {1}) == ("unknown transaction", 0, 0)
    assert deals.outcomes == {64: "COMMITTED"}


def test_second_outcome_is_noticed() -> None:
    deals = Deals({64: Deal((1, 2), 1)})
    deals.commit(commit(64), {1})
    deals.known[64].state = "OPEN"  # as a node would have it that forgot the first one
    with pytest.raises(AssertionError, match="decided twice"):
        deals.commit(commit(64), {1})
