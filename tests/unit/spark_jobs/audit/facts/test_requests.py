"""Void sequences are those that apply finds void, however the requests were shortened."""

import numpy as np
import pytest

from spark_jobs.audit.facts.records import EXPIRE
from spark_jobs.audit.facts.requests import REQUEST, RejectedRanges, Request, requests_of
from spark_jobs.logs.discovery import discover
from tests.support.audited import tables_of
from tests.support.log_maker import Made

NONE = np.empty(0, EXPIRE)
NO_BREAKS = np.empty(0, np.uint64)


def requests(*rows: tuple[int, int, int]) -> np.ndarray:
    """(producer, its first number, count) of requests, one behind the other."""
    found = np.zeros(len(rows), REQUEST)
    sequence = 0
    for at, (producer, first, count) in enumerate(rows):
        found[at] = (8 * at, 1_000 * at, producer, first, sequence, count, 1, 1, 1)
        sequence += count
    return found


def judged(
    rows: np.ndarray, *, expires: np.ndarray = NONE, is_whole: bool = True
) -> RejectedRanges:
    return Request.find_rejected(rows, expires, {}, is_whole=is_whole)


def spans(rejected: RejectedRanges) -> list[tuple[int, int]]:
    return list(zip(rejected.starts.tolist(), rejected.ends.tolist(), strict=True))


def test_duplicates_and_gaps_are_void() -> None:
    found = judged(requests((7, 0, 3), (7, 0, 3), (7, 5, 1), (7, 3, 2), (8, 4, 1)))
    assert spans(found) == [(3, 6), (6, 7), (9, 10)]
    assert found.is_certain
    assert found.contains(np.arange(11, dtype=np.uint64)).nonzero()[0].tolist() == [3, 4, 5, 6, 9]


def test_producer_when_it_expired_is_unknown_or_new() -> None:
    expires = np.array([(9, 5_000)], EXPIRE)
    rows = requests((7, 0, 1), (7, 1, 1), (7, 2, 1), (7, 0, 1))
    assert spans(judged(rows, expires=expires)) == [(2, 3)]


def test_topic_when_it_was_deleted_takes_nothing() -> None:
    rows = requests((7, 0, 1), (7, 1, 1))
    assert spans(Request.find_rejected(rows, NONE, {1: 4}, is_whole=True)) == [(1, 2)]


def test_log_when_its_beginning_is_gone_goes_on_with_each_producer() -> None:
    rows = requests((7, 100, 3), (7, 103, 1), (7, 103, 1))
    assert spans(judged(rows, is_whole=False)) == [(4, 5)]


@pytest.mark.parametrize("seed", range(20))
def test_shortened_requests_mean_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, at = [], {1: 0, 2: 0, 3: 0}
    for _ in range(300):
        producer = int(rng.integers(1, 4))
        count = int(rng.integers(1, 4))
        back = int(rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9))) if at[producer] else 0
        first = max(0, at[producer] - back)
        rows.append((producer, first, count))
        if not back:
            at[producer] += count
    every = requests(*rows)
    breaks = np.sort(rng.integers(0, 2_400, 2)).astype(np.uint64)
    short = Request.shortened(every, breaks)
    assert int(short["requests"].sum()) == len(every)
    assert int(short["count"].sum()) == int(every["count"].sum())
    assert judged(short).is_certain
    sequences = np.arange(int(every["count"].sum()), dtype=np.uint64)
    assert (judged(short).contains(sequences) == judged(every).contains(sequences)).all()


def test_chain_when_it_is_long_becomes_few_rows() -> None:
    every = requests(*((7, at, 1) for at in range(10_000)))
    assert len(Request.shortened(every, NO_BREAKS)) < 20


def test_requests_of_a_real_log_give_its_voids(made: Made) -> None:
    ((replica, copy),) = discover([str(made.directory)]).copies(0)
    found = np.concatenate([requests_of(table) for table in tables_of(replica, copy)])
    rejected = judged(found)
    assert int((rejected.ends - rejected.starts).sum()) == made.void > 0
