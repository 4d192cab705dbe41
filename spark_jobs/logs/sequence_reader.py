"""Entries of a replica's sequence index, verified, and held against those that they must be.

A reader of its own, by docs/FORMATS.md: the node's writes when it opens an index. Only what the
checkpoint counts is looked at. The file `tail` may be of a later checkpoint of a node that runs:
then it begins with the entries that are asked for, or their block is whole by now.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import ShardId
from spark_jobs.logs.replica import Replica, ShardCopy
from spark_jobs.runtime.paths import open_disk
from storage.files import atomic_file
from storage.files.disk import File
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.views.sequence_index import BLOCK, BLOCK_BYTES, BLOCK_ENTRIES, CHUNK_BLOCKS, file_name

U64 = NDArray[np.uint64]
Array = NDArray[Any]
WRONG_REPORTED: Final = 100
"""At most so many wrong entries of one range are kept; all are counted."""
FILE_ENTRIES: Final = CHUNK_BLOCKS * BLOCK_ENTRIES
_ENTRIES_BYTES: Final = 8 * BLOCK_ENTRIES


class IndexCopy(NamedTuple):
    """One replica's sequence index, by its checkpoint; picklable."""

    uri: str
    node: str
    shard: int
    cluster: str
    folder: str
    """Of the index."""
    entry_count: int
    """Sequences that it has."""
    applied_offset: int
    """Messages of records below it are in it."""

    def path_of(self, sequence: int) -> str:
        """The file in the node's directory that has a sequence; of the last few: `tail`."""
        if sequence >= self.entry_count // BLOCK_ENTRIES * BLOCK_ENTRIES:
            return f"{self.folder}/tail"
        return f"{self.folder}/{file_name(sequence // FILE_ENTRIES)}"


class WrongEntry(NamedTuple):
    """An entry that is not what the log makes it."""

    node: str
    file: str
    sequence: int
    topic_queue: int
    found: int
    wanted: int


@dataclass
class IndexPart:
    """What a range of messages, or several together, tell of the indexes."""

    wrong: list[WrongEntry] = field(default_factory=list)
    wrong_count: int = 0
    """All of them, kept in `wrong` or not."""
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    """(node, file, why): what could not be read."""

    def merge(self, other: "IndexPart") -> None:
        """Take in what another one has."""
        self.wrong += other.wrong
        self.wrong_count += other.wrong_count
        self.faults += other.faults


def plan_index(replica: Replica, copy: ShardCopy, manifest: Checkpoint) -> IndexCopy:
    """The index of a checkpoint."""
    return IndexCopy(
        replica.uri,
        replica.node,
        copy.shard,
        replica.cluster_id.hex(),
        copy.path("sequences"),
        min(manifest.sequence_index_count, manifest.next_sequence),
        copy.applied_offset,
    )


