from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.types import DUE_MS_MAX, SEQUENCE_MAX, Key
from node.contracts.pending_token import TOKEN_BYTES, PendingQuery, Purpose, Reached, TokenMaker

CLUSTER = bytes(range(16))
QUERY = PendingQuery("orders", Tags("a || b"), 1_000, 2_000)
POSITION = Reached(Key(1_500, 7), 99)


def maker(
    query: PendingQuery = QUERY,
    *,
    cluster: bytes = CLUSTER,
    purpose: Purpose = Purpose.CANCEL,
    topic_id: int = 5,
) -> TokenMaker:
    return TokenMaker(cluster, purpose, topic_id, query)


def refusal(token: bytes, by: TokenMaker) -> str:
    with pytest.raises(errors.InvalidArgument) as caught:
        by.unpack(token)
    assert caught.value.params == {"field": "page_token"}
    return caught.value.message


@given(
    due_ms=st.integers(-1, DUE_MS_MAX),
    sequence=st.integers(0, SEQUENCE_MAX),
    end=st.integers(0, SEQUENCE_MAX),
)
def test_token_when_packed_and_read(due_ms: int, sequence: int, end: int) -> None:
    position = Reached(Key(due_ms, sequence), end)
    token = maker().pack(position)
    assert len(token) == TOKEN_BYTES
    assert maker().unpack(token) == position


def test_token_when_the_filter_is_written_in_another_way() -> None:
    same = maker(replace(QUERY, filter=Tags("b||(a)")))
    assert same.unpack(maker().pack(POSITION)) == POSITION


@pytest.mark.parametrize(
    "other",
    [
        maker(replace(QUERY, topic="bills")),
        maker(replace(QUERY, filter=Tags("a"))),
        maker(replace(QUERY, filter=Tags("*"))),
        maker(replace(QUERY, filter=Sql("a IS NULL"))),
        maker(replace(QUERY, from_ms=1_001)),
        maker(replace(QUERY, to_ms=0)),
        maker(topic_id=6),
        maker(purpose=Purpose.LIST),
    ],
)
def test_token_when_it_is_of_another_question(other: TokenMaker) -> None:
    assert "of another method" in refusal(maker().pack(POSITION), other)


def test_token_when_it_is_of_another_cluster() -> None:
    assert "this cluster" in refusal(maker().pack(POSITION), maker(cluster=bytes(16)))


@given(at=st.integers(0, TOKEN_BYTES - 1), bit=st.integers(0, 7))
def test_token_when_a_bit_is_forged(at: int, bit: int) -> None:
    token = bytearray(maker().pack(POSITION))
    token[at] ^= 1 << bit
    refusal(bytes(token), maker())


@given(token=st.binary(max_size=2 * TOKEN_BYTES))
def test_token_when_it_is_garbage(token: bytes) -> None:
    refusal(token, maker())


def test_token_when_cut_or_of_another_version() -> None:
    token = maker().pack(POSITION)
    assert "no page token" in refusal(token[:-1], maker())
    assert "no page token" in refusal(token + b"\0", maker())
    assert "version 2" in refusal(b"\2" + token[1:], maker())


def test_query_when_its_range_is_asked_for() -> None:
    assert (QUERY.after, QUERY.to) == (Key(999, SEQUENCE_MAX), Key(1_999, SEQUENCE_MAX))
    everything = PendingQuery("orders", Tags("*"))
    assert everything.after == Key(-1, SEQUENCE_MAX)
    assert everything.to == Key(DUE_MS_MAX, SEQUENCE_MAX)
