"""Read ranges of a log in pieces of some MiB, verify each batch, and go on behind what is damaged.

    for table in read_blocks(one_range):
        ...                                 # see spark_jobs.logs.block_table
        table.damages                       # what could not be read, never an exception

For each batch there is one step of Python (about 1.5 us, with both CRCs); all else is done for a
whole piece at once by numpy. A batch is known by magic, version, sizes, the offset in its header
and the header's CRC. Where none begins, the range up to the next one that does is one `Damage`; so
an auditor that lost a batch still sees all behind it. Where only the payload's CRC fails, the
header says how long the batch is and whose sequences are lost.
"""

from collections.abc import Iterator
from contextlib import closing
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats import record_batch
from hourwheel.formats.batch_columns import pad8
from hourwheel.formats.record_batch import HEADER_BYTES, ROWS, Flag, Kind
from spark_jobs.logs.block_table import (
    CONTRADICTION,
    CORRUPT_HEADER,
    CORRUPT_PAYLOAD,
    CUT_OFF,
    KINDS,
    TORN_TAIL,
    UNKNOWN_KIND,
    UNKNOWN_VERSION,
    UNREADABLE,
    BlockTable,
    Damage,
    gather_headers,
)
from spark_jobs.logs.ranges import SegmentRange, find_batch
from spark_jobs.runtime.paths import open_disk
from storage.files.disk import Disk, File
from storage.log.scan import LOG_BATCH_BYTES_MAX

PIECE_BYTES: Final = 8 * 1024 * 1024
FULL: Final = "full"
"""Verify the CRCs of headers and payloads, and that shapes fit."""
HEADERS: Final = "headers"
"""Verify the CRC of headers with due times, and shapes; bodies are read from disk, and not looked
at."""
VERIFY: Final = (FULL, HEADERS)
_HEAD: Final = Struct("<IBBHIIQ28xIII24xII")
assert _HEAD.size == HEADER_BYTES
_CRC_AT: Final = HEADER_BYTES - 4
_ROW_BYTES: Final = {int(kind): dtype.itemsize for kind, dtype in ROWS.items()}
_PUBLISH: Final = int(Kind.PUBLISH)
_WIDE: Final = int(Flag.PER_MESSAGE_PRODUCER)
_DEDUP: Final = int(Flag.DEDUP_KEYS)
_MAGIC: Final = record_batch.MAGIC
_VERSION: Final = record_batch.VERSION


def read_blocks(
    where: SegmentRange,
    *,
    verify: str = FULL,
    piece_bytes: int = PIECE_BYTES,
    disk: Disk | None = None,
) -> Iterator[BlockTable]:
    """All batches of a range, a piece at a time, in the order of the log.

    Args:
        where: the range.
        verify: `FULL` or `HEADERS`.
        piece_bytes: so much is read at once; more where a single batch is longer.
        disk: the node's directory; None: opened by `where.uri`.

    Yields:
        Tables with what is good and what is damaged. A table may have damages only.
    """
    return iter(_Reader(where, verify, piece_bytes, disk))


