import numpy as np
import pytest

from filters.packed_bytes import MARGIN, PackedBytes, TextIndex
from hourwheel import errors


def packed(pieces: list[bytes], between: bytes = b"") -> tuple[PackedBytes, np.ndarray]:
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    starts = np.cumsum(lengths + len(between)) - lengths
    buffer = b"".join(between + piece for piece in pieces)
    return PackedBytes(buffer, starts, lengths), lengths


@pytest.mark.parametrize("between", [b"", b"x" * 1_000])
def test_pieces_when_near_and_when_far(between: bytes) -> None:
    pieces = [b"hello", b"", b"worldwide web", b"h"]
    found, lengths = packed(pieces, between)
    assert [
        found.raw[start : start + length]
        for start, length in zip(found.starts.tolist(), lengths.tolist(), strict=True)
    ] == pieces
    assert len(found.raw) < 2 * MARGIN + 100


def test_pieces_when_there_are_none() -> None:
    found, _ = packed([b"", b""])
    assert len(found.raw) == 2 * MARGIN
    assert found.words(found.starts).tolist() == [0, 0]


def test_pieces_when_outside_of_the_buffer() -> None:
    one = np.array([1], np.int64)
    for start, length in ((0, 4), (-1, 2), (3, 1)):
        with pytest.raises(errors.InvariantViolated):
            PackedBytes(b"abc", one * start, one * length)


def test_words_when_at_any_byte() -> None:
    found, _ = packed([b"abcdefghij"])
    assert found.words(found.starts + 1).tolist() == [int.from_bytes(b"bcdefghi", "little")]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17])
def test_begin_with_when_of_any_length(size: int) -> None:
    text = bytes(range(65, 65 + size))
    wrong_last = text[:-1] + b"?"
    found, _ = packed([text, wrong_last, b"?" + text[1:], text + b"more"])
    assert found.begin_with(text, found.starts).tolist() == [True, False, size == 0, True]
    assert found.begin_with(b"", found.starts).all()


@pytest.mark.parametrize("size", [0, 1, 8, 9, 100])
def test_equal_when_of_any_length(size: int) -> None:
    text = b"x" * size
    found, _ = packed([text + b"1", text + b"2", b"y" * size + b"3"])
    left, right = found.starts[[0, 0]], found.starts[[1, 2]]
    lengths = np.full(2, size, np.int64)
    assert found.equal(left, right, lengths).tolist() == [True, size == 0]
    assert found.equal(left, right, lengths + 1).tolist() == [False, False]


@pytest.mark.parametrize("count", [1, 3, 20])
def test_text_index_when_few_and_when_many(count: int) -> None:
    texts = [f"t{number:02}".encode() for number in range(count)] + [b"", b"longer", b"a\0"]
    pieces = [b"t00", b"", b"nope", b"longer", b"t99", b"a\0", b"a", texts[count - 1]]
    found, lengths = packed(pieces)
    index = TextIndex(texts)
    expected = [texts.index(piece) if piece in texts else -1 for piece in pieces]
    which = np.full(len(pieces), -1)
    for rows, ordinals in index.hits(found, found.starts, lengths):
        which[rows] = ordinals
    assert which.tolist() == expected
    assert index.contains(found, found.starts, lengths).tolist() == [each >= 0 for each in expected]
