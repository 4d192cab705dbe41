"""Pieces of one buffer, compared many at a time: eight bytes of each in one numpy step.

A *piece* is `buffer[start : start + length]`. Words are read at any byte, little-endian; zero bytes
before and behind (`MARGIN`) let every piece be read in whole words, from either end, and let a
short length that lies be followed before it is found out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors

I64: TypeAlias = NDArray[np.int64]
U64: TypeAlias = NDArray[np.uint64]
Mask: TypeAlias = NDArray[np.bool_]
Buffer: TypeAlias = bytes | bytearray | memoryview

WORD: Final = 8
MARGIN: Final = 256
_SPARSE_RATIO: Final = 4
"""A buffer of which less than a quarter is meant is copied piece by piece."""
_STEPS_MAX: Final = 8
"""So many words are compared in numpy steps; what is longer, and equal so far, row by row."""
_LOOK_UP_MIN: Final = 8
"""From so many texts of one length on, a set of bytes objects beats comparing with each."""


class PackedBytes:
    """A copy of the pieces' surroundings, with margins."""

    def __init__(self, buffer: Buffer, starts: I64, lengths: I64) -> None:
        """Copy what is needed of `buffer`.

        Args:
            buffer: where the pieces are.
            starts: int64[n] first byte of each.
            lengths: int64[n] bytes of each.
        """
        view = memoryview(buffer).cast("B")
        there = lengths > 0
        low = int(starts[there].min()) if there.any() else 0
        high = int((starts + lengths)[there].max()) if there.any() else 0
        errors.invariant(0 <= low <= high <= len(view), "metas lie in their buffer")
        total = int(lengths[there].sum())
        if high - low > _SPARSE_RATIO * (total + 1):
            ends = np.cumsum(np.where(there, lengths, 0))
            self.starts: I64 = ends - lengths + MARGIN
            spans = zip(starts[there].tolist(), lengths[there].tolist(), strict=True)
            middle: Buffer = b"".join([view[at : at + size] for at, size in spans])
        else:
            self.starts = np.where(there, starts - low, 0) + MARGIN
            middle = view[low:high]
        self.raw: Final = b"".join((bytes(MARGIN), middle, bytes(MARGIN)))
        """Margin, bytes, margin. `starts` counts from its beginning."""
        self.bytes: Final = np.frombuffer(self.raw, np.uint8)
        self._words = np.ndarray((len(self.raw) - WORD + 1,), f"V{WORD}", self.raw, strides=(1,))

    def words(self, at: I64) -> U64:
        """uint64[n]: the eight bytes from each place on, the first one lowest."""
        # As opaque items: numpy would copy all words of an unaligned array of numbers first.
        found: U64 = self._words[at].view("<u8")
        return found

    def items(self, starts: I64, length: int) -> NDArray[Any]:
        """V<length>[n]: pieces of one length."""
        every = np.ndarray((len(self.raw) - length + 1,), f"V{length}", self.raw, strides=(1,))
        picked: NDArray[Any] = every[starts]
        return picked

    def begin_with(self, text: bytes, starts: I64) -> Mask:
        """bool[n]: whether `text` stands at each place; each has so many bytes, or the margin."""
        size = len(text)
        mask = np.ones(len(starts), np.bool_)
        for first in range(0, size, WORD):
            part = text[first : first + WORD]
            if not first:
                mask = self._is_word(part, starts)
                continue
            rows = np.flatnonzero(mask)
            if not len(rows):
                break
            mask[rows] = self._is_word(part, starts[rows] + first)
        return mask

    def _is_word(self, part: bytes, at: I64) -> Mask:
        words = self.words(at)
        if len(part) < WORD:
            words &= np.uint64(2 ** (8 * len(part)) - 1)
        is_same: Mask = words == np.uint64(int.from_bytes(part, "little"))
        return is_same

    def equal(self, left: I64, right: I64, lengths: I64) -> Mask:
        """bool[n]: whether two pieces of the same length hold the same."""
        mask = np.ones(len(lengths), np.bool_)
        rows = np.flatnonzero(lengths > 0)
        done = 0
        while len(rows):
            left_words = self.words(left[rows] + done)
            differs = left_words ^ self.words(right[rows] + done)
            rest = lengths[rows] - done
            used = np.minimum(rest, WORD).astype(np.uint64) * np.uint64(8)
            differs &= np.uint64(2**64 - 1) >> (np.uint64(64) - used)
            is_same = differs == 0
            mask[rows[~is_same]] = False
            done += WORD
            rows = rows[is_same & (rest > WORD)]
            if done == WORD * _STEPS_MAX:
                self._compare_rest(mask, rows, left, right, lengths)
                break
        return mask

    def _compare_rest(self, mask: Mask, rows: I64, left: I64, right: I64, lengths: I64) -> None:
        """Whole pieces at once: a numpy step costs the same for one row as for a hundred."""
        raw = self.raw
        sides = (left[rows].tolist(), right[rows].tolist(), lengths[rows].tolist())
        for row, one, other, size in zip(rows.tolist(), *sides, strict=True):
            mask[row] = raw[one : one + size] == raw[other : other + size]


class TextIndex:
    """Some texts, looked for among pieces: all of one length at once."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """Group them by length; no text is there twice."""
        ordinals: dict[int, dict[bytes, int]] = {}
        for ordinal, text in enumerate(texts):
            ordinals.setdefault(len(text), {})[text] = ordinal
        self._by_length = sorted(ordinals.items())

    def hits(
        self, packed: PackedBytes, starts: I64, lengths: I64
    ) -> Iterator[tuple[I64, int | I64]]:
        """(which pieces, which text they are: one for all of them, or one for each)."""
        for size, ordinals in self._by_length:
            rows = np.flatnonzero(lengths == size)
            if not len(rows):
                continue
            if len(ordinals) < _LOOK_UP_MIN:
                first = starts[rows]
                for text, ordinal in ordinals.items():
                    found = rows[packed.begin_with(text, first)]
                    if len(found):
                        yield found, ordinal
            else:
                items = packed.items(starts[rows], size).tolist()
                which = np.fromiter((ordinals.get(each, -1) for each in items), np.int64)
                is_one = which >= 0
                yield rows[is_one], which[is_one]

    def contains(self, packed: PackedBytes, starts: I64, lengths: I64) -> Mask:
        """bool[n]: which pieces are one of the texts."""
        mask = np.zeros(len(starts), np.bool_)
        for rows, _ in self.hits(packed, starts, lengths):
            mask[rows] = True
        return mask
