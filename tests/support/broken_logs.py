"""Break copies of real logs on purpose, so that everything about them is right but one thing.

`rewrite_log` changes records and stamps them anew, CRCs and offsets included; `rewrite_queue`
changes the entries of a consume queue with its seals and the manifest; both work on a directory
that `tests.support.log_maker` made. A log whose records were changed has no views any more.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hourwheel.formats.record_batch import Kind, RecordBatch, Stamp, stamp, unpack_header
from hourwheel.internal.v1.state_pb2 import Checkpoint, DelayLogState
from hourwheel.types import FIRST_OFFSET, FIRST_SHARD, Epoch, Offset, SequenceNumber, TopicQueue
from node.shard.checkpoint import MANIFEST
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.epochs import EpochFile
from storage.queues.queue_chunk import ENTRIES_AT, NO_ENTRIES, pack_seal, seal_position
from storage.views.unit import UNIT, Units
from tests.support.log_maker import CLUSTER_ID, segments
from timewheel.run_format import delay_log_path

Edit = Callable[[list[RecordBatch]], list[RecordBatch]]
IDENTITY = Identity(CLUSTER_ID, FIRST_SHARD)
EPOCHS = "shard-0/epochs"


def batches_of(directory: Path) -> Iterator[RecordBatch]:
    """All batches of a log, copied."""
    for path in segments(directory):
        raw, at = path.read_bytes(), 64
        while at < len(raw):
            header = unpack_header(raw, at)
            yield RecordBatch(raw[at : at + header.total_bytes], header)
            at += header.total_bytes


def drop_views(directory: Path) -> None:
    """Leave only what cannot be made again: the log and who the node is."""
    shard = directory / "shard-0"
    for name in ("queues", "sequences", "tombstones", "wheel"):
        shutil.rmtree(shard / name, ignore_errors=True)
    for name in (MANIFEST, "high_watermark", "flushed.mark"):
        (shard / name).unlink(missing_ok=True)


def rewrite_log(directory: Path, edit: Edit, *, gap: int = 0, gap_from: int = 1 << 62) -> None:
    """Write the log anew as one segment, each batch stamped as it stands now.

    Args:
        directory: of the node.
        edit: gives the batches that there shall be; `gap` sequences are skipped by those that stand
            at or behind `gap_from` in its list.
    """
    batches = edit(list(batches_of(directory)))
    raw, sequence, epochs = bytearray(), 0, dict[int, int]()
    for index, batch in enumerate(batches):
        header = batch.header
        sequence += gap if index == gap_from else 0
        if header.kind == Kind.EPOCH_START and header.epoch > max(epochs, default=0):
            epochs[header.epoch] = len(raw)
        place = Stamp(
            *(Offset(len(raw)), SequenceNumber(sequence), header.store_ms),
            *(FIRST_OFFSET, header.epoch),
        )
        if header.kind == Kind.PUBLISH:
            head, payload = stamp(batch, place, due_ms=batch.due_ms, topic_queue=batch.topic_queue)
            sequence += header.count
        else:
            head, payload = stamp(batch, place)
        raw += head + bytes(payload)
    drop_views(directory)
    folder = directory / "shard-0" / "log"
    shutil.rmtree(folder)
    folder.mkdir()
    first = pack_file_header(FileType.LOG_SEGMENT, IDENTITY, 0)
    (folder / f"{0:020}.log").write_bytes(first + raw)
    (directory / EPOCHS).unlink(missing_ok=True)
    file = EpochFile.open(RealDisk(directory), EPOCHS, IDENTITY)
    for epoch, offset in epochs.items():
        file.append(Epoch(epoch), Offset(offset))


def edit_manifest(directory: Path, change: Callable[[Checkpoint], object]) -> None:
    """Change the checkpoint's manifest."""
    disk, path = RealDisk(directory), f"shard-0/{MANIFEST}"
    found = atomic_file.read(disk, path, FileType.CHECKPOINT, IDENTITY)
    manifest = Checkpoint.FromString(found.payload)
    change(manifest)
    header = pack_file_header(FileType.CHECKPOINT, IDENTITY)
    atomic_file.write(disk, path, header, manifest.SerializeToString(deterministic=True))


def read_queue(directory: Path, topic_queue: TopicQueue) -> Units:
    """The entries of a queue that has one chunk, a copy."""
    raw = _chunk(directory, topic_queue).read_bytes()
    count = _end_of(directory, topic_queue)
    return np.frombuffer(raw, UNIT, count, ENTRIES_AT).copy()


def rewrite_queue(directory: Path, topic_queue: TopicQueue, units: Units) -> None:
    """Let a queue that has one chunk have these entries."""
    path = _chunk(directory, topic_queue)
    raw = bytearray(path.read_bytes())
    raw[ENTRIES_AT : ENTRIES_AT + units.nbytes] = units.tobytes()
    seal = pack_seal(NO_ENTRIES.extended(units), topic_queue)
    for slot in (0, 1):
        raw[seal_position(slot) : seal_position(slot) + len(seal)] = seal
    path.write_bytes(raw)

    def change(manifest: Checkpoint) -> None:
        for state in manifest.queues:
            if state.topic_queue == topic_queue:
                state.end_position = len(units)

    edit_manifest(directory, change)


def _chunk(directory: Path, topic_queue: TopicQueue) -> Path:
    (path,) = (directory / "shard-0" / "queues" / f"{topic_queue:08x}").glob("*.cq")
    return path


def _end_of(directory: Path, topic_queue: TopicQueue) -> int:
    found = atomic_file.read(
        RealDisk(directory), f"shard-0/{MANIFEST}", FileType.CHECKPOINT, IDENTITY
    )
    states = Checkpoint.FromString(found.payload).queues
    return next(each.end_position for each in states if each.topic_queue == topic_queue)


def lose_beginning(directory: Path) -> None:
    """Take the log's first file away, and let its entries point to a delay log, as after a trim."""
    number, blobs, at = 9_999, bytearray(), 64
    lost = segments(directory)[0]
    raw = lost.read_bytes()
    begin = int(segments(directory)[1].stem)
    for folder in (directory / "shard-0" / "queues").iterdir():
        units = read_queue(directory, TopicQueue(int(folder.name, 16)))
        for index in np.flatnonzero((units["dlog_id"] == 0) & (units["position"] < begin)).tolist():
            unit = units[index]
            first, size = 64 + int(unit["position"]), int(unit["body_len"]) + int(unit["meta_len"])
            units["dlog_id"][index], units["position"][index] = number, at + len(blobs)
            blobs += raw[first : first + size]
        rewrite_queue(directory, TopicQueue(int(folder.name, 16)), units)
    lost.unlink()
    path = directory / "shard-0" / delay_log_path("wheel", number)
    path.write_bytes(pack_file_header(FileType.DELAY_LOG, IDENTITY, number) + blobs)

    def change(manifest: Checkpoint) -> None:
        state = DelayLogState(delay_log_id=number, bytes=64 + len(blobs), due_ms_max=1 << 60)
        manifest.delay_logs.append(state)
        manifest.next_run_id = number + 1

    edit_manifest(directory, change)
