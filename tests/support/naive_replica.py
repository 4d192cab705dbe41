"""One node's directory, read in the plainest way: for `tests.support.naive_audit`.

Files are read whole, batches are kept in a dict by their offset, units are named tuples. Formats
are those of docs/FORMATS.md; nothing of `spark_jobs` takes part.
"""

from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import RecordBatch, header_crc, unpack_header
from hourwheel.internal.v1.state_pb2 import Checkpoint
from tests.support.log_copies import Expected

_FILE_HEADER: Final = 64
_SHARD: Final = "shard-0"
_UNIT: Final = Struct("<qQqQQIIIHHII")
_CHUNK_FIRST: Final = 256
_CHUNK_ENTRIES: Final = 16_384
_EPOCH: Final = Struct("<I4xQ")
_PAGE_BYTES: Final = 8_204
_PAGE_BITS: Final = 65_536
_BLOCK_ENTRIES: Final = 128
_BLOCK_BYTES: Final = 1_032
_FRAME: Final = 16
_MOVED: Final = Struct("<Qqq")


class Unit(NamedTuple):
    """64 bytes of a queue or of a run."""

    due_ms: int
    sequence: int
    store_ms: int
    tag_gene: int
    position: int
    dlog_id: int
    body_len: int
    crc: int
    meta_len: int
    attempt: int
    topic_queue: int
    origin_topic: int


class Found(NamedTuple):
    """A batch of a node's log."""

    batch: RecordBatch
    raw: bytes
    file: str


