"""The files of the views that a manifest names: which there are, and each verified in small pieces.

Verified is what the manifest vouches for, and not what was written behind that since. Delay logs
have no checksum of their own: of them it is the header, and a caller may be shown the units that
point into them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint
from hourwheel.types import TopicQueue
from node.shard.checkpoint import MANIFEST
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.log.epochs import EpochFile
from storage.queues.consume_queues import folder_name
from storage.queues.queue_chunk import ENTRIES_AT, Seal, intact_seals
from storage.views import key_run, sequence_index, tombstones
from storage.views.unit import UNIT, UNIT_BYTES, Units
from timewheel.levels import BUCKET_MS
from timewheel.run import Run
from timewheel.run_format import delay_log_path, run_path

EPOCHS: Final = "epochs"
TAIL: Final = "sequences/tail"
_READ_BYTES: Final = 256 << 10
_RUN_UNITS: Final = _READ_BYTES // UNIT_BYTES
_PAGES: Final = 32
_RUN_END: Final = ".run"
_CHUNK_END: Final = ".cq"


class ViewFile(NamedTuple):
    """A file to verify."""

    name: str
    """In the shard's folder."""
    path: str
    """Where it lies: there, or where a snapshot holds it."""
    size_bytes: int
    """So long is what the manifest vouches for; 0: it says so itself."""
    head: bytes = b""
    """Its first bytes, where they have to be those of an earlier moment."""


