"""One pass over a range: block sums, records, and what is wrong between batches."""

from typing import Any

import numpy as np
import pytest

from hourwheel.formats.record_batch import Kind
from spark_jobs.audit.facts.scan import (
    BLOCK_SHIFT,
    Edge,
    block_sums,
    check_neighbours,
    edge_findings,
    header_words,
    join_facts,
    merge_blocks,
    scan,
)
from spark_jobs.logs.block_table import HEADER
from spark_jobs.logs.ranges import SegmentRange, plan_ranges
from spark_jobs.logs.segment_reader import read_blocks
from tests.support.audited import only_copy
from tests.support.broken_logs import batches_of
from tests.support.log_maker import Made

WHERE = SegmentRange("/", "n", 0, "", "p", 0, 0, 0)


def headers(count: int) -> Any:
    """Right neighbours: PUBLISH batches of two messages, 800 bytes each."""
    rows = np.zeros(count, HEADER)
    rows["kind"], rows["count"], rows["total_bytes"] = Kind.PUBLISH, 2, 800
    rows["offset"] = 800 * np.arange(count)
    rows["base_sequence"] = 2 * np.arange(count)
    rows["epoch"], rows["store_ms"] = 1, 1_000 + np.arange(count)
    return rows


def test_neighbours_when_they_fit_give_nothing() -> None:
    assert check_neighbours(headers(9), WHERE) == []


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("base_sequence", 11, "sequence-gap"),
        ("epoch", 0, "epoch-back"),
        ("store_ms", 5, "store-back"),
        ("flushed_end_offset", 1 << 30, "flushed-ahead"),
    ],
)
def test_neighbours_when_a_field_is_wrong_are_named(field: str, value: int, check: str) -> None:
    rows = headers(9)
    rows[field][4:] = value if field != "base_sequence" else rows[field][4:] + 3
    if field == "epoch":
        rows["store_ms"] = 7
    found = check_neighbours(rows, WHERE)
    assert found[0].check == check
    assert found[0].offset == 3_200


def test_time_when_it_goes_back_behind_an_epochs_first_record_is_skew() -> None:
    rows = headers(4)
    rows["kind"][1], rows["count"][1] = Kind.EPOCH_START, 0
    rows["base_sequence"][2:] -= np.uint64(2)
    rows["store_ms"][1] = 90_000
    assert [(one.severity, one.check) for one in check_neighbours(rows, WHERE)] == [
        ("warning", "clock-skew")
    ]


def test_neighbours_when_something_lies_between_are_not_compared() -> None:
    rows = headers(4)
    rows["offset"][2:] += np.uint64(800)
    rows["base_sequence"][2:] += np.uint64(50)
    assert check_neighbours(rows, WHERE) == []


def test_edges_are_checked_as_neighbours_are() -> None:
    before = Edge(800, 2, 1, 1_000)
    assert edge_findings(before, Edge(800, 2, 1, 1_000), WHERE) == []
    assert [one.check for one in edge_findings(before, Edge(800, 4, 1, 999), WHERE)] == [
        "sequence-gap",
        "store-back",
    ]
    opening = Edge(800, 2, 2, 999, is_start=True)
    assert [one.check for one in edge_findings(before, opening, WHERE)] == ["clock-skew"]
    unopened = opening._replace(store_ms=1_000, is_start=False)
    assert [one.check for one in edge_findings(before, unopened, WHERE)] == ["epoch-start"]
    begun = before._replace(is_start=True)
    assert [one.check for one in edge_findings(begun, Edge(800, 2, 1, 999), WHERE)] == [
        "clock-skew"
    ]
    assert edge_findings(before, Edge(1_600, 9, 0, 0), WHERE) == []


def test_block_sums_of_parts_are_those_of_the_whole() -> None:
    rows = headers(6_000)
    words, offsets = header_words(rows), rows["offset"]
    whole = merge_blocks([block_sums(words, offsets)])
    assert len(whole) == -(-800 * 6_000 >> BLOCK_SHIFT)
    cuts = (slice(2_500, None), slice(2_500))
    parts = merge_blocks([block_sums(words[cut], offsets[cut]) for cut in cuts])
    assert parts.tolist() == whole.tolist()
    changed = words.copy()
    changed[4_000, 11] ^= np.uint64(1)
    other = merge_blocks([block_sums(changed, offsets)])
    assert [int(a["block"]) for a, b in zip(whole, other, strict=True) if a != b] == [
        4_000 * 800 >> BLOCK_SHIFT
    ]


@pytest.mark.parametrize("partition_bytes", [1 << 13, 1 << 26])
def test_facts_of_ranges_are_those_of_the_log(made: Made, partition_bytes: int) -> None:
    replica, copy = only_copy(made.directory)
    ranges = plan_ranges(replica, copy, partition_bytes=partition_bytes)
    parts = [scan(one, read_blocks(one), with_facts=True) for one in ranges]
    facts = join_facts(part.facts for part in parts if part.facts is not None)
    batches = list(batches_of(made.directory))
    assert facts.findings == []
    assert facts.batches == len(batches) == sum(part.batches for part in parts)
    for kind, rows in ((Kind.DISPATCH, facts.dispatches), (Kind.CANCEL, facts.cancels)):
        mine = [one for one in batches if one.header.kind == kind]
        assert len(rows) == sum(len(one.rows) for one in mine)
        assert set(rows["offset"].tolist()) == {int(one.header.offset) for one in mine}
    positions = sum(
        int(one.rows["count"].sum()) for one in batches if one.header.kind == Kind.RESOLVE
    )
    assert int((facts.resolves["end"] - facts.resolves["first"]).sum()) == positions
    assert len(facts.configs) == sum(one.header.kind == Kind.CONFIG for one in batches)
    assert [one.epoch for one in facts.epoch_starts] == sorted(
        {int(one.header.epoch) for one in batches}
    )
    last = batches[-1].header
    assert parts[-1].end_offset == int(last.offset) + last.total_bytes
