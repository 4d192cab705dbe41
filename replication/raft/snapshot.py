"""The control plane's snapshot: one small file, and its way from the leader to a follower.

Stands in for PySyncObj's serializer, which pickles, syncs nothing and takes a damaged dump for an
empty one. The file `snapshot` is an atomic file (storage.files.atomic_file) of a RaftSnapshot
message; it is there before the journal is trimmed, and a damaged one stops the process (B5, B12).
It is padded, and has a spare (storage.files.spare_file): so the next one finds room on a full disk.

On the wire: CRC32C (u32) of the message, then the message, in chunks. A follower that has missed
one finds out by the CRC, drops all of it, and is sent another.
"""

from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1 import raft_pb2 as pb
from replication.raft.journal_file import Entry
from storage.files import atomic_file
from storage.files.disk import Disk, join
from storage.files.file_header import FileType, Identity, pack_file_header

SNAPSHOT: Final = "snapshot"
CHUNK_BYTES: Final = 64 * 1024
SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024
_CRC_BYTES: Final = 4
_PADDED_TO_BYTES: Final = 64 * 1024

Chunk = tuple[bytes, bool, bool]
"""Data, whether it is the first, whether it is the last: as PySyncObj passes it on."""


class Snapshot(NamedTuple):
    """A state and where in the log it was."""

    state: bytes
    """Encoded ControlState after `last`."""
    last: Entry
    previous: Entry
    """The entry before `last`: PySyncObj's log begins with two that are applied."""
    is_installed: bool
    """It came from the leader."""


def _pack(snapshot: Snapshot, padding_bytes: int = 0) -> bytes:
    return pb.RaftSnapshot(
        state=snapshot.state,
        last=_entry_data(snapshot.last),
        previous=_entry_data(snapshot.previous),
        is_installed=snapshot.is_installed,
        padding=bytes(padding_bytes),
    ).SerializeToString(deterministic=True)


def _entry_data(entry: Entry) -> pb.RaftEntry:
    return pb.RaftEntry(command=entry.command, index=entry.index, term=entry.term)


def _unpack(raw: bytes) -> Snapshot | None:
    """None where the bytes are no snapshot."""
    try:
        data = pb.RaftSnapshot.FromString(raw)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError has no public home
        return None
    last, previous = data.last, data.previous
    if previous.index < 1 or last.index != previous.index + 1 or last.term < previous.term:
        return None
    return Snapshot(
        data.state,
        Entry(last.command, last.index, last.term),
        Entry(previous.command, previous.index, previous.term),
        data.is_installed,
    )


class SnapshotFile:
    """The file, and pieces of it under way. The tick thread only.

    Attributes:
        path: on the disk.
        received: the last one that came whole from a leader. Not stored yet.
    """

    def __init__(self, disk: Disk, directory: str, identity: Identity) -> None:
        """Touches nothing."""
        self.received: Snapshot | None = None
        self.path = join(directory, SNAPSHOT)
        self._disk = disk
        self._identity = identity
        self._outgoing: bytes | None = None
        self._sent: dict[object, tuple[bytes, int]] = {}
        self._incoming: bytearray | None = None

    @property
    def exists(self) -> bool:
        """Whether there is one."""
        return self._disk.exists(self.path)

    def load(self) -> Snapshot:
        """Read and verify it.

        Raises:
            CorruptFile: this node has lost its state: it must not vote or acknowledge.
            FileNotFoundError: there is none.
        """
        raw = atomic_file.read(
            self._disk, self.path, FileType.RAFT_SNAPSHOT, self._identity
        ).payload
        snapshot = _unpack(raw)
        if snapshot is None:
            raise errors.CorruptFile(f"{self.path}: not a snapshot", file=self.path)
        self._outgoing = None
        return snapshot

    def store(self, snapshot: Snapshot) -> None:
        """Replace it durably. What is under way begins again with the new one.

        Raises:
            DiskFull: the old one is still there.
            FsyncFailed, DiskFailed: stop the process.
        """
        header = pack_file_header(FileType.RAFT_SNAPSHOT, self._identity)
        padding_bytes = -len(_pack(snapshot)) % _PADDED_TO_BYTES
        payload = _pack(snapshot, padding_bytes)
        atomic_file.write_over(self._disk, self.path, header, payload)
        self.keep_room(len(payload))
        self._outgoing = None
        self._sent.clear()

    def keep_room(self, payload_bytes: int = _PADDED_TO_BYTES) -> None:
        """See that the next one finds room, were it so long or a padding longer."""
        atomic_file.keep_room(self._disk, self.path, payload_bytes + _PADDED_TO_BYTES)

    # --- PySyncObj's serializer, as far as it is used

    def getTransmissionData(self, peer: object) -> Chunk | None:  # noqa: N802 - PySyncObj's name
        """The next chunk for a peer; None: there is no snapshot."""
        if self._outgoing is None and self.exists:
            raw = _pack(self.load()._replace(is_installed=True))
            self._outgoing = crc32c(raw).to_bytes(_CRC_BYTES, "little") + raw
        if self._outgoing is None:
            return None
        whole, at = self._sent.get(peer, (self._outgoing, 0))
        end = min(at + CHUNK_BYTES, len(whole))
        if end == len(whole):
            self._sent.pop(peer, None)
        else:
            self._sent[peer] = (whole, end)
        return whole[at:end], at == 0, end == len(whole)

    def cancelTransmisstion(self, peer: object) -> None:  # noqa: N802 - PySyncObj's name
        """The peer is gone: the next chunk is a first one."""
        self._sent.pop(peer, None)

    def setTransmissionData(self, chunk: Chunk | None) -> bool:  # noqa: N802 - PySyncObj's name
        """Take a chunk. True: a whole snapshot was received; it lies in `received`."""
        if chunk is None:
            return False
        data, is_first, is_last = chunk
        if is_first:
            self._incoming = bytearray()
        if self._incoming is None or len(self._incoming) + len(data) > SNAPSHOT_BYTES_MAX:
            self._incoming = None
            return False
        self._incoming += data
        if not is_last:
            return False
        whole, self._incoming = bytes(self._incoming), None
        raw = whole[_CRC_BYTES:]
        if crc32c(raw).to_bytes(_CRC_BYTES, "little") != whole[:_CRC_BYTES]:
            return False
        snapshot = _unpack(raw)
        if snapshot is None:
            return False
        self.received = snapshot
        return True
