"""Term and vote, in two slots that are written in turns: in place, so that a full disk takes them.

    byte   size  field
       0     64  file header (storage.files.file_header), type RV
      64   4032  zero
    4096   4096  slot 0
    8192   4096  slot 1

    slot      4  crc         u32   CRC32C of the rest of the slot
              4  length      u32   bytes of the message
              8  generation  u64   one more with each version
              n  message     RaftMeta (proto/hourwheel/internal/v1/raft.proto)
                 zero, up to the slot's end

The version is that of the intact slot with the higher generation. A new one goes to the slot that
is not the only durable copy of the last, and is synced: a torn write leaves the other slot, which
has what was acknowledged last. Then the same goes to the other slot, without a sync; the next
version begins there. So both usually say the same, and one that is damaged later is no lost vote.

    versions     slot 0     slot 1     durable at least in
    g            g          g          0; 1 follows when the system likes
    g+1          g          g+1 torn   0
                 g          g+1        1, and may be acknowledged
                 g+1        g+1        1; 0 follows

No write needs room: all blocks are there from the beginning. The file takes the place of an atomic
file `meta` of type RM, which needed room for a new file each time, and is read where it is found.
"""

from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1 import raft_pb2 as pb
from storage.files.disk import Disk, File, parent_of
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)

SLOT_BYTES: Final = 4_096
"""A block of the file system: one slot's torn write leaves the other alone."""
SLOT_COUNT: Final = 2
FILE_BYTES: Final = (1 + SLOT_COUNT) * SLOT_BYTES
_HEAD: Final = Struct("<IIQ")
_CRC_END: Final = 4
MESSAGE_BYTES_MAX: Final = SLOT_BYTES - _HEAD.size
_TMP: Final = ".tmp"


class _Slot(NamedTuple):
    generation: int
    meta: pb.RaftMeta


def slot_position(slot: int) -> int:
    """Byte at which a slot begins."""
    return (1 + slot) * SLOT_BYTES


def _pack(generation: int, meta: pb.RaftMeta) -> bytes:
    message = meta.SerializeToString(deterministic=True)
    errors.invariant(len(message) <= MESSAGE_BYTES_MAX, "a vote fits its slot")
    rest = _HEAD.pack(0, len(message), generation)[_CRC_END:] + message
    rest += bytes(SLOT_BYTES - _CRC_END - len(rest))
    return crc32c(rest).to_bytes(_CRC_END, "little") + rest


def _unpack(raw: bytes) -> _Slot | None:
    """None where the slot is not whole."""
    if len(raw) < SLOT_BYTES:
        return None
    crc, length, generation = _HEAD.unpack_from(raw)
    if length > MESSAGE_BYTES_MAX or crc32c(memoryview(raw)[_CRC_END:]) != crc:
        return None
    return _Slot(generation, pb.RaftMeta.FromString(raw[_HEAD.size : _HEAD.size + length]))


def _slots_of(raw: bytes, path: str, identity: Identity) -> list[_Slot | None]:
    check_file_header(raw, path, FileType.RAFT_VOTE, identity)
    return [
        _unpack(raw[slot_position(slot) : slot_position(slot + 1)]) for slot in range(SLOT_COUNT)
    ]


def _latest(found: list[_Slot | None], path: str) -> tuple[int, _Slot]:
    whole = [(slot.generation, at) for at, slot in enumerate(found) if slot is not None]
    if not whole:
        raise errors.CorruptFile(
            f"{path}: neither of its slots is whole: the vote of this node is lost",
            file=path,
        )
    at = max(whole)[1]
    return at, errors.required(found[at], "a whole slot")


class VoteFile:
    """See the top of this file. One thread.

    Attributes:
        path: on the disk.
    """

    def __init__(self, file: File, path: str, generation: int, next_slot: int) -> None:
        """Use `open` or `create`."""
        self.path = path
        self._file = file
        self._generation = generation
        self._next_slot = next_slot

    @classmethod
    def create(cls, disk: Disk, path: str, identity: Identity, meta: pb.RaftMeta) -> "VoteFile":
        """Make the file, durably, with a first version in both slots.

        Raises:
            DiskFull: there is none, or half of one under another name.
            FsyncFailed: stop the process.
        """
        tmp, header = path + _TMP, pack_file_header(FileType.RAFT_VOTE, identity)
        file = disk.open(tmp, create=True)
        try:
            file.truncate(0)
            first = bytes(SLOT_BYTES - FILE_HEADER_BYTES)
            file.pwrite((header, first, *(_pack(1, meta),) * SLOT_COUNT), 0)
            file.datasync()
        except BaseException:
            file.close()
            raise
        disk.rename(tmp, path)
        disk.sync_dir(parent_of(path))
        return cls(file, path, 1, 0)

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity) -> tuple["VoteFile", pb.RaftMeta]:
        """Read the file; its latest version is durable when this returns.

        Raises:
            FileNotFoundError: there is none.
            CorruptFile: no slot is whole: the vote of this node is lost.
            IncompatibleFormat, ForeignDirectory: see storage.files.file_header.
        """
        file = disk.open(path)
        try:
            raw = file.pread(FILE_BYTES, 0)
            latest, slot = _latest(_slots_of(raw, path, identity), path)
            opened = cls(file, path, slot.generation, (latest + 1) % SLOT_COUNT)
            file.datasync()  # what a killed process had written is read back: make it true
        except BaseException:
            file.close()
            raise
        return opened, slot.meta

    @staticmethod
    def read(disk: Disk, path: str, identity: Identity) -> pb.RaftMeta:
        """The latest version, of a file that its owner may be writing to. Raises as `open`."""
        file = disk.open(path)
        try:
            raw = file.pread(FILE_BYTES, 0)
        finally:
            file.close()
        return _latest(_slots_of(raw, path, identity), path)[1].meta

    def store(self, meta: pb.RaftMeta) -> None:
        """The next version; durable when this returns.

        Raises:
            DiskFull: on a file system that writes elsewhere what is written over. The version
                before is still there.
            FsyncFailed, DiskFailed: stop the process.
        """
        raw, slot = _pack(self._generation + 1, meta), self._next_slot
        self._file.pwrite((raw,), slot_position(slot))
        self._file.datasync()
        self._generation += 1
        other = self._next_slot = (slot + 1) % SLOT_COUNT
        self._file.pwrite((raw,), slot_position(other))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
