"""A run of the key index: rows in order, written once; a filter says which keys it has not.

    byte                 size          part
       0                   64          file header (`file_header`), type KR, base = number
      64                 32 N          rows in order (storage/views/key_rows.py)
       ...                8 B          `high` of the first row of each block of 128 rows
       ...                4 B          CRC32C of each block
       ...                8 W          filter words
     end - 64              64          footer

    footer       row_count u64 | filter_words u32 | tables_crc u32 (all between rows and footer)
                 | run_id u32 | 4 zero | sequence_min u64 | sequence_max u64 | due_ms_max i64
                 | 12 zero | crc u32 (of the footer)

The filter has one word of 64 bits for five rows. A key sets three bits of one word: the word of
number (low >> 32) * W >> 32, its bits 0-5, 6-11 and 12-17 of `low`. A key that is not there is
looked for in vain one time in fifty. Filters are kept in memory, so a run of more than 5 million
rows has a million words and no more: with 10 million rows it is one time in fifteen, with 20
million one in four. One of more rows has none (W = 0): most keys that are asked for are in it.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c, crc32c_each
from hourwheel.errors import invariant
from storage.files.block_slots import BlockSlots
from storage.files.disk import Disk
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.files.piecewise_sync import PiecewiseSync
from storage.views.key_rows import (
    I64,
    ROW,
    ROW_BYTES,
    U64,
    Hashes,
    KeyRows,
    joined,
    no_rows,
    spread,
    unpacked,
)
from storage.views.sorting import sorted_unique

BLOCK_ROWS: Final = 128
BLOCK_BYTES: Final = BLOCK_ROWS * ROW_BYTES
FOOTER: Final = Struct("<QIII4xQQq12xI")
assert FOOTER.size == 64  # noqa: PLR2004
NAME_END: Final = ".keys"
_ROWS_PER_WORD: Final = 5
FILTER_WORDS_MAX: Final = 1_000_000
"""8 MB, which are in memory."""
FILTER_ROWS_MAX: Final = 20_000_000
"""Of a run with a filter."""
_HALF: Final = np.uint64(32)
_BIT_MASK: Final = np.uint64(63)
_ONE: Final = np.uint64(1)
_PROBE_SHIFTS: Final = tuple(map(np.uint64, (0, 6, 12)))
FEW_ROWS: Final = 16
"""Of one key in one block. What has more is read by itself: see `KeyRun.pieces`."""
_FEW_BLOCKS: Final = 2
"""In which few rows of one key lie."""
_PIECE_BLOCKS: Final = 32


class KeyFooter(NamedTuple):
    """The footer's fields in their order, without its CRC."""

    row_count: int
    filter_words: int
    tables_crc: int
    run_id: int
    sequence_min: int
    sequence_max: int
    due_ms_max: int


def file_name(run_id: int) -> str:
    """Name of the run of this number."""
    return f"{run_id:010d}{NAME_END}"


