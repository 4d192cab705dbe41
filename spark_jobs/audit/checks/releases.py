"""What the log releases, in the order of release: what each queue must hold, entry by entry.

A stretch of the log's releases (all by records in one range of offsets) comes as packed rows from
wherever the messages were published. Put in order, they say which message stands at which position
of which queue; the queue's first position in the stretch is the count of all before. So each
replica's entries are compared position by position, and what a RESOLVE names by position is known.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Outcome
from spark_jobs.audit.checks.dispatch import SUM, sums_by_record
from spark_jobs.audit.checks.ledger import BY_DISPATCH, RELEASE

Array = NDArray[Any]
I64 = NDArray[np.int64]

CHUNK_FACT: Final = np.dtype(
    [("topic_queue", "<u4"), ("chunk", "<u8"), ("count", "<u8"), ("offset", "<u8"), ("ms", "<i8")]
)
"""Of a queue's chunk: how many entries, the record that released the last one, and the latest
release time: what TRIM records go by."""
COVER: Final = np.dtype([("index", "<u8"), ("count", "<u8"), ("offset", "<u8"), ("ms", "<i8")])
"""Of RESOLVE row `index`: how many of its positions were ever released, by which record the last
one, and the latest release time of them."""
NAMED: Final = np.dtype(
    [
        ("index", "<u8"),
        ("position", "<u8"),
        ("offset", "<u8"),
        ("due_ms", "<i8"),
        ("sequence", "<u8"),
        ("store_ms", "<i8"),
        ("place", "<u8"),
        ("origin_queue", "<u4"),
        ("facts", "<u4"),
        ("attempt", "<u4"),
    ]
)
"""An entry that a RESOLVE row gives back: what is tried again, or is dead."""
PASSED: Final = np.dtype(
    [
        ("index", "<u8"),
        ("position", "<u8"),
        ("offset", "<u8"),
        ("sequence", "<u8"),
        ("release_ms", "<i8"),
    ]
)
"""An entry that a RESOLVE row passes over, or acknowledges although it was moved; `offset` of the
record that released it."""
PLACE: Final = np.dtype([("topic_queue", "<u4"), ("position", "<u8"), ("sequence", "<u8")])
"""Where a message of a topic stands that an ordered group reads."""
LETTERS: Final = (int(Outcome.DEAD), int(Outcome.EXPIRED_LETTER))
"""Outcomes that make dead letters, whatever the attempts."""
AGAIN: Final = (int(Outcome.RETRY), *LETTERS)
"""Outcomes that give entries back; the others settle them."""
EXPIRED: Final = (int(Outcome.EXPIRED), int(Outcome.EXPIRED_LETTER))
_OVER: Final = (int(Outcome.FILTERED), *EXPIRED)
_DIGIT_BITS: Final = 16
_DIGITS_MAX: Final = 2
_OPAQUE: Final = np.dtype((np.void, RELEASE.itemsize))


class Slice(NamedTuple):
    """Neighbouring entries that a queue must have."""

    topic_queue: int
    first: int
    """Position of the first."""
    rows: Array
    """RELEASE[n], in the queue's order."""
    attempts: Array | None = None
    """uint32[n]; None: all 1."""
    origins: Array | None = None
    """uint32[n] origin topics; None: that of the queue."""


@dataclass
class ReleasePart:
    """What a stretch of releases gives besides the comparison with replicas."""

    sums: Array = field(default_factory=lambda: np.empty(0, SUM))
    chunks: Array = field(default_factory=lambda: np.empty(0, CHUNK_FACT))
    covers: Array = field(default_factory=lambda: np.empty(0, COVER))
    named: Array = field(default_factory=lambda: np.empty(0, NAMED))
    passed: Array = field(default_factory=lambda: np.empty(0, PASSED))
    places: Array = field(default_factory=lambda: np.empty(0, PLACE))

    def merge(self, other: "ReleasePart") -> None:
        """Take in what another one has."""
        for name in ("sums", "chunks", "covers", "named", "passed", "places"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(other, name))))


