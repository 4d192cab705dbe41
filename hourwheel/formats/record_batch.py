"""The record batch: one format from the producer to the disk, the followers and the auditors.

A batch is a fixed header, columns, then blobs, little-endian, padded to 8 bytes:

    byte  size  field                who writes it
       0     4  magic 'HWRB'         builder
       4     1  version = 1          builder
       5     1  kind                 builder
       6     2  flags                builder
       8     4  total_bytes          builder   whole batch, padding included, a multiple of 8
      12     4  count                builder   messages or rows
      16     8  offset               master    address of this batch in the commit log
      24     8  base_sequence        master    sequence of the first message
      32     8  store_ms             master    cluster clock when it was appended
      40     8  flushed_end_offset   master    the log was durable up to here when this was appended
      48     4  epoch                master
      52     4  stamped_bytes        builder   size of the stamped columns
      56     4  column_bytes         builder   size of the payload columns
      60     4  blob_bytes           builder   size of the blobs, padding excluded
      64     8  producer_id          producer  0: no idempotence
      72     8  producer_sequence    producer  of the first message; the others follow densely
      80     1  gene_kind            producer  which tag gene the gene column holds (filters/)
      81     3  zero
      84     4  gene_spec            producer  number of the specification that its genes were made
                                               by; 0: not known
      88     4  payload_crc          builder   CRC32C of payload columns + blobs: end to end, kept
      92     4  header_crc           last writer: CRC32C of bytes 0..92 and the stamped columns

    PUBLISH, n messages:
      stamped columns   due_ms i64[n] | topic_queue u32[n] | pad to 8
      payload columns   tag_gene u64[n] | key_hash u64[n]
                        | producer_id u64[n] | producer_sequence u64[n]   with PER_MESSAGE_PRODUCER
                        | crc u32[n] | body_len u32[n] | meta_len u32[n] | pad to 8
                        | dedup_high u64[n] | dedup_low u64[n] | if_pending u8[n] | pad to 8
                                                                              with DEDUP_KEYS
      blobs             meta 0, body 0, meta 1, body 1, ...

    other kinds, n rows: payload columns are n rows of the kind's dtype below (or none), blobs are
    the kind's protobuf message (or none).

With EXPIRY and PRIORITY some metas begin with such a field (`formats.expiry_field`).
With the flag TRANSACTION a PUBLISH batch is the commit of a transaction, and `producer_id` the
offset of the PREPARE record that has its messages.

Why a message's meta and body stand together: one address, one length and one CRC (`crc`, over meta
and body) then name a message wherever its bytes are copied, from the producer to the consumer.
Why two CRCs a batch: the master stamps header and due times without reading the payload again, and
the payload's CRC is the producer's own. A builder leaves the master's fields zero and puts into
`due_ms` what it was asked for: instants, or with RELATIVE_DUE delays that the master resolves on
its own clock (clients' clocks are often wrong: rocketmq-apis #83).

Kafka keeps `DefaultRecordBatch` in its clients module for the same reason that this file is here.
"""

from collections.abc import Sequence as Seq
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.crc32c import crc32c
from hourwheel.formats.batch_columns import blobs_of, pad8, requested_by, wide_column
from hourwheel.formats.dedup_key import DedupColumns, DedupKey, pack_dedup_keys
from hourwheel.types import FIRST_OFFSET, FIRST_SEQUENCE, NO_EPOCH, Epoch, Offset, SequenceNumber

MAGIC: Final = int.from_bytes(b"HWRB", "little")
VERSION: Final = 1
HEADER_BYTES: Final = 96
_STRUCT: Final = Struct("<IBBHIIQQqQIIIIQQB3xIII")
assert _STRUCT.size == HEADER_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview
U64: TypeAlias = NDArray[np.uint64]
U32: TypeAlias = NDArray[np.uint32]
I64: TypeAlias = NDArray[np.int64]


