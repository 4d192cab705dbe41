"""What became of each sequence when it was applied: its due time, and how it was stored.

One entry a sequence, an u64: `due_ms << 2 | SlotState`. Entries lie in blocks of 128, blocks in
files of 8,192 blocks (1 Mi entries), named by 12 digits:

    byte   size  field
       0     64  file header (storage.files.file_header), base = number of the file
    then, again and again, 1,032 bytes each:
       0  1,024  entries  u64[128]
    1024      4  crc      u32   CRC32C of the entries, xor the low 32 bits of the block's number
    1028      4  zero

Only whole blocks go into these files; the last entries wait in memory. A checkpoint puts the ones
behind the last whole block into the file `tail` (storage.files.atomic_file: header with base =
number of the block, payload = u64[< 128]), so that no block is ever written over by half of
another.

The manifest names the number of entries: what lies behind is of a log that may not be any more. The
tail may be of a later checkpoint, whose manifest was never written. Then it begins with the entries
that are asked for, or it is of a later block, and theirs is whole and durable.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import DUE_MS_MAX
from storage.files import atomic_file
from storage.files.disk import Disk, File, join
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.views.digest import Hasher, feed_numbers
from storage.views.sorting import sorted_unique

_BLOCK_LOG2: Final = 7
BLOCK_ENTRIES: Final = 1 << _BLOCK_LOG2
BLOCK: Final = np.dtype([("entries", "<u8", (BLOCK_ENTRIES,)), ("crc", "<u4"), ("zero", "<u4")])
BLOCK_BYTES: Final = 1_032
assert BLOCK.itemsize == BLOCK_BYTES
_ENTRIES_BYTES: Final = 8 * BLOCK_ENTRIES
CHUNK_BLOCKS: Final = 8_192
_TAIL: Final = "tail"
_NAME_END: Final = ".seq"
_FLUSH_ENTRIES: Final = 8_192
"""Entries that wait in memory before they are written: 64 KiB."""
_NEAR_ENTRIES: Final = 32_768
"""Sequences that are no further apart are read in one piece: 256 KiB."""
_GATHER_BLOCKS: Final = 1_024
"""Blocks that are in memory at once while scattered sequences are read: 1 MiB."""
_CACHE_BLOCKS: Final = 8_192
"""Blocks that stay in memory once scattered sequences have been read from them: 8 MiB at most."""
_FILES_OPEN_MAX: Final = 32
_UNKNOWN: Final = -1
_DIGEST_ENTRIES: Final = 65_536
_BLOCK_SHIFT: Final = np.uint64(_BLOCK_LOG2)

U64: TypeAlias = NDArray[np.uint64]
Work: TypeAlias = Callable[[], None]
Choose: TypeAlias = Callable[[U64], NDArray[np.bool_]]
"""bool[n]: some of n sequences."""


class SlotState(IntEnum):
    """How the message of a sequence was stored."""

    REJECTED = 0
    """No message: of a duplicate or refused batch."""
    WHEEL = 1
    """Put into the wheel."""
    RELEASED_AT_APPLY = 2
    """Released at once."""


def _choose_none(sequences: U64) -> NDArray[np.bool_]:
    return np.zeros(len(sequences), np.bool_)


class _Mark(NamedTuple):
    """How far a checkpoint goes."""

    block_count: int
    """Whole blocks."""
    tail_count: int
    """Entries behind them."""
    file_count: int
    """Files made since this index was opened."""


def file_name(number: int) -> str:
    """Name of a file of 1 Mi entries."""
    return f"{number:012}{_NAME_END}"


def _crcs(raw: memoryview) -> NDArray[np.uint32]:
    """uint32[n]: CRC32C of the entries of each of n blocks that lie one behind the other."""
    starts = range(0, len(raw), BLOCK_BYTES)
    return np.array([crc32c(raw[at : at + _ENTRIES_BYTES]) for at in starts], np.uint32)


def damaged_blocks(raw: bytes, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n]: which of n blocks of these numbers, whose bytes are `raw`, fail their CRC32C."""
    found = np.frombuffer(raw, BLOCK)
    is_bad: NDArray[np.bool_] = _crcs(memoryview(raw)) ^ blocks.astype(np.uint32) != found["crc"]
    return is_bad


