"""A piece of a log as arrays: the headers of its batches, and their columns end to end.

A log is read in pieces of some MiB, each of which holds whole record batches. Nothing here is done
per message: batches may be of any size, and a column of all messages of a piece is one numpy
gather out of the piece's bytes, by an index that all columns of one width share.

    table.headers["store_ms"]                   int64[batches]
    table.messages.column("due_ms")             int64[messages], of verified PUBLISH batches
    table.rows(Kind.DISPATCH)                   (batch of each row, rows)

Unsigned 64-bit fields stay unsigned here; where they become Spark's signed ones the bits are kept.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import HEADER_BYTES, ROWS, Flag, Header, Kind, RecordBatch
from hourwheel.types import QUEUE_BITS, QUEUE_COUNT_MAX

_FIELDS: Final = (
    *("magic u4 0", "version u1 4", "kind u1 5", "flags u2 6", "total_bytes u4 8", "count u4 12"),
    *("offset u8 16", "base_sequence u8 24", "store_ms i8 32", "flushed_end_offset u8 40"),
    *("epoch u4 48", "stamped_bytes u4 52", "column_bytes u4 56", "blob_bytes u4 60"),
    *("producer_id u8 64", "producer_sequence u8 72", "gene_kind u1 80", "gene_spec u4 84"),
    *("payload_crc u4 88", "header_crc u4 92"),
)
HEADER: Final = np.dtype(
    {
        "names": [one.split()[0] for one in _FIELDS],
        "formats": ["<" + one.split()[1] for one in _FIELDS],
        "offsets": [int(one.split()[2]) for one in _FIELDS],
        "itemsize": HEADER_BYTES,
    }
)
assert Header._fields == HEADER.names
"""A record batch's header with the fields of `record_batch.Header`."""
DIGEST_BYTES: Final = 16
_PUBLISH: Final = int(Kind.PUBLISH)
_PER_MESSAGE: Final = int(Flag.PER_MESSAGE_PRODUCER)
_DEDUP: Final = int(Flag.DEDUP_KEYS)
KINDS: Final = frozenset(map(int, Kind))

Ints = NDArray[np.int64]
Array = NDArray[Any]

CORRUPT_HEADER: Final = "corrupt-header"
"""No batch begins where one must: damaged bytes, or none of ours. Up to the next good batch."""
CORRUPT_PAYLOAD: Final = "corrupt-payload"
"""The header and the due times are intact, and so it is known which messages are lost."""
CONTRADICTION: Final = "contradiction"
"""Both CRCs are right, and the sizes and counts do not fit: nothing of ours built it."""
CUT_OFF: Final = "cut-off"
"""The file ends, or the next segment begins, in the middle of a batch."""
TORN_TAIL: Final = "torn-tail"
"""The last bytes of a log, above its known durable end: being written, or torn by a crash."""
UNKNOWN_VERSION: Final = "unknown-version"
"""A batch of a later version of the format."""
UNKNOWN_KIND: Final = "unknown-kind"
"""An intact batch of a kind that this version does not know."""
UNREADABLE: Final = "unreadable"
"""The file cannot be opened or read."""
CORRUPT_FILE: Final = "corrupt-file"
"""Not of the log: a chunk of a consume queue that is missing or fails its seal."""


class Damage(NamedTuple):
    """A range of a log that says nothing, or nothing that this version understands."""

    node: str
    shard: int
    file: str
    """Path in the node's directory."""
    offset: int
    """First offset of the range. In the file: `offset - segment start + 64`. -1: not of the log."""
    length: int
    """Bytes up to the next batch that is good, or to the end of what was looked at."""
    reason: str
    """`CORRUPT_HEADER` and so on, above."""
    detail: str
    """For people."""
    base_sequence: int = -1
    """Of the lost batch, where its header is intact (`CORRUPT_PAYLOAD`, `CONTRADICTION`)."""
    row_count: int = 0
    """Messages or rows of that batch."""

    @property
    def is_expected(self) -> bool:
        """Whether it is the end of a log that is being written, and no finding."""
        return self.reason == TORN_TAIL


