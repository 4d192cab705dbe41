"""A single file, shown and verified by the type in its header."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.broker.disk_guard import RESERVE
from node.shard.checkpoint import run_state
from node.shard.snapshot_files import unpack_lost_end, unpack_marker
from node.tools.inspect.batches import batches
from node.tools.inspect.files import ShardFiles, header_of, steadily
from node.tools.inspect.indexes import show_sequence_file, show_tombstone_file
from node.tools.inspect.log import (
    find_mark,
    mark_offset,
    segment_row,
    segment_starts,
    show_epochs,
    show_index,
)
from node.tools.inspect.report import Report, Row
from node.tools.inspect.verify_log import verify_segment
from node.tools.inspect.verify_views import verify_chunk, verify_sequences, verify_tombstones
from node.tools.inspect.verify_wheel import Blobs, verify_run
from node.tools.inspect.views import show_chunk, show_manifest, show_node
from node.tools.inspect.wheel import delay_log_row, open_run, show_run
from replication.rules.epoch_store import EpochSeen
from storage.files import atomic_file
from storage.files.directory_lock import LOCK_NAME
from storage.files.file_header import FileHeader, FileType

_WITHOUT_HEADER: Final = {
    LOCK_NAME: "the lock of the directory; in it the number of the process that took it last",
    RESERVE: "room that is given up when the disk is full",
}


@dataclass(frozen=True)
class Asked:
    """What the one who inspects wants to see."""

    path: str = ""
    """Relative to the disk's root, which is the data directory if there is one."""
    is_folder: bool = True
    offset: int | None = None
    """Of the commit log: batches from there on."""
    sequence: int | None = None
    """Of a message: all that is known of it."""
    hour: int | None = None
    """Hours since the Unix epoch: its slots."""
    position: int | None = None
    """In a consume queue: entries from there on."""
    limit: int = 20
    """Rows of what there may be many of."""
    verify: bool = False
    """Check every checksum, and that the parts fit together."""

    @property
    def is_overview(self) -> bool:
        """Nothing particular is asked for."""
        return self.offset is None and self.sequence is None and self.hour is None


def inspect_file(files: ShardFiles, asked: Asked, report: Report) -> None:
    """Show one file, and verify it by itself. Raises what reading it raises."""
    path = asked.path
    with closing(files.disk.open(path)) as file:
        size = file.size()
    if path in _WITHOUT_HEADER:
        report.add("file", path, [{"type": _WITHOUT_HEADER[path], "bytes": size}])
        return
    header = header_of(files.disk, path)
    row: Row = {
        "type": header.file_type.name,
        "version": header.version,
        "cluster_id": header.identity.cluster_id.hex(),
        "shard": header.identity.shard,
        "base": header.base,
        "bytes": size,
    }
    report.add("file", path, [row])
    _SHOW[header.file_type](files, header, asked, report)


def _segment(files: ShardFiles, header: FileHeader, asked: Asked, report: Report) -> None:
    is_last = segment_starts(files)[-1:] == [header.base]
    mark = find_mark(files, report) if is_last else None
    report.add("segment", asked.path, [segment_row(files, asked.path, header.base, report, mark)])
    rows = batches(files, asked.path, report, offset=asked.offset, sequence=asked.sequence)
    report.add("batches", asked.path, rows, asked.limit)
    if asked.verify:
        verify_segment(files, asked.path, report)


def _index(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_index(files, asked.path, report, asked.limit)


def _mark(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    report.add("flushed mark", asked.path, [{"durable_to": mark_offset(files, asked.path)}])


def _watermark(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    offset = mark_offset(files, asked.path, FileType.HIGH_WATERMARK)
    report.add("high watermark", asked.path, [{"committed_to": offset}])


def _epoch_seen(files: ShardFiles, header: FileHeader, asked: Asked, report: Report) -> None:
    seen = EpochSeen.open(files.disk, asked.path, header.identity)
    report.add("epoch seen", asked.path, [{"epoch": seen.epoch, "master": seen.master}])


def _epochs(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_epochs(files, asked.path, report)


def _chunk(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_chunk(files, asked.path, report, position=asked.position, limit=asked.limit)
    if asked.verify:
        verify_chunk(files, asked.path, report)


def _sequences(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_sequence_file(files, asked.path, report, sequence=asked.sequence, limit=asked.limit)
    _verify_as_named(files, asked, report, verify_sequences)


def _tombstones(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_tombstone_file(files, asked.path, report, limit=asked.limit)
    _verify_as_named(files, asked, report, verify_tombstones)


def _verify_as_named(
    files: ShardFiles,
    asked: Asked,
    report: Report,
    verify: Callable[[ShardFiles, Checkpoint, Report], None],
) -> None:
    """Verify files of which the manifest knows how much is valid."""
    if not asked.verify:
        return
    if files.find_manifest() is None:
        report.remark(f"{asked.path}: without a manifest nobody knows what of it is valid")
    found = steadily(files, lambda manifest, report: verify(files, manifest, report))
    report.take(found)


def _run(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    manifest = files.find_manifest()
    show_run(files, asked.path, manifest, report, hour=asked.hour, limit=asked.limit)
    if not asked.verify:
        return
    blobs = Blobs(files, log_start=0)
    with closing(blobs), closing(open_run(files, asked.path, manifest)) as run:
        for units in verify_run(run, run_state(run), report):
            if files.folder:  # else its delay logs are not at hand
                blobs.verify(units, asked.path, report)


def _delay_log(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    report.add("delay log", asked.path, [delay_log_row(files, asked.path)])
    if asked.verify:
        report.remark(
            f"{asked.path} has no checksum of its own: verify a run that points into it, or the"
            " whole shard"
        )


def _checkpoint(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_manifest(files, asked.path, report)


def _snapshot(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    payload = atomic_file.read_any(files.disk, asked.path).payload
    row = unpack_marker(payload, asked.path)._asdict()
    report.add("snapshot", asked.path, [{**row, "digest": row["digest"].hex()}])


def _lost_end(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    payload = atomic_file.read_any(files.disk, asked.path).payload
    report.add("lost log", asked.path, [{"lost_to": unpack_lost_end(payload, asked.path)}])


def _node(files: ShardFiles, _: FileHeader, asked: Asked, report: Report) -> None:
    show_node(files.disk, asked.path, report)


def _raft(_: ShardFiles, header: FileHeader, asked: Asked, report: Report) -> None:
    report.remark(f"{asked.path} is the control plane's: {header.file_type.name}")


_SHOW: Final[dict[FileType, Callable[[ShardFiles, FileHeader, Asked, Report], None]]] = {
    FileType.LOG_SEGMENT: _segment,
    FileType.LOG_INDEX: _index,
    FileType.FLUSHED_MARK: _mark,
    FileType.HIGH_WATERMARK: _watermark,
    FileType.EPOCHS: _epochs,
    FileType.EPOCH_SEEN: _epoch_seen,
    FileType.CONSUME_QUEUE: _chunk,
    FileType.SEQUENCE_INDEX: _sequences,
    FileType.TOMBSTONES: _tombstones,
    FileType.RUN: _run,
    FileType.DELAY_LOG: _delay_log,
    FileType.CHECKPOINT: _checkpoint,
    FileType.SNAPSHOT: _snapshot,
    FileType.LOST_END: _lost_end,
    FileType.NODE: _node,
    FileType.RAFT_JOURNAL: _raft,
    FileType.RAFT_META: _raft,
    FileType.RAFT_VOTE: _raft,
    FileType.RAFT_SNAPSHOT: _raft,
}
assert set(_SHOW) == set(FileType)
