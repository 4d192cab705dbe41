"""Texts of many messages as numbers, as `hourwheel.filter_language.values.read_number` reads one.

Whole numbers of up to 16 digits are read eight digits in one step, by three multiplications that
add neighbours up; numbers with a point and at most 15 digits one character a step: digits as an
integer, divided once by a power of ten, which is the nearest float since both are exact. What
begins like a number and is neither (exponents, many digits) is read one by one.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filters.meta_columns import Values
from filters.packed_bytes import I64, U64, WORD, Mask, PackedBytes
from hourwheel import limits
from hourwheel.filter_language.values import read_number

F64 = NDArray[np.float64]

_DIGITS_MAX: Final = 2 * WORD
_POINT_CHARS_MAX: Final = 16
"""15 digits and the point: below 2**53, so exact as a float."""
_ZERO: Final = ord("0")
_POINT: Final = ord(".")
_MINUS: Final = ord("-")
_BEGINS_NUMBER: Final = np.zeros(256, np.bool_)
_BEGINS_NUMBER[list(b"0123456789.+-")] = True
_IS_SIGN: Final = np.zeros(256, np.bool_)
_IS_SIGN[list(b"+-")] = True
_POWERS: Final = 10.0 ** np.arange(_POINT_CHARS_MAX)
_ALL: Final = np.uint64(2**64 - 1)


def _each(byte: int) -> np.uint64:
    """A word of eight equal bytes."""
    return np.uint64(int.from_bytes(bytes((byte,)) * WORD, "little"))


_ZEROS: Final = _each(_ZERO)
_HIGH: Final = _each(0xF0)
_LOW: Final = _each(0x0F)
_SIX: Final = _each(6)


class Numbers(NamedTuple):
    """Of one property: its value in each message as a number."""

    is_known: Mask
    """bool[n]: who has the property, and it is a number."""
    is_whole: Mask
    """bool[n]: whether it is in `whole`, exact; else in `real`."""
    whole: I64
    real: F64
    """float64[n] the number, rounded where it is in `whole`."""


def read_numbers(packed: PackedBytes, values: Values) -> Numbers:
    """The values as numbers."""
    count = len(values.lengths)
    is_known, is_whole = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    whole, real = np.zeros(count, np.int64), np.zeros(count, np.float64)
    is_possible = (values.lengths > 0) & (values.lengths <= limits.FILTER_NUMBER_CHARS_MAX)
    rows = np.flatnonzero(is_possible)
    leading = packed.bytes[values.starts[rows]]
    begins = _BEGINS_NUMBER[leading]
    if not begins.all():
        rows, leading = rows[begins], leading[begins]
    has_sign = _IS_SIGN[leading]
    starts = values.starts[rows] + has_sign
    sizes = values.lengths[rows] - has_sign
    sign = np.where(leading == _MINUS, -1, 1)

    read, is_read = _digits(packed, starts, sizes)
    done = rows[is_read]
    whole[done] = (read * sign)[is_read]
    is_whole[done] = is_known[done] = True
    if not is_read.all():
        rest = np.flatnonzero(~is_read & (sizes <= _POINT_CHARS_MAX))
        decimals, is_decimal = _with_point(packed, starts[rest], sizes[rest])
        done = rows[rest[is_decimal]]
        real[done] = (decimals * sign[rest])[is_decimal]
        is_known[done] = True
        left = ~is_read
        left[rest[is_decimal]] = False
        for row in rows[left].tolist():
            first = int(values.starts[row])
            text = packed.raw[first : first + int(values.lengths[row])].decode("latin-1")
            number = read_number(text)
            if number is not None:
                is_known[row] = True
                if isinstance(number, int):
                    is_whole[row], whole[row] = True, number
                else:
                    real[row] = number
    np.copyto(real, whole, where=is_whole)
    return Numbers(is_known, is_whole, whole, real)


def _digits(packed: PackedBytes, starts: I64, sizes: I64) -> tuple[I64, Mask]:
    """Numbers of 1 to 16 digits and nothing else, and which of the texts are such."""
    ends = starts + sizes
    value, is_read = _eight_digits(packed, ends - WORD, np.minimum(sizes, WORD))
    is_read &= (sizes > 0) & (sizes <= _DIGITS_MAX)
    long = np.flatnonzero(is_read & (sizes > WORD))
    if len(long):
        high, is_high = _eight_digits(packed, ends[long] - _DIGITS_MAX, sizes[long] - WORD)
        value[long] += high * 10**WORD
        is_read[long] = is_high
    return value, is_read


def _eight_digits(packed: PackedBytes, at: I64, sizes: I64) -> tuple[I64, Mask]:
    """The number in the last `sizes` (0 to 8) of the eight bytes at each place."""
    words = packed.words(at)
    # What lies before the text becomes zeros: the first byte in memory is the lowest of the word.
    shift = ((WORD - sizes) * 8).astype(np.uint64)
    keep = np.where(sizes > 0, _ALL << (shift & np.uint64(63)), np.uint64(0))
    words = (words & keep) | (_ZEROS & ~keep)
    is_read: Mask = (words & _HIGH | (words + _SIX & _HIGH) >> np.uint64(4)) == _each(0x33)
    return _sum_up(words).astype(np.int64), is_read


def _sum_up(words: U64) -> U64:
    """Eight digits, the first in the lowest byte, as a number."""
    words = (words & _LOW) * np.uint64(10 * 2**8 + 1) >> np.uint64(8)
    words = (words & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 * 2**16 + 1) >> np.uint64(16)
    return (words & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10_000 * 2**32 + 1) >> np.uint64(32)


def _with_point(packed: PackedBytes, starts: I64, sizes: I64) -> tuple[F64, Mask]:
    """Numbers of at most 15 digits with one point among them, and which texts are such."""
    count = len(starts)
    digits, behind = np.zeros(count, np.int64), np.zeros(count, np.int64)
    points, is_good = np.zeros(count, np.int64), np.ones(count, np.bool_)
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        character = packed.bytes[starts[rows] + place]
        digit = character - np.uint8(_ZERO)  # wraps round below "0"
        is_digit, is_point = digit <= 9, character == _POINT  # noqa: PLR2004 - the last digit
        digits[rows] = np.where(is_digit, digits[rows] * 10 + digit, digits[rows])
        behind[rows] += is_digit & (points[rows] > 0)
        points[rows] += is_point
        is_good[rows] &= is_digit | is_point
    is_good &= (points == 1) & (sizes > 1)
    return digits / _POWERS[behind], is_good