class _Reader:
    """One pass over a range."""

    def __init__(
        self, where: SegmentRange, verify: str, piece_bytes: int, disk: Disk | None
    ) -> None:
        self._where = where
        self._is_full = verify == FULL
        self._piece_bytes = piece_bytes
        self._disk = disk
        self._owner = (where.node, where.shard, where.path)
        self._need = 0
        """Bytes of the batch at the reader's place, where it is longer than a piece."""

    def __iter__(self) -> Iterator[BlockTable]:
        where, at = self._where, self._where.from_offset
        try:
            disk = self._disk or open_disk(where.uri)
            with closing(disk.open(where.path)) as file:
                while at < where.to_offset:
                    table, at = self._read_piece(file, at)
                    yield table
        except (errors.HourwheelError, OSError) as error:
            length = where.to_offset - at
            yield self._empty(self._damage(at, length, UNREADABLE, str(error) or repr(error)))

    def _read_piece(self, file: File, begin: int) -> tuple[BlockTable, int]:
        """The batches of one piece, and where the next piece begins."""
        where = self._where
        want = min(max(self._piece_bytes, self._need), where.to_offset - begin)
        raw = file.pread(want, where.position(begin))
        file.will_need(where.position(begin) + want, self._piece_bytes)
        is_last = begin + want == where.to_offset or len(raw) < want
        found: list[int] = []
        whole: list[bool] = []
        damages: list[Damage] = []
        at, self._need = 0, 0
        while at < want:
            at = self._walk(raw, at, begin, found, whole)
            if at == want:
                break
            total, reason, detail = self._check_block(raw, at, begin)
            if not reason and not is_last:
                self._need = total
                break  # it goes on behind this piece
            end, damage = self._settle(file, begin + at, reason or CUT_OFF, detail)
            damages.append(damage)
            at = end - begin
            if at >= len(raw):
                break
        table = self._table(raw, found, whole)
        damages += self._check(table)
        table.damages = tuple(sorted(damages, key=lambda one: one.offset))
        return table, begin + at

    def _walk(self, raw: bytes, at: int, begin: int, found: list[int], whole: list[bool]) -> int:
        """Note batches from `at` on; returns where the first is that cannot be one, or not yet."""
        view, size, is_full, unpack = memoryview(raw), len(raw), self._is_full, _HEAD.unpack_from
        while at + HEADER_BYTES <= size:
            magic, version, _, _, total, _, offset, stamped, column, blob, body_crc, head_crc = (
                unpack(raw, at)
            )
            cut, end = at + HEADER_BYTES + stamped, at + total
            if (
                magic != _MAGIC
                or version != _VERSION
                or offset != begin + at
                or end > size
                or total != (HEADER_BYTES + 7 + stamped + column + blob) & ~7
                or total > LOG_BATCH_BYTES_MAX
                or crc32c(view[at + HEADER_BYTES : cut], crc32c(view[at : at + _CRC_AT]))
                != head_crc
            ):
                return at
            found.append(at)
            whole.append(not is_full or crc32c(view[cut : cut + column + blob]) == body_crc)
            at = end
        return at

    def _check_block(self, raw: bytes, at: int, begin: int) -> tuple[int, str, str]:
        """(its size, reason, detail) of what cannot be taken at `at`; no reason: it is cut off."""
        if at + HEADER_BYTES > len(raw):
            return HEADER_BYTES, "", "a header is cut off"
        magic, version, _, _, total, _, offset, stamped, column, blob, _, crc = _HEAD.unpack_from(
            raw, at
        )
        cut, view, detail = at + HEADER_BYTES + stamped, memoryview(raw), ""
        if magic != _MAGIC:
            detail = "no record batch begins here"
        elif version != _VERSION:
            detail = f"a record batch of version {version}, and this program knows {_VERSION}"
            return 0, UNKNOWN_VERSION, detail
        elif offset != begin + at:
            detail = f"a record batch of offset {offset}"
        elif total != pad8(HEADER_BYTES + stamped + column + blob) or total > LOG_BATCH_BYTES_MAX:
            detail = "the sizes in the header contradict each other"
        elif cut <= len(raw) and crc != crc32c(
            view[at + HEADER_BYTES : cut], crc32c(view[at : at + _CRC_AT])
        ):
            detail = "the header fails its CRC32C"
        if detail:
            return 0, CORRUPT_HEADER, detail
        return total, "", "a record batch is cut off"

    def _settle(self, file: File, bad: int, reason: str, detail: str) -> tuple[int, Damage]:
        """Where to go on behind what is bad, and what to tell about it."""
        where = self._where
        resumed = find_batch(file, where.segment_start, bad + 8, where.to_offset)
        end = where.to_offset if resumed is None else resumed
        is_torn = where.is_tail and resumed is None and bad >= where.durable_offset
        if is_torn and reason != UNKNOWN_VERSION:
            reason = TORN_TAIL
        return end, self._damage(bad, end - bad, reason, detail)

    def _table(self, raw: bytes, found: list[int], whole: list[bool]) -> BlockTable:
        at = np.array(found, np.int64)
        headers = gather_headers(raw, at)
        return BlockTable(self._owner, raw, at, headers, np.array(whole, np.bool_))

    def _check(self, table: BlockTable) -> list[Damage]:
        """What is wrong with batches that have a good header; they are no longer whole then."""
        damages = [
            self._damage_of(table, one, CORRUPT_PAYLOAD, "the payload fails its CRC32C")
            for one in np.flatnonzero(~table.is_whole).tolist()
        ]
        if not len(table):
            return damages
        for mask, detail in _misfits(table):
            bad = np.flatnonzero(mask & table.is_whole)
            damages += [self._damage_of(table, one, CONTRADICTION, detail) for one in bad.tolist()]
            table.reject(bad)
        unknown = np.flatnonzero(~np.isin(table.headers["kind"], list(KINDS)) & table.is_whole)
        for one in unknown.tolist():
            detail = f"kind {int(table.headers['kind'][one])} is not known to this program"
            damages.append(self._damage_of(table, one, UNKNOWN_KIND, detail))
        return damages

    def _damage(self, offset: int, length: int, reason: str, detail: str) -> Damage:
        return Damage(*self._owner, offset, length, reason, detail)

    def _damage_of(self, table: BlockTable, ordinal: int, reason: str, detail: str) -> Damage:
        header = table.headers[ordinal]
        return Damage(
            *self._owner,
            int(header["offset"]),
            int(header["total_bytes"]),
            reason,
            detail,
            int(header["base_sequence"]),
            int(header["count"]),
        )

    def _empty(self, damage: Damage) -> BlockTable:
        table = self._table(b"", [], [])
        table.damages = (damage,)
        return table


