"""The small records of a log as packed rows: what the audit takes from them, with their offsets."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Kind

DISPATCH: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("store_ms", "<i8"),
        ("prev_due_ms", "<i8"),
        ("prev_sequence", "<u8"),
        ("to_due_ms", "<i8"),
        ("to_sequence", "<u8"),
        ("check_offset", "<u8"),
        ("check_count", "<u8"),
        ("check_mix", "<u8"),
    ]
)
CANCEL: Final = np.dtype(
    [("offset", "<u8"), ("sequence", "<u8"), ("due_ms", "<i8"), ("epoch", "<u4")]
)
MOVE: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("store_ms", "<i8"),
        ("sequence", "<u8"),
        ("due_ms", "<i8"),
        ("new_due_ms", "<i8"),
        ("epoch", "<u4"),
        ("row", "<u4"),
    ]
)
"""A row of RESCHEDULE."""
RESOLVE: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("store_ms", "<i8"),
        ("retry_due_ms", "<i8"),
        ("first", "<u8"),
        ("end", "<u8"),
        ("group_id", "<u4"),
        ("topic_queue", "<u4"),
        ("outcome", "<u4"),
        ("row", "<u4"),
    ]
)
TRIM: Final = np.dtype([("offset", "<u8"), ("from_ms", "<i8"), ("store_ms", "<i8")])
"""Of TRIM records."""

EXPIRE: Final = np.dtype([("offset", "<u8"), ("from_ms", "<i8")])
"""Of EXPIRE records."""

FLOOR: Final = np.dtype([("offset", "<u8"), ("sequence_floor", "<u8")])
"""Of TRIM_SEQUENCES records."""

PREPARE: Final = np.dtype(
    [("offset", "<u8"), ("token_high", "<u8"), ("token_low", "<u8"), ("topic_id", "<u4")]
)
"""A row of PREPARE: a topic of a transaction."""
STEP: Final = np.dtype([("offset", "<u8"), ("prepare_offset", "<u8"), ("step", "<u4")])
"""A row of TRANSACT."""

Array = NDArray[Any]


def _dispatches(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), DISPATCH)
    found["offset"], found["store_ms"] = headers["offset"], headers["store_ms"]
    for name in rows.dtype.names or ():
        found[name] = rows[name]
    return found


def _cancels(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), CANCEL)
    found["offset"] = headers["offset"]
    for name in ("sequence", "due_ms", "epoch"):
        found[name] = rows[name]
    return found


def _moves(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), MOVE)
    found["offset"], found["store_ms"] = headers["offset"], headers["store_ms"]
    for name in ("sequence", "due_ms", "new_due_ms", "epoch"):
        found[name] = rows[name]
    found["row"] = np.arange(len(rows))
    return found


def _resolves(headers: Array, rows: Array) -> Array:
    """RESOLVE rows; neighbours of one record that continue one another are one."""
    found = np.zeros(len(rows), RESOLVE)
    found["offset"], found["store_ms"] = headers["offset"], headers["store_ms"]
    for name in ("group_id", "topic_queue", "outcome", "retry_due_ms"):
        found[name] = rows[name]
    found["first"] = rows["first_position"]
    found["end"] = rows["first_position"] + rows["count"]
    found["row"] = np.arange(len(rows))
    goes_on = found["first"][1:] == found["end"][:-1]
    for name in ("offset", "group_id", "topic_queue", "outcome", "retry_due_ms"):
        goes_on &= found[name][1:] == found[name][:-1]
    starts = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    merged = found[starts]
    merged["end"] = found["end"][np.append(starts[1:], len(found)) - 1]
    return merged


def _trims(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), TRIM)
    found["offset"], found["store_ms"] = headers["offset"], headers["store_ms"]
    found["from_ms"] = rows.view("<i8")
    return found


def _expires(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), EXPIRE)
    found["offset"] = headers["offset"]
    found["from_ms"] = rows.view("<i8")
    return found


def _floors(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), FLOOR)
    found["offset"] = headers["offset"]
    found["sequence_floor"] = rows["sequence_floor"]
    return found


def _prepares(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), PREPARE)
    found["offset"] = headers["offset"]
    for name in ("token_high", "token_low", "topic_id"):
        found[name] = rows[name]
    return found


def _steps(headers: Array, rows: Array) -> Array:
    found = np.zeros(len(rows), STEP)
    found["offset"] = headers["offset"]
    for name in ("prepare_offset", "step"):
        found[name] = rows[name]
    return found


ROW_BUILDERS: Final = {
    int(Kind.DISPATCH): _dispatches,
    int(Kind.CANCEL): _cancels,
    int(Kind.RESCHEDULE): _moves,
    int(Kind.RESOLVE): _resolves,
    int(Kind.TRIM): _trims,
    int(Kind.EXPIRE): _expires,
    int(Kind.TRIM_SEQUENCES): _floors,
    int(Kind.PREPARE): _prepares,
    int(Kind.TRANSACT): _steps,
    int(Kind.RECURRENCE): _cancels,
}
FIELDS: Final = {
    "dispatches": int(Kind.DISPATCH),
    "cancels": int(Kind.CANCEL),
    "moves": int(Kind.RESCHEDULE),
    "resolves": int(Kind.RESOLVE),
    "holds": int(Kind.RESOLVE),
    "trims": int(Kind.TRIM),
    "expires": int(Kind.EXPIRE),
    "floors": int(Kind.TRIM_SEQUENCES),
    "prepares": int(Kind.PREPARE),
    "steps": int(Kind.TRANSACT),
}
