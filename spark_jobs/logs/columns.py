"""The tables that a log can be seen as, and how each column of them is made from a piece of it.

    rows            one row is
    messages        a message that is in the log, also one that apply refused as a duplicate
    batches         a record batch
    dispatches      a DISPATCH: the cursor moved
    cancels         a row of a CANCEL
    reschedules     a row of a RESCHEDULE: a message was to be moved to another due time
    resolves        a row of a RESOLVE: a group is through with some positions of a queue
    damage          a range of the log, or a file, that cannot be read or understood
    queue_entries   an entry of a consume queue: a released message (spark_jobs.logs.queue_reader)

Types are given as Spark's DDL names; `arrow_type` has the Arrow type of each. Spark's integers are
signed: u64 columns that are hashes or bits (`key_hash`, `tag_gene`, `producer_id`, checks) keep
their bits and may look negative; sequences and offsets are below 2^63 and are what they are.

Only numpy and pyarrow here; no Spark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from hourwheel import errors
from hourwheel.formats import meta
from hourwheel.formats.record_batch import Kind
from hourwheel.types import QUEUE_BITS, QUEUE_COUNT_MAX
from spark_jobs.logs.block_table import Array, BlockTable, Damage
from spark_jobs.logs.names import Names
from spark_jobs.logs.queue_reader import QueuePiece
from storage.views.unit import release_ms

_NAMED_IDS_MAX: Final = 1 << 20
KIND_NAMES: Final[dict[int, str]] = {int(kind): kind.name for kind in Kind}
_ARROW: Final[dict[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def arrow_type(ddl: str) -> pa.DataType:
    """The Arrow type of a column's DDL type."""
    return _ARROW[ddl]


@dataclass(slots=True)
class View:
    """A piece of a log or queue, and what else a row of it needs. Columns are made once."""

    cluster: str
    names: Names
    table: BlockTable | None = None
    piece: QueuePiece | None = None
    damages: Sequence[Damage] = ()
    owners: Any = None
    """Of row tables: int64[n], the batch of each row."""
    rows: Any = None
    """Of row tables: structured array[n]."""

    @property
    def block(self) -> BlockTable:
        """The piece of the log that it is of."""
        return errors.required(self.table, "a column of a piece of the log")

    @property
    def units(self) -> Any:
        """The queue entries that it is of."""
        return errors.required(self.piece, "a column of queue entries").units

    def header(self, field: str) -> Array:
        """A header's field for each row of a row table."""
        found: Array = self.block.headers[field][self.owners]
        return found


Maker: TypeAlias = Callable[[View], Any]
"""An array[n] of numpy or Arrow, or a single value that all rows share."""


class Column(NamedTuple):
    """One column."""

    ddl: str
    make: Maker


def _message(name: str, ddl: str = "bigint") -> Column:
    return Column(ddl, lambda it: it.block.messages.column(name))


def _header(name: str, ddl: str = "bigint") -> Column:
    return Column(ddl, lambda it: it.block.headers[name])


def _of_row(name: str, ddl: str = "bigint") -> Column:
    return Column(ddl, lambda it: it.rows[name])


def _of_batch(name: str, ddl: str = "bigint") -> Column:
    return Column(ddl, lambda it: it.header(name))


def _unit(name: str, ddl: str = "bigint") -> Column:
    return Column(ddl, lambda it: it.units[name])


def _damage(name: str, ddl: str) -> Column:
    return Column(ddl, lambda it: [getattr(one, name) for one in it.damages])


def named(ids: Array, names: dict[int, str]) -> pa.Array:
    """string[n]: the name of each number; null for one that has none."""
    top = max(names, default=-1)
    if top >= _NAMED_IDS_MAX:
        return pa.array([names.get(one) for one in ids.tolist()], pa.string())
    known = [names.get(one) for one in range(top + 1)]
    index = np.minimum(ids.astype(np.int64), top + 1).astype(np.int32)
    words = pa.array([*known, None], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index), words).dictionary_decode()


def _topic(queues: Callable[[View], Array]) -> Column:
    return Column("string", lambda it: named(queues(it) >> QUEUE_BITS, it.names.topics))


def _queue_columns(queues: Callable[[View], Array]) -> dict[str, Column]:
    return {
        "topic_id": Column("int", lambda it: queues(it) >> QUEUE_BITS),
        "topic": _topic(queues),
        "queue": Column("int", lambda it: queues(it) & (QUEUE_COUNT_MAX - 1)),
    }


