import random

import pytest

from storage.queues.page_sums import PAGE_ROWS, PageSums
from storage.views.unit import UNIT_BYTES
from tests.support.units import make_units

ROWS = 3 * PAGE_ROWS + 17


def summed(raw: bytes, pieces: list[int]) -> PageSums:
    sums, at = PageSums(ROWS + 100), 0
    for count in pieces:
        sums.extend(memoryview(raw)[at * UNIT_BYTES : (at + count) * UNIT_BYTES])
        at += count
    assert sums.row_count == at
    return sums


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_the_same_however_rows_come(seed: int) -> None:
    raw, chooser = make_units(0, ROWS).tobytes(), random.Random(seed)
    pieces, left = [], ROWS
    while left:
        pieces.append(min(left, chooser.choice((1, 2, 100, PAGE_ROWS, 300))))
        left -= pieces[-1]
    assert summed(raw, pieces).find_damage(raw, 0, ROWS) is None
    assert summed(raw, [ROWS]).find_damage(raw, 0, ROWS) is None


def test_I8_each_flipped_bit_is_found_where_it_is_read() -> None:  # noqa: N802
    raw = make_units(0, ROWS).tobytes()
    sums = summed(raw, [5, ROWS - 5])
    for at in range(0, len(raw), 501):
        rotten = bytearray(raw)
        rotten[at] ^= 1 << at % 8
        row = at // UNIT_BYTES
        page = row // PAGE_ROWS * PAGE_ROWS
        assert sums.find_damage(rotten, row, row + 1) == page
        assert sums.find_damage(rotten, 0, ROWS) == page
        if page:
            assert sums.find_damage(rotten, 0, page) is None


def test_part_of_the_rows_is_verified_by_itself() -> None:
    raw = make_units(0, ROWS).tobytes()
    sums = summed(raw, [ROWS])
    part = raw[PAGE_ROWS * UNIT_BYTES :]
    assert sums.find_damage(part, PAGE_ROWS + 3, ROWS, base=PAGE_ROWS) is None
    assert sums.find_damage(part, 2 * PAGE_ROWS, ROWS, base=2 * PAGE_ROWS) == 2 * PAGE_ROWS


def test_copy_stays_as_it_was() -> None:
    raw = make_units(0, ROWS).tobytes()
    sums = summed(raw, [10])
    copied = sums.copy()
    sums.extend(memoryview(raw)[10 * UNIT_BYTES :])
    assert copied.row_count == 10
    assert copied.find_damage(raw, 0, 10) is None
