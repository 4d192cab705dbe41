"""One file of a consume queue: a fixed number of entries, and seals that vouch for them.

    byte  size  field
       0    64  file header (storage.files.file_header), base = number of the chunk
      64    64  seal 0
     128    64  seal 1
     192    64  zero
     256  64*n  entries (storage.views.unit); entry i of chunk c is position c * n + i

The file has its full size from the beginning, but takes room only as it fills. A seal says what was
durable at a checkpoint:

       0     4  entry_count      u32   the first so many entries
       4     4  entries_crc      u32   CRC32C of them
       8     8  log_offset_min   u64   lowest commit-log offset they point at; all ones: none
      16     4  delay_log_min    u32   lowest delay log they point into; all ones: none
      20     4  topic_queue      u32
      24     8  release_ms_max   i64   when the last of them could be seen
      32    28  zero
      60     4  crc              u32   CRC32C of bytes 0..60

Entries are stored through a mapping, are summed while they are (storage.queues.page_sums), are
verified whenever they are read, and never change; only seals are written over, and never the
one that the last manifest relies on: checkpoints take turns. Opening looks for the seal with the
manifest's count. What lies behind that count is of a log that may not be any more.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import Offset, TopicQueue
from storage.files.disk import Disk, Mapping
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.queues.page_sums import PAGE_ROWS, PageSums
from storage.views.sorting import sorted_unique
from storage.views.unit import (
    NO_UNITS,
    UNIT,
    UNIT_BYTES,
    Units,
    delay_log_min,
    equal_spans,
    log_offset_min,
    release_ms,
)

ENTRIES_AT: Final = 256
SEAL_BYTES: Final = 64
_SEALS_AT: Final = FILE_HEADER_BYTES
_SEAL: Final = Struct("<IIQIIq28xI")
assert _SEAL.size == SEAL_BYTES
assert _SEALS_AT + 2 * SEAL_BYTES <= ENTRIES_AT
_NO_OFFSET: Final = (1 << 64) - 1
_NO_DELAY_LOG: Final = (1 << 32) - 1
_NEVER_MS: Final = -(1 << 63)
_FIRST_STEP_BYTES: Final = 4_096
_STEP_BYTES: Final = 65_536
ROW: Final = np.dtype(f"V{UNIT_BYTES}")
"""Units as opaque bytes: numpy copies these as memory, but records field by field, which takes 20
times as long."""

Rows = NDArray[Any]


class Seal(NamedTuple):
    """What is known of a chunk's first entries."""

    entry_count: int
    entries_crc: int
    log_offset_min: int
    delay_log_min: int
    release_ms_max: int

    def extended(self, units: Units) -> "Seal":
        """The seal over what this one is over and `units`, which follow (one piece of memory)."""
        offset, delay_log = log_offset_min(units), delay_log_min(units)
        return Seal(
            self.entry_count + len(units),
            crc32c(units.view(np.uint8).data, self.entries_crc),
            self.log_offset_min if offset is None else min(offset, self.log_offset_min),
            self.delay_log_min if delay_log is None else min(delay_log, self.delay_log_min),
            max(self.release_ms_max, int(release_ms(units).max(initial=_NEVER_MS))),
        )


NO_ENTRIES: Final = Seal(0, 0, _NO_OFFSET, _NO_DELAY_LOG, _NEVER_MS)


def lowest_references(seals: Iterable[Seal]) -> tuple[Offset | None, int | None]:
    """(lowest commit-log offset, lowest delay log) that the sealed entries need; None for none."""
    offset, delay_log = _NO_OFFSET, _NO_DELAY_LOG
    for seal in seals:
        offset = min(offset, seal.log_offset_min)
        delay_log = min(delay_log, seal.delay_log_min)
    return (
        None if offset == _NO_OFFSET else Offset(offset),
        None if delay_log == _NO_DELAY_LOG else delay_log,
    )


def chunk_bytes(chunk_entries: int) -> int:
    """Size of a chunk's file."""
    return ENTRIES_AT + chunk_entries * UNIT_BYTES


def seal_position(slot: int) -> int:
    """Where seal 0 or seal 1 lies."""
    return _SEALS_AT + slot * SEAL_BYTES


def pack_seal(seal: Seal, topic_queue: TopicQueue) -> bytes:
    """The 64 bytes of a seal."""
    count, entries_crc, offset, delay_log, release = seal
    raw = _SEAL.pack(count, entries_crc, offset, delay_log, topic_queue, release, 0)
    return raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little")