class Kind(IntEnum):
    """What a batch says. A node that does not know a kind stops; it never skips one."""

    PUBLISH = 1
    DISPATCH = 2
    CANCEL = 3
    RESCHEDULE = 4
    RESOLVE = 5
    CONFIG = 6
    TRIM = 7
    EXPIRE = 8
    FEATURE_LEVEL = 9
    EPOCH_START = 10
    TRIM_SEQUENCES = 11
    PREPARE = 12
    TRANSACT = 13
    RECURRENCE = 14


class Flag(IntEnum):
    """Bits of the header's `flags`; arithmetic on an IntFlag is ten times as slow."""

    RELATIVE_DUE = 1
    PER_MESSAGE_PRODUCER = 2
    TRANSACTION = 4
    """The messages of a transaction: `producer_id` is the offset of its PREPARE."""
    OCCURRENCES = 8
    """Of recurrences, with PER_MESSAGE_PRODUCER: its columns are version and index of each."""
    DEDUP_KEYS = 16
    """Some have a dedup key: of one topic and key one message is pending."""
    EXPIRY = 32
    """Some expire: their metas say when (`formats.expiry_field`)."""
    PRIORITY = 64
    """Some have a priority: their metas say which (`formats.priority_field`)."""


_DEDUP_BYTES: Final = 17


class Outcome(IntEnum):
    """How a RESOLVE row ends the hold of a group on queue positions."""

    ACK = 1
    RETRY = 2
    DEAD = 3
    FILTERED = 4
    """Filtered: the message does not match the group's subscription."""
    REDRIVE = 5
    """Of a group's own dead letters: given to it again, as retries of where they came from."""
    SKIPPED = 6
    """An operator's word: the group begins, or goes on, behind them."""
    HELD = 7
    """Not resolved: given back by an ordered group, each stays where it stands and waits there."""
    FREED = 8
    """Not resolved: what HELD said of them is over, as if they had never been delivered."""
    EXPIRED = 9
    """They have expired, and were not leased by then: dropped."""
    EXPIRED_LETTER = 10
    """The same, and they become dead letters."""


DISPATCH_ROW: Final = np.dtype(
    [
        ("prev_due_ms", "<i8"),
        ("prev_sequence", "<u8"),
        ("to_due_ms", "<i8"),
        ("to_sequence", "<u8"),
        ("check_offset", "<u8"),
        ("check_count", "<u8"),
        ("check_mix", "<u8"),
    ]
)
"""Release what is in (prev, to]. The check is of the master's applied state at `check_offset`."""
CANCEL_ROW: Final = np.dtype(
    [("due_ms", "<i8"), ("sequence", "<u8"), ("epoch", "<u4"), ("zero", "<u4")]
)
RESCHEDULE_ROW: Final = np.dtype(
    [
        ("due_ms", "<i8"),
        ("sequence", "<u8"),
        ("new_due_ms", "<i8"),
        ("epoch", "<u4"),
        ("zero", "<u4"),
    ]
)
"""Move a pending message: `due_ms` is its id's, however often it was moved before."""
RESOLVE_ROW: Final = np.dtype(
    [
        ("group_id", "<u4"),
        ("topic_queue", "<u4"),
        ("first_position", "<u8"),
        ("count", "<u4"),
        ("outcome", "<u4"),
        ("retry_due_ms", "<i8"),
    ]
)
TRIM_ROW: Final = np.dtype([("retain_from_ms", "<i8")])
EXPIRE_ROW: Final = np.dtype([("producer_idle_before_ms", "<i8")])
TRIM_SEQUENCES_ROW: Final = np.dtype([("sequence_floor", "<u8")])
"""Of the messages below it only those are known that are not yet due."""
PREPARE_ROW: Final = np.dtype(
    [("token_high", "<u8"), ("token_low", "<u8"), ("topic_id", "<u4"), ("message_count", "<u4")]
)
"""A topic of a transaction: so many of its messages, behind those of the row before, are for it.

All rows of a record have one token. The messages are in the blob (`Prepared`, state.proto)."""
TRANSACT_ROW: Final = np.dtype([("prepare_offset", "<u8"), ("step", "<u4"), ("zero", "<u4")])
FEATURE_LEVEL_ROW: Final = np.dtype([("level", "<u4"), ("zero", "<u4")])

