"""The file that the control plane's Raft log lies in.

    byte  size  field
       0    64  file header (storage.files.file_header), type RJ
      64    16  slot 0: position u64 | ~position u64
      80    16  slot 1: the same
      96    32  zero
     128     n  records, and zeros behind them: room for more

    record    4  magic    'RJ' 1 0
              4  crc      u32  CRC32C of the rest of the record
              4  chain    u32  `crc` of the record before it; 0 for the first one of a file
              4  length   u32  bytes of the command
              8  index    u64  one more than that of the record before
              8  term     u64  never less than that of the record before
              8  synced   u64  how far the file was durable when this record was written
              n  command

The larger intact slot is the *mark*: the file was durable up to there (as in
storage.log.flushed_mark). A record that fails is a torn tail only if nothing says that it was ever
durable: neither the mark, nor a later record that knows better. Then it, and what follows, was
never acknowledged to anybody, and is cut. Else the file is corrupt, and this node must not vote or
acknowledge: it does not start.

What goes away in front (compaction), behind (a conflict with the leader's log) or wholly (a
snapshot) goes away in one step: what stays is written over the spare (storage.files.spare_file),
which takes the file's place.

A full disk does not stop it: the file is `ROOM_BYTES` long from the beginning, in zeros that take
room, and so is its spare. What is added is written into that room. Where it is used up and there is
no more, nothing is added: `DiskFull`, before anything has changed.
"""

from struct import Struct
from typing import Final, NamedTuple, Self

from hourwheel import errors
from hourwheel.crc32c import crc32c
from storage.files import spare_file
from storage.files.disk import Disk, File
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)

COMMAND_BYTES_MAX: Final = 32 * 1024
"""Of one entry, its type byte included."""
ROOM_BYTES: Final = 1 << 20
"""So long a file is at least, and its spare. Some 6,000 entries of the usual size."""
_MAGIC: Final = b"RJ\x01\x00"
_RECORD: Final = Struct("<4sIIIQQQ")
_CRC_END: Final = 8
_SLOT: Final = Struct("<QQ")
_SLOTS_AT: Final = FILE_HEADER_BYTES
_SLOT_COUNT: Final = 2
_RECORDS_AT: Final = 128
_ALL_ONES: Final = (1 << 64) - 1
_PIECE: Final = bytes(64 * 1024)


class Entry(NamedTuple):
    """An entry of the log, in the order that PySyncObj has its fields in."""

    command: bytes
    index: int  # type: ignore[assignment]  # values of entries are not searched for
    term: int


class _Record(NamedTuple):
    entry: Entry
    crc: int
    chain: int
    synced: int
    end: int


def _pack(entry: Entry, chain: int, synced: int) -> tuple[bytes, int]:
    """The record's bytes and its CRC."""
    head = _RECORD.pack(_MAGIC, 0, chain, len(entry.command), entry.index, entry.term, synced)[
        _CRC_END:
    ]
    crc = crc32c(entry.command, crc32c(head))
    return b"".join((_MAGIC, crc.to_bytes(4, "little"), head, entry.command)), crc


def _unpack(raw: bytes, at: int) -> _Record | None:
    """The record that begins at byte `at`, or None if none does that is whole."""
    if len(raw) - at < _RECORD.size or raw[at : at + 4] != _MAGIC:
        return None
    _, crc, chain, length, index, term, synced = _RECORD.unpack_from(raw, at)
    end = at + _RECORD.size + length
    if length > COMMAND_BYTES_MAX or end > len(raw):
        return None
    if crc32c(memoryview(raw)[at + _CRC_END : end]) != crc:
        return None
    entry = Entry(raw[at + _RECORD.size : end], index, term)
    return _Record(entry, crc, chain, synced, end)


def read_entries(disk: Disk, path: str, identity: Identity) -> list[Entry]:
    """What is whole in a file that its owner may be writing to. Nothing is changed.

    Raises:
        FileNotFoundError: there is none.
        CorruptFile, IncompatibleFormat, ForeignDirectory: see `JournalFile.open`. Or the owner was
            about to replace it: then it is another one a moment later.
    """
    file = disk.open(path)
    try:
        raw = file.pread(file.size(), 0)
    finally:
        file.close()
    check_file_header(raw, path, FileType.RAFT_JOURNAL, identity)
    entries, at, chain = list[Entry](), _RECORDS_AT, 0
    while (record := _unpack(raw, at)) is not None and record.chain == chain:
        entries.append(record.entry)
        at, chain = record.end, record.crc
    if not entries or at < _mark_of(raw):
        raise errors.CorruptFile(
            f"{path}: the record at byte {at} is damaged or gone, and it was durable",
            file=path,
            position=at,
        )
    return entries


