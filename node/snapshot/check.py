"""What a snapshot is going to carry, verified: damage is not given away.

Who takes a snapshot opens it as at any start. What is damaged there it cannot use, and would ask
for again and again; what is found later would be damaged on two nodes. So the giver reads, before
it gives them, the views as far as the manifest vouches for them, and the log that who takes them
replays. Older log is the scrubber's (storage/log/scrub.py), and bodies in delay logs are repaired
when they are read: they may be many, and each is under a checksum that travels with it.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint, QueueState
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.log.epoch_file import EpochFile
from storage.log.scan import BatchWalk, corrupt_log
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, find_start_offset
from storage.queues.consume_queues import folder_name
from storage.queues.queue_chunk import ENTRIES_AT, intact_seals
from storage.views import sequence_index, tombstones
from storage.views.unit import UNIT_BYTES
from timewheel.run import Run

_READ_BYTES: Final = 1 << 20
_RUN_UNITS: Final = 1 << 14
_PAGES: Final = 64


class HeldFile(NamedTuple):
    """A file of a snapshot."""

    name: str
    """In the shard's folder."""
    size_bytes: int
    sent_bytes: int
    """Behind these it has zeros."""
    path: str
    """Of its second name."""
    head: bytes = b""
    """Its first bytes as they were when it was held."""


class SnapshotCheck:
    """See the top of this file. No threads: for one that may wait for the disk."""

    def __init__(self, disk: Disk, directory: str, identity: Identity, manifest: Checkpoint):
        """`directory`: of the shard, for what is said; `manifest`: as the snapshot has it."""
        self._disk, self._directory, self._identity = disk, directory, identity
        self._manifest = manifest
        self._names: set[str] = set()
        self._queues = {folder_name(one.topic_queue): one for one in manifest.queues}

    def run(self, files: Sequence[HeldFile]) -> None:
        """Verify these.

        Raises:
            CorruptLog, CorruptFile: naming the first file that is damaged, as the shard names it.
        """
        self._names = {one.name for one in files}
        checks: dict[str, Callable[[HeldFile], None]] = {
            "epochs": self._check_epochs,
            "log": self._check_log,
            "queues": self._check_queue,
            "sequences": self._check_sequences,
            "tombstones": self._check_tombstones,
            "wheel": self._check_wheel,
        }
        for held in files:
            path = f"{self._directory}/{held.name}"
            check = checks.get(held.name.partition("/")[0])
            try:
                if check is not None:
                    check(held)
            except errors.CorruptLog as error:
                at = error.params["offset"]
                raise errors.CorruptLog(
                    error.message.replace(held.path, path), file=path, offset=at
                ) from error
            except errors.CorruptFile as error:
                why = error.message.replace(held.path, path)
                raise errors.CorruptFile(
                    why if path in why else f"{path}: {why}", file=path
                ) from error

    def _check_epochs(self, held: HeldFile) -> None:
        EpochFile.open(self._disk, held.path, self._identity)

    def _check_header(self, held: HeldFile, file_type: FileType, base: int) -> None:
        with closing(self._disk.open(held.path)) as file:
            raw = file.pread(FILE_HEADER_BYTES, 0)
        check_file_header(raw, held.path, file_type, self._identity, base)

    def _check_log(self, held: HeldFile) -> None:
        start = find_start_offset(held.name.removeprefix("log/"))
        if start is None:
            return  # an index: whoever needs it makes it again
        try:
            self._check_header(held, FileType.LOG_SEGMENT, start)
        except errors.CorruptFile as error:
            raise corrupt_log(error.message, held.path, start, 0) from error
        end = start + held.size_bytes - FILE_HEADER_BYTES
        # Without its index, who takes it reads the segment from its beginning.
        has_index = held.name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX in self._names
        begin = max(start, min(end, self._manifest.applied_offset)) if has_index else start
        with closing(self._disk.open(held.path)) as file:
            walk = BatchWalk(file, start, begin, end)
            for _ in walk:
                pass
            if walk.fault is not None:
                at = walk.next_offset
                raise corrupt_log(walk.fault, held.path, at, at - start + FILE_HEADER_BYTES)

    def _check_wheel(self, held: HeldFile) -> None:
        if not held.name.endswith(".run"):
            number = int(held.name.removeprefix("wheel/").partition(".")[0])
            self._check_header(held, FileType.DELAY_LOG, number)
            return
        with closing(Run(self._disk, held.path, self._identity)) as run:
            for bucket in run.buckets():
                run.directory(bucket)
            count = run.footer.unit_count
            for first in range(0, count, _RUN_UNITS):
                run.read(first, min(first + _RUN_UNITS, count))

    def _check_queue(self, held: HeldFile) -> None:
        _, folder, name = held.name.split("/")
        queue: QueueState = self._queues[folder]
        number, in_full = int(name.partition(".")[0]), (held.size_bytes - ENTRIES_AT) // UNIT_BYTES
        count = min(in_full, queue.end_position - number * in_full)
        with closing(self._disk.open(held.path)) as file:
            head = held.head or file.pread(ENTRIES_AT, 0)
            check_file_header(head, held.path, FileType.CONSUME_QUEUE, self._identity, number)
            seals = intact_seals(head, queue.topic_queue).values()
            seal = next((one for one in seals if one.entry_count == count), None)
            if seal is None:
                raise errors.CorruptFile(f"no seal over {count} entries", file=held.path)
            crc, end = 0, ENTRIES_AT + count * UNIT_BYTES
            for at in range(ENTRIES_AT, end, _READ_BYTES):
                crc = crc32c(file.pread(min(_READ_BYTES, end - at), at), crc)
        if crc != seal.entries_crc:
            raise errors.CorruptFile(f"{count} entries fail their CRC32C", file=held.path)

    def _check_sequences(self, held: HeldFile) -> None:
        disk, identity = self._disk, self._identity
        if held.name == "sequences/tail":
            atomic_file.read(disk, held.path, FileType.SEQUENCE_INDEX, identity)
            return
        number = int(held.name.removeprefix("sequences/").partition(".")[0])
        self._check_header(held, FileType.SEQUENCE_INDEX, number)
        first = number * sequence_index.CHUNK_BLOCKS
        end = self._manifest.sequence_index_count // sequence_index.BLOCK_ENTRIES
        count = min(sequence_index.CHUNK_BLOCKS, end - first)
        size = sequence_index.BLOCK_BYTES
        with closing(disk.open(held.path)) as file:
            for at in range(0, count, _READ_BYTES // size):
                some = min(_READ_BYTES // size, count - at)
                raw = file.pread(some * size, FILE_HEADER_BYTES + at * size)
                blocks = np.arange(first + at, first + at + some)
                if len(raw) < some * size or sequence_index.damaged_blocks(raw, blocks).any():
                    raise errors.CorruptFile("a block fails its CRC32C", file=held.path)

    def _check_tombstones(self, held: HeldFile) -> None:
        self._check_header(held, FileType.TOMBSTONES, self._manifest.tombstone_file)
        step, end = _PAGES * tombstones.RECORD_BYTES, held.size_bytes
        with closing(self._disk.open(held.path)) as file:
            for at in range(FILE_HEADER_BYTES, end, step):
                raw = file.pread(min(step, end - at), at)
                tombstones.verified_pages(raw, held.path, at)
