"""What tests of spark_jobs/ share: files in memory, whole logs read by the source's own reader."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from spark_jobs.logs.block_table import BlockTable, Damage
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.ranges import SegmentRange, plan_ranges
from spark_jobs.logs.replica import Replica, ShardCopy
from spark_jobs.logs.segment_reader import read_blocks
from storage.files.disk import Disk


class BytesFile:
    """A file of a `BytesDisk`."""

    def __init__(self, raw: bytes, path: str) -> None:
        self.raw, self.path = raw, path
        self.read_bytes = 0

    def pread(self, length: int, position: int) -> bytes:
        self.read_bytes += length
        return self.raw[position : position + length]

    def size(self) -> int:
        return len(self.raw)

    def will_need(self, position: int, length: int) -> None:
        del position, length

    def close(self) -> None:
        pass


class BytesDisk:
    """One file in memory, whatever it is called."""

    def __init__(self, raw: bytes) -> None:
        self.file = BytesFile(raw, "a")

    def open(self, path: str) -> BytesFile:
        del path
        return self.file

    def exists(self, path: str) -> bool:
        return bool(path)


def in_memory(raw: bytes) -> Disk:
    """A disk whose only file has these bytes."""
    return cast("Disk", BytesDisk(raw))


def range_of(raw: bytes, segment_start: int = 0, *, durable_offset: int = 0) -> SegmentRange:
    """All of a segment's file that is in memory, as the last of its log."""
    end = segment_start + len(raw) - 64
    return SegmentRange(
        "/", "n", 0, "", "a", segment_start, segment_start, end, durable_offset, is_tail=True
    )


def tables_of(
    replica: Replica, copy: ShardCopy, *, partition_bytes: int = 1 << 26, piece_bytes: int = 1 << 23
) -> Iterator[BlockTable]:
    """The whole log of a shard's copy."""
    for one in plan_ranges(replica, copy, partition_bytes=partition_bytes):
        yield from read_blocks(one, piece_bytes=piece_bytes)


def only_copy(directory: Path) -> tuple[Replica, ShardCopy]:
    """The one replica that is in or below a directory, and its shard 0."""
    ((replica, copy),) = discover([str(directory)]).copies(0)
    return replica, copy


def damages_of(directory: Path) -> list[Damage]:
    """All damage in the log of the one replica of a directory."""
    return [one for table in tables_of(*only_copy(directory)) for one in table.damages]


def copied(directory: Path, to: Path) -> Path:
    """A copy of a node's directory, to be damaged."""
    return Path(shutil.copytree(directory, to / directory.name))
