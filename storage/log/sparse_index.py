"""The sparse index of a segment: where to start reading for a sequence, and its latest store time.

An atomic file (storage.files.atomic_file) of type LI, base = the segment's start offset; its
payload:

    byte  size  field
       0     8  end_offset      u64   it covers the batches of [start offset, end_offset)
       8     8  store_ms_max    i64   of all of them; -1 without any
      16     4  count           u32   entries
      20     4  interval_bytes  u32   bytes of log from one entry to the next, at least
      24  24*n  entries: offset u64 | base_sequence u64 | store_ms i64, of one batch each

It is a hint for speed: where it is missing or damaged it is made again from the segment. One that
covers only the beginning of a segment is good for that beginning. What it covers was durable when
it was written, so that a segment which ends earlier has lost something.
"""

from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Header
from hourwheel.types import Offset, SequenceNumber

INDEX_ENTRY: Final = np.dtype([("offset", "<u8"), ("base_sequence", "<u8"), ("store_ms", "<i8")])
_ENTRY: Final = Struct("<QQq")
_HEAD: Final = Struct("<QqII")
assert _ENTRY.size == INDEX_ENTRY.itemsize
NO_STORE_MS: Final = -1


class SparseIndex:
    """Entries of consecutive batches, appended as the batches are.

    Attributes:
        start_offset: of the first batch that it covers.
        end_offset: behind the last.
        store_ms_max: of all batches that it covers, with an entry or without; -1 without any. After
            `truncate` an upper bound.
        next_entry_offset: the first batch at or behind it gets the next entry.
        packed: the entries, as in the file.
    """

    __slots__ = (
        "_interval_bytes",
        "end_offset",
        "next_entry_offset",
        "packed",
        "start_offset",
        "store_ms_max",
    )

    def __init__(
        self, start_offset: Offset, interval_bytes: int, next_entry_offset: Offset | None = None
    ) -> None:
        """Cover nothing yet. `next_entry_offset`: by default the first batch gets an entry."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.store_ms_max = NO_STORE_MS
        self._interval_bytes = interval_bytes
        self.next_entry_offset = start_offset if next_entry_offset is None else next_entry_offset
        # Packed as they come: a snapshot for another thread is then one copy of memory.
        self.packed = bytearray()

    def add(
        self, offset: Offset, end_offset: Offset, base_sequence: SequenceNumber, store_ms: int
    ) -> None:
        """Cover one more batch, which lies in [offset, end_offset) behind the last."""
        if offset >= self.next_entry_offset:
            self.packed += _ENTRY.pack(offset, base_sequence, store_ms)
            self.next_entry_offset = Offset(offset + self._interval_bytes)
        self.end_offset = end_offset
        self.store_ms_max = max(store_ms, self.store_ms_max)

    def add_batch(self, header: Header) -> None:
        """Cover one more batch, which was read from the log."""
        self.add(
            header.offset,
            header.end_offset,
            header.base_sequence,
            header.store_ms,
        )

    def truncate(self, end_offset: Offset) -> None:
        """Cover no more than what is below `end_offset`. `store_ms_max` stays, as a bound."""
        if end_offset >= self.end_offset:
            return
        kept = int(np.searchsorted(self.entries["offset"], end_offset, "left"))
        del self.packed[kept * _ENTRY.size :]
        self.end_offset = end_offset
        self.next_entry_offset = self._after_last_entry()

    def _after_last_entry(self) -> Offset:
        if not self.packed:
            return self.start_offset
        offset: int = _ENTRY.unpack_from(self.packed, len(self.packed) - _ENTRY.size)[0]
        return Offset(offset + self._interval_bytes)

    def successor(self) -> "SparseIndex":
        """An empty index for what comes behind, to be joined by `extend`."""
        return SparseIndex(self.end_offset, self._interval_bytes, self.next_entry_offset)

    def extend(self, successor: "SparseIndex") -> None:
        """Cover what `successor` covers, which begins where this one ends."""
        errors.invariant(successor.start_offset == self.end_offset, "a gap in a sparse index")
        self.packed += successor.packed
        self.next_entry_offset = successor.next_entry_offset
        self.end_offset = successor.end_offset
        self.store_ms_max = max(successor.store_ms_max, self.store_ms_max)

    @property
    def entries(self) -> NDArray[Any]:
        """The entries: a structured array[n] of INDEX_ENTRY, a copy."""
        return np.frombuffer(bytes(self.packed), INDEX_ENTRY)

    def find_offset(self, sequence: SequenceNumber) -> Offset | None:
        """Where to start reading for a sequence: the last entry at or before it; None without any.

        Base sequences never fall along a log, and only a PUBLISH raises the one of the next batch,
        so that the batch with this sequence is not before the last entry that is not above it.
        """
        entries = self.entries
        found = int(np.searchsorted(entries["base_sequence"], np.uint64(sequence), "right"))
        return None if found == 0 else Offset(int(entries["offset"][found - 1]))

    def pack(self) -> bytes:
        """The payload of the index file."""
        count = len(self.packed) // _ENTRY.size
        head = _HEAD.pack(self.end_offset, self.store_ms_max, count, self._interval_bytes)
        return head + self.packed

    @classmethod
    def unpack(cls, payload: bytes, start_offset: Offset, path: str) -> "SparseIndex":
        """Read the payload of an index file; its interval goes on as it was written.

        Raises:
            CorruptFile: the payload contradicts itself. `path` is for the message.
        """
        if len(payload) < _HEAD.size:
            raise errors.CorruptFile(f"{path}: too short for an index", file=path)
        end_offset, store_ms_max, count, interval_bytes = _HEAD.unpack_from(payload)
        if len(payload) != _HEAD.size + count * _ENTRY.size or end_offset < start_offset:
            raise errors.CorruptFile(f"{path}: the index contradicts itself", file=path)
        index = cls(start_offset, interval_bytes)
        index.end_offset = Offset(end_offset)
        index.store_ms_max = store_ms_max
        index.packed = bytearray(payload[_HEAD.size :])
        index.next_entry_offset = index._after_last_entry()
        return index