ROWS: Final[dict[int, np.dtype[Any]]] = {
    Kind.DISPATCH: DISPATCH_ROW,
    Kind.CANCEL: CANCEL_ROW,
    Kind.RESCHEDULE: RESCHEDULE_ROW,
    Kind.RESOLVE: RESOLVE_ROW,
    Kind.TRIM: TRIM_ROW,
    Kind.EXPIRE: EXPIRE_ROW,
    Kind.FEATURE_LEVEL: FEATURE_LEVEL_ROW,
    Kind.TRIM_SEQUENCES: TRIM_SEQUENCES_ROW,
    Kind.PREPARE: PREPARE_ROW,
    Kind.TRANSACT: TRANSACT_ROW,
    Kind.RECURRENCE: CANCEL_ROW,
}
"""dtype of the rows of each kind that has rows."""


class Header(NamedTuple):
    """The header's fields, in the order they lie in."""

    magic: int
    version: int
    kind: int
    flags: int
    total_bytes: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called
    offset: Offset
    base_sequence: SequenceNumber
    store_ms: int
    flushed_end_offset: Offset
    epoch: Epoch
    stamped_bytes: int
    column_bytes: int
    blob_bytes: int
    producer_id: int
    producer_sequence: int
    gene_kind: int
    gene_spec: int
    payload_crc: int
    header_crc: int

    @property
    def end_offset(self) -> Offset:
        """Behind the batch: the address of the next one."""
        return Offset(self.offset + self.total_bytes)


class Stamp(NamedTuple):
    """What only the master knows when it appends."""

    offset: Offset
    base_sequence: SequenceNumber
    store_ms: int
    flushed_end_offset: Offset
    epoch: Epoch


def unpack_header(buffer: Buffer, at: int = 0) -> Header:
    """Read the header at `at` and check what can be checked without the rest.

    Raises:
        InvalidBatch: too short, not a record batch, or sizes that contradict each other.
        UnsupportedVersion: a record batch of a version that we do not know.
    """
    if len(buffer) - at < HEADER_BYTES:
        raise errors.InvalidBatch("shorter than a header", bytes=len(buffer) - at)
    header = Header._make(_STRUCT.unpack_from(buffer, at))
    if header.magic != MAGIC:
        raise errors.InvalidBatch("no record batch here: the magic is wrong")
    if header.version != VERSION:
        raise errors.UnsupportedVersion(
            f"record batch version {header.version}; this node knows {VERSION}"
        )
    parts = header.stamped_bytes + header.column_bytes + header.blob_bytes
    if header.total_bytes != pad8(HEADER_BYTES + parts):
        raise errors.InvalidBatch("the sizes in the header contradict each other")
    if header.stamped_bytes % 8 or header.column_bytes % 8:
        raise errors.InvalidBatch("columns are not padded to 8 bytes")
    return header