class JournalFile:
    """See the top of this file. One thread.

    Attributes:
        path: on the disk.
        entries: all of them; at least one.
        cut_bytes: how long the torn tail was that `open` has cut.
    """

    def __init__(self, disk: Disk, path: str, identity: Identity, file: File) -> None:
        """Use `open` or `create`."""
        self.path = path
        self.entries: list[Entry] = []
        self.cut_bytes = 0
        self._disk = disk
        self._identity = identity
        self._file = file
        self._ends: list[int] = []  # of the records, in the file
        self._crcs: list[int] = []
        self._buffer: list[bytes] = []  # of the last records, not yet written
        self._written_end = _RECORDS_AT
        self._synced_end = _RECORDS_AT
        self._room_end = _RECORDS_AT  # where the file ends: up to there it has its blocks
        self._slot = 0

    # --- opening

    @classmethod
    def create(cls, disk: Disk, path: str, identity: Identity, entries: list[Entry]) -> Self:
        """A new file with these entries, durable when this returns; it replaces an old one.

        Raises:
            DiskFull: the old file is still there.
            FsyncFailed, DiskFailed: stop the process.
        """
        file = spare_file.open_spare(disk, path)
        made = cls(disk, path, identity, file)
        try:
            made._write_new(entries)
        except BaseException:
            file.close()
            raise
        spare_file.exchange(disk, path)
        spare_file.keep_spare(disk, path, made._room_end)
        file.close()
        made._file = disk.open(path)  # the same, by the name that errors shall tell
        return made

    def _write_new(self, entries: list[Entry]) -> None:
        """Fill the spare, whatever it holds, and make it durable."""
        file = self._file
        file.pwrite((pack_file_header(FileType.RAFT_JOURNAL, self._identity), bytes(64)), 0)
        self._room_end = max(file.size(), _RECORDS_AT)
        for entry in entries:
            self.append(entry)
        self.write_buffer()
        end = self._written_end
        self._write_zeros(end, file.size())  # nothing of another file lies behind
        if file.size() > (room := _room_for(end)):
            file.truncate(room)
        spare_file.give_room(file, room)
        self._room_end = file.size()
        self._store_mark(end, all_slots=True)
        file.datasync()
        self._synced_end = end

    def _write_zeros(self, from_: int, to: int) -> None:
        while from_ < to:
            length = min(to - from_, len(_PIECE))
            self._file.pwrite((memoryview(_PIECE)[:length],), from_)
            from_ += length

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> Self:
        """Read and verify the file; cut a torn tail; see that there is room.

        Raises:
            FileNotFoundError: there is none.
            CorruptFile: something that was durable is damaged; names file and position.
            IncompatibleFormat, ForeignDirectory: see storage.files.file_header.
        """
        file = disk.open(path)
        opened = cls(disk, path, identity, file)
        try:
            raw = file.pread(file.size(), 0)
            check_file_header(raw, path, FileType.RAFT_JOURNAL, identity)
            opened._load(raw)
        except BaseException:
            file.close()
            raise
        return opened

    def _load(self, raw: bytes) -> None:
        at, chain, synced = _RECORDS_AT, 0, 0
        while (record := _unpack(raw, at)) is not None and self._follows(record, chain):
            self._take(record)
            at, chain, synced = record.end, record.crc, max(synced, record.synced)
        mark = max(_mark_of(raw), synced)
        if at < mark or (at < len(raw) and _is_proof(raw, at)):
            raise errors.CorruptFile(
                f"{self.path}: the record at byte {at} is damaged or gone, and it was durable",
                file=self.path,
                position=at,
            )
        if not self.entries:
            raise errors.CorruptFile(f"{self.path}: no entry", file=self.path)
        self._written_end = self._synced_end = at
        self._room_end = len(raw)
        rest = raw[at:]  # mostly a mebibyte of zeros: to compare them is quick
        self.cut_bytes = 0 if rest == bytes(len(rest)) else len(rest.rstrip(b"\0"))
        if self.cut_bytes:
            self._write_zeros(at, at + self.cut_bytes)
        spare_file.give_room(self._file, _room_for(at))  # of an older version's file
        self._room_end = self._file.size()
        self._file.datasync()  # what a killed process had written is read back: make it true
        self._store_mark(at)
        spare_file.keep_spare(self._disk, self.path, self._room_end)

    def _follows(self, record: _Record, chain: int) -> bool:
        last = self.entries[-1] if self.entries else None
        return record.chain == chain and (
            last is None
            or (record.entry.index == last.index + 1 and record.entry.term >= last.term)
        )

    def _take(self, record: _Record) -> None:
        self.entries.append(record.entry)
        self._ends.append(record.end)
        self._crcs.append(record.crc)

    # --- changing

    def append(self, entry: Entry) -> None:
        """Add an entry; durable after `sync`.

        Raises:
            DiskFull: there is no room for it; nothing was added.
        """
        last = self.entries[-1] if self.entries else None
        errors.invariant(
            last is None or (entry.index == last.index + 1 and entry.term >= last.term),
            "entries of the control plane's log follow each other",
            index=entry.index,
            term=entry.term,
        )
        errors.invariant(len(entry.command) <= COMMAND_BYTES_MAX, "an entry is bounded")
        raw, crc = _pack(entry, self._crcs[-1] if self._crcs else 0, self._synced_end)
        end = self._end + len(raw)
        self.reserve(len(raw))
        self._buffer.append(raw)
        self.entries.append(entry)
        self._ends.append(end)
        self._crcs.append(crc)

    @property
    def _end(self) -> int:
        """Where the next record begins."""
        return self._ends[-1] if self._ends else _RECORDS_AT

    @property
    def room_bytes(self) -> int:
        """What can be added, also on a full disk."""
        return self._room_end - self._end

    @property
    def is_half_full(self) -> bool:
        """More than half of the room is used: it is time to drop what is not needed."""
        return self._end > self._room_end // 2

    def reserve(self, length: int) -> None:
        """See that records of so many bytes can be added.

        Raises:
            DiskFull: they cannot; nothing has changed.
        """
        if self.room_bytes < length:
            spare_file.give_room(self._file, self._room_end + max(length, ROOM_BYTES))
            self._room_end = self._file.size()
        if self.room_bytes < length:
            raise errors.DiskFull(f"no room to add to {self.path}", file=self.path)

    def replaced(self, entries: list[Entry]) -> "JournalFile":
        """A new file with these entries instead, in one step; this object is dead.

        Raises:
            DiskFull: nothing has changed, and this object lives.
        """
        new = JournalFile.create(self._disk, self.path, self._identity, entries)
        self._file.close()
        return new

    @property
    def is_dirty(self) -> bool:
        """Whether `sync` has something to do."""
        return bool(self._buffer) or self._written_end > self._synced_end

    def sync(self) -> None:
        """Make all entries durable.

        Raises:
            DiskFull: on a file system that writes elsewhere what is written over. To be tried
                again; until then nothing may be acknowledged.
            FsyncFailed, DiskFailed: stop the process; nothing was acknowledged.
        """
        if self.is_dirty:
            self.write_buffer()
            self._file.datasync()
            self._synced_end = self._written_end
            self._store_mark(self._synced_end)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def write_buffer(self) -> None:
        """Write what was appended since the last time; it is not durable yet."""
        if self._buffer:
            self._file.pwrite(self._buffer, self._written_end)
            self._written_end = self._ends[-1]
            self._buffer = []

    def _store_mark(self, position: int, *, all_slots: bool = False) -> None:
        raw = _SLOT.pack(position, position ^ _ALL_ONES)
        if all_slots:
            self._file.pwrite((raw * _SLOT_COUNT,), _SLOTS_AT)
        else:
            self._slot = (self._slot + 1) % _SLOT_COUNT
            self._file.pwrite((raw,), _SLOTS_AT + self._slot * _SLOT.size)


def _room_for(end: int) -> int:
    """How long a file should be whose records end there: as much again, in whole rooms."""
    return -(-2 * end // ROOM_BYTES) * ROOM_BYTES


def _mark_of(raw: bytes) -> int:
    """The larger intact slot; 0 if there is none."""
    found = 0
    for slot in range(_SLOT_COUNT):
        position, inverse = _SLOT.unpack_from(raw, _SLOTS_AT + slot * _SLOT.size)
        if position ^ inverse == _ALL_ONES:
            found = max(found, position)
    return found


def _is_proof(raw: bytes, bad: int) -> bool:
    """Whether a record behind byte `bad` knows that the bytes there were durable."""
    at = raw.find(_MAGIC, bad + 1)
    while at >= 0:
        record = _unpack(raw, at)
        if record is not None and record.synced > bad:
            return True
        at = raw.find(_MAGIC, at + 1)
    return False
