"""What can be read of a damaged run: blocks that are sound, or were but for one bit."""

from typing import NamedTuple

import numpy as np

from hourwheel.internal.v1.state_pb2 import RunState
from node.shard.checkpoint import ShardPlace
from node.tools.repair.images import Image, Span, read_image
from node.tools.repair.sequences import Sequences
from storage.files.file_header import FileType
from storage.views.unit import NO_UNITS, UNIT, UNIT_BYTES, Units, is_sorted, join, pick
from timewheel.levels import BUCKET_MS, SLOTS
from timewheel.run_format import (
    BLOCK_UNITS,
    FOOTER,
    SECTION,
    SLOT,
    run_path,
    unit_at,
    unpack_footer,
)

_TABLES_CRC_AT = FOOTER.size - 16
"""Byte of the footer."""


class SalvagedRun(NamedTuple):
    """One run, as far as it can be read."""

    state: RunState
    image: Image
    units: Units
    """Of sound blocks, in key order; without days that were cascaded away."""
    doubtful: Units
    """As they stand in blocks that are damaged: any of it may be wrong."""
    is_whole: bool
    """The image is a sound run."""


def salvage_run(place: ShardPlace, state: RunState, sequences: Sequences) -> SalvagedRun:
    """Read the run that a manifest names, whatever is wrong with it.

    Raises:
        ForeignDirectory, IncompatibleFormat: it is not ours to read.
    """
    path = run_path(place.under("wheel"), state.covers_first, state.run_id)
    image, count = read_image(place, path), state.unit_count
    blocks = -(-count // BLOCK_UNITS)
    directory_bytes = SLOTS[state.level] * SLOT.itemsize
    fixed = unit_at(count) + 4 * blocks + FOOTER.size
    section_count, rest = divmod(len(image.raw) - fixed, directory_bytes + SECTION.itemsize)
    if rest or section_count < 0:  # it is unknown where anything lies
        image.raw += bytes(max(0, unit_at(count) - len(image.raw)))
        return SalvagedRun(state, image, NO_UNITS, _units_in(image, 0, count), is_whole=False)
    image.mend_header(place, FileType.RUN, state.run_id)
    is_whole = _mend_tables(image, state, section_count)
    crcs_at = len(image.raw) - FOOTER.size - 4 * blocks
    sound, doubtful = [NO_UNITS], [NO_UNITS]
    for block in range(blocks):
        first, end = block * BLOCK_UNITS, min(count, (block + 1) * BLOCK_UNITS)
        changed = image.mend([Span(unit_at(first), unit_at(end))], crcs_at + 4 * block)
        units = _units_in(image, first, end)
        if changed and changed.end and not _is_likely(units, state, sequences):
            image.unmend(changed)
            changed = None
        (doubtful if changed is None else sound).append(units)
        is_whole &= changed is not None
    own = _without_cascaded(join(sound), state)
    return SalvagedRun(state, image, own, join(doubtful), is_whole)


def _mend_tables(image: Image, state: RunState, section_count: int) -> bool:
    """Footer, tables and directories; whether they are sound."""
    end = len(image.raw) - FOOTER.size
    directories_at = unit_at(state.unit_count)
    directory_bytes = SLOTS[state.level] * SLOT.itemsize
    tables_at = directories_at + section_count * directory_bytes
    is_sound = image.mend([Span(end, end + FOOTER.size - 4)], len(image.raw) - 4) is not None
    footer = unpack_footer(bytes(image.raw[end:]))
    is_sound &= footer is not None and (footer.unit_count, footer.level, footer.run_id) == (
        state.unit_count,
        state.level,
        state.run_id,
    )
    is_sound &= image.mend([Span(tables_at, end)], end + _TABLES_CRC_AT) is not None
    for number in range(section_count if is_sound else 0):
        at = directories_at + number * directory_bytes
        crc_at = tables_at + number * SECTION.itemsize + SECTION.itemsize - 4
        is_sound &= image.mend([Span(at, at + directory_bytes)], crc_at) is not None
    return is_sound


def _units_in(image: Image, first: int, end: int) -> Units:
    raw = bytes(image.raw[unit_at(first) : unit_at(end)])
    return np.frombuffer(raw[: len(raw) // UNIT_BYTES * UNIT_BYTES], UNIT)


def _is_likely(units: Units, state: RunState, sequences: Sequences) -> bool:
    """Whether units with a bit put right fit to everything else that is known."""
    due = units["due_ms"]
    is_inside = int(due.min()) >= state.due_ms_min and int(due.max()) <= state.due_ms_max
    return is_inside and is_sorted(units) and bool(sequences.agree(units).all())


def _without_cascaded(units: Units, state: RunState) -> Units:
    days = units["due_ms"] // BUCKET_MS[state.level]
    return pick(units, ~np.isin(days, list(state.cascaded_days)))
