from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timewheel.delay_log import gather

GRAIN_BORDERS = [0, 1, 7, 63, 64, 65, 127, 128, 511, 512, 513, 4_095, 4_096, 4_097, 9_000]
SOURCE = Random(1).randbytes(40_000)
LENGTHS = st.one_of(st.sampled_from(GRAIN_BORDERS), st.integers(0, 600))
BLOBS = LENGTHS.flatmap(
    lambda length: st.tuples(st.integers(0, len(SOURCE) - length), st.just(length))
)


def gathered(
    blobs: list[tuple[int, int]], source: bytes | bytearray | memoryview = SOURCE
) -> bytes:
    starts = np.array([start for start, _ in blobs], np.int64)
    lengths = np.array([length for _, length in blobs], np.int64)
    return bytes(gather(source, starts, lengths))


def sliced(blobs: list[tuple[int, int]]) -> bytes:
    return b"".join(SOURCE[start : start + length] for start, length in blobs)


@given(st.lists(BLOBS, max_size=40))
def test_gather_when_lengths_are_mixed_is_slicing(blobs: list[tuple[int, int]]) -> None:
    assert gathered(blobs) == sliced(blobs)


@pytest.mark.parametrize("length", GRAIN_BORDERS)
def test_gather_when_all_are_of_one_length(length: int) -> None:
    rng = Random(length)
    blobs = [(rng.randint(0, len(SOURCE) - length), length) for _ in range(50)]
    assert gathered(blobs) == sliced(blobs)


def test_gather_when_each_length_comes_once() -> None:
    blobs = [(length * 3 % 30_000, length) for length in range(5_000)]
    Random(3).shuffle(blobs)
    assert gathered(blobs) == sliced(blobs)


def test_gather_when_blobs_touch_both_ends_of_the_source() -> None:
    blobs = [(0, 1), (len(SOURCE) - 1, 1), (0, 5_000), (len(SOURCE) - 5_000, 5_000)]
    assert gathered(blobs) == sliced(blobs)
    assert gathered([(0, len(SOURCE))]) == SOURCE
    assert gathered([(0, len(SOURCE)), (0, 1)]) == SOURCE + SOURCE[:1]


def test_gather_when_blobs_overlap_or_repeat() -> None:
    blobs = [(10, 600), (10, 600), (300, 64), (10, 1), (9, 4_096)]
    assert gathered(blobs) == sliced(blobs)


def test_gather_when_nothing_is_asked_for() -> None:
    assert gathered([]) == b""
    assert gathered([(5, 0), (len(SOURCE), 0)]) == b""
    assert gathered([(0, 0)], b"") == b""


def test_gather_when_empty_blobs_stand_between() -> None:
    blobs = [(0, 0), (5, 3), (len(SOURCE), 0), (100, 64), (7, 0)]
    assert gathered(blobs) == sliced(blobs)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_gather_when_the_source_is_any_buffer(
    kind: Callable[[bytes], bytes | bytearray | memoryview],
) -> None:
    blobs = [(3, 700), (9, 2), (2_000, 4_200)]
    assert gathered(blobs, kind(SOURCE)) == sliced(blobs)


def test_gather_when_the_source_is_shorter_than_a_grain() -> None:
    assert gathered([(1, 2), (0, 3)], b"abc") == b"bcabc"


def test_gather_when_arguments_are_used_again_leaves_them_alone() -> None:
    starts, lengths = np.array([5, 9_000]), np.array([4_200, 70])
    gather(SOURCE, starts, lengths)
    assert (starts.tolist(), lengths.tolist()) == ([5, 9_000], [4_200, 70])


def test_gather_when_written_to_a_file_is_a_flat_view_of_bytes() -> None:
    one_length = memoryview(gather(SOURCE, np.array([1, 2]), np.array([9, 9])))
    assert one_length.nbytes == len(one_length) == 18
