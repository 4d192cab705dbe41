"""What the sequence index and the tombstones of a checkpoint say, with flipped bits put right."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import Key
from node.shard.checkpoint import ShardPlace
from node.tools.repair.images import Image, Span, read_image
from node.tools.repair.small_files import mend_small
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.views import sequence_index, tombstones
from storage.views.bit_pages import PAGE_BITS_LOG2, PAGE_BYTES
from storage.views.moved import Moved
from storage.views.sequence_index import BLOCK_BYTES, BLOCK_ENTRIES, CHUNK_BLOCKS, SlotState
from storage.views.unit import Units

_CRC_AT = BLOCK_BYTES - 8


@dataclass
class Sequences:
    """Due time and state of every sequence, and which were cancelled."""

    entries: NDArray[np.uint64]
    """As storage/views/sequence_index.py has them; index is the sequence."""
    cancelled: NDArray[np.bool_]
    moved: Moved
    """Messages that were moved to another due time."""

    def agree(self, units: Units) -> NDArray[np.bool_]:
        """bool[n]: the sequence exists; its due time is the unit's, if it was never given back."""
        count = len(self.entries)
        known = units["sequence"] < count
        entries = self.entries[np.where(known, units["sequence"], 0)] if count else np.uint64(0)
        is_due = (entries >> np.uint64(2)) == units["due_ms"].astype(np.uint64)
        known &= (entries & np.uint64(3)) != SlotState.REJECTED
        agreed: NDArray[np.bool_] = known & (is_due | (units["attempt"] != 1))
        return agreed

    def due_ms(self, sequences: NDArray[np.uint64]) -> NDArray[np.int64]:
        """int64[n]: when messages were to be due."""
        due: NDArray[np.int64] = (self.entries[sequences] >> np.uint64(2)).view(np.int64)
        return due

    def pending(self, after: Key) -> NDArray[np.uint64]:
        """Sequences that were put into the wheel, and neither released nor cancelled, ascending."""
        due = (self.entries >> np.uint64(2)).view(np.int64)
        numbers = np.arange(len(due), dtype=np.uint64)
        moved = self.moved.find(numbers)
        due = np.where(moved.are_moved, moved.due_ms, due)
        ahead = (due > after.due_ms) | ((due == after.due_ms) & (numbers > after.sequence))
        ahead &= (self.entries & np.uint64(3)) == SlotState.WHEEL
        found: NDArray[np.uint64] = numbers[ahead & ~self.cancelled]
        return found

    def is_pending(self, units: Units, after: Key) -> NDArray[np.bool_]:
        """bool[n]: units above the cursor that were not cancelled."""
        due, sequences = units["due_ms"], units["sequence"]
        ahead = (due > after.due_ms) | ((due == after.due_ms) & (sequences > after.sequence))
        known = np.minimum(sequences, max(0, len(self.cancelled) - 1))
        gone = self.cancelled[known] if len(self.cancelled) else np.zeros(len(units), np.bool_)
        moved = self.moved.find(np.ascontiguousarray(sequences))
        is_current = (units["attempt"] == 0) & (due == moved.due_ms)
        gone = gone | (moved.are_moved & (units["attempt"] <= 1) & ~is_current)
        found: NDArray[np.bool_] = ahead & ~gone
        return found


def read_sequences(place: ShardPlace, manifest: Checkpoint) -> tuple[Sequences, list[Image], str]:
    """(what they say, their files, which one is damaged beyond that; empty for none)."""
    count, images = manifest.sequence_index_count, []
    entries = np.zeros(count, np.uint64)
    block_count, tail_count = divmod(count, BLOCK_ENTRIES)
    bad = ""
    for number in range(-(-block_count // CHUNK_BLOCKS)):
        path = place.under(f"sequences/{sequence_index.file_name(number)}")
        image = read_image(place, path)
        images.append(image)
        image.mend_header(place, FileType.SEQUENCE_INDEX, number)
        for block in range(number * CHUNK_BLOCKS, min(block_count, (number + 1) * CHUNK_BLOCKS)):
            at = FILE_HEADER_BYTES + BLOCK_BYTES * (block % CHUNK_BLOCKS)
            span = Span(at, at + 8 * BLOCK_ENTRIES)
            if len(image.raw) < at + BLOCK_BYTES or image.mend([span], at + _CRC_AT, block) is None:
                bad = path
                continue
            found = np.frombuffer(bytes(image.raw[span.start : span.end]), "<u8")
            entries[block * BLOCK_ENTRIES : (block + 1) * BLOCK_ENTRIES] = found
    if tail_count:
        image = read_image(place, place.under("sequences/tail"))
        images.append(image)
        payload = mend_small(place, image, FileType.SEQUENCE_INDEX, block_count)
        if payload is None or len(payload) < 8 * tail_count:
            bad = image.path
        else:
            entries[block_count * BLOCK_ENTRIES :] = np.frombuffer(payload, "<u8")[:tail_count]
    cancelled, tombs, is_sound = _read_tombstones(place, manifest, count)
    if tombs is not None:
        images.append(tombs)
        bad = bad if is_sound else tombs.path
    return Sequences(entries, cancelled, Moved(manifest.moved)), images, bad


def _read_tombstones(
    place: ShardPlace, manifest: Checkpoint, count: int
) -> tuple[NDArray[np.bool_], Image | None, bool]:
    cancelled, is_sound = np.zeros(count, np.bool_), True
    if not manifest.tombstone_bytes:
        return cancelled, None, True
    name = tombstones.file_name(manifest.tombstone_file)
    image = read_image(place, place.under(f"tombstones/{name}"))
    image.mend_header(place, FileType.TOMBSTONES, manifest.tombstone_file)
    end = manifest.tombstone_bytes
    for at in range(FILE_HEADER_BYTES, end, tombstones.RECORD_BYTES):
        spans = [Span(at, at + 8), Span(at + 12, at + 12 + PAGE_BYTES)]
        if len(image.raw) < spans[1].end or image.mend(spans, at + 8) is None:
            is_sound = False
            continue
        first = int.from_bytes(image.raw[at : at + 8], "little") << PAGE_BITS_LOG2
        bits = np.frombuffer(bytes(image.raw[at + 12 : spans[1].end]), np.uint8)
        found = np.unpackbits(bits, bitorder="little").astype(np.bool_)
        kept = cancelled[first : first + len(found)]
        kept[:] = found[: len(kept)]
    return cancelled, image, is_sound