def find_names(disk: Disk, directory: str, manifest: Checkpoint) -> Iterator[str]:
    """Names, in the shard's folder, of the files that a manifest vouches for, itself first.

    Chunks of queues are those that lie there: which ones have to is known to who opens the queue.
    """
    if not manifest.applied_offset:
        return  # none has been written yet
    yield MANIFEST
    if disk.exists(f"{directory}/{EPOCHS}"):
        yield EPOCHS
    blocks, rest = divmod(manifest.sequence_index_count, sequence_index.BLOCK_ENTRIES)
    if rest:
        yield TAIL
    for number in range(-(-blocks // sequence_index.CHUNK_BLOCKS)):
        yield f"sequences/{sequence_index.file_name(number)}"
    if manifest.tombstone_file:
        yield f"tombstones/{tombstones.file_name(manifest.tombstone_file)}"
    yield from (f"keys/{key_run.file_name(run_id)}" for run_id in manifest.key_run_ids)
    yield from (run_path("wheel", run.covers_first, run.run_id) for run in manifest.runs)
    yield from (delay_log_path("wheel", one.delay_log_id) for one in manifest.delay_logs)
    for queue in manifest.queues:
        folder = f"queues/{folder_name(TopicQueue(queue.topic_queue))}"
        if disk.exists(f"{directory}/{folder}"):
            for name in disk.list(f"{directory}/{folder}"):
                if name.endswith(_CHUNK_END):
                    yield f"{folder}/{name}"


def _no_steps(_: Units) -> Iterator[int]:
    return iter(())


class ViewCheck:
    """Verifies files of the views. No threads: for one that may wait for the disk."""

    def __init__(
        self,
        disk: Disk,
        identity: Identity,
        manifest: Checkpoint,
        *,
        is_growing: bool = False,
        on_units: Callable[[Units], Iterator[int]] = _no_steps,
    ) -> None:
        """Of the files that `manifest` names.

        Args:
            disk: where they lie.
            identity: whose they are.
            manifest: what it counts is verified.
            is_growing: the shard goes on meanwhile, and may have sealed more of a queue by now.
            on_units: is shown units that are needed, verified, in the order in which they lie; its
                steps are taken before those that follow.
        """
        self._disk, self._identity, self._manifest = disk, identity, manifest
        self._is_growing, self._on_units = is_growing, on_units
        self._queues = {folder_name(TopicQueue(one.topic_queue)): one for one in manifest.queues}
        self._runs = {run_path("wheel", one.covers_first, one.run_id): one for one in manifest.runs}

    def run(self, file: ViewFile) -> None:
        """Verify a file. Raises as `steps`."""
        for _ in self.steps(file):
            pass

    def steps(self, file: ViewFile) -> Iterator[int]:
        """Verify a file: after each step, how many bytes of it, or of what it points at, are well.

        Raises:
            CorruptFile: it is damaged. DiskFailed: it cannot be read. FileNotFoundError.
        """
        kinds: dict[str, Callable[[ViewFile], Iterator[int]]] = {
            MANIFEST: self._check_manifest,
            EPOCHS: self._check_epochs,
            "keys": self._check_keys,
            "queues": self._check_queue,
            "sequences": self._check_sequences,
            "tombstones": self._check_tombstones,
            "wheel": self._check_wheel,
        }
        check = kinds.get(file.name.partition("/")[0])
        return iter(()) if check is None else check(file)

    def _check_manifest(self, file: ViewFile) -> Iterator[int]:
        found = atomic_file.read(self._disk, file.path, FileType.CHECKPOINT, self._identity)
        yield len(found.payload)

    def _check_epochs(self, file: ViewFile) -> Iterator[int]:
        EpochFile.open(self._disk, file.path, self._identity)
        yield FILE_HEADER_BYTES

    def check_header(self, file: ViewFile, file_type: FileType, base: int) -> None:
        """Verify the first bytes of a file. Raises CorruptFile."""
        with closing(self._disk.open(file.path)) as opened:
            raw = opened.pread(FILE_HEADER_BYTES, 0)
        check_file_header(raw, file.path, file_type, self._identity, base)

    def _check_wheel(self, file: ViewFile) -> Iterator[int]:
        if not file.name.endswith(_RUN_END):
            number = int(file.name.removeprefix("wheel/").partition(".")[0])
            self.check_header(file, FileType.DELAY_LOG, number)
            yield FILE_HEADER_BYTES
            return
        state, cursor = self._runs.get(file.name), self._manifest.cursor
        cascaded = [] if state is None else list(state.cascaded_days)
        with closing(Run(self._disk, file.path, self._identity)) as run:
            for bucket in run.buckets():
                run.directory(bucket)
                yield FILE_HEADER_BYTES
            count, bucket_ms = run.footer.unit_count, BUCKET_MS[run.footer.level]
            for first in range(0, count, _RUN_UNITS):
                units = run.read(first, min(first + _RUN_UNITS, count))
                yield len(units) * UNIT_BYTES
                is_left = units["due_ms"] >= cursor.due_ms
                is_left &= ~np.isin(units["due_ms"] // bucket_ms, cascaded)
                yield from self._on_units(units[is_left])

    def _check_queue(self, file: ViewFile) -> Iterator[int]:
        _, folder, name = file.name.split("/")
        queue = self._queues.get(folder)
        if queue is None:
            return  # of a topic that has been deleted
        with closing(self._disk.open(file.path)) as opened:
            size = file.size_bytes or opened.size()
            in_full, number = (size - ENTRIES_AT) // UNIT_BYTES, int(name.partition(".")[0])
            begin = number * in_full
            count = min(in_full, queue.end_position - begin)
            if count <= 0 or begin + in_full <= queue.start_position:
                return  # of a log that may not be any more, or just trimmed
            head = file.head or opened.pread(ENTRIES_AT, 0)
            check_file_header(head, file.path, FileType.CONSUME_QUEUE, self._identity, number)
            seal = self._find_seal(head, TopicQueue(queue.topic_queue), count)
            if seal is None:
                raise errors.CorruptFile(f"no seal over {count} entries", file=file.path)
            crc, parts = 0, list[bytes]()
            end = ENTRIES_AT + seal.entry_count * UNIT_BYTES
            for at in range(ENTRIES_AT, end, _READ_BYTES):
                raw = opened.pread(min(_READ_BYTES, end - at), at)
                crc = crc32c(raw, crc)
                parts.append(raw)
                yield len(raw)
        if crc != seal.entries_crc:
            raise errors.CorruptFile(
                f"{seal.entry_count} entries fail their CRC32C", file=file.path
            )
        units = np.frombuffer(b"".join(parts), UNIT)
        yield from self._on_units(units[max(0, queue.start_position - begin) :])

    def _check_keys(self, file: ViewFile) -> Iterator[int]:
        with closing(key_run.KeyRun(self._disk, file.path, self._identity)) as run:
            yield from run.check()

    def _find_seal(self, head: bytes, topic_queue: TopicQueue, count: int) -> Seal | None:
        """The seal over so many entries; where the shard goes on, over as many or more."""
        seals = sorted(intact_seals(head, topic_queue).values())
        is_growing = self._is_growing
        fitting = (
            one
            for one in seals
            if one.entry_count == count or (is_growing and one.entry_count > count)
        )
        return next(fitting, None)

    def _check_sequences(self, file: ViewFile) -> Iterator[int]:
        disk, identity = self._disk, self._identity
        if file.name == TAIL:
            found = atomic_file.read(disk, file.path, FileType.SEQUENCE_INDEX, identity)
            yield len(found.payload)
            return
        number = int(file.name.removeprefix("sequences/").partition(".")[0])
        self.check_header(file, FileType.SEQUENCE_INDEX, number)
        first = number * sequence_index.CHUNK_BLOCKS
        end = self._manifest.sequence_index_count // sequence_index.BLOCK_ENTRIES
        count = min(sequence_index.CHUNK_BLOCKS, end - first)
        size = sequence_index.BLOCK_BYTES
        with closing(disk.open(file.path)) as opened:
            for at in range(0, count, _READ_BYTES // size):
                some = min(_READ_BYTES // size, count - at)
                raw = opened.pread(some * size, FILE_HEADER_BYTES + at * size)
                blocks = np.arange(first + at, first + at + some)
                if len(raw) < some * size or sequence_index.damaged_blocks(raw, blocks).any():
                    raise errors.CorruptFile("a block fails its CRC32C", file=file.path)
                yield len(raw)

    def _check_tombstones(self, file: ViewFile) -> Iterator[int]:
        self.check_header(file, FileType.TOMBSTONES, self._manifest.tombstone_file)
        step, end = _PAGES * tombstones.RECORD_BYTES, self._manifest.tombstone_bytes
        with closing(self._disk.open(file.path)) as opened:
            for at in range(FILE_HEADER_BYTES, end, step):
                raw = opened.pread(min(step, end - at), at)
                if len(raw) < min(step, end - at):
                    raise errors.CorruptFile("it is too short", file=file.path)
                tombstones.verified_pages(raw, file.path, at)
                yield len(raw)
