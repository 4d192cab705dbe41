import random

import pytest

from hourwheel.crc32c import crc32c
from node.tools.repair.flipped_bit import FlippedBit, find_flipped_bit


@pytest.mark.parametrize("size", [1, 2, 63, 1_024, 20_000])
def test_each_single_bit_is_found(size: int) -> None:
    dice = random.Random(size)
    raw = dice.randbytes(size)
    for _ in range(50):
        byte, bit = dice.randrange(size), dice.randrange(8)
        damaged = bytearray(raw)
        damaged[byte] ^= 1 << bit
        assert find_flipped_bit(bytes(damaged), crc32c(raw)) == FlippedBit(byte, bit)


@pytest.mark.parametrize("bit", range(32))
def test_checksum_is_blamed_when_its_bit_was_flipped(bit: int) -> None:
    assert find_flipped_bit(b"right", crc32c(b"right") ^ 1 << bit) == FlippedBit(-1, bit)


def test_nothing_is_found_when_more_is_damaged() -> None:
    dice = random.Random(1)
    for _ in range(50):
        raw = dice.randbytes(400)
        damaged = raw[:100] + dice.randbytes(100) + raw[200:]
        assert find_flipped_bit(damaged, crc32c(raw)) is None