def intact_seals(head: bytes, topic_queue: TopicQueue) -> dict[int, Seal]:
    """Slot -> seal of the intact ones of a queue's chunk, out of its first `ENTRIES_AT` bytes."""
    found = {}
    for slot in (0, 1):
        raw = head[seal_position(slot) : seal_position(slot) + SEAL_BYTES]
        if len(raw) == SEAL_BYTES:
            count, entries_crc, offset, delay_log, of_queue, release, crc = _SEAL.unpack(raw)
            if (of_queue, crc) == (topic_queue, crc32c(raw[:-4])):
                found[slot] = Seal(count, entries_crc, offset, delay_log, release)
    return found


def find_seal(
    disk: Disk,
    path: str,
    identity: Identity,
    number: int,
    topic_queue: TopicQueue,
    entry_count: int,
    file_bytes: int | None = None,
    *,
    or_more: bool = False,
) -> tuple[Seal, int]:
    """(seal over the first `entry_count` entries, 0 or 1 for where it lies) of a chunk's file.

    `file_bytes` is the size that the file must have to be mapped. `or_more`: a seal over more
    entries will do, too, for a reader while the node goes on: entries never change.

    Raises:
        CorruptFile: the file is missing, damaged, of another queue, or has no such seal.
        ForeignDirectory, IncompatibleFormat: see `check_file_header`.
    """
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise errors.CorruptFile(f"{path} is missing", file=path) from None
    try:
        head, size = file.pread(ENTRIES_AT, 0), file.size()
    finally:
        file.close()
    check_file_header(head, path, FileType.CONSUME_QUEUE, identity, number)
    if file_bytes is not None and size != file_bytes:
        raise errors.CorruptFile(f"{path} has {size} bytes instead of {file_bytes}", file=path)
    for slot, seal in intact_seals(head, topic_queue).items():
        if seal.entry_count == entry_count or (or_more and seal.entry_count > entry_count):
            return seal, slot
    raise errors.CorruptFile(
        f"{path} has no seal over {entry_count} entries of queue {topic_queue:08x}", file=path
    )


def write_seal(
    disk: Disk, path: str, seal: Seal, sums: PageSums, slot: int, topic_queue: TopicQueue
) -> Seal:
    """Make the entries that `sums` are over durable, with a seal over them, which is returned.

    For any thread while another one appends behind them: it uses a handle of its own, because the
    mapping may be closed meanwhile. A file and its mapping show the same bytes.

    Args:
        disk: where.
        path: of the chunk.
        seal: over fewer or as many entries; only those behind it are read, in whole pages.
        sums: over all entries that are sealed.
        slot: 0 or 1, whichever the last manifest does not rely on.
        topic_queue: of the chunk.

    Raises:
        CorruptFile: an entry is not what was stored.
    """
    known, entry_count = seal.entry_count, sums.row_count
    file = disk.open(path)
    try:
        if known < entry_count:
            low = known // PAGE_ROWS * PAGE_ROWS
            length = (entry_count - low) * UNIT_BYTES
            raw = file.pread(length, ENTRIES_AT + low * UNIT_BYTES)
            errors.invariant(len(raw) == length, "a chunk lost its size", file=path)
            damaged = sums.find_damage(raw, low, entry_count, base=low)
            if damaged is not None:
                raise _damaged(path, damaged)
            seal = seal.extended(np.frombuffer(raw, UNIT)[known - low :])
        file.pwrite([pack_seal(seal, topic_queue)], seal_position(slot))
        file.datasync()
    finally:
        file.close()
    return seal


def _damaged(path: str, entry: int) -> errors.CorruptFile:
    offset = ENTRIES_AT + entry * UNIT_BYTES
    return errors.CorruptFile(
        f"{path}: the entries from byte {offset} on fail their CRC32C", file=path, offset=offset
    )


