"""Which pending messages were moved to another due time, and where they are due now.

A row is a sequence, its current due time, and the latest due time that it ever had. The entry that
the wheel got when the message was published is dead from then on, and of those that it got when it
was moved only the one at the current due time is live. Dead entries stay where they lie, up to the
latest of those times; so a row may go when the cursor has passed that, and not before.

There is a bit a sequence (storage.views.bit_pages), and of each 65,536 sequences the rows as three
columns: a page. Rows that were set lately stand before the pages, in one page of their own, and go
into theirs by and by: the messages of one record may lie in hundreds of pages, each of which is
written anew when a row is added.

All of it is in memory, and in the manifest of each checkpoint, as rows of 24 bytes; the node bounds
how many there are where it takes calls in.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import Key
from storage.views.bit_pages import PAGE_BITS_LOG2, U64, BitPages, page_of
from storage.views.digest import Hasher
from storage.views.unit import equal_spans

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

ROW: Final = np.dtype([("sequence", "<u8"), ("due_ms", "<i8"), ("last_due_ms", "<i8")])
ROW_BYTES: Final = 24
assert ROW.itemsize == ROW_BYTES
AT_ONCE_MS: Final = -(1 << 62)
"""As the current due time: the message was released by the record that moved it. Below any key."""


class MovedRows(NamedTuple):
    """Rows of n sequences that were asked for; of those that were not moved they are zeros."""

    are_moved: Mask
    due_ms: I64
    """Where each is due now, or `AT_ONCE_MS`."""
    last_due_ms: I64
    """The latest due time that each ever had."""


class MovedPage(NamedTuple):
    """Rows by ascending sequence. Never changed: a checkpoint may be looking at them."""

    sequence: U64
    due_ms: I64
    last_due_ms: I64

    def take(self, chosen: Any) -> "MovedPage":
        """A copy of some of them."""
        return MovedPage(
            self.sequence[chosen].copy(),
            self.due_ms[chosen].copy(),
            self.last_due_ms[chosen].copy(),
        )


_NO_ROWS: Final = MovedPage(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
_RECENT_MAX: Final = 16_384


class MovedCapture(NamedTuple):
    """All rows as of one moment, for any thread."""

    pages: list[MovedPage]
    recent: MovedPage
    """Of a sequence that is in a page as well this is the row."""

    def join(self) -> MovedPage:
        """Each row once."""
        pages = self.pages or [_NO_ROWS]
        columns: list[Any] = [np.concatenate(column) for column in zip(*pages, strict=True)]
        return _merged(MovedPage(*columns), self.recent)


class Moved:
    """See the top of this file."""

    def __init__(self, raw: bytes = b"", *, recent_max: int = _RECENT_MAX) -> None:
        """From what a checkpoint has of it.

        Args:
            raw: see `pack_rows`.
            recent_max: so many rows, about, may wait to go into their pages.

        Raises:
            CorruptFile: these are no rows.
        """
        self._bits = BitPages()
        self._pages: dict[int, MovedPage] = {}
        self._recent = _NO_ROWS
        self._recent_max = recent_max
        self._paged_to = 0
        """Recent rows move into pages by page number, round and round: the next page is this one or
        above."""
        self.count = 0
        """Rows, those included that are not asked for any more."""
        rows = unpack_rows(raw)
        columns = [np.ascontiguousarray(rows[name]) for name in ROW.names or ()]
        self.put(*columns)

    def find(self, sequences: U64) -> MovedRows:
        """What is known of n sequences, in any order."""
        count = len(sequences)
        are_moved = self._bits.contains(sequences) if self.count else np.zeros(count, np.bool_)
        due, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        found = np.flatnonzero(are_moved)
        if len(found):
            found = found[np.argsort(sequences[found], kind="stable")]
            at, is_recent = _places_in(self._recent, sequences[found])
            due[found[is_recent]] = self._recent.due_ms[at[is_recent]]
            last[found[is_recent]] = self._recent.last_due_ms[at[is_recent]]
            found = found[~is_recent]
            requested = sequences[found]
            numbers = page_of(requested)
            for low, high in equal_spans(numbers):
                page = self._pages[int(numbers[low])]
                at = np.searchsorted(page.sequence, requested[low:high])
                due[found[low:high]] = page.due_ms[at]
                last[found[low:high]] = page.last_due_ms[at]
        return MovedRows(are_moved, due, last)

    def put(self, sequences: U64, due_ms: I64, last_due_ms: I64) -> None:
        """Set the rows of n sequences, which ascend."""
        if not len(sequences):
            return
        self.count += len(self._bits.add(sequences))
        self._recent = _merged(self._recent, MovedPage(sequences, due_ms, last_due_ms))
        # Twice as many as have come, so that they get fewer.
        count = min(2 * len(sequences), len(self._recent.sequence) - self._recent_max)
        if count > 0:
            self._move_into_pages(count)

    def _move_into_pages(self, count: int) -> None:
        """Move at least so many recent rows into their pages, or all that are left of a round."""
        numbers = page_of(self._recent.sequence)
        low = int(np.searchsorted(numbers, np.uint64(self._paged_to)))
        if low == len(numbers):
            low = 0
        last = int(numbers[min(low + count, len(numbers)) - 1])
        self._paged_to = last + 1
        self._settle(low, int(np.searchsorted(numbers, np.uint64(last), "right")))

    def _settle(self, low: int, high: int) -> None:
        """Move the recent rows [low, high) into their pages."""
        moving, kept = (
            self._recent.take(slice(low, high)),
            np.ones(len(self._recent.sequence), bool),
        )
        kept[low:high] = False
        self._recent = self._recent.take(kept)
        numbers = page_of(moving.sequence)
        for first, end in equal_spans(numbers):
            number = int(numbers[first])
            fresh = moving.take(slice(first, end))
            page = self._pages.get(number)
            self._pages[number] = fresh if page is None else _merged(page, fresh)

    def has_between(self, low: int, high: int) -> bool:
        """Whether any message was moved whose sequence is `low`, `high`, or between them."""
        first, last = low >> PAGE_BITS_LOG2, high >> PAGE_BITS_LOG2
        pages = [page for number, page in self._pages.items() if first <= number <= last]
        for page in (self._recent, *pages):
            at = int(np.searchsorted(page.sequence, np.uint64(low)))
            if at < len(page.sequence) and int(page.sequence[at]) <= high:
                return True
        return False

    def numbers(self) -> list[int]:
        """Of the pages that have rows, ascending."""
        recent: list[int] = page_of(self._recent.sequence).tolist()
        return sorted({*self._pages, *recent})

    def forget_past(self, number: int, key: Key) -> None:
        """Let go of a page's rows of which no entry lies above `key`."""
        bounds = np.array([number, number + 1], np.uint64)
        low, high = np.searchsorted(page_of(self._recent.sequence), bounds)
        if low < high:  # a row in a page may count no more for one that is recent
            self._settle(int(low), int(high))
        page = self._pages.get(number)
        if page is None:
            return
        kept = are_above(page.sequence, page.last_due_ms, key)
        if kept.all():
            return
        self._bits.remove(number, page.sequence[~kept])
        self.count -= len(kept) - int(kept.sum())
        if kept.any():
            self._pages[number] = page.take(kept)
        else:
            del self._pages[number]

    def capture(self) -> MovedCapture:
        """All rows as of now."""
        return MovedCapture([page for _, page in sorted(self._pages.items())], self._recent)

    def sequences(self) -> U64:
        """uint64[n], ascending: the messages that have a row."""
        return self.capture().join().sequence

    def digest_into(self, hasher: Hasher, key: Key) -> None:
        """Feed the canonical content: the rows of which an entry lies above `key`."""
        rows = self.capture().join()
        for column in rows.take(are_above(rows.sequence, rows.last_due_ms, key)):
            hasher.update(column.tobytes())


