import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.crc32c import crc32c, crc32c_each, split


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c_when_known(raw: bytes, expected: int) -> None:
    assert crc32c(raw) == expected


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_crc32c_when_made_in_pieces_is_that_of_the_whole(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@given(st.binary(min_size=1, max_size=100))
def test_crc32c_when_the_buffer_is_of_another_kind(raw: bytes) -> None:
    assert crc32c(bytearray(raw)) == crc32c(memoryview(b"x" + raw)[1:]) == crc32c(raw)


@given(st.lists(st.binary(max_size=5), max_size=8), st.binary(max_size=3))
def test_split_gives_the_pieces_when_they_are_joined(pieces: list[bytes], before: bytes) -> None:
    sizes = np.array([len(piece) for piece in pieces], np.uint32)
    assert split(before + b"".join(pieces), len(before), sizes) == pieces


@given(st.integers(1, 5), st.integers(0, 8))
def test_split_gives_the_pieces_when_all_are_equally_long(size: int, count: int) -> None:
    pieces = [bytes([0, ordinal] * size)[:size] for ordinal in range(count)]
    found = split(b"x" + b"".join(pieces) + b"y", 1, np.full(count, size, np.int64))
    assert found == pieces


def test_crc32c_each_when_there_are_several() -> None:
    assert crc32c_each([b"123456789", b""]).tolist() == [0xE3069283, 0]
    assert crc32c_each([]).dtype == np.uint32
