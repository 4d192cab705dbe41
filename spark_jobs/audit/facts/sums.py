"""Small sums about many messages: sparse counters, and hashes that say whether two sets are equal.

Two sets count as equal if they agree in the count and in the wrapping sum of 64-bit hashes over all
fields: order does not matter, and any set of repeats and losses changes it (but for 1 in 2**64).
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
I64 = NDArray[np.int64]
HOUR_MS: Final = 3_600_000
_A: Final = np.uint64(0xBF58476D1CE4E5B9)
_B: Final = np.uint64(0x94D049BB133111EB)
_30: Final = np.uint64(30)
_27: Final = np.uint64(27)
_32: Final = np.uint64(32)
_LOW: Final = np.uint64((1 << 32) - 1)
_MS_MAX: Final = (1 << 63) - 1
_DENSE_MAX: Final = 1 << 20
_EXACT_MAX: Final = 1 << 20
"""So many 32-bit numbers sum up exactly in a float64."""


def times_ms(keys: I64, unit_ms: int) -> I64:
    """int64[n]: when steps of time begin, epoch ms; the very first one later than it would."""
    return np.maximum(keys, -(_MS_MAX // unit_ms)) * unit_ms


def scramble(value: Array) -> Array:
    """uint64[n]: splitmix64's finaliser, without its last step. Changes `value`, a copy's."""
    value ^= value >> _30
    value *= _A
    value ^= value >> _27
    value *= _B
    return value


def hash_units(tag_gene: Array, crc: Array, body_len: Array, meta_len: Array) -> Array:
    """uint32[n]: of what a unit says besides its key: hints, CRC and lengths of the message."""
    value = tag_gene * _A
    value ^= (crc.astype(np.uint64) << _32) | body_len.astype(np.uint64)
    value += meta_len.astype(np.uint64) << _30
    value = scramble(value)
    return (value >> _32).astype(np.uint32)


def tries_of(attempt: Array, origin_topic: Array, topic_queue: Array) -> Array:
    """uint64[n]: which attempt of a message of which topic units are; 0 for all first ones."""
    origin = origin_topic.astype(np.uint64) - (topic_queue.astype(np.uint64) >> np.uint64(8))
    value: Array = (attempt.astype(np.uint64) - np.uint64(1)) * _A + origin * _B
    return value


def hash_rows(
    due_ms: I64,
    sequence: Array,
    store_ms: I64,
    topic_queue: Array,
    facts: Array,
    tries: Array | None = None,
) -> Array:
    """uint64[n]: of all fields of units. `tries`: as `tries_of`; None: all are first attempts."""
    value = sequence.astype(np.uint64) * _B
    value ^= due_ms.astype(np.uint64)
    value = scramble(value)
    value ^= store_ms.astype(np.uint64)
    value += (topic_queue.astype(np.uint64) << _32) | facts.astype(np.uint64)
    if tries is not None:
        value += tries
    return scramble(value)


@dataclass
class Sparse:
    """Counts by an integer key: `keys` ascend, `counts` is int64[n, columns]."""

    keys: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 1), np.int64))

    def plus(self, other: "Sparse") -> "Sparse":
        """The sum of both."""
        if not len(self.keys):
            return other
        if not len(other.keys):
            return self
        keys = np.concatenate((self.keys, other.keys))
        counts = np.concatenate((self.counts, other.counts))
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        firsts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        return Sparse(keys[firsts], np.add.reduceat(counts, firsts, axis=0))

    def coarser(self, factor: int) -> "Sparse":
        """By key // factor."""
        return Sparse().plus(Sparse(self.keys // factor, self.counts)).folded()

    def folded(self) -> "Sparse":
        """Rows of one key put together."""
        if not len(self.keys):
            return self
        firsts = np.flatnonzero(np.concatenate(([True], self.keys[1:] != self.keys[:-1])))
        return Sparse(self.keys[firsts], np.add.reduceat(self.counts, firsts, axis=0))


def sparse_counts(*columns: I64) -> Sparse:
    """How often each key occurs in each column; only keys that occur."""
    full = [column for column in columns if len(column)]
    if not full:
        return Sparse(counts=np.empty((0, len(columns)), np.int64))
    low = min(int(column.min()) for column in full)
    high = max(int(column.max()) for column in full)
    if high - low < _DENSE_MAX:
        dense = np.stack(
            [np.bincount(column - low, minlength=high - low + 1) for column in columns], axis=1
        )
        keys = np.flatnonzero(dense.any(axis=1))
        return Sparse(keys + low, dense[keys].astype(np.int64))
    keys = np.unique(np.concatenate([np.unique(column) for column in full]))
    counts = [np.bincount(np.searchsorted(keys, column), minlength=len(keys)) for column in columns]
    return Sparse(keys, np.stack(counts, axis=1).astype(np.int64))


@dataclass
class HourSums:
    """Counts and hash sums of units by due hour."""

    hours: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    counts: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    sums: Array = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(
        cls,
        due_ms: I64,
        sequence: Array,
        store_ms: I64,
        topic_queue: Array,
        facts: Array,
        tries: Array | None = None,
    ) -> "HourSums":
        """Of some units; as `hash_rows`."""
        total = cls()
        for low in range(0, len(due_ms), _EXACT_MAX):
            part = slice(low, low + _EXACT_MAX)
            value = hash_rows(
                due_ms[part],
                sequence[part],
                store_ms[part],
                topic_queue[part],
                facts[part],
                None if tries is None else tries[part],
            )
            total = total.plus(cls._of(due_ms[part] // HOUR_MS, value))
        return total

    @classmethod
    def _of(cls, hours: I64, value: Array) -> "HourSums":
        first = int(hours.min())
        if int(hours.max()) - first < _DENSE_MAX:
            inverse = hours - first
            counts = np.bincount(inverse)
            names = np.flatnonzero(counts)
            counts = counts[names]
        else:
            names, inverse, counts = np.unique(hours, return_inverse=True, return_counts=True)
            first = 0
        low = np.bincount(inverse, (value & _LOW).astype(np.float64))
        high = np.bincount(inverse, (value >> _32).astype(np.float64))
        sums = low.astype(np.uint64) + (high.astype(np.uint64) << _32)
        if len(sums) != len(counts):
            sums = sums[names]
        return cls(names.astype(np.int64) + first, counts.astype(np.int64), sums)

    def plus(self, other: "HourSums") -> "HourSums":
        """The sum of both."""
        if not len(self.hours):
            return other
        if not len(other.hours):
            return self
        hours = np.concatenate((self.hours, other.hours))
        order = np.argsort(hours, kind="stable")
        firsts = np.flatnonzero(np.concatenate(([True], hours[order][1:] != hours[order][:-1])))
        counts = np.concatenate((self.counts, other.counts))[order]
        sums = np.concatenate((self.sums, other.sums))[order]
        return HourSums(
            hours[order][firsts], np.add.reduceat(counts, firsts), np.add.reduceat(sums, firsts)
        )

    def differing(self, other: "HourSums") -> list[tuple[int, int, int]]:
        """(hour, count here, count there) of hours whose units are not the same."""
        mine = {
            hour: (count, total)
            for hour, count, total in zip(
                self.hours.tolist(), self.counts.tolist(), self.sums.tolist(), strict=True
            )
        }
        theirs = {
            hour: (count, total)
            for hour, count, total in zip(
                other.hours.tolist(), other.counts.tolist(), other.sums.tolist(), strict=True
            )
        }
        return [
            (hour, mine.get(hour, (0, 0))[0], theirs.get(hour, (0, 0))[0])
            for hour in sorted(mine.keys() | theirs.keys())
            if mine.get(hour, (0, 0)) != theirs.get(hour, (0, 0))
        ]