class BlockTable:
    """The batches of one piece of a log.

    Attributes:
        node: whose log.
        shard: of which shard.
        file: path in the node's directory.
        raw: the piece's bytes.
        at: int64[n]: byte of `raw` at which each batch begins; ascending, with gaps for damage.
        headers: HEADER[n]: of each batch whose header is intact.
        is_whole: bool[n]: the payload is intact too, as far as it was verified.
        damages: what was found between and in the batches, in the order of the log.
    """

    __slots__ = (
        "_messages",
        "at",
        "damages",
        "file",
        "headers",
        "is_whole",
        "node",
        "raw",
        "shard",
    )

    def __init__(
        self,
        owner: tuple[str, int, str],
        raw: bytes,
        at: Ints,
        headers: Array,
        is_whole: NDArray[np.bool_],
        damages: tuple[Damage, ...] = (),
    ) -> None:
        """`owner`: (node, shard, file). `spark_jobs.logs.segment_reader` makes these."""
        self.node, self.shard, self.file = owner
        self.raw = raw
        self.at = at
        self.headers = headers
        self.is_whole = is_whole
        self.damages = damages
        self._messages: MessageTable | None = None

    def __len__(self) -> int:
        return len(self.at)

    def select(self, kind: int) -> Ints:
        """int64[m]: which batches are whole and of a kind; ordinals in `headers`."""
        return np.flatnonzero(self.is_whole & (self.headers["kind"] == kind))

    def reject(self, ordinals: Ints) -> None:
        """Some batches turned out not to be whole after all."""
        if len(ordinals):
            self.is_whole[ordinals] = False
            self._messages = None

    @property
    def messages(self) -> "MessageTable":
        """The messages of all whole PUBLISH batches; also of those that apply refuses."""
        if self._messages is None:
            self._messages = MessageTable(self, self.select(_PUBLISH))
        return self._messages

    def rows(self, kind: int) -> tuple[Ints, Array]:
        """(int64[m] batch of each row, rows of `ROWS[kind]`) of all whole batches of a kind."""
        dtype, owners = ROWS[kind], self.select(kind)
        counts = self.headers["count"][owners].astype(np.int64)
        starts = self.at[owners] + HEADER_BYTES
        words = dtype.itemsize // 8
        ordinal = _ordinals(counts)
        first = np.repeat(starts // 8, counts) + ordinal * words
        found = _view(self.raw, "<u8")[first[:, None] + np.arange(words)]
        return np.repeat(owners, counts), found.view(dtype).reshape(len(first))

    def raw_of(self, ordinal: int) -> memoryview:
        """The bytes of one batch."""
        at = int(self.at[ordinal])
        return memoryview(self.raw)[at : at + int(self.headers["total_bytes"][ordinal])]

    def batch(self, ordinal: int) -> RecordBatch:
        """One batch as the rest of Hourwheel sees it: for the few that are looked at singly."""
        return RecordBatch(self.raw_of(ordinal))

    def blob(self, ordinal: int) -> bytes:
        """All blobs of one batch: of CONFIG and EPOCH_START its protobuf message."""
        return bytes(self.batch(ordinal).blobs)

    def digests(self) -> list[bytes]:
        """BLAKE2b-128 of each batch's bytes, as they are: equal on all replicas."""
        view, at = memoryview(self.raw), self.at.tolist()
        ends = (self.at + self.headers["total_bytes"]).tolist()
        return [
            hashlib.blake2b(view[begin:end], digest_size=DIGEST_BYTES).digest()
            for begin, end in zip(at, ends, strict=True)
        ]


class MessageTable:
    """Messages of some PUBLISH batches of a piece; columns are made when they are asked for."""

    __slots__ = ("_at", "_cache", "_counts", "_headers", "_ordinal", "_table", "_wide", "batch")

    def __init__(self, table: BlockTable, batches: Ints) -> None:
        """Those of the batches `batches`, which are whole."""
        self._table = table
        self._headers = table.headers[batches]
        self._at = table.at[batches]
        self._counts = self._headers["count"].astype(np.int64)
        self._ordinal = _ordinals(self._counts)
        self._wide = (self._headers["flags"] & _PER_MESSAGE) != 0
        self.batch = np.repeat(batches, self._counts)
        """int64[n]: ordinal in `BlockTable.headers` of each message's batch."""
        self._cache: dict[str, Array] = {}

    def __len__(self) -> int:
        return len(self._ordinal)

    def column(self, name: str) -> Array:
        """One of `MESSAGE_COLUMNS`, array[n]."""
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = MESSAGE_COLUMNS[name](self)
        return found

    def of_batch(self, field: str) -> Array:
        """A field of each message's batch header, array[n]."""
        return np.repeat(self._headers[field], self._counts)

    def _gather(self, at: Ints, dtype: str) -> Array:
        """A column that begins at byte `at[i]` in batch i."""
        size = int(dtype[-1])
        index = np.repeat(at // size, self._counts) + self._ordinal
        found: Array = _view(self._table.raw, dtype)[index]
        return found

    def stamped(self, at_eighths: int, dtype: str) -> Array:
        """A stamped column, which lies behind `at_eighths` bytes a message."""
        return self._gather(self._at + HEADER_BYTES + at_eighths * self._counts, dtype)

    def payload(self, at_bytes: int, dtype: str, behind_wide: int = 0) -> Array:
        """A payload column behind `at_bytes` a message, or `behind_wide` with producer columns."""
        start = self._at + HEADER_BYTES + self._headers["stamped_bytes"]
        before = np.where(self._wide, behind_wide or at_bytes, at_bytes)
        return self._gather(start + before * self._counts, dtype)

    def sequences(self) -> Array:
        """uint64[n]: dense in the log of a shard."""
        found: Array = self.of_batch("base_sequence") + self._ordinal.astype(np.uint64)
        return found

    def producers(self, field: str, at_bytes: int) -> Array:
        """uint64[n]: producer's id or number, from the header or from the message's own column."""
        found: Array = self.of_batch(field)
        if field == "producer_sequence":
            found = found + self._ordinal.astype(np.uint64)
        if self._wide.any():
            start = self._at + HEADER_BYTES + self._headers["stamped_bytes"]
            # Without such a column: any bytes, of the piece's beginning; they are not used.
            at = np.where(self._wide, start + at_bytes * self._counts, 0)
            own = np.repeat(self._wide, self._counts)
            found[own] = self._gather(at, "<u8")[own]
        return found

    def dedup(self, eighths: int, dtype: str) -> Array:
        """A column of dedup keys, behind `eighths` bytes a message of these; 0 without them."""
        has_keys = (self._headers["flags"] & _DEDUP) != 0
        start = self._at + HEADER_BYTES + self._headers["stamped_bytes"]
        before = (np.where(self._wide, 44, 28) * self._counts + 7) & ~7
        # Without such a column: any bytes, of the piece's beginning; they are not used.
        at = np.where(has_keys, start + before + eighths * self._counts, 0)
        found: Array = np.where(np.repeat(has_keys, self._counts), self._gather(at, dtype), 0)
        return found.astype(dtype)

    def blob_at(self) -> Array:
        """int64[n]: byte of `BlockTable.raw` at which each message's meta begins; then its body."""
        headers = self._headers
        start = self._at + HEADER_BYTES + headers["stamped_bytes"] + headers["column_bytes"]
        sizes = self.column("meta_len").astype(np.int64) + self.column("body_len")
        ends = np.cumsum(sizes) - sizes
        firsts = np.cumsum(self._counts) - self._counts
        found: Array = np.repeat(start - ends[firsts], self._counts) + ends
        return found

    def blobs(self, ordinal: int) -> tuple[bytes, bytes]:
        """(meta, body) of one message."""
        at = int(self.column("blob_at")[ordinal])
        middle = at + int(self.column("meta_len")[ordinal])
        end = middle + int(self.column("body_len")[ordinal])
        return self._table.raw[at:middle], self._table.raw[middle:end]


MESSAGE_COLUMNS: Final[dict[str, Callable[[MessageTable], Array]]] = {
    "sequence": MessageTable.sequences,
    "due_ms": lambda it: it.stamped(0, "<i8"),
    "topic_queue": lambda it: it.stamped(8, "<u4"),
    "topic_id": lambda it: it.column("topic_queue") >> QUEUE_BITS,
    "queue": lambda it: it.column("topic_queue") & (QUEUE_COUNT_MAX - 1),
    "offset": lambda it: it.of_batch("offset"),
    "epoch": lambda it: it.of_batch("epoch"),
    "store_ms": lambda it: it.of_batch("store_ms"),
    "tag_gene": lambda it: it.payload(0, "<u8"),
    "key_hash": lambda it: it.payload(8, "<u8"),
    "producer_id": lambda it: it.producers("producer_id", 16),
    "producer_sequence": lambda it: it.producers("producer_sequence", 24),
    "crc": lambda it: it.payload(16, "<u4", 32),
    "body_len": lambda it: it.payload(20, "<u4", 36),
    "meta_len": lambda it: it.payload(24, "<u4", 40),
    "dedup_high": lambda it: it.dedup(0, "<u8"),
    "dedup_low": lambda it: it.dedup(8, "<u8"),
    "if_pending": lambda it: it.dedup(16, "<u1"),
    "blob_at": MessageTable.blob_at,
}
"""Name -> how it is made. Each is array[n] of the width that the record batch gives it; `offset` is
that of the batch, `blob_at` a byte of the piece."""


def gather_headers(raw: bytes, at: Ints) -> Array:
    """HEADER[n]: the headers that begin at bytes `at`, multiples of 8."""
    words = HEADER_BYTES // 8
    found = _view(raw, "<u8")[(at // 8)[:, None] + np.arange(words)]
    headers: Array = found.view(HEADER).reshape(len(at))
    return headers


def _view(raw: bytes, dtype: str) -> Array:
    """`raw` as an array; a rest that is too short for one more item is left out."""
    return np.frombuffer(raw, dtype, len(raw) // int(dtype[-1]))


def _ordinals(counts: Ints) -> Ints:
    """int64[sum]: 0, 1, ... counts[0] - 1, 0, 1, ... counts[1] - 1, and so on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)
