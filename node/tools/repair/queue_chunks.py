"""What can be read of a damaged chunk of a consume queue.

One checksum is over all entries of a chunk. Where one flipped bit explains it, that is put right.
Else each entry has to prove itself: it is of this queue, its sequence exists and is due as it says,
and the bytes that it points at have its checksum. Its gene, which nothing vouches for then, becomes
"unknown": filters look at the message itself.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.tag_gene import GENE_UNKNOWN
from hourwheel.types import QUEUE_BITS, Key, Offset, TopicQueue
from node.shard.checkpoint import ShardPlace
from node.tools.repair.images import Image, Span, read_image
from node.tools.repair.sequences import Sequences
from storage.files.file_header import FileType
from storage.log.scan import LOG_BATCH_BYTES_MAX
from storage.queues.consume_queue import CHUNK_ENTRIES
from storage.queues.mapped_chunks import file_name
from storage.queues.queue_chunk import (
    ENTRIES_AT,
    NO_ENTRIES,
    SEAL_BYTES,
    chunk_bytes,
    intact_seals,
    pack_seal,
    seal_position,
)
from storage.views.unit import UNIT, UNIT_BYTES, Units
from timewheel.bodies import Bodies

_PART: int = 1_024


class Evidence(NamedTuple):
    """What an entry is held against."""

    sequences: Sequences
    bodies: Bodies
    cursor: Key
    store_ms: int
    """What is released was stored, and due, before this or the cursor."""


class SalvagedChunk(NamedTuple):
    """A chunk, as far as it can be read."""

    topic_queue: TopicQueue
    number: int
    image: Image
    lost: list[int]
    """Ordinals of entries that prove nothing."""
    raw: Units
    """Entries as they stand in the file, damage included."""
    units: Units
    """Entries as they are to be; those that are lost mean nothing."""


def salvage_chunk(
    place: ShardPlace, topic_queue: TopicQueue, number: int, count: int, evidence: Evidence
) -> SalvagedChunk:
    """Read the first `count` entries of a chunk, whatever is wrong with it.

    Raises:
        ForeignDirectory, IncompatibleFormat: it is not ours to read.
    """
    path = place.under(f"queues/{topic_queue:08x}/{file_name(number)}")
    image = read_image(place, path)
    size = chunk_bytes(CHUNK_ENTRIES)
    if len(image.raw) != size:
        image.mended.append("the file's size")
        image.raw = image.raw[:size] + bytes(max(0, size - len(image.raw)))
    image.mend_header(place, FileType.CONSUME_QUEUE, number)
    entries = _entries(image, count)
    slot = _mend_seals(image, topic_queue, count)
    span = Span(ENTRIES_AT, ENTRIES_AT + count * UNIT_BYTES)
    if slot is not None:
        changed = image.mend([span], seal_position(slot) + 4)
        if changed is not None and changed.end:
            at = (changed.start - ENTRIES_AT) // UNIT_BYTES
            mended = _entries(image, count)
            if not _proven(mended[at : at + 1], topic_queue, evidence).all():
                image.unmend(changed)
                changed = None
        if changed is not None:
            units = _entries(image, count)
            return SalvagedChunk(topic_queue, number, image, [], units, units)
    is_right = _proven(entries, topic_queue, evidence)
    units = entries.copy()
    units["tag_gene"] = GENE_UNKNOWN
    lost = np.flatnonzero(~is_right).tolist()
    return SalvagedChunk(topic_queue, number, image, lost, entries, units)


def _entries(image: Image, count: int) -> Units:
    return np.frombuffer(bytes(image.raw[ENTRIES_AT : ENTRIES_AT + count * UNIT_BYTES]), UNIT)


def _mend_seals(image: Image, topic_queue: TopicQueue, count: int) -> int | None:
    """Which seal is over so many entries."""
    for is_second_look in (False, True):
        for slot in (0, 1):
            at = seal_position(slot)
            known = len(image.mended)
            if is_second_look:
                changed = image.mend([Span(at, at + SEAL_BYTES - 4)], at + SEAL_BYTES - 4)
            seal = intact_seals(bytes(image.raw[:ENTRIES_AT]), topic_queue).get(slot)
            if seal is not None and seal.entry_count == count:
                return slot
            if len(image.mended) > known and changed is not None and changed.end:
                image.unmend(changed)  # of another manifest
    return None


def _proven(units: Units, topic_queue: TopicQueue, evidence: Evidence) -> NDArray[np.bool_]:
    """bool[n]: which entries are what they say."""
    sizes = units["body_len"].astype(np.int64) + units["meta_len"]
    last_ms = max(evidence.store_ms, evidence.cursor.due_ms)
    right: NDArray[np.bool_] = units["topic_queue"] == topic_queue
    right &= sizes <= LOG_BATCH_BYTES_MAX
    right &= (units["store_ms"] <= last_ms) & (units["due_ms"] <= last_ms)
    right &= evidence.sequences.agree(units)
    chosen = np.flatnonzero(right)
    for low in range(0, len(chosen), _PART):
        part = chosen[low : low + _PART]
        _, bad = evidence.bodies.read(units[part])
        right[part[[one.ordinal for one in bad]]] = False
    return right


def rebuilt(chunk: SalvagedChunk, hole_offset: Offset, store_ms: int) -> Image:
    """The chunk's file with what is lost as holes: entries whose bytes can never be right.

    Args:
        chunk: what was salvaged.
        hole_offset: what a hole points at: an offset that the log has.
        store_ms: when a hole could first be seen.
    """
    units = chunk.units.copy()
    hole = np.zeros(1, UNIT)
    hole["due_ms"] = hole["store_ms"] = store_ms
    hole["position"], hole["crc"], hole["attempt"] = hole_offset, 1, 1
    hole["topic_queue"], hole["origin_topic"] = chunk.topic_queue, chunk.topic_queue >> QUEUE_BITS
    units[chunk.lost] = hole
    image = chunk.image
    image.raw[ENTRIES_AT:] = units.tobytes().ljust(len(image.raw) - ENTRIES_AT, b"\0")
    seal = pack_seal(NO_ENTRIES.extended(units), chunk.topic_queue)
    image.raw[seal_position(0) : ENTRIES_AT] = seal.ljust(ENTRIES_AT - seal_position(0), b"\0")
    image.mended.append("entries, one by one")
    return image
