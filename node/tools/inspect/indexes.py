"""Sequence index and tombstones as an inspection shows and verifies them."""

from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import SequenceNumber
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.report import Report, Row, instant
from storage.files import atomic_file
from storage.files.disk import File, join
from storage.files.file_header import FILE_HEADER_BYTES, FileType
from storage.views.bit_pages import PAGE_BITS_LOG2
from storage.views.sequence_index import BLOCK, BLOCK_BYTES, BLOCK_ENTRIES, CHUNK_BLOCKS, SlotState
from storage.views.sequence_index import file_name as sequence_file_name
from storage.views.tombstones import RECORD, RECORD_BYTES
from storage.views.tombstones import file_name as tombstone_file_name

SEQUENCES: Final = "sequences"
TOMBSTONES: Final = "tombstones"
TAIL: Final = "tail"
SEQUENCE_SUFFIX: Final = ".seq"
TOMBSTONE_SUFFIX: Final = ".tomb"
_FRAME_BYTES: Final = 16
"""Between header and payload of an atomic file."""
_READ_BLOCKS: Final = 1_024
_READ_RECORDS: Final = 128
_PAGE_NUMBER: Final = Struct("<Q")

U64 = NDArray[np.uint64]


class Entry(NamedTuple):
    """What became of a sequence."""

    due_ms: int
    state: int

    def row(self, sequence: SequenceNumber) -> Row:
        """For a table."""
        known = self.state in set(SlotState)
        return {
            "sequence": sequence,
            "due": instant(self.due_ms),
            "stored_as": SlotState(self.state).name if known else f"unknown {self.state}",
        }


# --- sequence index -----------------------------------------------------------------------------


