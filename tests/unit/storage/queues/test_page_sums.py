import random

import pytest

from hourwheel.crc32c import crc32c
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


def test_crc_is_that_of_all_rows_however_they_come() -> None:
    raw = make_units(0, ROWS).tobytes()
    for pieces in ([ROWS], [1, PAGE_ROWS - 1, PAGE_ROWS, 3, ROWS - 2 * PAGE_ROWS - 3]):
        assert summed(raw, pieces).crc == crc32c(raw)
    assert PageSums(ROWS).crc == crc32c(b"")


def test_I8_any_range_is_verified_page_by_page() -> None:  # noqa: N802
    """As if each page were looked at alone: two pages that are not what was stored, any range."""
    raw = make_units(0, ROWS).tobytes()
    sums, rotten = summed(raw, [ROWS]), bytearray(raw)
    pages = [1, 3]
    for page in pages:
        rotten[page * PAGE_ROWS * UNIT_BYTES + 7] ^= 1
    for first in range(0, ROWS, 37):
        for end in range(first + 1, ROWS + 1, 41):
            looked_at = range(first // PAGE_ROWS, (end - 1) // PAGE_ROWS + 1)
            expected = next((one * PAGE_ROWS for one in pages if one in looked_at), None)
            assert sums.find_damage(rotten, first, end) == expected
    assert sums.find_damage(rotten, 5, 5) is None


def test_copy_stays_as_it_was() -> None:
    raw = make_units(0, ROWS).tobytes()
    sums = summed(raw, [10])
    copied = sums.copy()
    sums.extend(memoryview(raw)[10 * UNIT_BYTES :])
    assert copied.row_count == 10
    assert copied.find_damage(raw, 0, 10) is None
    assert copied.crc == crc32c(raw[: 10 * UNIT_BYTES])