_OWNER: Final = {
    "cluster": Column("string", lambda it: it.cluster),
    "node": Column("string", lambda it: it.block.node),
    "shard": Column("int", lambda it: it.block.shard),
    "segment": Column("string", lambda it: it.block.file),
}
_MESSAGES: Final = {
    **_OWNER,
    "offset": _message("offset"),
    "epoch": _message("epoch"),
    "sequence": _message("sequence"),
    "store_ms": _message("store_ms"),
    "due_ms": _message("due_ms"),
    **_queue_columns(lambda it: it.block.messages.column("topic_queue")),
    **{name: _message(name) for name in ("key_hash", "tag_gene")},
    **{name: _message(name) for name in ("producer_id", "producer_sequence")},
    "meta_len": _message("meta_len", "int"),
    "body_len": _message("body_len", "int"),
    "crc": _message("crc"),
}
_BATCH_NUMBERS: Final = ("epoch", "base_sequence", "count", "store_ms", "flushed_end_offset")
_BATCHES: Final = {
    **_OWNER,
    "offset": _header("offset"),
    "total_bytes": _header("total_bytes"),
    "kind": _header("kind", "int"),
    "kind_name": Column("string", lambda it: named(it.block.headers["kind"], KIND_NAMES)),
    "flags": _header("flags", "int"),
    **{name: _header(name) for name in _BATCH_NUMBERS},
    "producer_id": _header("producer_id"),
    "producer_sequence": _header("producer_sequence"),
    "payload_crc": _header("payload_crc"),
    "header_crc": _header("header_crc"),
    "verified": Column("boolean", lambda it: it.block.is_whole),
    "digest": Column("binary", lambda it: it.block.digests()),
}
_ROW_OF_LOG: Final = {
    **_OWNER,
    **{name: _of_batch(name) for name in ("offset", "epoch", "store_ms")},
}
_DISPATCH_FIELDS: Final = (
    *("prev_due_ms", "prev_sequence", "to_due_ms", "to_sequence"),
    *("check_offset", "check_count", "check_mix"),
)
_DISPATCHES: Final = {**_ROW_OF_LOG, **{name: _of_row(name) for name in _DISPATCH_FIELDS}}
_CANCELS: Final = {
    **_ROW_OF_LOG,
    "sequence": _of_row("sequence"),
    "due_ms": _of_row("due_ms"),
    "message_epoch": Column("bigint", lambda it: it.rows["epoch"]),
}
_RESCHEDULES: Final = {
    **_ROW_OF_LOG,
    "sequence": _of_row("sequence"),
    "due_ms": _of_row("due_ms"),
    "new_due_ms": _of_row("new_due_ms"),
    "message_epoch": Column("bigint", lambda it: it.rows["epoch"]),
}
_RESOLVES: Final = {
    **_ROW_OF_LOG,
    "group_id": _of_row("group_id"),
    "group": Column("string", lambda it: named(it.rows["group_id"], it.names.groups)),
    **_queue_columns(lambda it: it.rows["topic_queue"]),
    "first_position": _of_row("first_position"),
    "count": _of_row("count"),
    "outcome": _of_row("outcome", "int"),
    "retry_due_ms": _of_row("retry_due_ms"),
}
_DAMAGE: Final = {
    "cluster": _OWNER["cluster"],
    **{name: _damage(name, "string") for name in ("node",)},
    "shard": _damage("shard", "int"),
    "file": _damage("file", "string"),
    "offset": _damage("offset", "bigint"),
    "length": _damage("length", "bigint"),
    "reason": _damage("reason", "string"),
    "detail": _damage("detail", "string"),
    "base_sequence": _damage("base_sequence", "bigint"),
    "row_count": _damage("row_count", "bigint"),
}


def _where(it: View) -> Any:
    return errors.required(it.piece, "a column of queue entries").where


def _positions(it: View) -> Array:
    first = errors.required(it.piece, "a column of queue entries").first_position
    return np.arange(first, first + len(it.units), dtype=np.int64)


