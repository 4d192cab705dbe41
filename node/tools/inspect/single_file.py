"""A single file, shown and verified by the type in its header."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import FIRST_OFFSET, Offset, Position, SequenceNumber
from node.broker.disk_guard import RESERVE
from node.shard.checkpoint import run_state
from node.shard.snapshot_files import unpack_lost_end, unpack_marker
from node.tools.inspect.batches import batches
from node.tools.inspect.files import ShardFiles, header_of, steadily
from node.tools.inspect.indexes import show_sequence_file, show_tombstone_file
from node.tools.inspect.key_index import show_key_run, verify_key_run
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
from storage.files import atomic_file
from storage.files.directory_lock import LOCK_NAME
from storage.files.file_header import FileHeader, FileType
from storage.log.epochs import EpochStore

_WITHOUT_HEADER: Final = {
    LOCK_NAME: "the lock of the directory; in it the number of the process that took it last",
    RESERVE: "room that is given up when the disk is full",
}


@dataclass(frozen=True)
class InspectOptions:
    """What the one who inspects wants to see."""

    path: str = ""
    """Relative to the disk's root, which is the data directory if there is one."""
    is_folder: bool = True
    offset: Offset | None = None
    """Of the commit log: batches from there on."""
    sequence: SequenceNumber | None = None
    """Of a message: all that is known of it."""
    hour: int | None = None
    """Hours since the Unix epoch: its slots."""
    position: Position | None = None
    """In a consume queue: entries from there on."""
    limit: int = 20
    """Rows of what there may be many of."""
    verify: bool = False
    """Check every checksum, and that the parts fit together."""

    @property
    def is_overview(self) -> bool:
        """Nothing particular is asked for."""
        return self.offset is None and self.sequence is None and self.hour is None


def inspect_file(files: ShardFiles, options: InspectOptions, report: Report) -> None:
    """Show one file, and verify it by itself. Raises what reading it raises."""
    path = options.path
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
    _SHOW[header.file_type](files, header, options, report)


def _segment(
    files: ShardFiles, header: FileHeader, options: InspectOptions, report: Report
) -> None:
    start = Offset(header.base)
    is_last = segment_starts(files)[-1:] == [start]
    mark = find_mark(files, report) if is_last else None
    report.add("segment", options.path, [segment_row(files, options.path, start, report, mark)])
    rows = batches(files, options.path, report, offset=options.offset, sequence=options.sequence)
    report.add("batches", options.path, rows, options.limit)
    if options.verify:
        verify_segment(files, options.path, report)


def _index(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_index(files, options.path, report, options.limit)


def _mark(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    report.add("flushed mark", options.path, [{"durable_to": mark_offset(files, options.path)}])


def _watermark(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    offset = mark_offset(files, options.path, FileType.HIGH_WATERMARK)
    report.add("high watermark", options.path, [{"committed_to": offset}])


def _epoch_seen(
    files: ShardFiles, header: FileHeader, options: InspectOptions, report: Report
) -> None:
    seen = EpochStore.open(files.disk, options.path, header.identity)
    report.add("epoch seen", options.path, [{"epoch": seen.epoch, "master": seen.master}])


def _epochs(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_epochs(files, options.path, report)


def _chunk(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_chunk(files, options.path, report, position=options.position, limit=options.limit)
    if options.verify:
        verify_chunk(files, options.path, report)


def _sequences(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_sequence_file(files, options.path, report, sequence=options.sequence, limit=options.limit)
    _verify_as_named(files, options, report, verify_sequences)


def _tombstones(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_tombstone_file(files, options.path, report, limit=options.limit)
    _verify_as_named(files, options, report, verify_tombstones)


def _keys(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_key_run(files, options.path, report)
    if options.verify:
        verify_key_run(files, options.path)


def _verify_as_named(
    files: ShardFiles,
    options: InspectOptions,
    report: Report,
    verify: Callable[[ShardFiles, Checkpoint, Report], None],
) -> None:
    """Verify files of which the manifest knows how much is valid."""
    if not options.verify:
        return
    if files.find_manifest() is None:
        report.remark(f"{options.path}: without a manifest it is unknown what of it is valid")
    found = steadily(files, lambda manifest, report: verify(files, manifest, report))
    report.take(found)


def _run(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    manifest = files.find_manifest()
    show_run(files, options.path, manifest, report, hour=options.hour, limit=options.limit)
    if not options.verify:
        return
    blobs = Blobs(files, log_start=FIRST_OFFSET)
    with closing(blobs), closing(open_run(files, options.path, manifest)) as run:
        for units in verify_run(run, run_state(run), report):
            if files.folder:  # else its delay logs are not at hand
                blobs.verify(units, options.path, report)


def _delay_log(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    report.add("delay log", options.path, [delay_log_row(files, options.path)])
    if options.verify:
        report.remark(
            f"{options.path} has no checksum of its own: verify a run that points into it, or the"
            " whole shard"
        )


def _checkpoint(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_manifest(files, options.path, report)


def _snapshot(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    payload = atomic_file.read_any(files.disk, options.path).payload
    row = unpack_marker(payload, options.path)._asdict()
    report.add("snapshot", options.path, [{**row, "digest": row["digest"].hex()}])


def _lost_end(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    payload = atomic_file.read_any(files.disk, options.path).payload
    report.add("lost log", options.path, [{"lost_to": unpack_lost_end(payload, options.path)}])


def _node(files: ShardFiles, _: FileHeader, options: InspectOptions, report: Report) -> None:
    show_node(files.disk, options.path, report)


def _raft(_: ShardFiles, header: FileHeader, options: InspectOptions, report: Report) -> None:
    report.remark(f"{options.path} is the control plane's: {header.file_type.name}")


_SHOW: Final[dict[FileType, Callable[[ShardFiles, FileHeader, InspectOptions, Report], None]]] = {
    FileType.LOG_SEGMENT: _segment,
    FileType.LOG_INDEX: _index,
    FileType.FLUSHED_MARK: _mark,
    FileType.HIGH_WATERMARK: _watermark,
    FileType.EPOCHS: _epochs,
    FileType.EPOCH_SEEN: _epoch_seen,
    FileType.CONSUME_QUEUE: _chunk,
    FileType.SEQUENCE_INDEX: _sequences,
    FileType.TOMBSTONES: _tombstones,
    FileType.KEY_RUN: _keys,
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
    FileType.CONTROL_STATE: _raft,
}
assert set(_SHOW) == set(FileType)
