"""Read what the consume queues of a replica hold, as far as its last checkpoint vouches for it.

    for one in plan_queues(replica, copy):
        for piece in read_queue(one):       # QueuePiece or Damage

Entries behind the checkpoint are in the files of a node that runs, or was killed, and nothing says
that they are of the log as it is now: they are not read. A node that was stopped has a checkpoint
of its end. A chunk that fails its seal is a `Damage`, and the other chunks are read on.

A running node removes chunks that its retention lets go of; such a chunk is a `Damage` too, which
is gone when the directory is looked at again.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from spark_jobs.block_table import CORRUPT_FILE, Damage
from spark_jobs.paths import open_disk
from spark_jobs.replica import Replica, ShardCopy
from storage.disk import Disk, join
from storage.file_header import Identity
from storage.queue_chunk import ENTRIES_AT, find_seal
from storage.unit import UNIT, UNIT_BYTES, Units

CHUNK_SUFFIX: Final = ".cq"
CHUNK_DIGITS: Final = 12
PARTITION_ENTRIES: Final = 1 << 20
_SIZED_MAX: Final = 4


class QueueRange(NamedTuple):
    """Entries [start_position, end_position) of one queue of one node; picklable."""

    uri: str
    node: str
    shard: int
    cluster: str
    """32 hexadecimal digits."""
    folder: str
    """Of the queue's chunks, in the node's directory."""
    topic_queue: int
    start_position: int
    end_position: int
    chunk_entries: int
    """Entries of a chunk; 0: no chunk was found to tell."""
    sealed_end: int
    """The queue's end by the checkpoint: the last chunk is sealed up to here."""

    def chunk_path(self, number: int) -> str:
        """The file of a chunk."""
        return join(self.folder, f"{number:0{CHUNK_DIGITS}}{CHUNK_SUFFIX}")


class QueuePiece(NamedTuple):
    """Neighbouring entries of a queue, all from one chunk."""

    where: QueueRange
    file: str
    first_position: int
    units: Units
    """Structured array[n] of `storage.unit.UNIT`, read-only."""


def plan_queues(
    replica: Replica, copy: ShardCopy, *, partition_entries: int = PARTITION_ENTRIES
) -> list[QueueRange]:
    """What there is to read of all queues of a shard's copy; nothing without a checkpoint."""
    manifest, disk, found = copy.manifest, replica.open_disk(), []
    for state in manifest.queues if manifest else ():
        folder = copy.path("queues", f"{state.topic_queue:08x}")
        chunk_entries = _chunk_entries(disk, folder)
        step = max(1, partition_entries // max(1, chunk_entries)) * max(1, chunk_entries)
        start, end = state.start_position, state.end_position
        while start < end:
            stop = min(end, (start // step + 1) * step) if chunk_entries else end
            found.append(
                QueueRange(
                    replica.uri,
                    replica.node,
                    copy.shard,
                    replica.cluster_id.hex(),
                    folder,
                    state.topic_queue,
                    start,
                    stop,
                    chunk_entries,
                    end,
                )
            )
            start = stop
    return found


def _chunk_entries(disk: Disk, folder: str) -> int:
    """Entries of a chunk, by the largest of some of the folder's files; 0 where there is none.

    All have one size, but for those that are damaged.
    """
    sizes = [0]
    try:
        names = [name for name in sorted(disk.list(folder)) if name.endswith(CHUNK_SUFFIX)]
        for name in names[:_SIZED_MAX]:
            with closing(disk.open(join(folder, name))) as file:
                sizes.append(file.size())
    except (errors.HourwheelError, OSError):
        return 0  # whoever reads the chunks comes upon it too
    return max(0, max(sizes) - ENTRIES_AT) // UNIT_BYTES


def read_queue(where: QueueRange, *, disk: Disk | None = None) -> Iterator[QueuePiece | Damage]:
    """The entries of a range, in order, chunk by chunk."""
    if not where.chunk_entries:
        yield _damage(where, where.folder, where.start_position, "its chunks are missing")
        return
    disk = disk or open_disk(where.uri)
    position = where.start_position
    while position < where.end_position:
        number = position // where.chunk_entries
        stop = min(where.end_position, (number + 1) * where.chunk_entries)
        path = where.chunk_path(number)
        try:
            units = _read_chunk(disk, where, number)
        except (errors.HourwheelError, OSError) as error:
            yield _damage(where, path, position, str(error))
        else:
            first = number * where.chunk_entries
            yield QueuePiece(where, path, position, units[position - first : stop - first])
        position = stop


def _read_chunk(disk: Disk, where: QueueRange, number: int) -> Units:
    """All sealed entries of a chunk, verified."""
    path, first = where.chunk_path(number), number * where.chunk_entries
    count = min(where.sealed_end - first, where.chunk_entries)
    identity = Identity(bytes.fromhex(where.cluster), where.shard)
    seal, _ = find_seal(disk, path, identity, number, where.topic_queue, count, or_more=True)
    with closing(disk.open(path)) as file:
        raw = file.pread(seal.entry_count * UNIT_BYTES, ENTRIES_AT)
    if len(raw) != seal.entry_count * UNIT_BYTES or crc32c(raw) != seal.entries_crc:
        raise errors.CorruptFile(f"{path}: its entries fail their CRC32C", file=path)
    return np.frombuffer(raw, UNIT)[:count]


def _damage(where: QueueRange, path: str, position: int, why: str) -> Damage:
    detail = f"queue {where.topic_queue:08x} from position {position} on: {why}"
    return Damage(where.node, where.shard, path, -1, 0, CORRUPT_FILE, detail)