def _misfits(table: BlockTable) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Masks of batches whose shape is not that of their kind, and what to say; see `RecordBatch`.

    One by one, because a later check relies on what an earlier one demands.
    """
    headers = table.headers
    kind, count = headers["kind"], headers["count"].astype(np.int64)
    stamped, columns = headers["stamped_bytes"], headers["column_bytes"]
    is_publish = kind == _PUBLISH
    per_message = np.where(headers["flags"] & _WIDE, 44, 28)
    dedup = np.where(headers["flags"] & _DEDUP, _pad8(17 * count), 0)
    wanted = _pad8(per_message * count) + dedup
    fits = (count > 0) & (stamped == _pad8(12 * count)) & (columns == wanted)
    yield is_publish & ~fits, "columns do not fit the count"
    row_bytes = np.zeros(256, np.int64)
    for number, size in _ROW_BYTES.items():
        row_bytes[number] = size
    is_ours = ~is_publish & np.isin(kind, list(KINDS))
    fits = (stamped == 0) & (columns == row_bytes[kind] * count)
    yield is_ours & ~fits, "rows do not fit the count"
    parts = HEADER_BYTES + stamped.astype(np.int64) + columns + headers["blob_bytes"]
    padding = headers["total_bytes"] - parts
    words = np.frombuffer(table.raw, "<u8", len(table.raw) // 8)
    last = words[(table.at + headers["total_bytes"]) // 8 - 1]
    shift = (8 * (8 - padding)).astype(np.uint64)
    is_dirty = (padding > 0) & ((last >> np.minimum(shift, 63)) != 0)
    yield is_dirty, "the padding is not zero"
    owners = table.select(_PUBLISH)
    messages = table.messages
    is_short = np.zeros(len(table), np.bool_)
    if len(owners):
        sizes = messages.column("body_len").astype(np.int64) + messages.column("meta_len")
        firsts = np.cumsum(count[owners]) - count[owners]
        is_short[owners] = np.add.reduceat(sizes, firsts) != headers["blob_bytes"][owners]
    yield is_short, "blob lengths do not add up"


def _pad8(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return (sizes + 7) & ~7
