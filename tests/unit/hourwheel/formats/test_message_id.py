import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.message_id import (
    ID_BYTES,
    ID_CHARS,
    MessageId,
    pack_many,
    parse,
    parse_many,
    unpack_many,
)
from hourwheel.types import DUE_MS_MAX, SEQUENCE_MAX

U32 = st.integers(0, 2**32 - 1)
IDS = st.builds(MessageId, U32, U32, st.integers(0, SEQUENCE_MAX), st.integers(0, DUE_MS_MAX))
EXAMPLE = MessageId(1, 7, 0x0123_4567_89AB_CDEF, 1_800_000_000_123)


@given(st.lists(IDS, max_size=5))
def test_ids_when_printed_and_parsed(ids: list[MessageId]) -> None:
    texts = [str(one) for one in ids]
    assert all(len(text) == ID_CHARS for text in texts)
    rows = parse_many(texts)
    assert [MessageId(*row) for row in rows.tolist()] == ids
    assert [parse(text) for text in texts] == ids
    packed = b"".join(bytes.fromhex(text) for text in texts)
    assert unpack_many(packed).tolist() == rows.tolist()
    assert pack_many(ids) == packed


def test_ids_when_printed_sort_by_shard_epoch_and_sequence() -> None:
    ids = [MessageId(0, 1, 255, 9), MessageId(0, 1, 256, 3), MessageId(0, 16, 0, 0)]
    assert [str(one) for one in ids] == sorted(str(one) for one in ids)


def test_parse_when_in_capitals() -> None:
    assert parse(str(EXAMPLE).upper()) == EXAMPLE


def test_parse_many_when_there_are_none() -> None:
    assert len(parse_many([])) == 0
    assert len(unpack_many(b"")) == 0


GOOD = str(EXAMPLE)
BAD = {
    "empty": "",
    "short": GOOD[:-1],
    "shorter by a byte": GOOD[:-2],
    "long": GOOD + "0",
    "longer by a byte": GOOD + "00",
    "two in one": GOOD * 2,
    "no digit": GOOD[:20] + "g" + GOOD[21:],
    "blanks, which fromhex passes over": GOOD[:-2] + "  ",
    "blanks within, in pairs": GOOD[:10] + "  " + GOOD[12:],
    "a line end": GOOD[:-1] + "\n",
    "a sign": "-" + GOOD[1:],
    "0x": "0x" + GOOD[2:],
    "not ascii": "\u0660" + GOOD[1:],
    "due beyond all": GOOD[:32] + "0020000000000000",
    "due negative": GOOD[:32] + "f" * 16,
    "sequence beyond all": GOOD[:16] + "8" + GOOD[17:],
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_parse_when_garbage(text: str) -> None:
    with pytest.raises(errors.InvalidMessageId):
        parse(text)
    for texts in ([text, GOOD], [GOOD, text], [GOOD, text, GOOD, text]):
        with pytest.raises(errors.InvalidMessageId):
            parse_many(texts)


def test_parse_many_when_lengths_make_up_for_one_another() -> None:
    with pytest.raises(errors.InvalidMessageId):
        parse_many([GOOD[:-2], GOOD + "00"])
    with pytest.raises(errors.InvalidMessageId):
        parse_many([GOOD + GOOD, ""])


def test_parse_many_when_one_is_bad_names_it_and_not_all_of_it() -> None:
    with pytest.raises(errors.InvalidMessageId, match="'xyz'"):
        parse_many([GOOD, "xyz"])
    with pytest.raises(errors.InvalidMessageId) as found:
        parse("x" * 5_000)
    assert len(found.value.message) < 100


@pytest.mark.parametrize("size", [1, ID_BYTES - 1, ID_BYTES + 1])
def test_unpack_many_when_not_a_whole_number_of_ids(size: int) -> None:
    with pytest.raises(errors.InvalidMessageId):
        unpack_many(bytes(size))


def test_unpack_many_when_numbers_are_at_their_limits() -> None:
    largest = MessageId(2**32 - 1, 2**32 - 1, SEQUENCE_MAX, DUE_MS_MAX)
    assert parse(str(largest)) == largest
    for beyond in (
        largest._replace(sequence=SEQUENCE_MAX + 1),
        largest._replace(due_ms=DUE_MS_MAX + 1),
    ):
        with pytest.raises(errors.InvalidMessageId):
            unpack_many(bytes.fromhex(str(beyond)))
