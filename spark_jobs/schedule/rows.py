"""The rows of a bulk schedule: which columns, what is wrong with a row, and rows as a draft.

    column             Spark type            meaning
    topic              string                or one topic for the whole job
    body               binary or string      the payload; a string is written as UTF-8
    due                timestamp             the instant; or
    due_ms             any integer           the instant, epoch milliseconds; or
    delay_ms           any integer           a delay, counted from when a node accepts the row
    tags, keys         array<string>         as in `hourwheel.Message`
    properties         map<string,string>    as in `hourwheel.Message`
    client_message_id  string                your own id, to find the row again in a report
    content_type       string                as in `hourwheel.Message`

A row needs a topic, a body and exactly one time. A column of another name is refused: it would be a
due time misspelt. What is wrong with a single row is said in its `problem` (the typed reason of
`hourwheel.errors`) and `detail`; it never stops the others. No Spark here.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Draft
from hourwheel.formats import meta as metas
from hourwheel.formats.meta import EncodedMeta
from hourwheel.instants import INSTANT_MS_MIN, check_instant
from hourwheel.types import DUE_MS_MAX
from storage.views.catalog_names import validate_topic_name

TIMES: Final = ("due", "due_ms", "delay_ms")
OPTIONAL: Final = ("tags", "keys", "properties", "client_message_id", "content_type")
COLUMNS: Final = ("topic", "body", *TIMES, *OPTIONAL)

FROZEN: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("is_delay", pa.bool_()),
        ("time_ms", pa.int64()),
        ("body", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("client_message_id", pa.string()),
        ("content_type", pa.string()),
        ("problem", pa.string()),
        ("detail", pa.string()),
    ]
)
"""Rows as they are frozen: judged, one kind of time, sorted by `SORT`."""
FROZEN_DDL: Final = (
    "topic string, is_delay boolean, time_ms bigint, body binary, tags array<string>,"
    " keys array<string>, properties map<string,string>, client_message_id string,"
    " content_type string, problem string, detail string"
)
SORT: Final = ("problem", "topic", "is_delay", "time_ms")
"""Good rows first (null sorts first), then streams, then by time: what lies beyond a node's horizon
is the end of its stream."""


def check_columns(names: Sequence[str], *, topic: str | None) -> None:
    """Refuse a table that cannot be a schedule.

    Raises:
        ConfigError: a column is missing, unknown or there twice; or the topic is no topic's name.
    """
    unknown = sorted(set(names) - set(COLUMNS))
    if unknown:
        known = ", ".join(COLUMNS)
        raise errors.ConfigError(f"unknown columns: {', '.join(unknown)}; known are {known}")
    if len(set(names)) != len(names):
        raise errors.ConfigError("a column is there twice")
    if "body" not in names:
        raise errors.ConfigError("there is no column `body`")
    if not set(names) & set(TIMES):
        raise errors.ConfigError(f"there is no time: one of {', '.join(TIMES)}")
    if topic is None and "topic" not in names:
        raise errors.ConfigError("there is no column `topic`, and no topic was given")
    if topic is not None:
        try:
            validate_topic_name(topic)
        except errors.InvalidTopic as error:
            raise errors.ConfigError(error.message) from None


def check_types(schema: pa.Schema, *, topic: str | None) -> None:
    """Refuse columns of types that they cannot have, before any row is read.

    Raises:
        ConfigError: as `check_batch`.
    """
    columns = [pa.array([], field.type) for field in schema]
    check_batch(pa.RecordBatch.from_arrays(columns, schema=schema), topic=topic, body_bytes_max=0)


def check_batch(
    batch: pa.RecordBatch,
    *,
    topic: str | None,
    body_bytes_max: int,
    due_ms_min: int = INSTANT_MS_MIN,
) -> pa.RecordBatch:
    """Rows as they come, as rows of `FROZEN`: problems are put down beside the row.

    Args:
        batch: columns of `COLUMNS`.
        topic: for rows without one.
        body_bytes_max: what the nodes accept.
        due_ms_min: earlier instants are problems, as seconds by mistake; 0: none is.

    Raises:
        ConfigError: a column has a type that it cannot have.
    """
    count = batch.num_rows
    problems = _Problems(count)
    topics = _column(batch, "topic", pa.string())
    if topic is not None:
        topics = pc.fill_null(topics, topic)
    _check_topics(topics, problems)
    bodies = _bodies(batch)
    problems.note(_mask(pc.is_null(bodies)), "INVALID_ARGUMENT", "there is no body")
    sizes = pc.fill_null(pc.binary_length(bodies), 0)
    problems.note(
        _mask(pc.greater(sizes, body_bytes_max)),
        "MESSAGE_TOO_LARGE",
        f"the body has more than {body_bytes_max} bytes",
    )
    is_delay, time_ms = _times(batch, problems, due_ms_min)
    columns: list[Any] = [topics, is_delay, time_ms, bodies]
    columns += [_column(batch, name, FROZEN.field(name).type) for name in OPTIONAL]
    _check_metas(columns[4:], problems)
    columns += [pa.array(problems.reasons, pa.string()), pa.array(problems.details, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=FROZEN)


def sort(table: pa.Table) -> pa.Table:
    """Rows of `FROZEN` in the order of `SORT`."""
    ranked = table.append_column("is_bad", pc.is_valid(table["problem"]))
    order = [(name, "ascending") for name in ("is_bad", *SORT)]
    return table.take(pc.sort_indices(ranked, sort_keys=order))


def runs(batch: pa.RecordBatch) -> Iterator[tuple[str, bool, pa.RecordBatch]]:
    """(topic, whether times are delays, rows) of each run of good rows of one stream, in order."""
    good = batch.slice(0, batch.num_rows - (batch.num_rows - batch["problem"].null_count))
    if not good.num_rows:
        return
    topics = np.asarray(good["topic"].dictionary_encode().indices)
    kinds = np.asarray(good["is_delay"].to_numpy(zero_copy_only=False))
    changes = np.flatnonzero((topics[1:] != topics[:-1]) | (kinds[1:] != kinds[:-1])) + 1
    bounds = [0, *changes.tolist(), good.num_rows]
    for first, end in pairwise(bounds):
        rows = good.slice(first, end - first)
        yield rows["topic"][0].as_py(), rows["is_delay"][0].as_py(), rows


def to_draft(rows: pa.RecordBatch) -> Draft:
    """Good rows of one stream as a draft of `hourwheel.client.batch_builder`."""
    encoded = _encode_metas([rows[name] for name in OPTIONAL])
    times_ms = rows["time_ms"].to_numpy(zero_copy_only=False).astype(np.int64)
    draft = batch_builder.draft_columns(
        batch_builder.Columns(
            bodies=rows["body"].to_pylist(),
            **{"delay_ms" if rows["is_delay"][0].as_py() else "due_ms": times_ms},
        )
    )
    if encoded is None:
        return draft
    sizes = [len(each.raw) for each in encoded]
    return Draft(
        draft.bodies,
        draft.times_ms,
        draft.is_relative,
        encoded,
        draft.blob_bytes + sum(sizes),
        draft.largest_bytes + max(sizes),
    )


def part_of(draft: Draft, first: int, end: int) -> Draft:
    """The messages [first, end) of a draft."""
    bodies = draft.bodies[first:end]
    encoded = None if draft.metas is None else draft.metas[first:end]
    blob_bytes = sum(map(len, bodies)) + sum(len(each.raw) for each in encoded or ())
    return Draft(
        bodies,
        draft.times_ms[first:end],
        draft.is_relative,
        encoded,
        blob_bytes,
        draft.largest_bytes,
    )


class _Problems:
    """The first thing found wrong with each row."""

    def __init__(self, count: int) -> None:
        self.reasons: list[str | None] = [None] * count
        self.details: list[str | None] = [None] * count

    def note(self, mask: Any, reason: str, detail: str) -> None:
        for index in np.flatnonzero(mask).tolist():
            self.note_one(index, reason, detail)

    def note_one(self, index: int, reason: str, detail: str) -> None:
        if self.reasons[index] is None:
            self.reasons[index], self.details[index] = reason, detail


def _mask(values: Any) -> Any:
    return pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False)


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> Any:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    try:
        return batch[name].cast(kind)
    except pa.ArrowNotImplementedError:
        given = batch[name].type
        raise errors.ConfigError(f"column `{name}` is {given}: it must be {kind}") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise errors.ConfigError(f"column `{name}`: {error}") from None


def _bodies(batch: pa.RecordBatch) -> Any:
    kind = batch["body"].type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)):
        raise errors.ConfigError(f"column `body` is {kind}: it must be binary or string")
    return _column(batch, "body", pa.binary())


def _times(batch: pa.RecordBatch, problems: _Problems, due_ms_min: int) -> tuple[Any, Any]:
    """(is_delay, time_ms) of each row."""
    given = {name: _time(batch, name) for name in TIMES}
    there = {name: _mask(pc.is_valid(column)) for name, column in given.items()}
    how_many = sum(mask.astype(np.int8) for mask in there.values())
    problems.note(how_many == 0, "INVALID_DUE_TIME", "there is no due time")
    problems.note(how_many > 1, "INVALID_DUE_TIME", "there is more than one time")
    time_ms = pc.fill_null(pc.coalesce(*given.values()), 0)
    wrong = _mask(pc.or_(pc.less(time_ms, 0), pc.greater(time_ms, DUE_MS_MAX)))
    problems.note(wrong, "INVALID_DUE_TIME", "the due time or delay is out of range")
    early = _mask(pc.less(time_ms, due_ms_min)) & ~there["delay_ms"]
    for index in np.flatnonzero(early).tolist():
        try:
            check_instant(time_ms[index].as_py(), due_ms_min)
        except errors.InvalidDueTime as error:
            problems.note_one(index, error.reason, error.message)
    return pa.array(there["delay_ms"], pa.bool_()), time_ms


def _time(batch: pa.RecordBatch, name: str) -> Any:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.int64())
    column = batch[name]
    kind = column.type
    if name == "due":
        if not pa.types.is_timestamp(kind):
            raise errors.ConfigError(f"column `due` is {kind}: it must be a timestamp")
        if kind.tz is None:
            raise errors.ConfigError("column `due` has no time zone: its instants are unknown")
        return (
            pc.ceil_temporal(column, unit="millisecond")
            .cast(pa.timestamp("ms", kind.tz), safe=False)
            .cast(pa.int64())
        )
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise errors.ConfigError(f"column `{name}` is {kind}: it must be an integer")
    return column.cast(pa.int64())


def _check_topics(topics: Any, problems: _Problems) -> None:
    coded = topics.dictionary_encode()
    bad = {}
    for code, name in enumerate(coded.dictionary.to_pylist()):
        try:
            validate_topic_name(name)
        except errors.InvalidTopic as error:
            bad[code] = error.message
    problems.note(_mask(pc.is_null(topics)), "INVALID_TOPIC", "there is no topic")
    if bad:
        for index, code in enumerate(coded.indices.to_pylist()):
            if code in bad:
                problems.note_one(index, "INVALID_TOPIC", bad[code])


def _check_metas(columns: Sequence[Any], problems: _Problems) -> None:
    for index, fields in _meta_rows(columns):
        try:
            metas.encode_fields(*fields)
        except errors.HourwheelError as error:
            problems.note_one(index, error.reason, error.message)


def _encode_metas(columns: Sequence[Any]) -> list[EncodedMeta] | None:
    """Encoded metas of n rows; None: no row has any."""
    encoded: list[EncodedMeta] | None = None
    for index, fields in _meta_rows(columns):
        if encoded is None:
            encoded = [metas.encode(metas.NO_META)] * len(columns[0])
        encoded[index] = metas.encode_fields(*fields)
    return encoded


def _meta_rows(columns: Sequence[Any]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(index, arguments of `meta.encode_fields`) of the rows that have metadata."""
    if all(column.null_count == len(column) for column in columns):
        return
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    for index, (tags, keys, properties, client_id, content_type) in enumerate(rows):
        if tags or keys or properties or client_id or content_type:
            pairs = tuple(properties or ())
            yield (
                index,
                (tuple(tags or ()), tuple(keys or ()), pairs, client_id or "", content_type or ""),
            )
