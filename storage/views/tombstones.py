"""Which messages were cancelled: a set of sequences that checkpoints keep on disk.

In memory it is `storage.views.bit_pages`. A checkpoint appends the pages that changed since the
last one to the tombstone file:

    byte   size  field
       0     64  file header (storage.files.file_header), base = number of the file
    then, again and again, 8,204 bytes each:
       0      8  page    u64   sequences [page << 16, (page + 1) << 16)
       8      4  crc     u32   CRC32C of page and bits
      12  8,192  bits    bit s & 7 of byte (s & 65,535) >> 3 is sequence s

The last copy of a page wins; a page of zeros is none: all of it was forgotten. When more than half
of a file would be old copies, all pages go to a file of the next number instead. The manifest names
file and length. What lies behind, and any other file, is of a checkpoint that never was: it is
written over.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import SequenceNumber
from storage.files.disk import Disk, join
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.views.bit_pages import PAGE_BITS_LOG2, PAGE_BYTES, U64, BitPages, page_of
from storage.views.digest import Hasher

RECORD: Final = np.dtype([("page", "<u8"), ("crc", "<u4"), ("bits", "u1", (PAGE_BYTES,))])
RECORD_BYTES: Final = 8_204
assert RECORD.itemsize == RECORD_BYTES
_PAGE_NUMBER: Final = Struct("<Q")
_READ_RECORDS: Final = 128
"""Pages that loading reads at once: 1 MiB."""
_GARBAGE_RECORDS_MIN: Final = 64
"""So many old copies (512 KiB) are not worth a new file."""
_NAME_END: Final = ".tomb"

Work = Callable[[], None]
Choose = Callable[[U64], NDArray[np.bool_]]
"""bool[n]: some of n sequences."""


def _choose_all(sequences: U64) -> NDArray[np.bool_]:
    return np.ones(len(sequences), np.bool_)


class TombstoneState(NamedTuple):
    """What the manifest says: the file of this number is valid up to this byte. (0, 0): none."""

    file: int = 0
    valid_bytes: int = 0

    @property
    def record_count(self) -> int:
        """Copies of pages in it."""
        return max(0, self.valid_bytes - FILE_HEADER_BYTES) // RECORD_BYTES


class _Pending(NamedTuple):
    """A checkpoint that has begun and not ended."""

    state: TombstoneState
    pages: set[int]
    """What it makes durable."""


def file_name(number: int) -> str:
    """Name of a tombstone file in its folder."""
    return f"{number:010}{_NAME_END}"


class Tombstones:
    """The cancelled sequences of a shard. One thread; the works of a checkpoint run in any."""

    def __init__(self, disk: Disk, directory: str, identity: Identity) -> None:
        """Make an empty set that keeps its files in `directory`; see `open`."""
        self._disk = disk
        self._directory = directory
        self._identity = identity
        self._set = BitPages()
        self._count = 0
        self._dirty: set[int] = set()
        """The pages that differ from their last copy on disk."""
        self._durable = TombstoneState()
        """As of the last checkpoint that ended."""
        self._pending: _Pending | None = None

    @classmethod
    def open(
        cls, disk: Disk, directory: str, identity: Identity, state: TombstoneState
    ) -> "Tombstones":
        """Take up the state of a checkpoint; `directory` is made where it does not exist.

        Raises:
            CorruptFile: pages that the checkpoint made durable are missing or damaged.
        """
        disk.make_dir(directory)
        tombstones = cls(disk, directory, identity)
        tombstones._durable = state
        if state.file:
            for pages, bits in tombstones._read(state):
                tombstones._set.put(pages, bits)
            tombstones._set.drop(tombstones._set.empty_pages())
            tombstones._count = tombstones._set.member_count()
        for name in disk.list(directory):
            if name.endswith(_NAME_END) and name != file_name(state.file):
                disk.remove(join(directory, name))
        return tombstones

    @property
    def count(self) -> int:
        """How many sequences are in the set."""
        return self._count

    @property
    def state(self) -> TombstoneState:
        """For the manifest: what is durable once the works of the last `begin_checkpoint` ran."""
        return self._pending.state if self._pending else self._durable

    def contains(self, sequences: U64) -> NDArray[np.bool_]:
        """bool[n]: which of these are cancelled."""
        if not self._count:
            return np.zeros(len(sequences), np.bool_)
        return self._set.contains(sequences)

    def add(self, sequences: U64) -> int:
        """Cancel sequences, in any order; how many were not cancelled yet.

        Only sequences that were given to messages: each 64 Ki of them take up to 8 KiB.
        """
        fresh = self._set.add(sequences)
        self._dirty.update(page_of(fresh).tolist())
        self._count += len(fresh)
        return len(fresh)

    def pages_below(self, sequence: SequenceNumber) -> U64:
        """The pages that exist and begin below a sequence, ascending."""
        pages = self._set.page_numbers()
        return pages[pages << np.uint64(PAGE_BITS_LOG2) < np.uint64(sequence)]

    def members_of(self, page: int) -> U64:
        """uint64[n], ascending: the cancelled sequences of a page."""
        return self._set.members_of(page)

    def forget(self, page: int, sequences: U64) -> None:
        """Let go of cancelled sequences of one page, whose messages are not asked for any more."""
        self._set.remove(page, sequences)
        self._dirty.add(page)
        self._count -= len(sequences)

    def begin_checkpoint(self) -> list[Work]:
        """Capture what changed, and move `state` on to it.

        Returns:
            Works for another thread, in this order, that make it durable. When all have run and the
            manifest is durable, call `end_checkpoint`. If one fails, just begin again later.
        """
        if self._pending:  # it failed: all that it was to make durable is still to do
            self._dirty |= self._pending.pages
            self._pending = None
        if not self._dirty:
            return []
        live = self._set.page_count
        old = self._durable
        if not old.file or old.record_count + len(self._dirty) > 2 * live + _GARBAGE_RECORDS_MIN:
            number, position = old.file + 1, FILE_HEADER_BYTES
            pages = self._set.page_numbers()
        else:
            number, position = old.file, old.valid_bytes
            pages = np.array(sorted(self._dirty), np.uint64)
        records = np.zeros(len(pages), RECORD)
        records["page"] = pages
        records["bits"] = self._set.copy_of(pages)
        state = TombstoneState(number, position + records.nbytes)
        self._pending = _Pending(state, self._dirty)
        self._dirty = set()
        is_new = number != old.file
        return [lambda: self._write(number, position, records, is_new=is_new)]

    def _write(self, number: int, position: int, records: NDArray[Any], *, is_new: bool) -> None:
        """Append records to a file, durably. Touches no state but the records: any thread."""
        for index, page in enumerate(records["page"].tolist()):
            crc = crc32c(records["bits"][index].data, crc32c(_PAGE_NUMBER.pack(page)))
            records["crc"][index] = crc
        file = self._disk.open(self._path(number), create=is_new)
        try:
            if is_new:
                header = pack_file_header(FileType.TOMBSTONES, self._identity, number)
                file.pwrite([header], 0)
            file.pwrite([records.view(np.uint8).data], position)
            file.datasync()
        finally:
            file.close()
        if is_new:
            self._disk.sync_dir(self._directory)

    def end_checkpoint(self) -> list[Work]:
        """The manifest that names `state` is durable: move on.

        Returns:
            Works for another thread that remove what no manifest needs any more.
        """
        if self._pending is None:
            return []
        old = self._durable.file
        self._durable = self._pending.state
        self._pending = None
        if old in {0, self._durable.file}:
            return []
        return [lambda: self._disk.remove(self._path(old))]

    def digest_into(self, hasher: Hasher, choose: Choose = _choose_all) -> None:
        """Feed the canonical content: the sequences in the set, as far as `choose` chooses them."""
        for page in self._set.page_numbers().tolist():
            members = self._set.members_of(page)
            hasher.update(members[choose(members)].tobytes())

    def _path(self, number: int) -> str:
        return join(self._directory, file_name(number))

    def _read(self, state: TombstoneState) -> Iterator[tuple[U64, NDArray[np.uint8]]]:
        """All copies of pages in a file, oldest first, as (page u64[n], bits u8[n, 8192])."""
        path = self._path(state.file)
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        try:
            header = file.pread(FILE_HEADER_BYTES, 0)
            check_file_header(header, path, FileType.TOMBSTONES, self._identity, state.file)
            step = _READ_RECORDS * RECORD_BYTES
            for position in range(FILE_HEADER_BYTES, state.valid_bytes, step):
                length = min(step, state.valid_bytes - position)
                raw = file.pread(length, position)
                if len(raw) != length:
                    raise errors.CorruptFile(f"{path} is too short", file=path, offset=position)
                yield verified_pages(raw, path, position)
        finally:
            file.close()


def verified_pages(raw: bytes, path: str, position: int) -> tuple[U64, NDArray[np.uint8]]:
    """(page u64[n], bits u8[n, 8192]) of n records, whose first lies at `position`.

    Raises:
        CorruptFile: one fails its CRC32C; `path` is for the message.
    """
    records = np.frombuffer(raw, RECORD)
    view = memoryview(raw)
    for index, (page, crc) in enumerate(
        zip(records["page"].tolist(), records["crc"].tolist(), strict=True)
    ):
        at = index * RECORD_BYTES
        bits = view[at + RECORD_BYTES - PAGE_BYTES : at + RECORD_BYTES]
        if crc32c(bits, crc32c(_PAGE_NUMBER.pack(page))) != crc:
            raise errors.CorruptFile(
                f"{path}: the page at byte {position + at} fails its CRC32C",
                file=path,
                offset=position + at,
            )
    return records["page"], records["bits"]
