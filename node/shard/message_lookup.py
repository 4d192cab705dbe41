"""Find a message's bytes by what it is, wherever they lie here. For peers that have lost theirs.

And tell whether a publish that the node knows again is the first one, or another under its number:
`check_repetition`.

Where a message lies differs from node to node: delay logs are each node's own, and the log may
begin later. What is the same everywhere is its index entry: due time, sequence, queue, and where it
stands in the queue. And its checksum, by which every answer is verified.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats import meta as metas
from hourwheel.formats.record_batch import HEADER_BYTES, Kind, RecordBatch, unpack_header
from hourwheel.internal.v1.replication_pb2 import WantedMessage
from hourwheel.types import (
    SEQUENCE_MAX,
    Key,
    Offset,
    Position,
    SequenceNumber,
    TopicQueue,
    topic_of,
)
from node.shard.views import Views
from storage.log.commit_log import CommitLog
from storage.log.scan import find_half_sound
from storage.views.unit import Units
from timewheel.bodies import Bodies
from timewheel.range_scan import RangeScan

_WHEEL_STEPS_MAX: Final = 64
_WHEEL_UNITS: Final = 64
_LOG_BYTES_MAX: Final = 16 << 20
"""Of the log so much is read to find a message: an interval of its index, and a batch or two."""


class Wanted(NamedTuple):
    """A message, by what its index entry says."""

    due_ms: int
    sequence: SequenceNumber
    topic_queue: TopicQueue
    position: Position | None
    """In the queue; None: pending, or not known."""
    crc: int
    meta_bytes: int
    body_bytes: int

    @property
    def size_bytes(self) -> int:
        """Of meta and body."""
        return self.meta_bytes + self.body_bytes

    def is_right(self, raw: bytes | memoryview) -> bool:
        """Whether these are its bytes."""
        return len(raw) == self.size_bytes and crc32c(raw) == self.crc

    @classmethod
    def of(cls, unit: Units, position: Position | None) -> "Wanted":
        """The message of a unit: of one row, or of array[1]."""
        return cls(
            unit["due_ms"].item(),
            unit["sequence"].item(),
            unit["topic_queue"].item(),
            position,
            unit["crc"].item(),
            unit["meta_len"].item(),
            unit["body_len"].item(),
        )

    def to_wire(self) -> WantedMessage:
        """For a peer."""
        return WantedMessage(
            due_ms=self.due_ms,
            sequence=self.sequence,
            topic_queue=self.topic_queue,
            queue_position=self.position,
            crc=self.crc,
            meta_bytes=self.meta_bytes,
            body_bytes=self.body_bytes,
        )

    @classmethod
    def from_wire(cls, wire: WantedMessage) -> "Wanted":
        """From a peer."""
        return cls(
            wire.due_ms,
            SequenceNumber(wire.sequence),
            TopicQueue(wire.topic_queue),
            Position(wire.queue_position) if wire.HasField("queue_position") else None,
            wire.crc,
            wire.meta_bytes,
            wire.body_bytes,
        )


class MessageLookup:
    """See the top of this file. From the thread that applies: it answers of what is applied."""

    def __init__(self, views: Views, log: CommitLog, bodies: Bodies) -> None:
        """Look there."""
        self._views, self._log, self._bodies = views, log, bodies

    def find(self, wanted: Wanted) -> bytes | None:
        """The message's bytes, verified; None where they are not here, or damaged here, too.

        Raises:
            CorruptFile: a view is damaged.
        """
        for unit in self._units_of(wanted):
            (blob,), bad = self._bodies.read(unit)
            if not bad and wanted.is_right(blob):
                return bytes(blob)
        return self.find_in_log(wanted)

    def _units_of(self, wanted: Wanted) -> Iterator[Units]:
        """Index entries that are this message's: of its queue, and then of the wheel."""
        topic = self._views.catalog.find_topic_by_id(topic_of(wanted.topic_queue))
        if topic is None or wanted.topic_queue not in self._views.queues_of(topic):
            return
        if wanted.position is not None:
            queue = self._views.queues.get(wanted.topic_queue)
            if queue.start_position <= wanted.position < queue.end_position:
                unit = queue.pick(np.array([wanted.position], np.int64))
                if _is_of(unit, wanted).all():
                    yield unit
        key = Key(wanted.due_ms, wanted.sequence)
        if key > self._views.cursor.key:
            scan = RangeScan(self._views.wheel, _before(key), key)
            for _ in range(_WHEEL_STEPS_MAX):
                if scan.is_done:
                    break
                for units in scan.step(_WHEEL_UNITS):
                    yield from units[_is_of(units, wanted)].reshape(-1, 1)

    def find_in_log(self, wanted: Wanted) -> bytes | None:
        """The message's bytes as they were published, if the log still has them."""
        try:
            batch = self.find_batch(wanted.sequence)
        except errors.CorruptLog as error:  # its batch, or one before it
            return self._find_in_damaged(Offset(int(error.params["offset"])), wanted)
        except (errors.DiskFailed, FileNotFoundError):
            return None
        return None if batch is None else _blob_of(batch, wanted)

    def find_batch(self, sequence: SequenceNumber) -> RecordBatch | None:
        """The batch by which a message was published, if the log still has it.

        Raises:
            CorruptLog: it is damaged, or one before it.
            DiskFailed, FileNotFoundError: it cannot be read.
        """
        log = self._log
        start = log.find_offset(sequence)
        for batch in log.scan(start, min(self._views.applied_offset, log.flushed_end_offset)):
            header = batch.header
            if header.kind == Kind.PUBLISH:
                if header.base_sequence > sequence:
                    return None
                if sequence < header.base_sequence + header.count:
                    return batch
            if header.offset - start > _LOG_BYTES_MAX:
                return None
        return None

    def _find_in_damaged(self, offset: Offset, wanted: Wanted) -> bytes | None:
        """From a batch in which other messages may be damaged."""
        left = min(self._log.flushed_end_offset - offset, _LOG_BYTES_MAX)
        try:
            header = unpack_header(self._log.read(offset, min(HEADER_BYTES, left)))
            if header.total_bytes > left:
                return None
            batch = find_half_sound(self._log.read(offset, header.total_bytes), offset)
        except (errors.InvalidBatch, errors.CorruptLog, errors.DiskFailed, FileNotFoundError):
            return None
        first = 0 if batch is None else batch.header.base_sequence
        if batch is None or not first <= wanted.sequence < first + batch.header.count:
            return None
        return _blob_of(batch, wanted)