class Chunk:
    """A chunk that is mapped into memory."""

    __slots__ = (
        "_allocated_bytes",
        "_entries",
        "_is_just_verified",
        "_mapping",
        "_path",
        "_rows",
        "_units",
        "entry_count_reserved",
        "sums",
    )

    def __init__(self, mapping: Mapping, path: str, sums: PageSums, allocated_bytes: int) -> None:
        """Wrap a mapped file whose first `allocated_bytes` have room; see `create` and `open`."""
        self._mapping, self._path = mapping, path
        self._allocated_bytes = allocated_bytes
        self._rows: Rows = np.frombuffer(mapping.view, ROW, offset=ENTRIES_AT)
        """All entries, as `ROW`."""
        self._units: Units = self._rows.view(UNIT)
        """The same, as `UNIT`: a view of another type is dear, a slice of this one is not."""
        self._entries = mapping.view[ENTRIES_AT:]
        self.sums = sums
        """Over the entries that are there."""
        self._is_just_verified = False
        """All of it was, when it was mapped for the reading that comes next, in the same call."""
        self.entry_count_reserved = max(0, allocated_bytes - ENTRIES_AT) // UNIT_BYTES
        """So many can be stored: see `reserve`."""

    @classmethod
    def create(
        cls, disk: Disk, path: str, identity: Identity, number: int, chunk_entries: int
    ) -> "Chunk":
        """Make an empty chunk, in the place of what a crash may have left there.

        Raises:
            DiskFull: there is no room for its first entries.
        """
        if disk.exists(path):
            disk.remove(path)
        mapping = disk.map(path, chunk_bytes(chunk_entries), create=True)
        chunk = cls(mapping, path, PageSums(chunk_entries), 0)
        try:
            chunk.reserve(1)
        except errors.DiskFull:
            chunk.close()
            disk.remove(path)
            raise
        header = pack_file_header(FileType.CONSUME_QUEUE, identity, number)
        chunk._mapping.view[:FILE_HEADER_BYTES] = header
        return chunk

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        chunk_entries: int,
        seal: Seal,
        sums: PageSums | None = None,
    ) -> "Chunk":
        """Map a chunk that exists, and verify what `seal` is over; or, where there are, `sums`.

        Raises:
            CorruptFile: those entries fail their CRC; or the file is missing or has another size.
        """
        try:
            mapping = disk.map(path, chunk_bytes(chunk_entries))
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        chunk = cls(mapping, path, sums or PageSums(chunk_entries), 0)
        try:
            if sums is None:
                chunk._sum(seal)
            else:
                chunk._verify(0, sums.row_count)
        except errors.CorruptFile:
            chunk.close()
            raise
        chunk._is_just_verified = True
        return chunk

    def _sum(self, seal: Seal) -> None:
        with self._entries[: seal.entry_count * UNIT_BYTES] as entries:
            self.sums.extend(entries)
            if self.sums.crc != seal.entries_crc:
                raise _damaged(self._path, 0)

    def _verify(self, first: int, end: int) -> None:
        if self._is_just_verified:
            self._is_just_verified = False
            return
        damaged = self.sums.find_damage(self._entries, first, end)
        if damaged is not None:
            raise _damaged(self._path, damaged)

    def units(self, first: int, end: int) -> Units:
        """The entries [first, end) of the chunk, not copied: drop it before the chunk is closed.

        Raises:
            CorruptFile: they are not what was stored.
        """
        self._verify(first, end)
        return self._units[first:end]

    def copy(self, first: int, end: int) -> Units:
        """As `units`, copied."""
        self._verify(first, end)
        raw = bytearray(self._entries[first * UNIT_BYTES : end * UNIT_BYTES])
        return np.frombuffer(raw, UNIT)

    def pick(self, entries: NDArray[np.int64]) -> Rows:
        """A copy of some entries, as `ROW`, in this order. Raises as `units`."""
        pages = sorted_unique(entries // PAGE_ROWS)
        # Each stretch of neighbouring pages at once.
        for low, high in equal_spans(pages - np.arange(len(pages))):
            first, last = int(pages[low]) * PAGE_ROWS, int(pages[high - 1]) * PAGE_ROWS
            self._verify(first, last + 1)
        return self._rows[entries]

    def store(self, units: Units) -> None:
        """Store entries behind those that are there; `reserve` has made room for them."""
        first, raw = self.sums.row_count * UNIT_BYTES, memoryview(units.tobytes())
        self._entries[first : first + len(raw)] = raw
        self.sums.extend(raw)

    def reserve(self, entry_count: int) -> None:
        """Give room to the first `entry_count` entries, so that storing them cannot fail.

        Raises:
            DiskFull: nothing changed.
        """
        self._is_just_verified = False  # it was mapped to be stored into
        if entry_count <= self.entry_count_reserved:
            return
        needed = ENTRIES_AT + entry_count * UNIT_BYTES
        size = len(self._mapping.view)
        step = _FIRST_STEP_BYTES if needed <= _FIRST_STEP_BYTES else _STEP_BYTES
        end = min(-(-needed // step) * step, size)
        self._mapping.allocate(self._allocated_bytes, end)
        self._allocated_bytes = end
        self.entry_count_reserved = (end - ENTRIES_AT) // UNIT_BYTES

    def close(self) -> None:
        """Unmap. What was stored is in the file, and durable after a `write_seal`."""
        self._rows, self._units = self._rows[:0].copy(), NO_UNITS
        self._entries.release()
        self.entry_count_reserved = 0
        self._mapping.close()
