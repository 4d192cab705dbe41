"""The receiver's files: what a peer sends, checked, written beside the shard, made durable.

The peer may be anybody who got hold of the cluster's secret, or ourselves with a bug: names, sizes
and places are taken only as far as they can be parts of a shard, and each piece is under a CRC.
The start that opens the files verifies what they say, as any start does.
"""

from typing import Final

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.replication_pb2 import SnapshotBytes, SnapshotEnd, SnapshotHead
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, Epoch, Offset
from node.shard.checkpoint import MANIFEST, ShardPlace
from node.shard.snapshot_files import (
    EPOCH_COUNT_MAX,
    FILE_BYTES_MAX,
    FILE_COUNT_MAX,
    PIECE_BYTES_MAX,
    QUEUE_CHUNK_END,
    Marker,
    NamedSize,
    check_log_files,
    digest_of,
    incoming,
    is_known_name,
    remove_tree,
    write_marker,
)
from storage.files import atomic_file
from storage.files.disk import File, join, parent_of
from storage.files.file_header import FileType
from storage.log.epochs import EpochFile

_EPOCHS: Final = "epochs"


def check_head(head: SnapshotHead, epoch: Epoch) -> tuple[list[NamedSize], Offset]:
    """(files, end of the log) of a snapshot that was asked for in `epoch`.

    Raises:
        PeerRefused: no snapshot of a shard is like that.
    """
    if head.epoch != epoch:
        raise errors.PeerRefused(f"a snapshot of epoch {head.epoch} instead of {epoch}")
    if len(head.files) > FILE_COUNT_MAX or len(head.epochs) > EPOCH_COUNT_MAX:
        raise errors.PeerRefused(f"a snapshot of {len(head.files)} files")
    files = [NamedSize(one.name, one.size_bytes) for one in head.files]
    if not files:
        raise errors.PeerRefused("a snapshot of nothing")
    for name, size in files:
        if not is_known_name(name):
            raise errors.PeerRefused(f"a snapshot with a file {name[:200]!r}")
        if size > FILE_BYTES_MAX:
            raise errors.PeerRefused(f"a snapshot with {size} bytes of {name}")
    names = [one.name for one in files]
    if len(set(names)) != len(names):
        raise errors.PeerRefused("a snapshot has a file twice")
    if MANIFEST in names[:-1] or (head.applied_offset > 0 and names[-1:] != [MANIFEST]):
        raise errors.PeerRefused("the manifest is not the last file")
    end = check_log_files(files, Offset(head.log_start_offset))
    if not head.log_start_offset <= head.applied_offset <= end:
        raise errors.PeerRefused(
            f"views up to {head.applied_offset} and a log [{head.log_start_offset}, {end})"
        )
    return files, end