def show_sequences(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a file."""
    count = manifest.sequence_index_count if manifest else None

    def rows() -> Iterator[Row]:
        for name in files.list(SEQUENCES, SEQUENCE_SUFFIX):
            path = files.path(SEQUENCES, name)
            file, header = files.open_checked(path, FileType.SEQUENCE_INDEX)
            with closing(file):
                blocks = (file.size() - FILE_HEADER_BYTES) // BLOCK_BYTES
            first = header.base * CHUNK_BLOCKS * BLOCK_ENTRIES
            yield {
                "sequences": f"{first} .. {first + blocks * BLOCK_ENTRIES}",
                "blocks": blocks,
                "entries_by_manifest": count,
                "file": path,
            }
        if TAIL in files.list(SEQUENCES):
            first, entries = read_tail(files, tail_path(files))
            yield {
                "sequences": f"{first} .. {first + len(entries)}",
                "blocks": None,
                "entries_by_manifest": count,
                "file": tail_path(files),
            }

    report.add("sequence index", files.path(SEQUENCES), rows())


def tail_path(files: ShardFiles) -> str:
    """Path of the tail of the sequence index."""
    return files.path(SEQUENCES, TAIL)


def sequence_path(files: ShardFiles, number: int) -> str:
    """Path of a file of whole blocks of the sequence index."""
    return files.path(SEQUENCES, sequence_file_name(number))


def read_tail(files: ShardFiles, path: str) -> tuple[int, U64]:
    """(first sequence, entries) of the tail. Raises `CorruptFile`, FileNotFoundError."""
    found = atomic_file.read_any(files.disk, path)
    files.check_header(found.header, path, FileType.SEQUENCE_INDEX)
    if len(found.payload) % 8 or len(found.payload) >= 8 * BLOCK_ENTRIES:
        raise errors.CorruptFile("the tail has no whole number of entries", file=path)
    return found.header.base * BLOCK_ENTRIES, np.frombuffer(found.payload, "<u8")


def blocks_of(files: ShardFiles, path: str, number: int, count: int) -> Iterator[tuple[int, U64]]:
    """(first sequence, u64[n, 128] verified entries) of the first `count` blocks of a file.

    Raises:
        CorruptFile: naming the byte at which a bad block begins.
    """
    file, header = files.open_checked(path, FileType.SEQUENCE_INDEX)
    with closing(file):
        if header.base != number:
            raise errors.CorruptFile(f"is number {header.base} by its header", file=path)
        for low in range(0, count, _READ_BLOCKS):
            step = min(_READ_BLOCKS, count - low)
            position = FILE_HEADER_BYTES + low * BLOCK_BYTES
            raw = file.pread(step * BLOCK_BYTES, position)
            whole = len(raw) // BLOCK_BYTES
            blocks = np.frombuffer(raw[: whole * BLOCK_BYTES], BLOCK)
            first = number * CHUNK_BLOCKS + low
            for index in range(whole):
                crc = crc32c(blocks["entries"][index].tobytes()) ^ ((first + index) & 0xFFFFFFFF)
                if crc != int(blocks["crc"][index]):
                    raise errors.CorruptFile(
                        f"block {first + index} fails its CRC32C",
                        file=path,
                        offset=position + index * BLOCK_BYTES,
                    )
            if whole < step:
                raise errors.CorruptFile(
                    "the file ends too early", file=path, offset=position + len(raw)
                )
            yield first * BLOCK_ENTRIES, blocks["entries"]


def show_sequence_file(
    files: ShardFiles, path: str, report: Report, *, sequence: SequenceNumber | None, limit: int
) -> None:
    """Entries of one file, from `sequence` on."""
    file, header = files.open_checked(path, FileType.SEQUENCE_INDEX)
    with closing(file):
        is_tail = _is_tail(file, path)
        blocks = 0 if is_tail else (file.size() - FILE_HEADER_BYTES) // BLOCK_BYTES

    def rows() -> Iterator[Row]:
        if is_tail:
            parts: Iterator[tuple[int, U64]] = iter([read_tail(files, path)])
        else:
            parts = blocks_of(files, path, header.base, blocks)
        for first, entries in parts:
            skipped = max(0, (sequence or 0) - first)
            for index, entry in enumerate(entries.reshape(-1)[skipped:].tolist(), skipped):
                yield Entry(entry >> 2, entry & 3).row(SequenceNumber(first + index))

    report.add("entries", path, rows(), limit)


def _is_tail(file: File, path: str) -> bool:
    """Whether it is the tail: by its name, or else by its size, which an atomic file knows."""
    if path.endswith((TAIL, SEQUENCE_SUFFIX)):
        return path.endswith(TAIL)
    payload_bytes = int.from_bytes(file.pread(8, FILE_HEADER_BYTES), "little")
    return file.size() == FILE_HEADER_BYTES + _FRAME_BYTES + payload_bytes


def find_entry(files: ShardFiles, sequence: SequenceNumber) -> Entry | None:
    """What the files say of one sequence; None where they do not reach so far.

    Raises:
        CorruptFile: they are damaged.
    """
    block, inside = divmod(sequence, BLOCK_ENTRIES)
    number, at = divmod(block, CHUNK_BLOCKS)
    if TAIL in files.list(SEQUENCES):
        first, entries = read_tail(files, tail_path(files))
        if first <= sequence < first + len(entries):
            return Entry(int(entries[sequence - first]) >> 2, int(entries[sequence - first]) & 3)
    path = sequence_path(files, number)
    if not files.disk.exists(path):
        return None
    file, _ = files.open_checked(path, FileType.SEQUENCE_INDEX)
    with closing(file):
        raw = file.pread(BLOCK_BYTES, FILE_HEADER_BYTES + at * BLOCK_BYTES)
    if len(raw) < BLOCK_BYTES:
        return None
    found = np.frombuffer(raw, BLOCK)[0]
    if crc32c(found["entries"].tobytes()) ^ (block & 0xFFFFFFFF) != int(found["crc"]):
        position = FILE_HEADER_BYTES + at * BLOCK_BYTES
        raise errors.CorruptFile(f"block {block} fails its CRC32C", file=path, offset=position)
    entry = int(found["entries"][inside])
    return Entry(entry >> 2, entry & 3)


# --- tombstones ---------------------------------------------------------------------------------


def show_tombstones(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a file."""

    def rows() -> Iterator[Row]:
        for name in files.list(TOMBSTONES, TOMBSTONE_SUFFIX):
            path = files.path(TOMBSTONES, name)
            file, header = files.open_checked(path, FileType.TOMBSTONES)
            with closing(file):
                size = file.size()
            is_named = manifest is not None and manifest.tombstone_file == header.base
            yield {
                "number": header.base,
                "pages": max(0, size - FILE_HEADER_BYTES) // RECORD_BYTES,
                "bytes": size,
                "valid_bytes": manifest.tombstone_bytes if manifest and is_named else None,
                "in_manifest": None if manifest is None else "yes" if is_named else "no",
                "file": path,
            }

    report.add("tombstones", files.path(TOMBSTONES), rows())


def records_of(files: ShardFiles, path: str, end: int | None = None) -> Iterator[Any]:
    """Verified records (array[n] of RECORD) of a tombstone file, up to byte `end`.

    Raises:
        CorruptFile: naming the byte at which a bad record begins.
    """
    file, _ = files.open_checked(path, FileType.TOMBSTONES)
    with closing(file):
        end = file.size() if end is None else end
        for position in range(FILE_HEADER_BYTES, end, _READ_RECORDS * RECORD_BYTES):
            length = min(_READ_RECORDS * RECORD_BYTES, end - position)
            raw = file.pread(length, position)
            whole = len(raw) // RECORD_BYTES
            records = np.frombuffer(raw[: whole * RECORD_BYTES], RECORD)
            for index in range(whole):
                page = _PAGE_NUMBER.pack(int(records["page"][index]))
                crc = crc32c(records["bits"][index].tobytes(), crc32c(page))
                if crc != int(records["crc"][index]):
                    raise errors.CorruptFile(
                        "a page fails its CRC32C",
                        file=path,
                        offset=position + index * RECORD_BYTES,
                    )
            if whole * RECORD_BYTES < length:
                at = position + whole * RECORD_BYTES
                raise errors.CorruptFile("a page is cut off", file=path, offset=at)
            yield records


def show_tombstone_file(files: ShardFiles, path: str, report: Report, *, limit: int) -> None:
    """Its pages; of a page that was written again the last one counts."""
    manifest = files.find_manifest()
    named = manifest.tombstone_file if manifest else 0
    is_named = manifest is not None and path == tombstone_path(files, named)
    end = manifest.tombstone_bytes if manifest and is_named else None

    def rows() -> Iterator[Row]:
        for records in records_of(files, path, end):
            for record in records:
                first = int(record["page"]) << PAGE_BITS_LOG2
                yield {
                    "page": int(record["page"]),
                    "sequences": f"{first} .. {first + (1 << PAGE_BITS_LOG2)}",
                    "cancelled": int(np.bitwise_count(record["bits"]).sum()),
                }

    report.add("pages", path, rows(), limit)


def tombstone_path(files: ShardFiles, number: int) -> str:
    """Path of a tombstone file."""
    return files.path(join(TOMBSTONES, tombstone_file_name(number)))


class Cancelled:
    """The cancelled sequences as of a manifest: bits of each page."""

    def __init__(self, files: ShardFiles, manifest: Checkpoint) -> None:
        """Read them. Raises `CorruptFile`, FileNotFoundError."""
        self._pages: dict[int, NDArray[np.uint8]] = {}
        if manifest.tombstone_file:
            path = tombstone_path(files, manifest.tombstone_file)
            for records in records_of(files, path, manifest.tombstone_bytes):
                for record in records:
                    self._pages[int(record["page"])] = record["bits"].copy()

    @property
    def count(self) -> int:
        """How many sequences are in it."""
        return sum(int(np.bitwise_count(bits).sum()) for bits in self._pages.values())

    def contains(self, sequences: U64) -> NDArray[np.bool_]:
        """bool[n]: which of these are cancelled."""
        found = np.zeros(len(sequences), np.bool_)
        pages = sequences >> np.uint64(PAGE_BITS_LOG2)
        for page in np.unique(pages).tolist():
            bits = self._pages.get(int(page))
            if bits is not None:
                chosen = np.flatnonzero(pages == page)
                inside = (sequences[chosen] & np.uint64((1 << PAGE_BITS_LOG2) - 1)).astype(np.int64)
                found[chosen] = (bits[inside >> 3] >> (inside & 7).astype(np.uint8)) & 1
        return found