def block_count(row_count: int) -> int:
    """Blocks of so many rows."""
    return -(-row_count // BLOCK_ROWS)


def filter_bits(low: U64) -> U64:
    """uint64[n]: the bits of each key in its filter word."""
    bits = np.zeros(len(low), np.uint64)
    for shift in _PROBE_SHIFTS:
        bits |= _ONE << ((low >> shift) & _BIT_MASK)
    return bits


def _words_of(low: U64, word_count: int) -> I64:
    """int64[n]: the number of each key's filter word."""
    found: I64 = (((low >> _HALF) * np.uint64(word_count)) >> _HALF).view(np.int64)
    return found


class KeyRunWriter:
    """One run being written: `append` rows in order, then `finish`. For any thread."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        identity: Identity,
        *,
        run_id: int,
        rows_max: int,
    ) -> None:
        """Create the file; it is nothing until a manifest names it.

        Args:
            disk: where.
            path: its name.
            identity: whose it is.
            run_id: its number.
            rows_max: at most so many rows will come.
        """
        self._run_id = run_id
        if disk.exists(path):
            disk.remove(path)
        self._file = disk.open(path, create=True)
        self._file.pwrite([pack_file_header(FileType.KEY_RUN, identity, run_id)], 0)
        self._sync = PiecewiseSync(self._file)
        words = min(-(-rows_max // _ROWS_PER_WORD), FILTER_WORDS_MAX)
        self._filter: U64 = np.zeros(words if rows_max <= FILTER_ROWS_MAX else 0, np.uint64)
        self._fences: list[U64] = []
        self._crcs: list[NDArray[np.uint32]] = []
        self._rest = b""
        self._count = 0
        self._last = 0
        self._bounds = (1 << 64) - 1, 0, 0

    def append(self, rows: KeyRows) -> None:
        """Write rows that follow in order on what was appended before."""
        if not rows.size:
            return
        invariant(int(rows.high[0]) >= self._last, "the rows of a run of keys are in order")
        self._last = int(rows.high[-1])
        raw = rows.packed().tobytes()
        self._file.pwrite([raw], FILE_HEADER_BYTES + ROW_BYTES * self._count)
        self._sync.on_written(len(raw))
        self._fences.append(rows.high[-self._count % BLOCK_ROWS :: BLOCK_ROWS])
        self._count += rows.size
        self._checksum(raw)
        if len(self._filter):
            words = _words_of(rows.low, len(self._filter))
            np.bitwise_or.at(self._filter, words, filter_bits(rows.low))
        low, high, due_ms = self._bounds
        self._bounds = (
            min(low, int(rows.sequence.min())),
            max(high, int(rows.sequence.max())),
            max(due_ms, int(rows.due_ms.max())),
        )

    def _checksum(self, raw: bytes) -> None:
        data = self._rest + raw
        whole = len(data) - len(data) % BLOCK_BYTES
        blocks = [data[at : at + BLOCK_BYTES] for at in range(0, whole, BLOCK_BYTES)]
        self._crcs.append(crc32c_each(blocks))
        self._rest = data[whole:]

    def finish(self) -> KeyFooter:
        """Write tables and footer, make the file durable and close it.

        The directory entry is durable only after the caller's `sync_dir`.
        """
        if self._rest:
            self._crcs.append(crc32c_each([self._rest]))
        parts: list[NDArray[Any]] = [*self._fences, *self._crcs, self._filter]
        tables = b"".join(part.tobytes() for part in parts)
        footer = KeyFooter(
            self._count,
            len(self._filter),
            crc32c(tables),
            self._run_id,
            *self._bounds,
        )
        raw = FOOTER.pack(*footer, 0)
        raw = raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little")
        self._file.pwrite([tables, raw], FILE_HEADER_BYTES + ROW_BYTES * self._count)
        self._file.datasync()
        self._file.close()
        return footer


class Places(NamedTuple):
    """Where rows of some of n keys may be."""

    ordinals: I64
    """Of the key; ascending."""
    blocks: I64
    """Number of a block, for each of these; ascending but for a key's that begins in one before."""
    many: I64
    """Ordinals of keys that have too many rows to be read with others."""


_NONE: Final = np.zeros(0, np.int64)


class KeyRun:
    """An open run. Reading is positional, so that a merge may read while others do."""

    def __init__(self, disk: Disk, path: str, identity: Identity) -> None:
        """Open and verify header, footer and tables; blocks are verified when they are read.

        Raises:
            CorruptFile: naming the file and what is wrong.
        """
        self.path = path
        try:
            self._file = disk.open(path)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        size = self._file.size()
        raw = self._pread(FOOTER.size, max(0, size - FOOTER.size))
        if len(raw) != FOOTER.size or crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
            raise errors.CorruptFile(f"{path}: the footer fails its CRC32C", file=path)
        self.footer = footer = KeyFooter._make(FOOTER.unpack(raw)[:-1])
        header = self._pread(FILE_HEADER_BYTES, 0)
        check_file_header(header, path, FileType.KEY_RUN, identity, footer.run_id)
        tables_at = FILE_HEADER_BYTES + ROW_BYTES * footer.row_count
        tables = self._pread(size - FOOTER.size - tables_at, tables_at)
        blocks = block_count(footer.row_count)
        is_whole = len(tables) == 12 * blocks + 8 * footer.filter_words
        if not is_whole or crc32c(tables) != footer.tables_crc:
            raise errors.CorruptFile(f"{path}: the tables fail their CRC32C", file=path)
        self._fences: U64 = np.frombuffer(tables, "<u8", blocks)
        self._crcs: NDArray[np.uint32] = np.frombuffer(tables, "<u4", blocks, 8 * blocks)
        self._filter: U64 = np.frombuffer(tables, "<u8", offset=12 * blocks)
        self._readers = 0
        self._is_garbage = False

    @contextmanager
    def _disk_failure_is_damage(self) -> Iterator[None]:
        """What cannot be read is built again, as what is read and is not right."""
        try:
            yield
        except errors.DiskFailed as error:
            raise errors.CorruptFile(
                f"{self.path} cannot be read: {error.message}", file=self.path
            ) from error

    def _pread(self, length: int, position: int) -> bytes:
        with self._disk_failure_is_damage():
            return self._file.pread(length, position)

    @property
    def row_count(self) -> int:
        """How many rows."""
        return self.footer.row_count

    @property
    def run_id(self) -> int:
        """Its number."""
        return self.footer.run_id

    # -- reading ----------------------------------------------------------------------------------

    def read(self, first_block: int, end_block: int) -> KeyRows:
        """The rows of blocks [first, end). Raises CorruptFile."""
        return unpacked(self._read_blocks(np.arange(first_block, end_block)))

    def _read_blocks(self, blocks: I64) -> NDArray[Any]:
        """Structured array[n] of `ROW`: what is in these blocks, whose numbers ascend.

        Neighbours are read at once.
        """
        if not len(blocks):
            return np.empty(0, ROW)
        breaks = np.flatnonzero(np.diff(blocks) != 1) + 1
        firsts = blocks[np.append(0, breaks)]
        ends = blocks[np.append(breaks - 1, -1)] + 1
        first_rows, end_rows = firsts * BLOCK_ROWS, np.minimum(ends * BLOCK_ROWS, self.row_count)
        with self._disk_failure_is_damage():
            raws = self._file.pread_many(
                ((end_rows - first_rows) * ROW_BYTES).tolist(),
                (FILE_HEADER_BYTES + first_rows * ROW_BYTES).tolist(),
            )
        pieces: list[bytes] = []
        for raw in raws:
            if len(raw) <= BLOCK_BYTES:
                pieces.append(raw)
            else:
                pieces += [raw[at : at + BLOCK_BYTES] for at in range(0, len(raw), BLOCK_BYTES)]
        self._verify(pieces, blocks, are_whole=len(pieces) == len(blocks))
        return np.frombuffer(b"".join(raws), ROW)

    def places_of(self, hashes: Hashes, bits: U64) -> Places:
        """In which blocks rows of n keys may lie; their `high` ascend. Reads nothing.

        Args:
            hashes: of the keys.
            bits: `filter_bits` of them.
        """
        if len(self._filter):
            words = self._filter[_words_of(hashes.low, len(self._filter))]
            ordinals = np.flatnonzero((bits & ~words) == 0)
        else:
            ordinals = np.arange(len(bits))
        high = hashes.high[ordinals]
        first = np.maximum(np.searchsorted(self._fences, high, "right") - 1, 0)
        if not (self._fences[first] == high).any():
            return Places(ordinals, first, _NONE)
        first, end = self._blocks_of(high)  # of some there may be more before the block
        are_many = end - first > _FEW_BLOCKS
        many, ordinals = ordinals[are_many], ordinals[~are_many]
        which, blocks = spread(first[~are_many], end[~are_many])
        return Places(ordinals[which], blocks, many)

    def read_into(self, slots: BlockSlots, first: int, blocks: I64) -> None:
        """Read blocks, whose numbers ascend, into slots from number `first` on. Raises CorruptFile.

        Behind the last row of a run the slot of its block has what was there before.
        """
        last_rows = min(BLOCK_ROWS, self.row_count - BLOCK_ROWS * int(blocks[-1]))
        positions = FILE_HEADER_BYTES + BLOCK_BYTES * blocks
        with self._disk_failure_is_damage():
            pieces, are_whole = slots.read(
                self._file, positions.tolist(), first=first, last_bytes=ROW_BYTES * last_rows
            )
        self._verify(pieces, blocks, are_whole=are_whole)

    def _verify(
        self, pieces: Sequence[bytes | memoryview], blocks: I64, *, are_whole: bool
    ) -> None:
        if not are_whole or (crc32c_each(pieces) != self._crcs[blocks]).any():
            raise errors.CorruptFile(f"{self.path}: a block fails its CRC32C", file=self.path)

    def _blocks_of(self, high: U64) -> tuple[I64, I64]:
        """[first, end) of the blocks in which rows of each key may lie."""
        first = np.maximum(np.searchsorted(self._fences, high, "left") - 1, 0)
        return first, np.maximum(np.searchsorted(self._fences, high, "right"), first)

    def pieces(self, high: np.uint64, low: np.uint64) -> Generator[KeyRows, None, None]:
        """All rows of one key, however many, some thousands of them at a time.

        The file stays open until the iterator is exhausted or closed. Raises CorruptFile.
        """
        self.hold()
        try:
            (first,), (end,) = self._blocks_of(np.array([high], np.uint64))
            for at in range(int(first), int(end), _PIECE_BLOCKS):
                rows = self.read(at, min(at + _PIECE_BLOCKS, int(end)))
                yield rows.take((rows.high == high) & (rows.low == low))
        finally:
            self.release()

    def newest(self, high: np.uint64, low: np.uint64, below: int, count: int) -> KeyRows:
        """The last `count` rows of one key whose sequences are below a bound, in their order.

        Reads some blocks, and of a key with very many rows about as many more as finding a place
        among them takes. Raises CorruptFile.
        """
        if len(self._filter):
            lows = np.array([low], np.uint64)
            bits = filter_bits(lows)
            if (self._filter[_words_of(lows, len(self._filter))] & bits != bits).any():
                return no_rows()
        (begin,), (end,) = self._blocks_of(np.array([high], np.uint64))
        first, last = int(begin), int(end)
        while last - first > 2 and below <= self.footer.sequence_max:  # noqa: PLR2004
            middle = (first + last) // 2  # neither the first nor the last: all of it is of `high`
            if int(self.read(middle, middle + 1).sequence[0]) < below:
                first = middle
            else:
                last = middle
        found, size = [no_rows()], 0
        step = count // BLOCK_ROWS + 2
        while last > int(begin) and size < count:
            rows = self.read(max(int(begin), last - step), last)
            rows = rows.take(
                (rows.high == high) & (rows.low == low) & (rows.sequence < np.uint64(below))
            )
            found.append(rows)
            size += rows.size
            last = max(int(begin), last - step)
        rows = joined(found[::-1])
        return rows.take(slice(max(0, rows.size - count), None))

    def hold(self) -> None:
        """Keep the file open until `release`."""
        self._readers += 1

    def release(self) -> None:
        """End a `hold`."""
        self._readers -= 1
        if self._is_garbage and not self._readers:
            self._file.close()

    def range_of(self, from_: int, to: int) -> tuple[int, int]:
        """[first, end) of the blocks that hold every row with from_ <= high < to."""
        bounds = np.array([from_, to - 1], np.uint64)
        (first, _), (_, end) = self._blocks_of(bounds)
        return int(first), int(end)

    def sample(self, block_count_max: int) -> KeyRows:
        """Rows of some blocks, evenly spread. Raises CorruptFile."""
        blocks = block_count(self.row_count)
        chosen = np.linspace(0, blocks - 1, min(blocks, block_count_max)).astype(np.int64)
        return unpacked(self._read_blocks(sorted_unique(chosen)))

    def check(self) -> Iterator[int]:
        """Verify every block: after each step, how many bytes are well. Raises CorruptFile."""
        blocks = block_count(self.row_count)
        for at in range(0, blocks, _PIECE_BLOCKS):
            yield self.read(at, min(at + _PIECE_BLOCKS, blocks)).size * ROW_BYTES

    def close(self) -> None:
        """Close the file, as soon as it is not read any more."""
        self._is_garbage = True
        if not self._readers:
            self._file.close()