_QUEUE_ENTRIES: Final = {
    "cluster": Column("string", lambda it: it.cluster),
    "node": Column("string", lambda it: _where(it).node),
    "shard": Column("int", lambda it: _where(it).shard),
    "file": Column("string", lambda it: it.piece and it.piece.file),
    **_queue_columns(lambda it: it.units["topic_queue"]),
    "position": Column("bigint", _positions),
    "sequence": _unit("sequence"),
    "due_ms": _unit("due_ms"),
    "store_ms": _unit("store_ms"),
    "release_ms": Column("bigint", lambda it: release_ms(it.units)),
    "attempt": _unit("attempt", "int"),
    "origin_topic_id": _unit("origin_topic", "int"),
    "origin_topic": Column("string", lambda it: named(it.units["origin_topic"], it.names.topics)),
    "tag_gene": _unit("tag_gene"),
    "meta_len": _unit("meta_len", "int"),
    "body_len": _unit("body_len", "int"),
    "crc": _unit("crc"),
    "place": _unit("position"),
    "delay_log": _unit("dlog_id"),
}


def _metas(it: View) -> list[meta.MessageMeta]:
    messages = it.block.messages
    begins = messages.column("blob_at").tolist()
    sizes, raw = messages.column("meta_len").tolist(), it.block.raw
    return [_decoded(raw[begin : begin + size]) for begin, size in zip(begins, sizes, strict=True)]


def _decoded(raw: bytes) -> meta.MessageMeta:
    try:
        return meta.decode(raw)
    except errors.InvalidArgument:
        return meta.NO_META  # it was stored as it was sent: `meta_len` shows that it is there


def _bodies(it: View) -> list[bytes]:
    messages = it.block.messages
    begins = (messages.column("blob_at") + messages.column("meta_len")).tolist()
    sizes, raw = messages.column("body_len").tolist(), it.block.raw
    return [raw[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]


BODY_COLUMNS: Final = {
    "tags": Column("array<string>", lambda it: [list(one.tags) for one in _metas(it)]),
    "keys": Column("array<string>", lambda it: [list(one.keys) for one in _metas(it)]),
    "properties": Column("map<string,string>", lambda it: [one.properties for one in _metas(it)]),
    "client_message_id": Column("string", lambda it: [x.client_message_id for x in _metas(it)]),
    "content_type": Column("string", lambda it: [one.content_type for one in _metas(it)]),
    "body": Column("binary", _bodies),
}
"""Columns of `messages` that are there only if they are asked for: they cost a step of Python for
each message."""
MESSAGES: Final = "messages"
DAMAGE: Final = "damage"
QUEUE_ENTRIES: Final = "queue_entries"
TABLES: Final[dict[str, dict[str, Column]]] = {
    MESSAGES: {**_MESSAGES, **BODY_COLUMNS},
    "batches": _BATCHES,
    "dispatches": _DISPATCHES,
    "cancels": _CANCELS,
    "reschedules": _RESCHEDULES,
    "resolves": _RESOLVES,
    DAMAGE: _DAMAGE,
    QUEUE_ENTRIES: _QUEUE_ENTRIES,
}
"""rows -> column -> how it is made."""
_ROW_KINDS: Final = {
    "dispatches": Kind.DISPATCH,
    "cancels": Kind.CANCEL,
    "reschedules": Kind.RESCHEDULE,
    "resolves": Kind.RESOLVE,
}


def count_rows(rows: str, view: View) -> int:
    """How many rows of a table a piece has; `view` is made ready for its columns."""
    if rows == DAMAGE:
        return len(view.damages)
    if rows == QUEUE_ENTRIES:
        return len(view.units)
    if rows == MESSAGES:
        return len(view.block.messages)
    if rows in _ROW_KINDS:
        view.owners, view.rows = view.block.rows(_ROW_KINDS[rows])
        return len(view.rows)
    return len(view.block)


def as_signed(array: Array) -> Array:
    """int64[n]: what Spark sees of a column of integers; large unsigned ones keep their bits."""
    return np.ascontiguousarray(array).astype(np.int64, copy=False)


def make_array(ddl: str, found: Any, count: int, keep: Any = None) -> pa.Array:
    """What a column's maker gave, as Arrow.

    Args:
        ddl: the column's type.
        found: see `Maker`.
        count: rows of the piece.
        keep: int64[m]: only these rows of it; None: all.
    """
    kind = arrow_type(ddl)
    if isinstance(found, (str, int)):
        return pa.repeat(pa.scalar(found, kind), count if keep is None else len(keep))
    if isinstance(found, np.ndarray):
        kept = found if keep is None else found[keep]
        if kind == pa.int32():
            kept = kept.astype(np.int32)
        elif kind == pa.int64():
            kept = as_signed(kept)
        return pa.array(kept, kind)
    array = found if isinstance(found, pa.Array) else pa.array(found, kind)
    return array if keep is None else array.take(pa.array(keep))