def _before(key: Key) -> Key:
    return Key(key.due_ms, key.sequence - 1) if key.sequence else Key(key.due_ms - 1, SEQUENCE_MAX)


def _is_of(units: Units, wanted: Wanted) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (units["due_ms"] == wanted.due_ms)
        & (units["sequence"] == wanted.sequence)
        & (units["crc"] == wanted.crc)
    )
    return found


def _blob_of(batch: RecordBatch, wanted: Wanted) -> bytes | None:
    """What a batch with a sound head has of a message in it."""
    ordinal = wanted.sequence - batch.header.base_sequence
    ends = (batch.body_len.astype(np.int64) + batch.meta_len).cumsum()
    start = int(ends[ordinal - 1]) if ordinal else 0
    raw = bytes(batch.blobs[start : int(ends[ordinal])])
    return raw if wanted.is_right(raw) else None


def check_repetition(
    lookup: MessageLookup,
    base_sequence: SequenceNumber,
    raw_metas: Sequence[bytes],
    bodies: Sequence[bytes],
    requested_due_ms: Sequence[int | None] = (),
) -> None:
    """Compare messages with those that were published as `base_sequence` and behind it.

    A producer's number says where a message was published before, and nothing of what it was. A
    program that gives one idempotency key to two requests would take the answer of the first for
    that of the second. Nothing is decided here: the first one is published, the second one is not.
    Due times are compared where the caller names an instant: delays have become instants, so
    what was asked for is not known any more. Where the log has the first ones no more, or cannot be
    read, it is unknown.

    Args:
        lookup: of the shard.
        base_sequence: of the first one's first copy.
        raw_metas: metadata of the messages that have come now, encoded.
        bodies: their bodies.
        requested_due_ms: instants that the caller names; None: a delay. Empty: not compared.

    Raises:
        OutOfOrderSequence: bodies, metadata or instants are others.
    """
    try:
        batch = lookup.find_batch(base_sequence)
    except (errors.CorruptLog, errors.DiskFailed, FileNotFoundError):
        return
    first = 0 if batch is None else base_sequence - batch.header.base_sequence
    if batch is None:
        return
    if not _is_same(batch, first, raw_metas, bodies) or any(
        requested is not None and requested != known
        for requested, known in zip(requested_due_ms, batch.due_ms[first:].tolist(), strict=False)
    ):
        raise errors.OutOfOrderSequence("the producer's numbers stood for other messages before")


def _is_same(
    batch: RecordBatch, first: int, raw_metas: Sequence[bytes], bodies: Sequence[bytes]
) -> bool:
    """From the message `first` of a batch on: messages of a call stand together."""
    meta_lens = batch.meta_len.astype(np.int64)
    ends = np.cumsum(batch.body_len.astype(np.int64) + meta_lens).tolist()
    for ordinal, (raw_meta, body) in enumerate(zip(raw_metas, bodies, strict=True)):
        at = first + ordinal
        start = ends[at - 1] if at else 0
        split = start + int(meta_lens[at])
        known_meta = bytes(batch.blobs[start:split])
        if bytes(batch.blobs[split : ends[at]]) != body:
            return False
        if known_meta != raw_meta and _sorted(known_meta) != _sorted(raw_meta):
            return False
    return True


def _sorted(raw: bytes) -> metas.MessageMeta:
    """Programs that keep properties in a map send them again in another order."""
    meta = metas.decode(raw)
    return replace(meta, properties=tuple(sorted(meta.properties)))
