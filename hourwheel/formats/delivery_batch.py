"""The delivery batch: what Receive hands out at once, columns first: a drain costs no objects.

A batch is a header, columns, then blobs, little-endian:

    byte  size  field
       0     4  magic 'HWDB'
       4     1  version = 1
       5     3  zero
       8     4  count           messages, at least 1
      12     4  shard           that the messages lie in
      16     4  topic_id        of the queue they were released to
      20     4  blob_bytes      size of the blobs
      24     8  receive_ms      i64, the node's clock when it built the batch
      32     4  zero
      36     4  columns_crc     CRC32C of bytes 0..36 and the columns

    columns  sequence u64[n] | due_ms i64[n] | store_ms i64[n] | epoch u32[n] | crc u32[n]
             | body_len u32[n] | meta_len u32[n] | attempt u32[n] | pad to 8
    blobs    meta 0, body 0, meta 1, body 1, ...

`epoch` (in which a message was first appended) stands at each message because messages of several
epochs fall due together, and it is a part of their ids; so is `due_ms`, the due time that was asked
for, also where a retry came later. `crc` covers a message's meta and body and was computed by the
producer: who checks it has checked the whole way. It is checked message by message, when a message
is first read, so the blobs are not summed twice.
"""

from collections.abc import Sequence as Seq
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors, limits
from hourwheel.crc32c import crc32c
from hourwheel.formats.batch_columns import pad8
from hourwheel.types import Epoch, SequenceNumber, ShardId, TopicId

MAGIC: Final = int.from_bytes(b"HWDB", "little")
VERSION: Final = 1
HEADER_BYTES: Final = 40
BYTES_PER_MESSAGE: Final = 44
"""Of the columns, padding excluded."""
_STRUCT: Final = Struct("<IB3xIIIIq4xI")
_CRC_AT: Final = 36
_FEW: Final = 32
"""So many messages are packed sooner number by number than column by column."""
_FEW_COLUMNS: Final = [
    Struct(f"<{n}Q{n}q{n}q{5 * n}I{pad8(BYTES_PER_MESSAGE * n) - BYTES_PER_MESSAGE * n}x")
    for n in range(_FEW + 1)
]
assert _STRUCT.size == HEADER_BYTES

Buffer: TypeAlias = bytes | bytearray | memoryview


class Header(NamedTuple):
    """The header's fields, in the order they lie in."""

    magic: int
    version: int
    count: int  # type: ignore[assignment]
    shard: ShardId
    topic_id: TopicId
    blob_bytes: int
    receive_ms: int
    columns_crc: int


def pack(
    units: NDArray[Any],
    blobs: Seq[Buffer],
    *,
    shard: ShardId,
    topic_id: TopicId,
    receive_ms: int,
    epoch: NDArray[np.uint32] | Epoch,
    due_ms: NDArray[Any] | None = None,
) -> bytes:
    """Build a delivery batch of n messages.

    Args:
        units: structured array[n] with the fields sequence, due_ms, store_ms, crc, body_len,
            meta_len and attempt, such as index units.
        blobs: pieces that hold, put together, every message's meta and body in the units' order.
        shard: the messages' shard.
        topic_id: topic of the queue they were released to.
        receive_ms: the node's clock.
        epoch: u32[n], or one for all: in which each message was first appended.
        due_ms: i64[n], the due times first asked for, where they differ from those of `units`.

    Raises:
        InvariantViolated: no message, or blobs that do not have the size that the units demand.
    """
    count = len(units)
    blob_bytes = sum(map(len, blobs))
    pack_columns = _pack_few if count <= _FEW else _pack_many
    expected, packed = pack_columns(units, epoch, units["due_ms"] if due_ms is None else due_ms)
    errors.invariant(
        count > 0 and expected == blob_bytes,
        "blobs do not fit the units",
        count=count,
        expected=expected,
        blob_bytes=blob_bytes,
    )
    head = _STRUCT.pack(MAGIC, VERSION, count, shard, topic_id, blob_bytes, receive_ms, 0)[:_CRC_AT]
    crc = crc32c(packed, crc32c(head))
    return b"".join((head, crc.to_bytes(4, "little"), packed, *blobs))


def _pack_few(
    units: NDArray[Any], epoch: NDArray[np.uint32] | Epoch, due_ms: NDArray[Any]
) -> tuple[int, bytes]:
    """As `_pack_many`, for `_FEW` messages at most."""
    count = len(units)
    body_len: list[int] = units["body_len"].tolist()
    meta_len: list[int] = units["meta_len"].tolist()
    packed = _FEW_COLUMNS[count].pack(
        *units["sequence"].tolist(),
        *due_ms.tolist(),
        *units["store_ms"].tolist(),
        *(epoch.tolist() if isinstance(epoch, np.ndarray) else [epoch] * count),
        *units["crc"].tolist(),
        *body_len,
        *meta_len,
        *units["attempt"].tolist(),
    )
    return sum(body_len) + sum(meta_len), packed


