"""The index unit: 64 bytes that stand for a scheduled message everywhere but in the log itself.

    byte  size  field
       0     8  due_ms        i64   key, first part
       8     8  sequence      u64   key, second part
      16     8  store_ms      i64   when the message was accepted
      24     8  tag_gene      u64   hint for filters
      32     8  position      u64   first byte of meta + body: see `dlog_id`
      40     4  dlog_id       u32   0: `position` is an offset of the commit log;
                                    else the byte in the delay log of that number
      44     4  body_len      u32
      48     4  crc           u32   CRC32C of meta + body
      52     2  meta_len      u16
      54     2  attempt       u16   1 for the first release, or 0 where the message was moved to
                                    this due time; then 2, 3, ... with each retry
      56     4  topic_queue   u32   where it is released to
      60     4  origin_topic  u32   topic it was published to (differs for retries and dead letters)

The same 64 bytes are a row of the memtable, of a run and of a consume queue, so that releasing is
copying rows. A unit is seen by consumers from `release_ms = max(due_ms, store_ms)` on.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import Offset, SequenceNumber, TopicQueue

UNIT: Final = np.dtype(
    [
        ("due_ms", "<i8"),
        ("sequence", "<u8"),
        ("store_ms", "<i8"),
        ("tag_gene", "<u8"),
        ("position", "<u8"),
        ("dlog_id", "<u4"),
        ("body_len", "<u4"),
        ("crc", "<u4"),
        ("meta_len", "<u2"),
        ("attempt", "<u2"),
        ("topic_queue", "<u4"),
        ("origin_topic", "<u4"),
    ]
)
UNIT_BYTES: Final = 64
assert UNIT.itemsize == UNIT_BYTES
_CODES: Final = {"<i8": "q", "<u8": "Q", "<u4": "I", "<u2": "H"}
_UNIT: Final = Struct("<" + "".join(_CODES[UNIT[name].str] for name in UNIT.names or ()))
"""The same, for Python: numpy makes numbers of a row's fields in twice the time."""
assert _UNIT.size == UNIT_BYTES

Units: TypeAlias = NDArray[Any]
"""Structured array of `UNIT`."""

FEW_UNITS: Final = 32
"""So many are looked at sooner one by one, as `rows_of` them, than column by column."""
_OPAQUE: Final = np.dtype((np.void, UNIT_BYTES))

NO_UNITS: Final[Units] = np.empty(0, UNIT)
NO_UNITS.flags.writeable = False


class Row(NamedTuple):
    """One unit as numbers of Python: the fields of `UNIT`, in their order."""

    due_ms: int
    sequence: SequenceNumber
    store_ms: int
    tag_gene: int
    position: int
    dlog_id: int
    body_len: int
    crc: int
    meta_len: int
    attempt: int
    topic_queue: TopicQueue
    origin_topic: int

    @property
    def release_ms(self) -> int:
        """From when on consumers may see it."""
        return max(self.due_ms, self.store_ms)

    @property
    def blob_bytes(self) -> int:
        """Size of meta and body."""
        return self.body_len + self.meta_len


assert Row._fields == UNIT.names


def rows_of(units: Units) -> list[Row]:
    """The units one by one; a quarter of a microsecond each."""
    return list(map(Row._make, _UNIT.iter_unpack(units.tobytes())))


def release_ms(units: Units) -> NDArray[np.int64]:
    """int64[n]: from when on consumers may see each unit."""
    released: NDArray[np.int64] = np.maximum(units["due_ms"], units["store_ms"])
    return released


def pick(units: Units, chosen: NDArray[Any]) -> Units:
    """A copy of the chosen units: by ordinals, in their order, or by a mask.

    As opaque items: numpy copies structured ones field by field, thirty times as slow.
    """
    picked: Units = units.view(_OPAQUE)[chosen].view(UNIT)
    return picked


def copied(units: Units) -> Units:
    """A copy; see `pick` for why not `units.copy()`."""
    return units.view(_OPAQUE).copy().view(UNIT)


def put(target: Units, first: int, units: Units) -> None:
    """Copy `units` into `target` from ordinal `first` on; see `pick` for why not by a slice."""
    target.view(_OPAQUE)[first : first + len(units)] = units.view(_OPAQUE)


def join(arrays: Sequence[Units]) -> Units:
    """The arrays one behind the other, as a new array (or the only one as it is).

    As opaque items: numpy would first find the common type of all fields, in Python, each time.
    """
    if len(arrays) == 1:
        return arrays[0]
    if not arrays:
        return NO_UNITS
    return np.concatenate([units.view(_OPAQUE) for units in arrays]).view(UNIT)


def sort_by_key(units: Units) -> Units:
    """`units` in key order, as a new array (or the same one where it is in order already).

    A stable sort by due time alone keeps pieces that are already in sequence order in order (and
    merges sorted pieces in linear time); only where a retry or a cascade mixed them are both parts
    of the key compared.
    """
    due = units["due_ms"]
    if len(units) < 2 or is_sorted(units):  # noqa: PLR2004
        return units
    by_due = pick(units, np.argsort(due, kind="stable"))
    if is_sorted(by_due):
        return by_due
    return pick(units, np.lexsort((units["sequence"], due)))


def is_sorted(units: Units) -> bool:
    """Whether the keys never fall (equal keys: one message released to two groups' retries)."""
    due, sequence = units["due_ms"], units["sequence"]
    later = due[1:] > due[:-1]
    return bool((later | ((due[1:] == due[:-1]) & (sequence[1:] >= sequence[:-1]))).all())


def count_to(units: Units, due_ms: int, sequence: int) -> int:
    """How many of the key-sorted `units` have a key <= (due_ms, sequence)."""
    due = units["due_ms"]
    low, high = int(due.searchsorted(due_ms, "left")), int(due.searchsorted(due_ms, "right"))
    sequences = units["sequence"][low:high]
    # A plain int would make numpy compare as float64, which cannot tell large sequences apart.
    return low + int(sequences.searchsorted(np.uint64(sequence), "right"))


def equal_spans(column: NDArray[Any]) -> list[tuple[int, int]]:
    """[low, high) of each longest stretch of equal neighbours in `column`, in order."""
    changes = np.flatnonzero(column[1:] != column[:-1]) + 1
    return list(pairwise([0, *changes.tolist(), len(column)])) if len(column) else []


def search_keys(
    units_due_ms: NDArray[np.int64],
    units_sequence: NDArray[np.uint64],
    due_ms: NDArray[np.int64],
    sequences: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """int64[n]: of each of n keys, how many of some keys, which ascend, are below it.

    Few have one due time, as a rule: among these all n take each step of a bisection together.
    """
    low = np.searchsorted(units_due_ms, due_ms, "left")
    high = np.searchsorted(units_due_ms, due_ms, "right")
    while True:
        going = np.flatnonzero(low < high)
        if not len(going):
            return low
        middle = (low[going] + high[going]) >> 1
        below = units_sequence[middle] < sequences[going]
        low[going[below]] = middle[below] + 1
        high[going[~below]] = middle[~below]


def log_offset_min(units: Units) -> Offset | None:
    """Lowest commit-log offset that a unit points at, or None."""
    found = units["position"][units["dlog_id"] == 0]
    return Offset(int(found.min())) if len(found) else None


def delay_log_min(units: Units) -> int | None:
    """Lowest number of a delay log that a unit points into, or None."""
    found = units["dlog_id"][units["dlog_id"] > 0]
    return int(found.min()) if len(found) else None