class RecordBatch:
    """A read-only view of one whole batch; columns are numpy views on its bytes.

    It is given whole (a buffer that starts with it and may go on behind it) or in the two pieces
    that `stamp` makes of it.
    """

    __slots__ = ("_head", "_payload", "header")

    def __init__(self, buffer: Buffer, header: Header | None = None) -> None:
        """Wrap `buffer`; verifies nothing but the header's shape. See `verify`."""
        self.header = unpack_header(buffer) if header is None else header
        size, expected = len(buffer), self.header.total_bytes
        if size < expected:
            raise errors.InvalidBatch("truncated record batch", bytes=size, expected=expected)
        view, cut = memoryview(buffer), HEADER_BYTES + self.header.stamped_bytes
        self._head = view[:cut]
        self._payload = view[cut:expected]

    @classmethod
    def from_pieces(cls, head: bytes, payload: memoryview) -> "RecordBatch":
        """The batch whose bytes are `head` (header, stamped columns) and `payload`: `stamp`'s."""
        batch = cls.__new__(cls)
        batch.header = unpack_header(head)
        batch._head = memoryview(head)  # noqa: SLF001 - a constructor
        batch._payload = payload  # noqa: SLF001
        return batch

    def verify(self) -> None:
        """Check both CRCs, and that columns and blobs have the sizes that `count` demands.

        Raises:
            InvalidBatch: with what is wrong; nothing of the batch can be trusted then.
        """
        header = self.header
        if header_crc(self._head) != header.header_crc:
            raise errors.InvalidBatch("record batch header fails its CRC32C")
        end = header.column_bytes + header.blob_bytes
        if crc32c(self._payload[:end]) != header.payload_crc:
            raise errors.InvalidBatch("record batch payload fails its CRC32C")
        if any(self._payload[end:]):  # under no CRC, and replicas compare bytes
            raise errors.InvalidBatch("the padding of a record batch is not zero")
        self._verify_shape()

    def _verify_shape(self) -> None:
        header, count = self.header, self.header.count
        if header.kind == Kind.PUBLISH:
            per_message = bool(header.flags & Flag.PER_MESSAGE_PRODUCER)
            if count == 0 or header.stamped_bytes != pad8(12 * count):
                raise errors.InvalidBatch("stamped columns do not fit the count", count=count)
            columns = _payload_columns_bytes(count, per_message=per_message)
            if header.flags & Flag.DEDUP_KEYS:
                columns += pad8(_DEDUP_BYTES * count)
            if header.column_bytes != columns:
                raise errors.InvalidBatch("payload columns do not fit the count", count=count)
            blobs = int(self.body_len.sum(dtype=np.uint64) + self.meta_len.sum(dtype=np.uint64))
            if blobs != header.blob_bytes:
                raise errors.InvalidBatch("blob lengths do not add up", blob_bytes=blobs)
            return
        row = ROWS.get(header.kind)
        size = 0 if row is None else row.itemsize * count
        if header.column_bytes != size or header.stamped_bytes:
            raise errors.InvalidBatch("rows do not fit the count", kind=header.kind, count=count)

    def _stamped(self, at: int, dtype: str) -> NDArray[Any]:
        return np.frombuffer(self._head, dtype, self.header.count, HEADER_BYTES + at)

    def _column(self, at: int, dtype: str) -> NDArray[Any]:
        return np.frombuffer(self._payload, dtype, self.header.count, at)

    @property
    def due_ms(self) -> I64:
        """int64[n]: instants in epoch milliseconds; delays before stamping with RELATIVE_DUE."""
        return self._stamped(0, "<i8")

    @property
    def topic_queue(self) -> U32:
        """uint32[n]: see `types.TopicQueue`; zero before stamping."""
        return self._stamped(8 * self.header.count, "<u4")

    @property
    def tag_gene(self) -> U64:
        """uint64[n]: hint for tag filters."""
        return self._column(0, "<u8")

    @property
    def key_hash(self) -> U64:
        """uint64[n]: hash of the message's first key, 0 without one."""
        return self._column(8 * self.header.count, "<u8")

    @property
    def message_producers(self) -> tuple[U64, U64]:
        """(producer_id u64[n], producer_sequence u64[n]); only with PER_MESSAGE_PRODUCER."""
        count = self.header.count
        return (
            self._column(16 * count, "<u8"),
            self._column(24 * count, "<u8"),
        )

    def _narrow(self, ordinal: int) -> U32:
        count = self.header.count
        wide = 32 if self.header.flags & Flag.PER_MESSAGE_PRODUCER else 16
        return self._column((wide + 4 * ordinal) * count, "<u4")

    @property
    def crc(self) -> U32:
        """uint32[n]: CRC32C of each message's meta and body."""
        return self._narrow(0)

    @property
    def body_len(self) -> U32:
        """uint32[n]: bytes of each body."""
        return self._narrow(1)

    @property
    def meta_len(self) -> U32:
        """uint32[n]: bytes of each meta."""
        return self._narrow(2)

    @property
    def dedup(self) -> DedupColumns:
        """The dedup keys; only with DEDUP_KEYS."""
        count = self.header.count
        per_message = bool(self.header.flags & Flag.PER_MESSAGE_PRODUCER)
        at = _payload_columns_bytes(count, per_message=per_message)
        return DedupColumns(
            self._column(at, "<u8"),
            self._column(at + 8 * count, "<u8"),
            self._column(at + 16 * count, "u1"),
        )

    @property
    def blob_offset(self) -> int:
        """Byte in the batch at which the first message's meta starts."""
        return HEADER_BYTES + self.header.stamped_bytes + self.header.column_bytes

    @property
    def head(self) -> memoryview:
        """Header and stamped columns: what stamping makes anew."""
        return self._head

    @property
    def payload(self) -> memoryview:
        """Payload columns, blobs and padding: all that stamping leaves alone."""
        return self._payload

    @property
    def blobs(self) -> memoryview:
        """All blobs, padding excluded."""
        return self._payload[self.header.column_bytes :][: self.header.blob_bytes]

    @property
    def rows(self) -> NDArray[Any]:
        """The rows of a kind that has rows: structured array[n] of `ROWS[kind]`."""
        return np.frombuffer(self._payload, ROWS[self.header.kind], self.header.count)


