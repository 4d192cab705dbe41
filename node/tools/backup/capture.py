"""A backup is taken beside the node that owns the files, whether it runs or not.

    hold the files of a checkpoint, and the log up to what is committed (node/snapshot/source.py)
    --> verify what a restore opens --> pieces --> the repository --> manifest

The node is not asked: how far its log is committed stands in a file that it keeps mapped, and what
lies below is never written again. It may be master or follower.

The control state is read last: so it has all that the log refers to. Its files are small, and read
at once, beside the process that writes them (replication/raft/committed_state.py).
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import SnapshotHead
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, NO_EPOCH, NodeId, Offset
from node.cluster.restored_control import find_restored
from node.shard.checkpoint import MANIFEST, ShardPlace
from node.shard.node_meta import CONTROL, CONTROL_ALONE
from node.shard.recovery import WATERMARK
from node.shard.snapshot_files import (
    FILE_COUNT_MAX,
    FLUSHED_MARK,
    NamedSize,
    check_log_files,
)
from node.snapshot.source import HeldSnapshot, LogState
from node.tools.backup.manifest import PIECE_BYTES, BackupFile, Manifest, Piece
from node.tools.backup.repository import Repository
from replication.control_state.state import ControlState, encode_state
from replication.raft.committed_state import CommittedState, read_committed
from replication.standalone.control_journal import ControlJournal
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity
from storage.log.flushed_mark import read_mark
from storage.log.segment import SegmentInfo, find_start_offset, segment_path
from storage.log.sparse_index import NO_STORE_MS

_HELD_NUMBER: Final = 100
"""Of the folder with links: a node that gives snapshots counts its own from 0."""
_ATTEMPTS: Final = 10
_CONTROL_ATTEMPTS: Final = 20
PAUSE_S: Final = 0.1
"""Between these. A voter notes within a second how far its journal is committed."""


@dataclass(frozen=True)
class Captured:
    """A backup that is complete."""

    backup_id: str
    manifest: Manifest
    new_bytes: int
    """Of it so many were not in the repository."""


def capture(
    place: ShardPlace,
    repository: Repository,
    *,
    node_id: NodeId,
    made_ms: int,
    pace: Callable[[int], None],
    pause: Callable[[], None] = lambda: None,
) -> Captured:
    """Take a backup. It is complete and durable when this returns.

    Args:
        place: of the shard; links to its files lie beside it meanwhile.
        repository: where it goes.
        node_id: whose data it is.
        made_ms: now.
        pace: called with each number of bytes that was read; it may wait.
        pause: called before something is looked at again; it should wait for `PAUSE_S`.

    Raises:
        DataLoss: what was to be backed up is damaged; nothing is in the repository.
        FailedPrecondition: there is nothing yet, or there are too many files.
        Unavailable: checkpoints come too fast, or the node removed the links as it was started.
        DiskFull: of the data directory (links), or of the repository.
        FsyncFailed, DiskFailed: end the process.
    """
    if not place.disk.exists(place.under("log")):
        raise errors.FailedPrecondition("there is no shard in this directory yet")
    snapshot = HeldSnapshot(place, _HELD_NUMBER)
    try:
        _hold(snapshot, place)
        snapshot.verify()
        state = read_control(place.disk, place.identity, pause)
        control = b"" if state is None else encode_state(state, with_remembered=False)
        return _store(
            snapshot, repository, place, control, node_id=node_id, made_ms=made_ms, pace=pace
        )
    except FileNotFoundError as error:
        raise errors.Unavailable("the node was started meanwhile: begin again") from error
    finally:
        snapshot.close()


def read_control(disk: Disk, identity: Identity, pause: Callable[[], None]) -> ControlState | None:
    """The control state that lies in a data directory; None: it never had one.

    Arguments as of `capture`.

    Raises:
        CorruptFile, ForeignDirectory, IncompatibleFormat: it cannot be read.
    """
    for left in reversed(range(_CONTROL_ATTEMPTS)):
        try:
            found = _find_control(disk, identity)
        except (errors.CorruptFile, FileNotFoundError) as error:  # it may be about to be replaced
            if not left:
                raise errors.CorruptFile(
                    f"the control state cannot be read: {error}", file=CONTROL
                ) from error
        else:
            if found is None:
                return None
            if found.is_all or not left:
                return found.state if found.state.is_bootstrapped else None
        pause()
    return None


def _find_control(disk: Disk, identity: Identity) -> CommittedState | None:
    alone = ControlJournal.read(disk, CONTROL_ALONE, identity)
    if alone is not None:
        return CommittedState(alone, is_all=True)
    found = read_committed(disk, CONTROL, identity)
    if found is not None:
        return found
    restored = find_restored(disk, identity)  # and no node has started there yet
    return None if restored is None else CommittedState(restored, is_all=True)


def _hold(snapshot: HeldSnapshot, place: ShardPlace) -> None:
    for _ in range(_ATTEMPTS):
        snapshot.begin()
        if snapshot.complete(_log_state(place)):
            return
    raise errors.Unavailable("the shard changes too fast to take a backup of it")


def _log_state(place: ShardPlace) -> LogState:
    """The log as of now, as its files tell it."""
    disk = place.disk
    starts = [find_start_offset(name) for name in disk.list(place.under("log"))]
    known = [start for start in starts if start is not None]
    segments = []
    for start, following in zip(known, [*known[1:], None], strict=True):
        path = segment_path(place.under("log"), start)
        end = following
        if end is None:
            end = Offset(start + _size_of(disk, path) - FILE_HEADER_BYTES)
        segments.append(SegmentInfo(path, start, end, NO_STORE_MS))
    return LogState(NO_EPOCH, _committed_offset(place), segments, ())


def _committed_offset(place: ShardPlace) -> Offset:
    """All below it is committed, and there."""
    # What a checkpoint has folded in was committed: a power cut leaves an older mark, no older one.
    applied = FIRST_OFFSET
    if place.disk.exists(place.under(MANIFEST)):
        found = atomic_file.read(
            place.disk, place.under(MANIFEST), FileType.CHECKPOINT, place.identity
        )
        applied = Offset(Checkpoint.FromString(found.payload).applied_offset)
    has_peers = place.disk.exists(place.under(WATERMARK))
    name, file_type = (
        (WATERMARK, FileType.HIGH_WATERMARK) if has_peers else (FLUSHED_MARK, FileType.FLUSHED_MARK)
    )
    return max(applied, read_mark(place.disk, place.under(name), place.identity, file_type))


def _size_of(disk: Disk, path: str) -> int:
    with closing(disk.open(path)) as file:
        return file.size()


def _store(
    snapshot: HeldSnapshot,
    repository: Repository,
    place: ShardPlace,
    control: bytes,
    *,
    node_id: NodeId,
    made_ms: int,
    pace: Callable[[int], None],
) -> Captured:
    head = snapshot.head()
    if len(head.files) > FILE_COUNT_MAX:
        raise errors.FailedPrecondition(f"{len(head.files)} files are too many")
    pieces: list[list[Piece]] = [[] for _ in head.files]
    checkpoint = bytearray()
    with repository.putting() as puts:
        for ordinal, raw in _large_pieces(snapshot):
            pace(len(raw))
            if head.files[ordinal].name == MANIFEST:
                checkpoint += raw
            pieces[ordinal].append(puts.put(raw))
        control_pieces = [
            puts.put(control[at : at + PIECE_BYTES]) for at in range(0, len(control), PIECE_BYTES)
        ]
    manifest = Manifest(
        cluster_id=place.identity.cluster_id.hex(),
        node_id=node_id,
        made_ms=made_ms,
        applied_offset=Offset(head.applied_offset),
        views_ms=_views_ms(bytes(checkpoint)),
        log_start_offset=Offset(head.log_start_offset),
        log_end_offset=_log_end(head),
        files=tuple(
            BackupFile(file.name, file.size_bytes, tuple(parts))
            for file, parts in zip(head.files, pieces, strict=True)
        ),
        control=tuple(control_pieces),
    )
    return Captured(repository.complete(manifest), manifest, puts.new_bytes)


def _log_end(head: SnapshotHead) -> Offset:
    files = [NamedSize(one.name, one.size_bytes) for one in head.files]
    return check_log_files(files, Offset(head.log_start_offset))


def _large_pieces(snapshot: HeldSnapshot) -> Iterator[tuple[int, bytes]]:
    """(ordinal of the file, bytes), cut at the same places in each backup."""
    current, parts, size = 0, list[bytes](), 0
    for one in snapshot.pieces():
        if parts and (one.file != current or size + len(one.data) > PIECE_BYTES):
            yield current, b"".join(parts)
            parts, size = [], 0
        current = one.file
        parts.append(one.data)
        size += len(one.data)
    if parts:
        yield current, b"".join(parts)


def _views_ms(raw: bytes) -> int:
    """The latest store time that a checkpoint has folded in; 0 where there is none."""
    return Checkpoint.FromString(raw[atomic_file.PAYLOAD_AT :]).store_ms
