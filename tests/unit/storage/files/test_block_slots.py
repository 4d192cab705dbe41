"""Memory for blocks that are read from places that lie apart."""

import numpy as np
import pytest

from storage.files.block_slots import BlockSlots
from storage.files.disk import File
from tests.sim.disk import SimulatedDisk

BYTES = np.dtype("u1")


@pytest.fixture
def file() -> File:
    """Bytes that count up to 20."""
    file = SimulatedDisk().open("f", create=True)
    file.pwrite([bytes(range(20))], 0)
    return file


def test_read_when_blocks_lie_apart(file: File) -> None:
    slots = BlockSlots(4, 5)
    pieces, are_whole = slots.read(file, [8, 0], first=0, last_bytes=4)
    assert are_whole
    assert [bytes(piece) for piece in pieces] == [bytes(range(8, 12)), bytes(range(4))]
    pieces, are_whole = slots.read(file, [16, 4], first=2, last_bytes=3)
    assert are_whole
    assert bytes(pieces[1]) == bytes(range(4, 7))
    assert slots.rows(BYTES)[:15].tolist() == [8, 9, 10, 11, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6]


@pytest.mark.parametrize("last_bytes", [4, 3])
def test_read_when_the_file_ends_before(file: File, last_bytes: int) -> None:
    slots = BlockSlots(4, 2)
    assert not slots.read(file, [0, 18], first=0, last_bytes=last_bytes)[1]
    assert slots.read(file, [0, 18], first=0, last_bytes=2)[1]