def _payload_columns_bytes(count: int, *, per_message: bool) -> int:
    return pad8((44 if per_message else 28) * count)


def header_crc(head: Buffer) -> int:
    """CRC32C over a header without its last field, then over the stamped columns behind it."""
    view = memoryview(head)
    return int(crc32c(view[HEADER_BYTES:], crc32c(view[: HEADER_BYTES - 4])))


def _seal(header: Header, stamped: bytes) -> bytes:
    """Header and stamped columns as bytes, with the header's CRC put in."""
    head = bytearray(_STRUCT.pack(*header))
    head += stamped
    crc = header_crc(head)
    head[HEADER_BYTES - 4 : HEADER_BYTES] = crc.to_bytes(4, "little")
    return bytes(head)


def _stamped_columns(due_ms: I64, topic_queue: U32) -> bytes:
    raw = due_ms.astype("<i8", copy=False).tobytes()
    raw += topic_queue.astype("<u4", copy=False).tobytes()
    return raw + bytes(pad8(len(raw)) - len(raw))


def build_publish(
    due_ms: Seq[int] | I64,
    bodies: Seq[bytes],
    *,
    metas: Seq[bytes] | None = None,
    tag_genes: Seq[int] | U64 | None = None,
    key_hashes: Seq[int] | U64 | None = None,
    topic_queues: Seq[int] | U32 | None = None,
    relative_due: bool = False,
    producer_id: int = 0,
    producer_sequence: int = 0,
    message_producers: tuple[Seq[int] | U64, Seq[int] | U64] | None = None,
    are_occurrences: bool = False,
    gene_kind: int = 0,
    gene_spec: int = 0,
    dedup: Seq[DedupKey] | None = None,
) -> bytes:
    """Build an unstamped PUBLISH batch of n messages.

    Args:
        due_ms: n instants in epoch milliseconds, or n delays in ms with `relative_due`.
        bodies: n bodies.
        metas: n encoded metas (`hourwheel.formats.meta`), or None where no message has any.
        tag_genes: n genes of `gene_kind`, or None for none.
        key_hashes: n hashes, or None for none.
        topic_queues: n queues; only the node, which knows the topics' numbers, gives them.
        relative_due: `due_ms` are delays.
        producer_id: one producer for the batch, whose messages are numbered from
            `producer_sequence`; 0 for no idempotence.
        producer_sequence: see `producer_id`.
        message_producers: n ids and n sequences, where the node merges the messages of several.
        are_occurrences: those are n versions of recurrences, and n indices.
        gene_kind: which gene `tag_genes` are.
        gene_spec: number of the specification that they were made by (`tag_gene.GeneSpec`).
        dedup: n dedup keys, or None where no message has one.

    Raises:
        InvalidDueTime: an instant that does not fit into 64 bits.
    """
    count = len(bodies)
    try:
        due = np.asarray(due_ms, "<i8")
    except OverflowError:
        raise errors.InvalidDueTime("a due time does not fit into 64 bits") from None
    crcs, meta_lens, blobs = blobs_of(bodies, metas)
    columns = [
        wide_column(tag_genes, count),
        wide_column(key_hashes, count),
        *(wide_column(column, count) for column in message_producers or ()),
        np.array(crcs, "<u4").tobytes(),
        np.fromiter(map(len, bodies), "<u4", count).tobytes(),
        np.array(meta_lens, "<u4").tobytes(),
    ]
    column_blob = b"".join(columns)
    column_blob += bytes(pad8(len(column_blob)) - len(column_blob))
    if dedup is not None:
        column_blob += pack_dedup_keys(dedup)
    queues = np.zeros(count, "<u4") if topic_queues is None else np.asarray(topic_queues, "<u4")
    flags = int(Flag.RELATIVE_DUE) if relative_due else 0
    if message_producers is not None:
        flags |= Flag.PER_MESSAGE_PRODUCER
    if are_occurrences:
        flags |= Flag.OCCURRENCES
    if dedup is not None:
        flags |= Flag.DEDUP_KEYS
    requested = requested_by(metas or ())
    flags |= Flag.EXPIRY * requested.expiry | Flag.PRIORITY * requested.priority
    return _assemble(
        Kind.PUBLISH,
        flags,
        count,
        _stamped_columns(due, queues),
        column_blob,
        blobs,
        producer=(producer_id, producer_sequence),
        gene=(gene_kind, gene_spec),
    )


