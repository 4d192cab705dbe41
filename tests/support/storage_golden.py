"""The golden files of the log's formats, made anew: `python -m tests.support.storage_golden`.

Only for a new version of a format (storage.files.file_header tells how): the files of a released
version are never changed.
"""

from hourwheel.formats.record_batch import (
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_publish,
    stamp,
)
from hourwheel.types import FIRST_OFFSET, Epoch, Offset, SequenceNumber
from node.shard.checkpoint import ShardPlace
from node.shard.snapshot_files import (
    LOST_END,
    MARKER,
    Marker,
    NamedSize,
    digest_of,
    write_lost_end,
    write_marker,
)
from storage.files.disk import Disk
from storage.log.commit_log import CommitLog
from storage.log.epochs import EpochFile
from tests.sim.disk import SimulatedDisk
from tests.support.golden import FOLDER
from tests.support.log_world import FIRST, IDENTITY, MARK, SHARD, flush, open_log

EPOCHS = f"{SHARD}/epochs"
PATHS = {
    "log_segment": FIRST,
    "log_index": FIRST.replace(".log", ".index"),
    "flushed_mark": MARK,
    "epochs": EPOCHS,
    "snapshot_marker": f"{SHARD}/{MARKER}",
    "lost_end": f"{SHARD}/{LOST_END}",
}
"""Name of the golden file -> the file in a data directory that it is a copy of."""
MARKED = Marker(
    applied_offset=Offset(100),
    log_start_offset=Offset(50),
    log_end_offset=Offset(200),
    replaced_end_offset=Offset(25),
    file_count=2,
    digest=digest_of([NamedSize("epochs", 96), NamedSize("log/x", 7)]),
)
_LINE_BYTES = 32


def build() -> dict[str, bytes]:
    """The files of a log of three batches in two writes and two epochs, by golden name."""
    disk = SimulatedDisk()
    log = open_log(disk)
    epochs = EpochFile.open(disk, EPOCHS, IDENTITY)
    epochs.append(Epoch(1), FIRST_OFFSET)
    _append(log, RecordBatch(build_blob(Kind.EPOCH_START, b"\x0a\x01n")), 0)
    publish = build_publish(
        [1_700_000_000_123, 1_800_000_000_456],
        [b"first body", b"second"],
        metas=[b"", b"\x0a\x03tag"],
        tag_genes=[0, 0x41],
        key_hashes=[7, 0],
        topic_queues=[0x0101, 0x0102],
        producer_id=99,
        producer_sequence=5,
        gene_kind=1,
    )
    _append(log, RecordBatch(publish), 0)
    flush(log)
    epochs.append(Epoch(4), log.end_offset)
    _append(log, RecordBatch(build_blob(Kind.EPOCH_START, b"\x0a\x01m")), 2)
    flush(log)
    log.close()
    place = ShardPlace(disk, SHARD, IDENTITY)
    write_marker(place, MARKED)
    write_lost_end(place, Offset(0x1234))
    return {name: _contents(disk, path) for name, path in PATHS.items()}


def _append(log: CommitLog, batch: RecordBatch, sequence: int) -> None:
    where = Stamp(
        log.end_offset,
        SequenceNumber(sequence),
        1_690_000_000_000,
        log.durable_end_offset,
        Epoch(1),
    )
    if batch.header.stamped_bytes:
        pieces = stamp(batch, where, due_ms=batch.due_ms, topic_queue=batch.topic_queue)
    else:
        pieces = stamp(batch, where)
    log.append(pieces)


def _contents(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def restore(files: dict[str, bytes]) -> SimulatedDisk:
    """A disk with these files in their places."""
    disk = SimulatedDisk()
    disk.make_dir(f"{SHARD}/log")
    for name, raw in files.items():
        disk.open(PATHS[name], create=True).pwrite([raw], 0)
    return disk


def main() -> None:
    """Write tests/golden/*.hex."""
    for name, raw in build().items():
        lines = [raw[at : at + _LINE_BYTES].hex() for at in range(0, len(raw), _LINE_BYTES)]
        (FOLDER / f"{name}.hex").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