def _pack_many(
    units: NDArray[Any], epoch: NDArray[np.uint32] | Epoch, due_ms: NDArray[Any]
) -> tuple[int, bytes]:
    """(bytes of all blobs, the columns with their padding)."""
    count = len(units)
    meta_len, body_len = units["meta_len"].astype("<u4"), units["body_len"].astype("<u4")
    columns = (
        units["sequence"].astype("<u8"),
        due_ms.astype("<i8"),
        units["store_ms"].astype("<i8"),
        np.broadcast_to(np.asarray(epoch, "<u4"), count),
        units["crc"].astype("<u4"),
        body_len,
        meta_len,
        units["attempt"].astype("<u4"),
    )
    packed = b"".join(column.tobytes() for column in columns)
    packed += bytes(pad8(len(packed)) - len(packed))
    return int(meta_len.sum(dtype=np.uint64) + body_len.sum(dtype=np.uint64)), packed


class DeliveryBatch:
    """A checked, read-only view of one whole delivery batch; columns are numpy views on its bytes.

    The header and the columns are checked at once, a message's own bytes by `blob` or `verify`.
    """

    __slots__ = ("_columns_at", "blob_offset", "buffer", "header")

    def __init__(self, buffer: bytes) -> None:
        """Wrap and check `buffer`, which must hold exactly one batch.

        Raises:
            InvalidBatch: corrupt, truncated, or no delivery batch at all.
            UnsupportedVersion: a delivery batch of a version that we do not know.
        """
        if len(buffer) < HEADER_BYTES:
            raise errors.InvalidBatch("shorter than a header", bytes=len(buffer))
        self.header = header = Header._make(_STRUCT.unpack_from(buffer))
        if header.magic != MAGIC:
            raise errors.InvalidBatch("no delivery batch here: the magic is wrong")
        if header.version != VERSION:
            raise errors.UnsupportedVersion(
                f"delivery batch version {header.version}; this client knows {VERSION}"
            )
        self.buffer = buffer
        self.blob_offset = HEADER_BYTES + pad8(BYTES_PER_MESSAGE * header.count)
        if len(buffer) != self.blob_offset + header.blob_bytes:
            raise errors.InvalidBatch(
                "truncated delivery batch",
                bytes=len(buffer),
                expected=self.blob_offset + header.blob_bytes,
            )
        view = memoryview(buffer)
        crc = crc32c(view[HEADER_BYTES : self.blob_offset], crc32c(view[:_CRC_AT]))
        if crc != header.columns_crc:
            raise errors.InvalidBatch("delivery batch columns fail their CRC32C")
        if header.count <= _FEW:
            lengths = sum(self.meta_len.tolist()) + sum(self.body_len.tolist())
        else:
            sums = self.meta_len.sum(dtype=np.uint64) + self.body_len.sum(dtype=np.uint64)
            lengths = int(sums)
        if header.count == 0 or lengths != header.blob_bytes:
            raise errors.InvalidBatch("blob lengths do not add up", blob_bytes=header.blob_bytes)

    def __len__(self) -> int:
        """How many messages."""
        return self.header.count

    def _column(self, per_message_at: int, dtype: str) -> NDArray[Any]:
        count = self.header.count
        return np.frombuffer(self.buffer, dtype, count, HEADER_BYTES + per_message_at * count)

    @property
    def sequence(self) -> NDArray[np.uint64]:
        """uint64[n]: number of each message in its shard."""
        return self._column(0, "<u8")

    @property
    def due_ms(self) -> NDArray[np.int64]:
        """int64[n]: when each message was to be released, in epoch milliseconds."""
        return self._column(8, "<i8")

    @property
    def store_ms(self) -> NDArray[np.int64]:
        """int64[n]: when the node accepted each message, in epoch milliseconds."""
        return self._column(16, "<i8")

    @property
    def epoch(self) -> NDArray[np.uint32]:
        """uint32[n]: epoch in which each message was first appended."""
        return self._column(24, "<u4")

    @property
    def crc(self) -> NDArray[np.uint32]:
        """uint32[n]: CRC32C of each message's meta and body."""
        return self._column(28, "<u4")

    @property
    def body_len(self) -> NDArray[np.uint32]:
        """uint32[n]: bytes of each body."""
        return self._column(32, "<u4")

    @property
    def meta_len(self) -> NDArray[np.uint32]:
        """uint32[n]: bytes of each meta."""
        return self._column(36, "<u4")

    @property
    def attempt(self) -> NDArray[np.uint32]:
        """uint32[n]: 1 for a first delivery."""
        return self._column(40, "<u4")

    def blob_ends(self) -> NDArray[np.int64]:
        """int64[n]: byte of the batch at which each message's body ends."""
        sizes = self.meta_len.astype(np.int64) + self.body_len
        ends: NDArray[np.int64] = np.cumsum(sizes) + self.blob_offset
        return ends

    def verify(self) -> None:
        """Check every message against its CRC32C (about 0.2 us each).

        Raises:
            InvalidBatch: naming the first message that fails.
        """
        at, view = self.blob_offset, memoryview(self.buffer)
        for index, (end, crc) in enumerate(
            zip(self.blob_ends().tolist(), self.crc.tolist(), strict=True)
        ):
            if crc32c(view[at:end]) != crc:
                raise corrupt_message(SequenceNumber(int(self.sequence[index])))
            at = end


def corrupt_message(sequence: SequenceNumber) -> errors.InvalidBatch:
    """The error for a message whose bytes fail their checksum."""
    return errors.InvalidBatch(
        f"the message with sequence {sequence} fails its CRC32C", sequence=sequence
    )


assert limits.RECEIVE_BYTES_MAX + HEADER_BYTES < 1 << 32