def are_above(sequences: U64, due_ms: I64, key: Key) -> Mask:
    """bool[n]: which of the keys (due_ms, sequence) are above one."""
    found: Mask = due_ms > key.due_ms
    found |= (due_ms == key.due_ms) & (sequences > np.uint64(key.sequence))
    return found


def _places_in(page: MovedPage, sequences: U64) -> tuple[I64, Mask]:
    """(where each of n sequences is in a page, or would be, whether it is there)."""
    at = np.searchsorted(page.sequence, sequences)
    is_there = at < len(page.sequence)
    is_there[is_there] = page.sequence[at[is_there]] == sequences[is_there]
    return at, is_there


def _merged(page: MovedPage, fresh: MovedPage) -> MovedPage:
    """The rows of both, as a copy; of a sequence in both the fresh one."""
    at, is_there = _places_in(page, fresh.sequence)

    # (`np.insert` finds the places out for each column.)
    is_new = ~is_there
    places = at + np.cumsum(is_new) - is_new
    is_old = np.ones(len(page.sequence) + int(is_new.sum()), np.bool_)
    is_old[places[is_new]] = False

    def merged(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        column = np.empty(len(is_old), old.dtype)
        column[is_old] = old
        column[places] = new
        return column

    return MovedPage(
        merged(page.sequence, fresh.sequence),
        merged(page.due_ms, fresh.due_ms),
        merged(page.last_due_ms, fresh.last_due_ms),
    )


def pack_rows(captured: MovedCapture) -> bytes:
    """The rows, as a checkpoint has them."""
    page = captured.join()
    rows = np.empty(len(page.sequence), ROW)
    for name, column in zip(ROW.names or (), page, strict=True):
        rows[name] = column
    return rows.tobytes()


def unpack_rows(raw: bytes) -> NDArray[Any]:
    """Structured array[n] of `ROW`, by sequence.

    Raises:
        CorruptFile: these are no rows.
    """
    if len(raw) % ROW_BYTES:
        raise errors.CorruptFile(f"{len(raw)} bytes are no rows of moved messages")
    rows = np.frombuffer(raw, ROW)
    if not (rows["sequence"][1:] > rows["sequence"][:-1]).all():
        raise errors.CorruptFile("rows of moved messages do not ascend")
    return rows
