"""The run: units of one flush (or merge, or cascade) on disk, in key order, with slot directories.

    byte                  size          part
       0                    64          file header (`file_header`), type RN, base = run id
      64                  64 N          units in key order (storage/views/unit.py)
       ...           12 x slots         slot directory of each section, one behind the other;
                                        3,600 slots a section of level 0, 24 of level 1
       ...                24 S          section table, by bucket
       ...                 4 B          CRC32C of each block of 256 units
     end - 64               64          footer

    slot         first u32 (global index: ordinal in the run of the slot's first unit) | count u32
                 | previous_run u32 (the newest older run of this level that has units in this slot,
                 0 for none; also in slots without units, so that one directory tells the heads)
    section      bucket i64 (hour or day since the epoch) | first u64 | count u32
                 | crc u32 (of its directory)
    footer       unit_count u64 | section_count u32 | level u32 | covers_first u32 | run_id u32
                 | due_ms_min i64 | due_ms_max i64 | delay_log_first u32 | delay_log_last u32
                 | tables_crc u32 (section table and block CRCs) | first_page u32 | end_page u32
                 | crc u32 (of the footer)

A run is written once and never changed. The previous-run chain is the seed design's chain of
previous global indexes, run by run instead of unit by unit: a second is read in a few sequential
pieces.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from storage.files.file_header import FILE_HEADER_BYTES
from storage.views.unit import UNIT_BYTES

SLOT: Final = np.dtype([("first", "<u4"), ("count", "<u4"), ("previous_run", "<u4")])
SECTION: Final = np.dtype([("bucket", "<i8"), ("first", "<u8"), ("count", "<u4"), ("crc", "<u4")])
BLOCK_UNITS: Final = 256
FOOTER: Final = Struct("<QIIIIqqIIIIII")
PAGE_LOG2: Final = 16
"""Sequences of a page, as a power of two."""
assert SLOT.itemsize == 12  # noqa: PLR2004
assert SECTION.itemsize == 24  # noqa: PLR2004
assert FOOTER.size == 64  # noqa: PLR2004

Slots = NDArray[Any]
Sections = NDArray[Any]


class Footer(NamedTuple):
    """The footer's fields in their order, without the last CRC."""

    unit_count: int
    section_count: int
    level: int
    covers_first: int
    run_id: int
    due_ms_min: int
    due_ms_max: int
    delay_log_first: int
    delay_log_last: int
    tables_crc: int
    first_page: int = 0
    """Units with attempt 1 are of sequences in pages of 65,536 from this one to"""
    end_page: int = 0
    """before this one; 0: unknown, as in runs of earlier versions."""


def pack_footer(footer: Footer) -> bytes:
    """The footer's 64 bytes."""
    raw = FOOTER.pack(*footer, 0)
    return raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little")


def unpack_footer(raw: bytes) -> Footer | None:
    """The footer, or None where the bytes are not one."""
    if len(raw) != FOOTER.size or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    return Footer._make(FOOTER.unpack(raw)[:-1])


def unit_at(index: int) -> int:
    """Byte in the file of the unit of this global index."""
    return FILE_HEADER_BYTES + UNIT_BYTES * index


def run_path(directory: str, covers_first: int, run_id: int) -> str:
    """Where the run lies that stands for all of [covers_first, run_id]."""
    return f"{directory}/{covers_first:010d}-{run_id:010d}.run"


def delay_log_path(directory: str, delay_log_id: int) -> str:
    """Where the delay log of this number lies."""
    return f"{directory}/{delay_log_id:010d}.dlog"
