"""Read what the consume queues of a replica hold, as far as its last checkpoint vouches for it.

    for one in plan_queues(replica, copy):
        for piece in read_queue(one):       # QueuePiece or Damage

Entries behind the checkpoint are in the files of a node that runs, or was killed, and nothing says
that they are of the log as it is now: they are not read. A node that was stopped has a checkpoint
of its end. A chunk that fails its seal is a `Damage`, and the other chunks are read on.

Without a checkpoint each chunk still has its own seals: `plan_by_seals` reads as far as the longest
of them that holds. A seal is over entries of committed records, so they must be the log's; how far
the queue goes behind them nothing says.

A running node removes chunks that its retention lets go of; such a chunk is a `Damage` too, which
is gone when the directory is looked at again.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.types import ShardId, TopicQueue
from spark_jobs.logs.block_table import CORRUPT_FILE, TORN_TAIL, Damage
from spark_jobs.logs.replica import Replica, ShardCopy
from spark_jobs.runtime.paths import list_or_none, open_disk
from storage.files.disk import Disk, join
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.queues.queue_chunk import ENTRIES_AT, find_seal, intact_seals
from storage.views.unit import NO_UNITS, UNIT, UNIT_BYTES, Units

CHUNK_SUFFIX: Final = ".cq"
CHUNK_DIGITS: Final = 12
PARTITION_ENTRIES: Final = 1 << 20
BY_SEALS: Final = -1
"""`QueueRange.sealed_end` where no checkpoint tells it."""
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
    topic_queue: TopicQueue
    start_position: int
    end_position: int
    chunk_entries: int
    """Entries of a chunk; 0: no chunk was found to tell."""
    sealed_end: int
    """The queue's end by the checkpoint: the last chunk is sealed up to here. `BY_SEALS`: each
    chunk is read as far as its own seals vouch for it."""

    def chunk_path(self, number: int) -> str:
        """The file of a chunk."""
        return join(self.folder, f"{number:0{CHUNK_DIGITS}}{CHUNK_SUFFIX}")


class QueuePiece(NamedTuple):
    """Neighbouring entries of a queue, all from one chunk."""

    where: QueueRange
    file: str
    first_position: int
    units: Units
    """Structured array[n] of `storage.views.unit.UNIT`, read-only."""


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
                    TopicQueue(state.topic_queue),
                    start,
                    stop,
                    chunk_entries,
                    end,
                )
            )
            start = stop
    return found


def plan_by_seals(replica: Replica, copy: ShardCopy) -> list[QueueRange]:
    """The chunks of all queues of a copy without a checkpoint, from the first to the last of each.

    A queue whose folder has none is left out.
    """
    disk, found = replica.open_disk(), []
    for topic_queue in copy.queues:
        folder = copy.path("queues", f"{topic_queue:08x}")
        numbers, size = _chunk_numbers(disk, folder), _chunk_entries(disk, folder)
        if numbers:
            found.append(
                QueueRange(
                    replica.uri,
                    replica.node,
                    copy.shard,
                    replica.cluster_id.hex(),
                    folder,
                    TopicQueue(topic_queue),
                    numbers[0] * size,
                    max(1, (numbers[-1] + 1) * size),
                    size,
                    BY_SEALS,
                )
            )
    return found


def _chunk_numbers(disk: Disk, folder: str) -> list[int]:
    names = list_or_none(disk, folder) or []
    stems = [name.removesuffix(CHUNK_SUFFIX) for name in names if name.endswith(CHUNK_SUFFIX)]
    return sorted(int(one) for one in stems if len(one) == CHUNK_DIGITS and one.isdecimal())


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
        return 0  # `read_queue` comes upon it too, and reports it
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
        by_seals, doubt = where.sealed_end == BY_SEALS, ""
        try:
            if by_seals:
                units, doubt = _read_sealed(disk, where, number)
            else:
                units = _read_chunk(disk, where, number)
        except (errors.HourwheelError, OSError) as error:
            yield _damage(where, path, position, str(error))
        else:
            first = number * where.chunk_entries
            units = units[position - first : stop - first]
            if len(units) or not by_seals:
                yield QueuePiece(where, path, position, units)
            if doubt:
                yield _damage(where, path, position, doubt, TORN_TAIL)
        position = stop


def _read_chunk(disk: Disk, where: QueueRange, number: int) -> Units:
    """All sealed entries of a chunk, verified."""
    path, first = where.chunk_path(number), number * where.chunk_entries
    count = min(where.sealed_end - first, where.chunk_entries)
    identity = Identity(bytes.fromhex(where.cluster), ShardId(where.shard))
    seal, _ = find_seal(disk, path, identity, number, where.topic_queue, count, or_more=True)
    with closing(disk.open(path)) as file:
        raw = file.pread(seal.entry_count * UNIT_BYTES, ENTRIES_AT)
    if len(raw) != seal.entry_count * UNIT_BYTES or crc32c(raw) != seal.entries_crc:
        raise errors.CorruptFile(f"{path}: its entries fail their CRC32C", file=path)
    return np.frombuffer(raw, UNIT)[:count]


def _read_sealed(disk: Disk, where: QueueRange, number: int) -> tuple[Units, str]:
    """(the entries of a chunk under its longest seal that holds, why not all that another has).

    None without any seal: no checkpoint relied on the chunk. A checkpoint that a crash cut off
    leaves a seal over entries that are written again after the start, with other places in delay
    logs, and then fails; one that a checkpoint relied on holds.
    """
    path = where.chunk_path(number)
    with closing(disk.open(path)) as file:  # one handle: a start may put a new file in its place
        head = file.pread(ENTRIES_AT, 0)
        if not any(head):
            return NO_UNITS, ""  # being made
        identity = Identity(bytes.fromhex(where.cluster), ShardId(where.shard))
        check_file_header(head, path, FileType.CONSUME_QUEUE, identity, number)
        found = intact_seals(head, where.topic_queue).values()
        seals = [one for one in found if one.entry_count <= where.chunk_entries]
        seals.sort(key=lambda one: one.entry_count, reverse=True)
        if not seals and not any(head[FILE_HEADER_BYTES:]):
            return NO_UNITS, ""
        raw = file.pread(seals[0].entry_count * UNIT_BYTES, ENTRIES_AT) if seals else b""
    for one in seals:
        size = one.entry_count * UNIT_BYTES
        if len(raw) >= size and crc32c(raw[:size]) == one.entries_crc:
            doubt = f"{path}: entries {one.entry_count} to {seals[0].entry_count} fail the CRC32C"
            doubt += " of its longer seal: they are damaged, or a crash cut a checkpoint off"
            return np.frombuffer(raw[:size], UNIT), "" if one is seals[0] else doubt
    why = "its entries fail the CRC32C of every seal" if seals else "its seals are damaged"
    raise errors.CorruptFile(f"{path}: {why}", file=path)


def _damage(
    where: QueueRange, path: str, position: int, why: str, reason: str = CORRUPT_FILE
) -> Damage:
    detail = f"queue {where.topic_queue:08x} from position {position} on: {why}"
    return Damage(where.node, where.shard, path, -1, 0, reason, detail)
