"""Which bit of some bytes was flipped: their checksum tells. Pure.

A CRC is linear: the checksum of damaged bytes differs from the right one by a number that depends
on where bits were flipped and on nothing else, and for single bits all these numbers differ. So we
walk from the last byte to the first, and look where the number fits.

Of n bytes that are damaged in some other way, 8 n of 2^32 such numbers fit by accident: the caller
has to check that the bytes make sense once the bit is flipped back.
"""

from typing import Final, NamedTuple

from hourwheel.crc32c import crc32c

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's, reflected."""
_BITS: Final = 8


class FlippedBit(NamedTuple):
    """Where to flip back."""

    byte: int
    """-1: the bytes are right, and their checksum is what was damaged."""
    bit: int


def _zero_byte(value: int) -> int:
    """What a difference is one byte later."""
    for _ in range(_BITS):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_LATER: Final = [_zero_byte(value) for value in range(256)]
_BY_TOP: Final = {value >> 24: number for number, value in enumerate(_LATER)}
_IN_LAST_BYTE: Final = {_LATER[1 << bit]: bit for bit in range(_BITS)}


def find_flipped_bit(raw: bytes, crc: int) -> FlippedBit | None:
    """The one bit that makes the CRC32C of `raw` what it should be; None: no single one does.

    Args:
        raw: fails its checksum.
        crc: the checksum as it was stored, which may be what is damaged.
    """
    difference = crc32c(raw) ^ crc
    if difference.bit_count() == 1:
        return FlippedBit(-1, difference.bit_length() - 1)
    for byte in range(len(raw) - 1, -1, -1):
        bit = _IN_LAST_BYTE.get(difference)
        if bit is not None:
            return FlippedBit(byte, bit)
        number = _BY_TOP[difference >> 24]
        difference = (difference ^ _LATER[number]) << 8 & 0xFFFFFFFF | number
    return None