class SequenceIndex:
    """See the top of this file. One thread; the works of a checkpoint run in any."""

    def __init__(self, disk: Disk, directory: str, identity: Identity, count: int = 0) -> None:
        """An index of `count` entries; see `open`."""
        self._disk = disk
        self._directory = directory
        self._identity = identity
        self._block_count, self._buffered = divmod(count, BLOCK_ENTRIES)
        """Whole blocks in the files, and entries behind them in `_buffer`."""
        self._buffer: U64 = np.zeros(2 * _FLUSH_ENTRIES, np.uint64)
        self._file_count = 0
        self._durable = _Mark(self._block_count, self._buffered, 0)
        self._pending: _Mark | None = None
        self._files: dict[int, File] = {}
        """Open files, the one used last at the end."""
        self._cached_block = np.full(_CACHE_BLOCKS, _UNKNOWN, np.int64)
        """Which block lies at `block % _CACHE_BLOCKS` of `_cache`. Whole blocks never change."""
        self._cache: U64 = np.zeros((0, BLOCK_ENTRIES), np.uint64)

    @classmethod
    def open(cls, disk: Disk, directory: str, identity: Identity, count: int) -> "SequenceIndex":
        """Take up the state of a checkpoint; `directory` is made where it does not exist.

        Raises:
            CorruptFile: entries that the checkpoint made durable are missing or damaged. Whole
                blocks are looked at when they are read, and raise it then.
        """
        disk.make_dir(directory)
        index = cls(disk, directory, identity, count)
        index._load_tail()
        for number in range(-(-index._block_count // CHUNK_BLOCKS)):
            index._file(number)  # for its header: blocks are looked at when they are read
        last = index._block_count // CHUNK_BLOCKS
        for name in disk.list(directory):
            if name.endswith(_NAME_END) and name > file_name(last):
                disk.remove(join(directory, name))
        return index

    @property
    def count(self) -> int:
        """How many sequences have an entry: [0, count)."""
        return self._block_count * BLOCK_ENTRIES + self._buffered

    def append(self, due_ms: NDArray[np.int64], state: NDArray[np.uint8]) -> None:
        """Add the entries of the next n sequences.

        Args:
            due_ms: int64[n], from 0 to DUE_MS_MAX.
            state: uint8[n] of `SlotState` values.

        Where the disk is full, whole blocks wait in memory until a later call finds room: 8 bytes a
        message, and the log of a full disk takes no messages.
        """
        added = len(due_ms)
        if not added:
            return
        errors.invariant(
            bool(due_ms.min() >= 0 and due_ms.max() <= DUE_MS_MAX), "no due time can be that"
        )
        if self._buffered >= _FLUSH_ENTRIES:
            with suppress(errors.DiskFull):
                self._flush()
        end = self._buffered + added
        if end > len(self._buffer):
            buffer = np.zeros(2 * end, np.uint64)
            buffer[: self._buffered] = self._buffer[: self._buffered]
            self._buffer = buffer
        self._buffer[self._buffered : end] = (due_ms.astype(np.uint64) << np.uint64(2)) | state
        self._buffered = end

    def read_many(self, sequences: U64) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(due_ms int64[n], state uint8[n] of `SlotState`) of n sequences in any order.

        Sequences that no message got yet are VOID, due at 0.

        Raises:
            CorruptFile: a block fails its CRC or is missing.
        """
        entries: U64 = self._entries(sequences) if len(sequences) else np.zeros(0, np.uint64)
        return (entries >> np.uint64(2)).view(np.int64), (entries & np.uint64(3)).astype(np.uint8)

    def _entries(self, sequences: U64) -> U64:
        first, end = int(sequences.min()), min(int(sequences.max()) + 1, self.count)
        if first >= end:
            return np.zeros(len(sequences), np.uint64)
        if end - first <= _NEAR_ENTRIES:
            # One zero behind them stands for all that is out of range.
            near = np.zeros(end - first + 1, np.uint64)
            near[:-1] = self._range(first, end)
            index = np.minimum(sequences - np.uint64(first), np.uint64(end - first))
            found: U64 = near.take(index.view(np.int64))
            return found
        return self._gather(sequences)

    def _gather(self, sequences: U64) -> U64:
        """The entries of sequences that lie far apart."""
        entries = np.zeros(len(sequences), np.uint64)
        buffer_first = np.uint64(self._block_count * BLOCK_ENTRIES)
        is_buffered = (sequences >= buffer_first) & (sequences < np.uint64(self.count))
        entries[is_buffered] = self._buffer[(sequences[is_buffered] - buffer_first).view(np.int64)]
        on_disk = np.flatnonzero(sequences < buffer_first)
        block = (sequences[on_disk] >> _BLOCK_SHIFT).view(np.int64)
        in_block = (sequences[on_disk] & np.uint64(BLOCK_ENTRIES - 1)).view(np.int64)
        is_cached = self._cached_block[block % _CACHE_BLOCKS] == block
        if is_cached.any():
            found = self._cache[block[is_cached] % _CACHE_BLOCKS, in_block[is_cached]]
            entries[on_disk[is_cached]] = found
            on_disk, block, in_block = on_disk[~is_cached], block[~is_cached], in_block[~is_cached]
        blocks = sorted_unique(block)
        ordinal = np.searchsorted(blocks, block)
        for at in range(0, len(blocks), _GATHER_BLOCKS):
            found = self._read_scattered(blocks[at : at + _GATHER_BLOCKS])
            chosen = np.flatnonzero((ordinal >= at) & (ordinal < at + _GATHER_BLOCKS))
            entries[on_disk[chosen]] = found[ordinal[chosen] - at, in_block[chosen]]
            self._keep(blocks[at : at + _GATHER_BLOCKS], found)
        return entries

    def _keep(self, blocks: NDArray[np.int64], entries: U64) -> None:
        """Put n verified blocks into the cache; of two for one place the later one stays."""
        if not len(self._cache):
            self._cache = np.zeros((_CACHE_BLOCKS, BLOCK_ENTRIES), np.uint64)
        self._cached_block[blocks % _CACHE_BLOCKS] = blocks
        self._cache[blocks % _CACHE_BLOCKS] = entries

    def _range(self, first: int, end: int) -> U64:
        """The entries [first, end), all of which exist."""
        buffer_first = self._block_count * BLOCK_ENTRIES
        buffered = self._buffer[max(first - buffer_first, 0) : max(end - buffer_first, 0)]
        if first >= buffer_first:
            return buffered
        low, high = first // BLOCK_ENTRIES, -(-min(end, buffer_first) // BLOCK_ENTRIES)
        raw = b""
        while len(raw) < (high - low) * BLOCK_BYTES:
            at = low + len(raw) // BLOCK_BYTES
            raw += self._read(at, min(high, at - at % CHUNK_BLOCKS + CHUNK_BLOCKS) - at)
        entries: U64 = self._verified(raw, np.arange(low, high)).reshape(-1)
        skipped = low * BLOCK_ENTRIES
        stored = entries[first - skipped : end - skipped]
        if not len(buffered):
            return stored
        both: U64 = np.concatenate((stored, buffered))
        return both

    def _read_scattered(self, blocks: NDArray[np.int64]) -> U64:
        """uint64[n, 128]: the entries of n blocks, whose numbers ascend, verified."""
        breaks = (blocks[1:] != blocks[:-1] + 1) | (blocks[1:] % CHUNK_BLOCKS == 0)
        bounds = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(blocks)]))
        firsts, lengths = blocks[bounds[:-1]], np.diff(bounds)
        raw = []
        for number in sorted_unique(firsts // CHUNK_BLOCKS).tolist():
            here = np.flatnonzero(firsts // CHUNK_BLOCKS == number)
            raw += self._read_many(number, firsts[here], lengths[here])
        return self._verified(b"".join(raw), blocks)

    def _read_many(
        self, number: int, firsts: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> list[bytes]:
        """The bytes of several runs of blocks of the file of this number."""
        lengths = (counts * BLOCK_BYTES).tolist()
        positions = (FILE_HEADER_BYTES + firsts % CHUNK_BLOCKS * BLOCK_BYTES).tolist()
        raw = self._file(number).pread_many(lengths, positions)
        for first, one, length in zip(firsts, raw, lengths, strict=True):
            if len(one) != length:
                self._refuse_missing(int(first))
        return raw

    def _read(self, first: int, count: int) -> bytes:
        """The bytes of `count` blocks of one file."""
        length = count * BLOCK_BYTES
        position = FILE_HEADER_BYTES + first % CHUNK_BLOCKS * BLOCK_BYTES
        raw = self._file(first // CHUNK_BLOCKS).pread(length, position)
        if len(raw) != length:
            self._refuse_missing(first)
        return raw

    def _refuse_missing(self, first: int) -> NoReturn:
        self._refuse(first, "or one of the next is missing")

    def _verified(self, raw: bytes, blocks: NDArray[np.int64]) -> U64:
        """uint64[n, 128]: the entries in the bytes of n blocks of these numbers."""
        is_bad = damaged_blocks(raw, blocks)
        if is_bad.any():
            self._refuse(int(blocks[is_bad][0]), "fails its CRC32C")
        entries: U64 = np.frombuffer(raw, BLOCK)["entries"]
        return entries

    def _refuse(self, block: int, fault: str) -> NoReturn:
        path = self._path(block // CHUNK_BLOCKS)
        raise errors.CorruptFile(f"{path}: block {block} {fault}", file=path, block=block)

    def _path(self, number: int) -> str:
        return join(self._directory, file_name(number))

    def _file(self, number: int, *, create: bool = False) -> File:
        """An open file; the one that was not used for longest is closed where there are many."""
        file = self._files.pop(number, None)
        if file is None:
            file = self._open_file(number, create=create)
            if len(self._files) >= _FILES_OPEN_MAX:
                self._files.pop(next(iter(self._files))).close()
        self._files[number] = file
        return file

    def _open_file(self, number: int, *, create: bool) -> File:
        path = self._path(number)
        try:
            file = self._disk.open(path, create=create)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        try:
            if create:
                header = pack_file_header(FileType.SEQUENCE_INDEX, self._identity, number)
                file.pwrite([header], 0)
            else:
                header = file.pread(FILE_HEADER_BYTES, 0)
                check_file_header(header, path, FileType.SEQUENCE_INDEX, self._identity, number)
        except errors.HourwheelError:
            file.close()
            raise
        return file

    def _flush(self) -> None:
        """Write all whole blocks that wait. After DiskFull they still wait."""
        count = self._buffered // BLOCK_ENTRIES
        blocks = np.zeros(count, BLOCK)
        blocks["entries"] = self._buffer[: count * BLOCK_ENTRIES].reshape(count, BLOCK_ENTRIES)
        numbers = np.arange(self._block_count, self._block_count + count)
        blocks["crc"] = _crcs(blocks.view(np.uint8).data) ^ numbers.astype(np.uint32)
        done = 0
        while done < count:
            number, at = divmod(self._block_count + done, CHUNK_BLOCKS)
            part = blocks[done : done + CHUNK_BLOCKS - at]
            is_new = at == 0
            file = self._file(number, create=is_new)
            self._file_count += is_new
            file.pwrite([part.view(np.uint8).data], FILE_HEADER_BYTES + at * BLOCK_BYTES)
            done += len(part)
        rest = self._buffered - count * BLOCK_ENTRIES
        self._buffer[:rest] = self._buffer[count * BLOCK_ENTRIES : self._buffered].copy()
        self._block_count += count
        self._buffered = rest

    def begin_checkpoint(self) -> list[Work]:
        """Write what waits, and capture the state as of now, which is `count` entries.

        Returns:
            Works for another thread, in this order, that make it durable. When all have run and the
            manifest is durable, call `end_checkpoint`. If one fails, just begin again later.

        Raises:
            DiskFull: nothing has begun.
        """
        self._flush()
        mark = _Mark(self._block_count, self._buffered, self._file_count)
        self._pending = mark
        works: list[Work] = []
        if mark.block_count > self._durable.block_count:
            first = self._durable.block_count // CHUNK_BLOCKS
            last = (mark.block_count - 1) // CHUNK_BLOCKS
            works += [partial(self._sync_file, number) for number in range(first, last + 1)]
        if mark.file_count != self._durable.file_count:
            works.append(partial(self._disk.sync_dir, self._directory))
        if mark.tail_count and mark != self._durable:
            tail = self._buffer[: mark.tail_count].tobytes()
            works.append(partial(self._write_tail, mark.block_count, tail))
        return works

    def renew_tail(self) -> None:
        """Let the next checkpoint write the entries behind the last whole block, changed or not.

        Their file was found damaged.
        """
        self._durable = self._durable._replace(tail_count=_UNKNOWN)

    def end_checkpoint(self) -> list[Work]:
        """The manifest that names the captured state is durable: move on. No works are left."""
        if self._pending is not None:
            self._durable, self._pending = self._pending, None
        return []

    def _sync_file(self, number: int) -> None:
        """In any thread, and so with a handle of its own: the loop's may be closed meanwhile."""
        file = self._disk.open(self._path(number))
        try:
            file.datasync()
        finally:
            file.close()

    def _write_tail(self, block: int, entries: bytes) -> None:
        header = pack_file_header(FileType.SEQUENCE_INDEX, self._identity, block)
        atomic_file.write(self._disk, join(self._directory, _TAIL), header, entries)

    def _load_tail(self) -> None:
        """Put the entries behind the last whole block into the buffer."""
        if not self._buffered:
            return
        path = join(self._directory, _TAIL)
        try:
            tail = atomic_file.read(self._disk, path, FileType.SEQUENCE_INDEX, self._identity)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        entries: U64 = np.frombuffer(tail.payload, "<u8")
        if tail.header.base > self._block_count:
            # Of a later checkpoint without a manifest. The block that is asked for will be written
            # over from now on, so its first entries need a tail again, before anything else.
            block = self._block_count
            entries = self._verified(self._read(block, 1), np.array([block]))[0]
            self._write_tail(self._block_count, entries[: self._buffered].tobytes())
        elif tail.header.base < self._block_count or len(entries) < self._buffered:
            raise errors.CorruptFile(f"{path} is of an older checkpoint", file=path)
        self._buffer[: self._buffered] = entries[: self._buffered]

    def digest_into(self, hasher: Hasher, floor: int = 0, choose: Choose = _choose_none) -> None:
        """Feed the canonical content; reads all of it.

        Args:
            hasher: gets it.
            floor: every entry from this sequence on counts; at most `count`.
            choose: which of the sequences below the floor do.
        """
        feed_numbers(hasher, self.count, floor)
        for first in range(0, floor, _DIGEST_ENTRIES):
            sequences = np.arange(first, min(first + _DIGEST_ENTRIES, floor), dtype=np.uint64)
            chosen = sequences[choose(sequences)]
            hasher.update(chosen.tobytes())
            if len(chosen):
                hasher.update(self._entries(chosen).tobytes())
        for first in range(floor, self.count, _DIGEST_ENTRIES):
            end = min(first + _DIGEST_ENTRIES, self.count)
            hasher.update(self._range(first, end).tobytes())
