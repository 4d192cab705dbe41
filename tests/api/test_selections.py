"""Receipts of a request, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.receipt import Receipt
from hourwheel.v1.consumer_pb2 import (
    RECEIPT_OUTCOME_INVALID,
    RECEIPT_OUTCOME_OK,
    RECEIPT_OUTCOME_STALE,
    ReceiptRange,
)
from node.api.consumer import Selected

CLUSTER = 77


def receipt(index: int = 0, count: int = 10, cluster: int = CLUSTER) -> Receipt:
    return Receipt(cluster, 3, 1, 256, 5, 1_000, index, count)


def test_selection_counts_from_the_lease_when_the_receipt_is_a_part() -> None:
    part = receipt(index=4, count=3)
    selected = Selected(CLUSTER, [str(part)], [ReceiptRange(receipt=str(part), first=1, count=2)])
    assert [(each.first, each.count) for each in selected.valid] == [(4, 3), (5, 2)]
    assert selected.valid[0].receipt == part


def test_outcomes_stand_where_their_receipts_stood() -> None:
    foreign, good = str(receipt(cluster=1)), str(receipt())
    selected = Selected(
        CLUSTER, [foreign, good], [ReceiptRange(receipt=foreign), ReceiptRange(receipt=good)]
    )
    selected.fill([RECEIPT_OUTCOME_STALE, RECEIPT_OUTCOME_OK])
    assert selected.outcomes == [
        RECEIPT_OUTCOME_INVALID,
        RECEIPT_OUTCOME_STALE,
        RECEIPT_OUTCOME_INVALID,
        RECEIPT_OUTCOME_OK,
    ]


def test_whole_ranges_are_demanded_when_leases_are_changed() -> None:
    whole = ReceiptRange(receipt=str(receipt()), first=0, count=10)
    assert len(Selected(CLUSTER, [], [whole], whole_ranges=True).valid) == 1
    part = ReceiptRange(receipt=str(receipt()), first=0, count=9)
    with pytest.raises(errors.InvalidArgument, match="whole"):
        Selected(CLUSTER, [], [part], whole_ranges=True)


@given(
    index=st.integers(0, 2**32 - 1),
    total=st.integers(0, 2**32 - 1),
    first=st.integers(0, 2**32 - 1),
    count=st.integers(0, 2**32 - 1),
)
def test_range_is_valid_only_when_it_lies_inside_its_receipt(
    index: int, total: int, first: int, count: int
) -> None:
    given_receipt = receipt(index, total)
    selected = Selected(
        CLUSTER, [], [ReceiptRange(receipt=str(given_receipt), first=first, count=count)]
    )
    for each in selected.valid:
        assert index <= each.first < each.first + each.count <= index + total <= 16_384
    if not selected.valid:
        assert selected.outcomes == [RECEIPT_OUTCOME_INVALID]
