"""Transactions: kept packed, open ones apart from those that were decided last."""

from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.outcomes import TransactionState
from storage.views.transactions import Transaction, Transactions

_u32 = st.integers(0, (1 << 32) - 1)
_u64 = st.integers(0, (1 << 64) - 1)
_ms = st.integers(0, 1 << 50)
_any = st.builds(
    Transaction,
    _u64,
    _u32,
    st.binary(min_size=16, max_size=16),
    st.text(min_size=1, max_size=30),
    st.lists(_u32, max_size=16).map(tuple),
    _u32,
    _u32,
    _ms,
    _u32,
    st.integers(0, 100),
    _ms,
    st.sampled_from(TransactionState),
    st.integers(0, 100),
    _ms,
    _ms,
    _u64,
    _u32,
)


def one(number: int) -> Transaction:
    """A transaction whose PREPARE is at 100 times its number."""
    return Transaction(
        *(100 * number, 7, number.to_bytes(16, "big"), "tills", (1, 2), 3, 500, 1_000, 60, 15, 900)
    )


@given(_any)
def test_row_reads_as_it_was_packed(transaction: Transaction) -> None:
    assert Transaction.unpack(transaction.pack()) == transaction


def test_states_are_kept_by_a_checkpoint() -> None:
    view = Transactions()
    for number in range(1, 6):
        view.begin(one(number))
    view.note_check(100, 2_000)
    view.decide(300, TransactionState.EXPIRED, 3_000)
    view.decide(200, TransactionState.COMMITTED, 4_000, base_sequence=77, epoch=8)
    again = Transactions(view.capture()(), view.forgotten_offset)
    for each in (view, again):
        assert each.offsets_after(0, is_open=True) == [100, 400, 500]
        assert each.offsets_after(100, is_open=True) == [400, 500]
        assert each.offsets_after(0, is_open=False) == [200, 300]
        assert each.offsets_after(200, is_open=False) == [300]
        assert each.offsets_after(1, is_open=False) == []
        assert (each.open_count, each.decided_count, each.open_bytes) == (3, 2, 1_500)
        assert each.floor_offset == 100
        assert each.find(100) == replace(one(1), checks=1, checked_ms=2_000)
        committed = each.find_token(one(2).token)
        assert committed is not None
        assert (committed.state, committed.base_sequence, committed.published_epoch) == (
            *(TransactionState.COMMITTED, 77, 8),
        )
        assert each.find(600) is None
        assert each.find_token(b"?" * 16) is None


def test_decided_ones_are_forgotten_in_their_order() -> None:
    view = Transactions()
    with mock.patch("storage.views.transactions.TRANSACTIONS_DECIDED_MAX", 2):
        for number in (1, 2, 3, 4):
            view.begin(one(number))
        for number in (3, 1, 2):
            view.decide(100 * number, TransactionState.ROLLED_BACK, 1)
    assert view.offsets_after(0, is_open=False) == [200, 100]
    assert view.forgotten_offset == 300
    assert view.find(300) is view.find_token(one(3).token) is None
    view.begin(replace(one(3), offset=900))  # its token may be used again
    assert view.is_open(900)


@pytest.mark.parametrize("cut", [1, 50, 97])
def test_rows_that_contradict_themselves_are_damage(cut: int) -> None:
    raw = one(1).pack()
    with pytest.raises(errors.CorruptFile):
        Transactions(raw + raw[:cut])