@dataclass
class NaiveReplica:
    """What a node has."""

    directory: Path
    node: str = ""
    batches: dict[int, Found] = field(default_factory=dict)
    """Offset -> whole and valid batch."""
    errors: list[Expected] = field(default_factory=list)
    gaps: int = 0
    start: int = 0
    watermark: int = 0
    flushed: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    manifest: Checkpoint = field(default_factory=Checkpoint)
    has_checkpoint: bool = True

    def __post_init__(self) -> None:
        """Read it."""
        self.node = self.directory.name
        shard = self.directory / _SHARD
        self.has_checkpoint = (shard / "checkpoint").exists()
        if self.has_checkpoint:
            self.manifest = Checkpoint.FromString(_payload(shard / "checkpoint"))
        raw = _payload(shard / "epochs")
        self.epochs = [_EPOCH.unpack_from(raw, at) for at in range(0, len(raw), _EPOCH.size)]
        self.watermark = _mark(shard / "high_watermark")
        self.flushed = _mark(shard / "flushed.mark")
        self._read_log(sorted((shard / "log").glob("*.log")))

    @property
    def applied(self) -> int:
        """The checkpoint's offset."""
        return self.manifest.applied_offset

    @property
    def problems(self) -> int:
        """Errors that are seen without reading the log."""
        return sum(1 for one in self.errors if one.check in {"segment-missing", "log-short"})

    @property
    def end(self) -> int:
        """Behind the last good batch."""
        return max((at + len(one.raw) for at, one in self.batches.items()), default=self.start)

    def is_inside(self, offset: int) -> bool:
        """An offset is in a good batch, and not where it begins."""
        return any(at < offset < at + len(one.raw) for at, one in self.batches.items())

    def queue(self, number: int) -> list[Unit]:
        """The entries of a queue, as far as the checkpoint goes; without one, its longest seal."""
        count = next(
            (one.end_position for one in self.manifest.queues if one.topic_queue == number), 0
        )
        folder, found = self.directory / _SHARD / "queues" / f"{number:08x}", list[Unit]()
        for path in sorted(folder.glob("*.cq")):
            raw = path.read_bytes()
            if not self.has_checkpoint:
                seals = [raw[at : at + 64] for at in (64, 128)]
                count = max(_u32(one) for one in seals if crc32c(one[:60]) == _u32(one[60:]))
                assert count <= _CHUNK_ENTRIES, "too small a life for two chunks"
            rest = min(count - len(found), _CHUNK_ENTRIES)
            found += [Unit(*_UNIT.unpack_from(raw, _CHUNK_FIRST + 64 * at)) for at in range(rest)]
        return found

    def moved(self) -> dict[int, int]:
        """Sequence -> when it is due now, of messages that were moved."""
        rows = (_MOVED.unpack_from(self.manifest.moved, at) for at in self._moved_places())
        return {sequence: due_ms for sequence, due_ms, _ in rows}

    def _moved_places(self) -> range:
        return range(0, len(self.manifest.moved), _MOVED.size)

    def wheel(self) -> list[Unit]:
        """What is pending by the delay index."""
        cursor, cancelled = self.manifest.cursor, self.cancelled()
        moved, back = self.moved(), set[int]()
        found = []
        for run in self.manifest.runs:
            assert not run.cascaded_days, "too small a life for that"
            name = f"{run.covers_first:010}-{run.run_id:010}.run"
            raw = (self.directory / _SHARD / "wheel" / name).read_bytes()
            for at in range(run.unit_count):
                one = Unit(*_UNIT.unpack_from(raw, _FILE_HEADER + 64 * at))
                is_ahead = one[:2] > (cursor.due_ms, cursor.sequence)
                if not is_ahead or one.sequence in cancelled:
                    continue
                if one.sequence in moved and one.attempt <= 1:
                    is_there = one.attempt == 0 and one.due_ms == moved[one.sequence]
                    if not is_there or one.sequence in back:
                        continue
                    back.add(one.sequence)
                found.append(one)
        return found

    def cancelled(self) -> set[int]:
        """Sequences that are marked as cancelled."""
        if not self.manifest.tombstone_file:
            return set()
        name = f"{self.manifest.tombstone_file:010}.tomb"
        raw = (self.directory / _SHARD / "tombstones" / name).read_bytes()
        pages: dict[int, bytes] = {}
        for at in range(_FILE_HEADER, self.manifest.tombstone_bytes, _PAGE_BYTES):
            pages[int.from_bytes(raw[at : at + 8], "little")] = raw[at + 12 : at + _PAGE_BYTES]
        return {
            page * _PAGE_BITS + bit
            for page, bits in pages.items()
            for bit in range(_PAGE_BITS)
            if bits[bit >> 3] >> (bit & 7) & 1
        }

    def index(self) -> list[tuple[int, int]]:
        """(due_ms, state) of each sequence, by the sequence index."""
        folder = self.directory / _SHARD / "sequences"
        raw = b""
        if (folder / f"{0:012}.seq").exists():
            blocks = (folder / f"{0:012}.seq").read_bytes()[_FILE_HEADER:]
            whole = self.manifest.sequence_index_count // _BLOCK_ENTRIES
            raw = b"".join(blocks[at * _BLOCK_BYTES :][: 8 * _BLOCK_ENTRIES] for at in range(whole))
        if (folder / "tail").exists():
            raw += (folder / "tail").read_bytes()[_FILE_HEADER + _FRAME :]
        count = self.manifest.sequence_index_count
        entries = [_u64(raw[8 * at :]) for at in range(min(count, len(raw) // 8))]
        return [(entry >> 2, entry & 3) for entry in entries]

    # -- log --------------------------------------------------------------------------------------

    def _read_log(self, paths: list[Path]) -> None:
        before: Path | None = None
        end = 0
        for path in paths:
            start, raw = int(path.stem), path.read_bytes()[_FILE_HEADER:]
            if before is None:
                self.start = start
            elif start > end:
                self._note("segment-missing", before, end)
                self.gaps += 1
            self._read_segment(path, start, raw, is_last=path == paths[-1])
            before, end = path, start + len(raw)
        if before is not None and end < max(self.flushed, self.applied):
            self._note("log-short", before, end)

    def _note(self, check: str, path: Path, offset: int, sequence: int = -1) -> None:
        file = f"{_SHARD}/log/{path.name}"
        self.errors.append(Expected(check, self.node, file, offset, sequence))

    def _read_segment(self, path: Path, start: int, raw: bytes, *, is_last: bool) -> None:
        at = 0
        while at < len(raw):
            size, is_good = _judge(raw, at, start)
            if size:
                if is_good:
                    batch = RecordBatch(raw[at : at + size])
                    file = f"{_SHARD}/log/{path.name}"
                    self.batches[start + at] = Found(batch, raw[at : at + size], file)
                else:
                    header = unpack_header(raw, at)
                    self._note("log-corrupt", path, start + at, header.base_sequence)
                at += size
                continue
            bad, at = at, at + 8
            while at < len(raw) and not _judge(raw, at, start)[0]:
                at += 8
            is_torn = is_last and at >= len(raw)
            if not is_torn or start + bad < max(self.flushed, self.applied):
                self._note("log-corrupt", path, start + bad)


def _judge(raw: bytes, at: int, start: int) -> tuple[int, bool]:
    """(size of the batch that begins here by a good header, 0 for none; whether all is good)."""
    try:
        header = unpack_header(raw, at)
        if header.offset != start + at or at + header.total_bytes > len(raw):
            return 0, False
        whole = raw[at : at + header.total_bytes]
        if header_crc(whole[: 96 + header.stamped_bytes]) != header.header_crc:
            return 0, False
    except errors.HourwheelError:
        return 0, False
    try:
        RecordBatch(whole).verify()
    except errors.HourwheelError:
        return header.total_bytes, False
    return header.total_bytes, True


def _u64(raw: bytes) -> int:
    return int.from_bytes(raw[:8], "little")


def _u32(raw: bytes) -> int:
    return int.from_bytes(raw[:4], "little")


def _payload(path: Path) -> bytes:
    """Of a small file that is replaced as a whole."""
    raw = path.read_bytes()
    return raw[80 : 80 + int.from_bytes(raw[64:72], "little")]


def _mark(path: Path) -> int:
    if not path.exists():
        return 0
    raw, found = path.read_bytes(), [0]
    for at in (64, 80):
        mark, check = (int.from_bytes(raw[at + n : at + n + 8], "little") for n in (0, 8))
        if mark ^ check == (1 << 64) - 1:
            found.append(mark)
    return max(found)