def in_order(blocks: Iterable[Array]) -> Array:
    """RELEASE[n] in the order of release.

    Args:
        blocks: RELEASE rows, each block in sequence order; in any order among themselves.
    """
    parts = sorted((block for block in blocks if len(block)), key=lambda it: int(it["sequence"][0]))
    if not parts:
        return np.empty(0, RELEASE)
    rows = np.concatenate([part.view(_OPAQUE) for part in parts]).view(RELEASE)
    sequence = rows["sequence"]
    if len(rows) > 1 and not (sequence[1:] > sequence[:-1]).all():
        rows = _picked(rows, np.argsort(sequence, kind="stable"))
    offset = rows["offset"]
    by_dispatch = (offset & BY_DISPATCH) != 0
    # Keys only grow from record to record: what is in order by key is so by record, too, and the
    # last sort finds nothing to do but to merge what was released at once.
    order = np.concatenate((np.flatnonzero(~by_dispatch), np.flatnonzero(by_dispatch)))
    released = order[len(order) - int(by_dispatch.sum()) :]
    released[:] = released[stable_order(rows["due_ms"][released])]
    order = order[np.argsort(offset[order], kind="stable")]
    return _picked(rows, order)


def stable_order(values: I64) -> I64:
    """int64[n]: `np.argsort(values, kind="stable")`.

    By digits of 16 bits, which numpy sorts by counting them: several times as fast as by comparing
    where values lie within some minutes or weeks of one another, as due times do.
    """
    if not len(values):
        return np.empty(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low
    if span >> (_DIGIT_BITS * _DIGITS_MAX):
        return np.argsort(values, kind="stable")
    rest = (values - low).astype(np.uint64)
    order = np.argsort(rest.astype(np.uint16), kind="stable")
    for digit in range(1, _DIGITS_MAX):
        if not span >> (_DIGIT_BITS * digit):
            break
        digits = (rest >> np.uint64(_DIGIT_BITS * digit)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


def _picked(rows: Array, order: Array) -> Array:
    """Rows in another order; as opaque items, which numpy moves thirty times as fast."""
    found: Array = rows.view(_OPAQUE)[order].view(RELEASE)
    return found


def by_queue(rows: Array, firsts: dict[int, int]) -> Iterator[Slice]:
    """Cut releases in order into the slices of their queues; `firsts`: queue -> first position."""
    if not len(rows):
        return
    queues = rows["topic_queue"]
    if (queues == queues[0]).all():
        yield Slice(int(queues[0]), firsts.get(int(queues[0]), 0), rows)
        return
    names, inverse = np.unique(queues, return_inverse=True)
    narrow = inverse.astype(np.uint16) if len(names) < 1 << 16 else inverse
    rows = _picked(rows, np.argsort(narrow, kind="stable"))
    low = 0
    for name, count in zip(names.tolist(), np.bincount(inverse).tolist(), strict=True):
        yield Slice(name, firsts.get(name, 0), rows[low : low + count])
        low += count


def first_positions(queued: Counter[tuple[int, int]]) -> dict[int, dict[int, int]]:
    """Bucket -> queue -> how many entries come before."""
    at: Counter[int] = Counter()
    found: dict[int, dict[int, int]] = {}
    for (bucket, topic_queue), count in sorted(queued.items()):
        found.setdefault(bucket, {})[topic_queue] = at[topic_queue]
        at[topic_queue] += count
    return found


def sums_of(rows: Array) -> Array:
    """SUM[m] of releases in order."""
    return sums_by_record(rows["offset"] & ~BY_DISPATCH, rows["sequence"])


def release_ms(rows: Array) -> I64:
    """int64[n]: from when on consumers may see each entry."""
    found: I64 = np.maximum(rows["due_ms"], rows["store_ms"])
    return found


def chunk_facts(one: Slice, chunk_entries: int) -> Array:
    """CHUNK_FACT rows of the chunks that a slice lies in."""
    positions = one.first + np.arange(len(one.rows))
    chunks = positions // chunk_entries
    firsts = np.flatnonzero(np.concatenate(([True], chunks[1:] != chunks[:-1])))
    found = np.zeros(len(firsts), CHUNK_FACT)
    found["topic_queue"] = one.topic_queue
    found["chunk"] = chunks[firsts]
    counts = np.diff(firsts, append=len(positions))
    found["count"] = counts
    found["offset"] = one.rows["offset"][firsts + counts - 1] & ~BY_DISPATCH
    found["ms"] = np.maximum.reduceat(release_ms(one.rows), firsts)
    return found


def places_of(one: Slice) -> Array:
    """PLACE rows of a slice."""
    found = np.zeros(len(one.rows), PLACE)
    found["topic_queue"], found["sequence"] = one.topic_queue, one.rows["sequence"]
    found["position"] = one.first + np.arange(len(one.rows))
    return found


def merge_chunks(chunks: Array) -> Array:
    """CHUNK_FACT rows with one row a chunk, by queue, then chunk."""
    if not len(chunks):
        return chunks
    rows = chunks[np.lexsort((chunks["chunk"], chunks["topic_queue"]))]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (rows["chunk"][1:] != rows["chunk"][:-1]) | (
        rows["topic_queue"][1:] != rows["topic_queue"][:-1]
    )
    firsts = np.flatnonzero(is_new)
    found = rows[firsts].copy()
    found["count"] = np.add.reduceat(rows["count"], firsts)
    for name in ("offset", "ms"):
        found[name] = np.maximum.reduceat(rows[name], firsts)
    return found


class Resolves:
    """RESOLVE rows by queue, to be looked up for slices of entries."""

    def __init__(self, rows: Array) -> None:
        """`rows`: `audit_records.RESOLVE`[n], in the order of the log; named by their index."""
        self._rows = rows
        order = np.argsort(rows["topic_queue"], kind="stable")
        queues = rows["topic_queue"][order]
        names, firsts = np.unique(queues, return_index=True)
        ends = np.append(firsts[1:], len(order))[: len(names)]
        self._of = {
            int(name): order[low:high] for name, low, high in zip(names, firsts, ends, strict=True)
        }

    def cover(self, one: Slice) -> tuple[Array, Array, Array]:
        """(COVER, NAMED, PASSED) rows of what RESOLVE rows say about the entries of a slice."""
        mine = self._of.get(one.topic_queue)
        if mine is None or not len(one.rows):
            return np.empty(0, COVER), np.empty(0, NAMED), np.empty(0, PASSED)
        first, end = np.uint64(one.first), np.uint64(one.first + len(one.rows))
        rows = self._rows[mine]
        hit = (rows["first"] < end) & (rows["end"] > first)
        mine, rows = mine[hit], rows[hit]
        if not len(mine):
            return np.empty(0, COVER), np.empty(0, NAMED), np.empty(0, PASSED)
        low = (np.maximum(rows["first"], first) - first).astype(np.int64)
        high = (np.minimum(rows["end"], end) - first).astype(np.int64)
        found = np.zeros(len(mine), COVER)
        found["index"], found["count"] = mine, high - low
        found["offset"] = one.rows["offset"][high - 1] & ~BY_DISPATCH
        seen = np.append(release_ms(one.rows), np.int64(-(1 << 62)))
        pairs = np.stack((low, high), axis=1).reshape(-1)
        found["ms"] = np.maximum.reduceat(seen, pairs)[::2]
        again = np.isin(rows["outcome"], AGAIN)
        over = np.isin(rows["outcome"], _OVER)
        is_passed = passed(one, mine[over], low[over], high[over])
        if one.rows["was_moved"].any():
            acked = rows["outcome"] == Outcome.ACK
            late = passed(one, mine[acked], low[acked], high[acked])
            at = (late["position"] - first).astype(np.int64)
            is_passed = np.concatenate((is_passed, late[one.rows["was_moved"][at] != 0]))
        return found, named(one, mine[again], low[again], high[again]), is_passed


def passed(one: Slice, index: Array, low: I64, high: I64) -> Array:
    """PASSED rows: as `named`."""
    at, owners = _expanded(index, low, high)
    found = np.zeros(len(at), PASSED)
    found["index"], found["position"] = owners, one.first + at
    found["offset"] = one.rows["offset"][at] & ~BY_DISPATCH
    found["sequence"] = one.rows["sequence"][at]
    found["release_ms"] = release_ms(one.rows)[at]
    return found


def _expanded(index: Array, low: I64, high: I64) -> tuple[I64, Array]:
    """(int64[n] of all of [low, high), the index of each)."""
    counts = high - low
    at = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
    return at, np.repeat(index, counts)


def named(one: Slice, index: Array, low: I64, high: I64) -> Array:
    """NAMED rows: the entries [low, high) of a slice for each RESOLVE row `index`."""
    at, owners = _expanded(index, low, high)
    found = np.zeros(len(at), NAMED)
    found["index"] = owners
    found["position"] = one.first + at
    rows = one.rows[at]
    for name in ("due_ms", "sequence", "store_ms", "place", "facts"):
        found[name] = rows[name]
    found["offset"] = rows["offset"] & ~BY_DISPATCH
    found["origin_queue"] = rows["topic_queue"] if one.origins is None else one.origins[at] << 8
    firsts = np.uint32(1) - one.rows["was_moved"][at]
    found["attempt"] = firsts if one.attempts is None else one.attempts[at]
    return found