class SequenceReader:
    """Reads one index; a context, which closes its files."""

    def __init__(self, copy: IndexCopy) -> None:
        """Open nothing yet."""
        self.copy = copy
        self._disk = open_disk(copy.uri)
        self._identity = Identity(bytes.fromhex(copy.cluster), ShardId(copy.shard))
        self._files: dict[int, File] = {}
        self._last: U64 | None = None
        self._open = ExitStack()
        self._bad: set[str] = set()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the files."""
        self._open.close()

    def read(self, first: int, end: int) -> U64:
        """The entries of sequences [first, end), all below the count.

        Raises:
            CorruptFile: a file is missing, foreign or too short, or a block fails its CRC32C.
            OSError: a file cannot be read.
        """
        whole = self.copy.entry_count // BLOCK_ENTRIES
        pieces: list[U64] = [np.empty(0, np.uint64)]
        low, high = first // BLOCK_ENTRIES, min(-(-end // BLOCK_ENTRIES), whole)
        at = low
        while at < high:
            until = min(high, at - at % CHUNK_BLOCKS + CHUNK_BLOCKS)
            pieces.append(self._blocks(at, until))
            at = until
        if end > whole * BLOCK_ENTRIES:
            pieces.append(self._tail())
        begin = min(low, whole) * BLOCK_ENTRIES
        found: U64 = np.concatenate(pieces)[first - begin : end - begin]
        return found

    def compare(self, sequences: U64, wanted: U64, queues: Array, part: IndexPart) -> None:
        """Hold the entries of some messages against what they must be.

        Args:
            sequences: uint64[n], of messages whose records are below the applied offset.
            wanted: uint64[n]: their entries, by the log.
            queues: uint32[n]: their topic_queues.
            part: gets what differs, and why something could not be read; of a file once.
        """
        known = sequences < np.uint64(self.copy.entry_count)
        if not known.all():  # that it counts too few the checkpoint tells
            sequences, wanted, queues = sequences[known], wanted[known], queues[known]
        if not len(sequences):
            return
        first, end = int(sequences.min()), int(sequences.max()) + 1
        try:
            entries = self.read(first, end)
        except (errors.HourwheelError, OSError) as error:
            file = error.params.get("file", "") if isinstance(error, errors.HourwheelError) else ""
            file = file or self.copy.path_of(first)
            if file not in self._bad:
                self._bad.add(file)
                part.faults.append((self.copy.node, file, str(error)))
            return
        found = entries[(sequences - np.uint64(first)).view(np.int64)]
        wrong = np.flatnonzero(found != wanted)
        part.wrong_count += len(wrong)
        for at in wrong[: max(0, WRONG_REPORTED - len(part.wrong))].tolist():
            sequence = int(sequences[at])
            part.wrong.append(
                WrongEntry(
                    self.copy.node,
                    self.copy.path_of(sequence),
                    sequence,
                    int(queues[at]),
                    int(found[at]),
                    int(wanted[at]),
                )
            )

    def _blocks(self, first: int, end: int) -> U64:
        """The entries of blocks [first, end), which lie in one file."""
        number = first // CHUNK_BLOCKS
        file, path = self._file(number), self._path(number)
        position = FILE_HEADER_BYTES + first % CHUNK_BLOCKS * BLOCK_BYTES
        raw = file.pread((end - first) * BLOCK_BYTES, position)
        if len(raw) != (end - first) * BLOCK_BYTES:
            raise errors.CorruptFile(f"{path} ends before the checkpoint's count", file=path)
        blocks, view = np.frombuffer(raw, BLOCK), memoryview(raw)
        crcs = [crc32c(view[at : at + _ENTRIES_BYTES]) for at in range(0, len(raw), BLOCK_BYTES)]
        numbers = np.arange(first, end).astype(np.uint32)
        is_bad = (np.array(crcs, np.uint32) ^ numbers) != blocks["crc"]
        if is_bad.any():
            block = first + int(np.flatnonzero(is_bad)[0])
            raise errors.CorruptFile(f"{path}: block {block} fails its CRC32C", file=path)
        entries: U64 = blocks["entries"].reshape(-1)
        return entries

    def _file(self, number: int) -> File:
        file = self._files.get(number)
        if file is None:
            path = self._path(number)
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                raise errors.CorruptFile(f"{path} is missing", file=path) from None
            self._open.callback(file.close)
            head = file.pread(FILE_HEADER_BYTES, 0)
            check_file_header(head, path, FileType.SEQUENCE_INDEX, self._identity, number)
            self._files[number] = file
        return file

    def _path(self, number: int) -> str:
        return f"{self.copy.folder}/{file_name(number)}"

    def _tail(self) -> U64:
        """The entries behind the last whole block."""
        if self._last is not None:
            return self._last
        block, count = divmod(self.copy.entry_count, BLOCK_ENTRIES)
        path = f"{self.copy.folder}/tail"
        try:
            tail = atomic_file.read(self._disk, path, FileType.SEQUENCE_INDEX, self._identity)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path} is missing", file=path) from None
        entries: U64 = np.frombuffer(tail.payload[: len(tail.payload) // 8 * 8], "<u8")
        if tail.header.base > block:
            entries = self._blocks(block, block + 1)
        elif tail.header.base < block or len(entries) < count:
            raise errors.CorruptFile(f"{path} is of an older checkpoint", file=path)
        self._last = entries[:count]
        return self._last
