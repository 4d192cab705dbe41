"""Releases in order are the queues, whatever way the pieces came."""

from typing import Any

import numpy as np
import pytest

from hourwheel.formats.record_batch import Outcome
from spark_jobs.audit.checks.ledger import BY_DISPATCH, RELEASE
from spark_jobs.audit.checks.releases import (
    Resolves,
    Slice,
    by_queue,
    chunk_facts,
    in_order,
    merge_chunks,
    stable_order,
    sums_of,
)
from spark_jobs.audit.facts.records import RESOLVE


def releases(count: int, seed: int = 1) -> Any:
    """Random first releases: by dispatches in key order, and at once in sequence order."""
    rng = np.random.default_rng(seed)
    rows = np.zeros(count, RELEASE)
    rows["sequence"] = np.arange(count)
    rows["due_ms"] = rng.integers(0, 40, count)
    by_dispatch = rng.random(count) < 0.7
    rows["offset"] = np.where(
        by_dispatch, 80_000 + rows["due_ms"] // 10 * 800, 8 * np.arange(count)
    )
    rows["offset"] |= np.where(by_dispatch, BY_DISPATCH, np.uint64(0))
    rows["topic_queue"] = rng.integers(1, 4, count) << 8
    rows["store_ms"] = 5
    return rows


def key_of(row: Any) -> tuple[int, int, int]:
    by_dispatch = int(row["offset"]) & 1
    return int(row["offset"]) & ~1, int(row["due_ms"]) if by_dispatch else 0, int(row["sequence"])


@pytest.mark.parametrize("seed", range(5))
def test_order_is_that_of_release(seed: int) -> None:
    rows = releases(200, seed)
    found = in_order([rows[150:], rows[:90], rows[90:150]])
    assert [key_of(one) for one in found] == sorted(key_of(one) for one in rows)
    assert len(in_order([])) == 0


def test_slices_hold_each_queue_in_order_with_its_position() -> None:
    ordered = in_order([releases(200)])
    slices = list(by_queue(ordered, {1 << 8: 10}))
    assert [one.topic_queue for one in slices] == [256, 512, 768]
    assert [one.first for one in slices] == [10, 0, 0]
    for one in slices:
        mine = ordered[ordered["topic_queue"] == one.topic_queue]
        assert one.rows.tolist() == mine.tolist()
    assert int(sums_of(ordered)["count"].sum()) == 200


def test_chunk_facts_of_pieces_are_those_of_the_whole() -> None:
    (one, *_) = by_queue(in_order([releases(200)]), {})
    whole = chunk_facts(one, 16)
    cut = 37
    first = Slice(one.topic_queue, 0, one.rows[:cut])
    second = Slice(one.topic_queue, cut, one.rows[cut:])
    parts = merge_chunks(np.concatenate((chunk_facts(second, 16), chunk_facts(first, 16))))
    assert parts.tolist() == whole.tolist()
    assert int(whole["count"].sum()) == len(one.rows)


def test_cover_tells_what_resolve_rows_name() -> None:
    (one, *_) = by_queue(in_order([releases(200)]), {256: 100})
    rows = np.zeros(4, RESOLVE)
    rows["topic_queue"] = (256, 512, 256, 256)
    rows["first"], rows["end"] = (90, 0, 102, 5_000), (104, 5, 105, 5_001)
    rows["outcome"] = (Outcome.ACK, Outcome.ACK, Outcome.RETRY, Outcome.RETRY)
    covers, named, _ = Resolves(rows).cover(one)
    assert covers["index"].tolist() == [0, 2]
    assert covers["count"].tolist() == [4, 3]
    gates = np.maximum(one.rows["due_ms"], one.rows["store_ms"])
    assert covers["ms"].tolist() == [int(gates[:4].max()), int(gates[2:5].max())]
    assert covers["offset"][0] == one.rows["offset"][3] & ~BY_DISPATCH
    assert named["position"].tolist() == [102, 103, 104]
    assert named["sequence"].tolist() == one.rows["sequence"][2:5].tolist()
    assert [len(part) for part in Resolves(rows[:0]).cover(one)] == [0, 0, 0]


def test_what_filters_left_out_is_told_entry_by_entry() -> None:
    (one, *_) = by_queue(in_order([releases(200)]), {256: 100})
    rows = np.zeros(2, RESOLVE)
    rows["topic_queue"], rows["outcome"] = 256, (Outcome.FILTERED, Outcome.ACK)
    rows["first"], rows["end"] = (99, 103), (103, 105)
    _, named, passed = Resolves(rows).cover(one)
    assert len(named) == 0
    assert passed["index"].tolist() == [0] * 3
    assert passed["position"].tolist() == [100, 101, 102]
    assert passed["sequence"].tolist() == one.rows["sequence"][:3].tolist()
    assert passed["offset"].tolist() == (one.rows["offset"][:3] & ~BY_DISPATCH).tolist()


@pytest.mark.parametrize("span", [1, 1 << 16, 1 << 17, 1 << 32, 1 << 50])
@pytest.mark.parametrize("count", [0, 1, 2_000])
def test_stable_order_is_that_of_a_stable_sort(span: int, count: int) -> None:
    values = np.random.default_rng(span).integers(-3, span - 3, count)
    wanted = np.argsort(values, kind="stable")
    assert stable_order(values).tolist() == wanted.tolist()