def build_rows(kind: Kind, rows: NDArray[Any], blob: bytes = b"") -> bytes:
    """Build an unstamped batch of a kind that has rows, and maybe a protobuf message."""
    raw = rows.astype(ROWS[kind], copy=False).tobytes()
    return _assemble(kind, 0, len(rows), b"", raw, blob)


def build_blob(kind: Kind, blob: bytes) -> bytes:
    """Build an unstamped batch of a kind that has a protobuf message (or nothing) in it."""
    return _assemble(kind, 0, 0, b"", b"", blob)


def _assemble(
    kind: Kind,
    flags: int,
    count: int,
    stamped: bytes,
    columns: bytes,
    blobs: bytes,
    *,
    producer: tuple[int, int] = (0, 0),
    gene: tuple[int, int] = (0, 0),
) -> bytes:
    parts = len(stamped) + len(columns) + len(blobs)
    total = pad8(HEADER_BYTES + parts)
    header = Header(
        MAGIC,
        VERSION,
        kind,
        flags,
        total,
        count,
        *(FIRST_OFFSET, FIRST_SEQUENCE, 0, FIRST_OFFSET, NO_EPOCH),
        len(stamped),
        len(columns),
        len(blobs),
        *producer,
        *gene,
        crc32c(blobs, crc32c(columns)),
        0,
    )
    return b"".join((_seal(header, stamped), columns, blobs, bytes(total - HEADER_BYTES - parts)))


def stamp(
    batch: RecordBatch,
    stamp: Stamp,
    *,
    due_ms: I64 | None = None,
    topic_queue: U32 | None = None,
) -> tuple[bytes, memoryview]:
    """Put the master's fields in; the payload is not touched, copied or read.

    Args:
        batch: a verified batch.
        stamp: the master's fields.
        due_ms: int64[n] instants, for PUBLISH.
        topic_queue: uint32[n], for PUBLISH.

    Returns:
        The two pieces to write one behind the other: header with stamped columns, and payload.
    """
    header = batch.header._replace(flags=batch.header.flags & ~Flag.RELATIVE_DUE, **stamp._asdict())
    stamped = b""
    if due_ms is not None and topic_queue is not None:
        stamped = _stamped_columns(due_ms, topic_queue)
    errors.invariant(len(stamped) == header.stamped_bytes, "stamped columns change their size")
    return _seal(header, stamped), batch.payload


assert limits.BATCH_BYTES_MAX < 1 << 32