class Incoming:
    """One snapshot on its way: `begin`, `add` as often as needed, `finish`; or `abandon`.

    No threads: for one that may wait for the disk. Raises, from all methods that write: DiskFull
    (abandon it), FsyncFailed and DiskFailed (stop the process).
    """

    def __init__(self, place: ShardPlace, epoch: Epoch) -> None:
        """For the shard at `place`; asked for in `epoch`."""
        self._shard, self._place = place, incoming(place)
        self._epoch = epoch
        self._head: SnapshotHead | None = None
        self._files: list[NamedSize] = []
        self._log_end = FIRST_OFFSET
        self._ordinal = -1
        """Of the file that is open, or was last."""
        self._file: File | None = None
        self._position = 0

    def begin(self, head: SnapshotHead) -> None:
        """Make room for what was announced; what is left of another snapshot goes.

        Raises:
            PeerRefused: see `check_head`; or it is not the first part.
            DiskFull: there is not enough room.
        """
        if self._head is not None:
            raise errors.PeerRefused("a snapshot with two heads")
        self._files, self._log_end = check_head(head, self._epoch)
        disk = self._place.disk
        self.abandon()
        # Queues are left out: their chunks are mostly holes where there are many queues.
        needed = sum(size for name, size in self._files if not name.endswith(QUEUE_CHUNK_END))
        free = disk.free_bytes()
        if needed > free:
            raise errors.DiskFull(
                f"a snapshot of {needed} bytes, and {free} are free", file=self._place.directory
            )
        for folder in sorted({parent_of(name) for name, _ in self._files} | {""}):
            disk.make_dir(join(self._place.directory, folder))
        self._head = head

    def add(self, piece: SnapshotBytes) -> None:
        """Write the next piece.

        Raises:
            PeerRefused: it is damaged, or not the next.
        """
        if self._head is None:
            raise errors.PeerRefused("a snapshot begins with its head")
        if not self._ordinal <= piece.file < len(self._files):
            raise errors.PeerRefused(f"a piece of file {piece.file} after one of {self._ordinal}")
        while self._ordinal < piece.file:
            self._end_file()
            self._begin_file()
        name, size = self._files[piece.file]
        length = len(piece.data)
        is_next = piece.position == self._position and piece.position + length <= size
        if not is_next or not 0 < length <= PIECE_BYTES_MAX:
            raise errors.PeerRefused(
                f"{length} bytes at {piece.position} of {name}, which has {size},"
                f" where {self._position} is the next"
            )
        if crc32c(piece.data) != piece.crc:
            raise errors.PeerRefused(f"a piece of {name} at {piece.position} fails its CRC32C")
        file = errors.required(self._file, "a file is begun before its pieces come")
        file.pwrite((piece.data,), self._position)
        self._position += length

    def _begin_file(self) -> None:
        self._ordinal += 1
        self._position = 0
        path = self._place.under(self._files[self._ordinal].name)
        self._file = self._place.disk.open(path, create=True)

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            name, size = self._files[self._ordinal]
            if self._position != size:
                if not name.endswith(QUEUE_CHUNK_END):
                    raise errors.PeerRefused(f"{self._position} bytes of {name}, which has {size}")
                file.truncate(size)  # zeros that take no room, as the queue itself does it
            file.datasync()
        finally:
            file.close()

    def finish(self, end: SnapshotEnd, replaced_end_offset: Offset) -> Marker:
        """Everything is there: make it durable, look into it, and put the marker.

        Args:
            end: the last part.
            replaced_end_offset: where the log ends that is to be replaced.

        Raises:
            PeerRefused: something is missing.
            CorruptFile, ForeignDirectory: a file is not what it should be.
        """
        if self._head is None:
            raise errors.PeerRefused("a snapshot begins with its head")
        while self._ordinal < len(self._files) - 1:
            self._end_file()
            self._begin_file()
        self._end_file()
        total = sum(size for _, size in self._files)
        if end.total_bytes != total:
            raise errors.PeerRefused(f"a snapshot of {total} bytes ends after {end.total_bytes}")
        self._check_contents(self._head)
        place = self._place
        for folder in sorted({parent_of(name) for name, _ in self._files} | {""}):
            place.disk.sync_dir(join(place.directory, folder))
        marker = Marker(
            applied_offset=Offset(self._head.applied_offset),
            log_start_offset=Offset(self._head.log_start_offset),
            log_end_offset=self._log_end,
            replaced_end_offset=replaced_end_offset,
            file_count=len(self._files),
            digest=digest_of(self._files),
        )
        write_marker(place, marker)
        return marker

    def _check_contents(self, head: SnapshotHead) -> None:
        place, applied_offset = self._place, 0
        if place.disk.exists(place.under(MANIFEST)):
            path = place.under(MANIFEST)
            found = atomic_file.read(place.disk, path, FileType.CHECKPOINT, place.identity)
            applied_offset = Checkpoint.FromString(found.payload).applied_offset
        epochs = EpochFile.open(place.disk, place.under(_EPOCHS), place.identity)
        entries = [(one.epoch, one.start_offset) for one in head.epochs]
        if applied_offset != head.applied_offset or list(epochs.entries) != entries:
            raise errors.PeerRefused("the head of a snapshot says something else than its files")

    def abandon(self) -> None:
        """Remove what is there."""
        if self._file is not None:
            self._file.close()
            self._file = None
        remove_tree(self._place.disk, self._place.directory)
