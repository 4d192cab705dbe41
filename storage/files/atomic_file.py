"""Small files that are replaced as a whole: after a power cut there is the old one or the new one.

    byte  size  field
       0    64  file header (storage.files.file_header)
      64     8  payload_bytes  u64
      72     4  crc            u32   CRC32C of payload_bytes and payload
      76     4  zero
      80     n  payload

The new file is written beside the old one under `<path>.tmp`, made durable, renamed, and the name
is made durable. What is left of a `.tmp` after a power cut is overwritten by the next write.

A file that must be replaced also on a full disk keeps room for that: see storage.files.spare_file.
It is written under `<path>.spare` then.
"""

from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Buffer
from storage.files import spare_file
from storage.files.disk import Disk, parent_of
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileHeader,
    FileType,
    Identity,
    check_file_header,
    unpack_file_header,
)

TMP_SUFFIX: Final = ".tmp"
BESIDE: Final = (TMP_SUFFIX, spare_file.SPARE_SUFFIX, spare_file.OLD_SUFFIX)
"""How the names end of what may lie beside such a file, and means nothing."""
_FRAME: Final = Struct("<QII")
PAYLOAD_AT: Final = FILE_HEADER_BYTES + _FRAME.size
"""Where the payload begins in the file."""
_LENGTH: Final = Struct("<Q")


class AtomicFile(NamedTuple):
    """A file that was read whole and verified."""

    header: FileHeader
    payload: bytes


def write(disk: Disk, path: str, header: bytes, payload: Buffer) -> None:
    """Replace the file durably. Blocks for two syncs: call it in a thread where that matters.

    Raises:
        DiskFull: the old file is still there.
        FsyncFailed: stop the process.
    """
    frame = _frame(payload)
    tmp = path + TMP_SUFFIX
    file = disk.open(tmp, create=True)
    try:
        file.truncate(0)
        file.pwrite((header, frame, payload), 0)
        file.datasync()
        disk.rename(tmp, path)
    except errors.DiskFull:
        disk.remove(tmp)
        raise
    finally:
        file.close()
    disk.sync_dir(parent_of(path))


def write_over(disk: Disk, path: str, header: bytes, payload: Buffer) -> None:
    """Replace the file durably, in room that it keeps for that: also on a full disk.

    `keep_room` comes next, when there is time for its sync. The room is taken here already, so that
    no other file gets the blocks that this version did not need.

    Raises:
        DiskFull: there was no spare yet, or it is too small. The old file is still there.
        FsyncFailed: stop the process.
    """
    file_bytes = PAYLOAD_AT + len(payload)
    spare = spare_file.open_spare(disk, path)
    try:
        spare.pwrite((header, _frame(payload), payload), 0)
        spare.truncate(file_bytes)
        spare.datasync()
    finally:
        spare.close()
    spare_file.exchange(disk, path)
    spare_file.take_room(disk, path, spare_file.room_for(file_bytes))


def keep_room(disk: Disk, path: str, payload_bytes: int) -> None:
    """See that `write_over` finds room for a payload of so many bytes, as far as there is any."""
    room = spare_file.room_for(PAYLOAD_AT + payload_bytes)
    spare_file.keep_spare(disk, path, room)


def _frame(payload: Buffer) -> bytes:
    length = _LENGTH.pack(len(payload))
    return _FRAME.pack(len(payload), crc32c(payload, crc32c(length)), 0)


def read(disk: Disk, path: str, file_type: FileType, identity: Identity) -> AtomicFile:
    """Read the file and verify it.

    Raises:
        FileNotFoundError: there is none.
        CorruptFile, IncompatibleFormat, ForeignDirectory: see `check_file_header`.
    """
    raw = _read_whole(disk, path)
    return AtomicFile(check_file_header(raw, path, file_type, identity), _payload(raw, path))


def read_any(disk: Disk, path: str) -> AtomicFile:
    """Read a file of any type and owner, as `read` does: for node.meta and for inspecting."""
    raw = _read_whole(disk, path)
    return AtomicFile(unpack_file_header(raw, path), _payload(raw, path))


def _read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _payload(raw: bytes, path: str) -> bytes:
    if len(raw) < PAYLOAD_AT:
        raise errors.CorruptFile(f"{path}: truncated to {len(raw)} bytes", file=path)
    length, crc, zero = _FRAME.unpack_from(raw, FILE_HEADER_BYTES)
    if len(raw) != PAYLOAD_AT + length:
        raise errors.CorruptFile(
            f"{path}: {len(raw)} bytes instead of {PAYLOAD_AT + length}", file=path
        )
    payload = raw[PAYLOAD_AT:]
    if zero or crc32c(payload, crc32c(_LENGTH.pack(length))) != crc:
        raise errors.CorruptFile(f"{path}: the contents fail their CRC32C", file=path)
    return payload
