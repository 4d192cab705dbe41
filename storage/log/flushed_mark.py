"""The flushed mark: a lower bound of the log's durable end, written without any sync.

    byte  size  field
       0    64  file header (storage.files.file_header), type FM; HW for a replica's high watermark
      64    16  slot 0: offset u64 | ~offset u64
      80    16  slot 1: the same
      96    32  zero

It is mapped into memory. Each durable write stores its end into the slots in turn, after the log
itself was synced. Why that is enough:

- A process that is killed leaves its stores in the page cache. One slot may be half stored then;
  the other holds the value before.
- After a power cut the file is as old as its last write-back; every value that it ever had was true
  when it was stored, and durable ends only grow. `CommitLog.truncate` alone lowers the mark, and
  syncs it before it cuts.

The larger slot that is intact is the mark. Bytes that are bad below it were durable once: that is
corruption, never a torn tail.

A replica keeps a second file of this form: the highest high watermark that it has heard. That, too,
is a lower bound: a log that ends below it has lost what was committed, and must not lead.
"""

from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files.disk import Disk, Mapping, parent_of
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)

_SLOT: Final = Struct("<QQ")
_SLOT_COUNT: Final = 2
_FILE_BYTES: Final = FILE_HEADER_BYTES + 64
_ONES: Final = (1 << 64) - 1


class FlushedMark:
    """The mark of one shard.

    Attributes:
        offset: the mark; 0 where none was found.
        was_lost: the file was there, but damaged: the bound is gone, and a new one begins.
    """

    __slots__ = ("_mapping", "_next_slot", "_view", "offset", "was_lost")

    def __init__(self, mapping: Mapping, offset: Offset, *, was_lost: bool) -> None:
        """Own an open mapping. See `open`."""
        self._mapping = mapping
        self._view = mapping.view
        self._next_slot = 0
        self.offset = offset
        self.was_lost = was_lost

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: Identity,
        file_type: FileType = FileType.FLUSHED_MARK,
    ) -> "FlushedMark":
        """Open the mark, or begin one durably where there is none or a damaged one.

        Raises:
            ForeignDirectory, IncompatibleFormat: the file is intact and not ours to read.
        """
        exists = disk.exists(path)
        raw = _read(disk, path) if exists else b""
        offset = None
        try:
            check_file_header(raw, path, file_type, identity)
            offset = _intact_max(raw)
        except errors.CorruptFile:
            offset = None  # `was_lost` says so; a power cut during the very first start does it too
        if offset is None:
            _create(disk, path, identity, file_type)
        mapping = disk.map(path, _FILE_BYTES)
        return cls(mapping, offset or FIRST_OFFSET, was_lost=exists and offset is None)

    def store(self, offset: Offset) -> None:
        """Raise the mark. Everything below `offset` must be durable."""
        _SLOT.pack_into(
            self._view,
            FILE_HEADER_BYTES + self._next_slot * _SLOT.size,
            offset,
            offset ^ _ONES,
        )
        self._next_slot ^= 1
        self.offset = offset

    def lower(self, offset: Offset) -> None:
        """Lower the mark durably, before the log is cut to `offset`."""
        self.store(offset)
        self.store(offset)
        self._mapping.datasync()

    def datasync(self) -> None:
        """Make the latest value durable: a power cut then finds no older one."""
        self._mapping.datasync()

    def close(self) -> None:
        """Let go of the file."""
        self._mapping.close()


def read_mark(disk: Disk, path: str, identity: Identity, file_type: FileType) -> Offset:
    """The mark of a file that is not opened; 0 where there is none or a damaged one.

    Raises:
        ForeignDirectory, IncompatibleFormat: the file is intact and not ours to read.
    """
    if not disk.exists(path):
        return FIRST_OFFSET
    raw = _read(disk, path)
    try:
        check_file_header(raw, path, file_type, identity)
    except errors.CorruptFile:
        return FIRST_OFFSET
    return _intact_max(raw) or FIRST_OFFSET


def verify_mark(disk: Disk, path: str, identity: Identity, file_type: FileType) -> None:
    """See whether a file says any mark at all: for those who look into directories.

    Raises:
        CorruptFile: it is damaged, and `read_mark` gives 0.
        ForeignDirectory, IncompatibleFormat: as `read_mark`.
    """
    raw = _read(disk, path)
    check_file_header(raw, path, file_type, identity)
    if _intact_max(raw) is None:
        raise errors.CorruptFile(f"{path}: neither of its slots is intact", file=path)


def _read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(_FILE_BYTES, 0)
    finally:
        file.close()


def _intact_max(raw: bytes) -> Offset | None:
    """The larger intact slot; None where no slot is."""
    if len(raw) < _FILE_BYTES:
        return None
    found = [
        Offset(offset)
        for slot in range(_SLOT_COUNT)
        for offset, inverse in [_SLOT.unpack_from(raw, FILE_HEADER_BYTES + slot * _SLOT.size)]
        if offset == inverse ^ _ONES
    ]
    return max(found, default=None)


def _create(disk: Disk, path: str, identity: Identity, file_type: FileType) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    slots = _SLOT.pack(0, _ONES) * _SLOT_COUNT
    zero = bytes(_FILE_BYTES - FILE_HEADER_BYTES - len(slots))
    file.pwrite((pack_file_header(file_type, identity), slots, zero), 0)
    file.datasync()
    file.close()
    disk.sync_dir(parent_of(path))
