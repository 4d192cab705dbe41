"""The sender's files: a shard as of its last checkpoint, held while the shard goes on.

    begin      the manifest gets a second name in a folder of its own, and is read
    complete   so does every file that it names, and the log up to the high watermark
    verify     nothing of it is damaged, as far as a receiver looks when it opens it
    pieces     their bytes, in order

A file that has a second name stays readable when the shard removes it or puts another in its place.
What the manifest names of a file is never written over, with one exception: the seals of a consume
queue's last chunk are, in turns, by the second checkpoint from now. So these bytes are copied at
once. In the end the shard's manifest must still be the same: then no file was removed, and no seal
written over, before it was held.

No threads: what reads or writes is for one that may wait for the disk.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.replication_pb2 import (
    EpochMark,
    SnapshotBytes,
    SnapshotFile,
    SnapshotHead,
)
from hourwheel.internal.v1.state_pb2 import Checkpoint, QueueState
from hourwheel.types import FIRST_OFFSET, NO_EPOCH, Epoch, Offset, TopicQueue
from node.shard.checkpoint import MANIFEST, ShardPlace
from node.shard.snapshot_files import OUTGOING, QUEUE_CHUNK_END, remove_tree
from node.shard.view_check import ViewCheck, ViewFile
from storage.files import atomic_file
from storage.files.disk import Disk, File
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity
from storage.log.epochs import EpochEntry
from storage.log.scan import BatchWalk, corrupt_log
from storage.log.segment import INDEX_SUFFIX, LOG_SUFFIX, SegmentInfo, find_start_offset
from storage.queues.consume_queues import folder_name
from storage.queues.queue_chunk import ENTRIES_AT
from storage.views import key_run, sequence_index, tombstones
from storage.views.unit import UNIT_BYTES
from timewheel.run_format import delay_log_path, run_path

_PIECE_BYTES: Final = 256 << 10
_FRAME_BYTES: Final = FILE_HEADER_BYTES + 16
"""Of an atomic file: length and checksum of its content are in it."""


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

    @property
    def view(self) -> ViewFile:
        """For who verifies it."""
        return ViewFile(self.name, self.path, self.size_bytes, self.head)


class SnapshotCheck:
    """What a snapshot is going to carry, verified: damage is not given away.

    A receiver opens it as at any start. What is damaged there it cannot use, and would request
    again and again; what is found later would be damaged on two nodes. So the sender reads, before
    it gives them, the views as far as the manifest vouches for them, and the log that a receiver
    replays. Older log is the scrubber's (storage/log/scrub.py), as are bodies in delay logs: they
    may be many, and each is under a checksum that travels with it.
    """

    def __init__(self, disk: Disk, directory: str, identity: Identity, manifest: Checkpoint):
        """`directory`: of the shard, for what is said; `manifest`: as the snapshot has it."""
        self._disk, self._directory = disk, directory
        self._manifest = manifest
        self._names: set[str] = set()
        self._views = ViewCheck(disk, identity, manifest)

    def run(self, files: Sequence[HeldFile]) -> None:
        """Verify these.

        Raises:
            CorruptLog, CorruptFile: naming the first file that is damaged, as the shard names it.
        """
        self._names = {one.name for one in files}
        for held in files:
            path = f"{self._directory}/{held.name}"
            try:
                if held.name.startswith("log/"):
                    self._check_log(held)
                else:
                    self._views.run(held.view)
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

    def _check_log(self, held: HeldFile) -> None:
        start = find_start_offset(held.name.removeprefix("log/"))
        if start is None:
            return  # an index: its reader makes it again
        try:
            self._views.check_header(held.view, FileType.LOG_SEGMENT, start)
        except errors.CorruptFile as error:
            raise corrupt_log(error.message, held.path, start, 0) from error
        end = Offset(start + held.size_bytes - FILE_HEADER_BYTES)
        # Without its index, who takes it reads the segment from its beginning.
        has_index = held.name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX in self._names
        applied = Offset(self._manifest.applied_offset)
        begin = max(start, min(end, applied)) if has_index else start
        with closing(self._disk.open(held.path)) as file:
            walk = BatchWalk(file, start, begin, end)
            for _ in walk:
                pass
            if walk.fault is not None:
                at = walk.next_offset
                raise corrupt_log(walk.fault, held.path, at, at - start + FILE_HEADER_BYTES)


class LogState(NamedTuple):
    """A log at one moment."""

    epoch: Epoch
    """Of the master that gives the snapshot."""
    high_watermark: Offset
    segments: Sequence[SegmentInfo]
    epochs: Sequence[EpochEntry]


class _Changed(Exception):
    """The shard has gone on: begin again."""


class HeldSnapshot:
    """See the top of this file."""

    def __init__(self, place: ShardPlace, number: int) -> None:
        """`number` tells snapshots apart that are given at the same time."""
        self._place = place
        self._disk: Disk = place.disk
        self._directory = f"{place.directory}{OUTGOING}{number}"
        self._files: list[HeldFile] = []
        self._manifest: Checkpoint | None = None
        self._manifest_frame = b""
        self._log = LogState(NO_EPOCH, FIRST_OFFSET, (), ())
        self.total_bytes = 0

    def begin(self) -> None:
        """Hold the manifest, if there is one. The log's state is to be taken after this.

        Raises:
            CorruptFile: the manifest is damaged. DiskFull: nothing is held.
        """
        self.close()
        self._disk.make_dir(self._directory)
        path = f"{self._directory}/{MANIFEST}"
        self._manifest, self._manifest_frame = None, b""
        try:
            self._disk.link(self._place.under(MANIFEST), path)
        except FileNotFoundError:
            return
        found = atomic_file.read(self._disk, path, FileType.CHECKPOINT, self._place.identity)
        self._manifest = Checkpoint.FromString(found.payload)
        self._manifest_frame = self._read_frame(path)

    def _read_frame(self, path: str) -> bytes:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return b""
        with closing(file):
            return file.pread(_FRAME_BYTES, 0)

    def complete(self, log: LogState) -> bool:
        """Hold everything else. False: the shard has gone on meanwhile, so begin again.

        Raises:
            CorruptFile: a file is missing that the manifest names.
            DiskFull: no room for names.
        """
        self._files, self._log = [], log
        try:
            self._hold_all(self._manifest or Checkpoint(), log)
        except (_Changed, FileNotFoundError):
            return False
        if self._read_frame(self._place.under(MANIFEST)) != self._manifest_frame:
            return False
        if self._manifest is not None:
            path = f"{self._directory}/{MANIFEST}"
            with closing(self._disk.open(path)) as file:
                size = file.size()
            self._files.append(HeldFile(MANIFEST, size, size, path))
        self.total_bytes = sum(one.size_bytes for one in self._files)
        return True

    def verify(self) -> None:
        """See node/snapshot/source.py. Raises CorruptLog, CorruptFile."""
        place, manifest = self._place, self._manifest or Checkpoint()
        SnapshotCheck(self._disk, place.directory, place.identity, manifest).run(self._files)

    def _hold_all(self, manifest: Checkpoint, log: LogState) -> None:
        start = log.segments[0].start_offset if log.segments else 0
        if not start <= manifest.applied_offset <= log.high_watermark:
            raise _Changed
        self._hold("epochs")
        self._hold_sequences(manifest.sequence_index_count)
        self._hold_log(log)
        if manifest.tombstone_file:
            name = f"tombstones/{tombstones.file_name(manifest.tombstone_file)}"
            self._hold(name, manifest.tombstone_bytes)
        for run_id in manifest.key_run_ids:
            self._hold_named(f"keys/{key_run.file_name(run_id)}")
        for run in manifest.runs:
            self._hold_named(run_path("wheel", run.covers_first, run.run_id))
        for delay_log in manifest.delay_logs:
            self._hold_named(delay_log_path("wheel", delay_log.delay_log_id), delay_log.bytes)
        for queue in manifest.queues:
            self._hold_queue(queue)

    def _hold(self, name: str, size_bytes: int | None = None) -> HeldFile:
        """Hold a file, or its first bytes. Raises _Changed if it is short, FileNotFoundError."""
        held = self._link(name, size_bytes)
        self._files.append(held)
        return held

    def _hold_named(self, name: str, size_bytes: int | None = None) -> None:
        """As `_hold`, of what is removed only when the manifest does not name it any more."""
        try:
            self._hold(name, size_bytes)
        except FileNotFoundError:
            if self._read_frame(self._place.under(MANIFEST)) != self._manifest_frame:
                raise
            path = self._place.under(name)
            raise errors.CorruptFile(f"{path} is missing", file=path) from None

    def _link(self, name: str, size_bytes: int | None) -> HeldFile:
        path = f"{self._directory}/{len(self._files):06d}"
        self._disk.link(self._place.under(name), path)
        with closing(self._disk.open(path)) as file:
            found = file.size()
        if size_bytes is not None and found < size_bytes:
            raise _Changed
        size = found if size_bytes is None else size_bytes
        return HeldFile(name, size, size, path)

    def _hold_sequences(self, entry_count: int) -> None:
        """The tail first: where it is of a later checkpoint, its block has become whole.

        So that block has to be here, too, and the files are not cut to what the manifest counts.
        """
        count, rest = divmod(entry_count, sequence_index.BLOCK_ENTRIES)
        if rest:
            self._hold("sequences/tail")
        for number in range(count // sequence_index.CHUNK_BLOCKS + 1):
            blocks = min(sequence_index.CHUNK_BLOCKS, count - number * sequence_index.CHUNK_BLOCKS)
            name = f"sequences/{sequence_index.file_name(number)}"
            if blocks or self._disk.exists(self._place.under(name)):
                least = FILE_HEADER_BYTES + blocks * sequence_index.BLOCK_BYTES
                if self._hold(name).size_bytes < least:
                    raise _Changed

    def _hold_log(self, log: LogState) -> None:
        skipped = len(self._place.directory) + 1
        for segment in log.segments:
            if segment.start_offset >= log.high_watermark:
                break
            name = segment.path[skipped:]
            end = min(segment.end_offset, log.high_watermark)
            self._hold(name, end - segment.start_offset + FILE_HEADER_BYTES)
            if segment is not log.segments[-1] and end == segment.end_offset:
                try:
                    self._hold(name.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX)
                except FileNotFoundError:
                    continue  # not written yet; its reader makes it again

    def _hold_queue(self, queue: QueueState) -> None:
        folder = f"queues/{folder_name(TopicQueue(queue.topic_queue))}"
        for name in self._disk.list(self._place.under(folder)):
            if not name.endswith(QUEUE_CHUNK_END):
                continue
            held = self._link(f"{folder}/{name}", None)
            entries = max(0, held.size_bytes - ENTRIES_AT) // UNIT_BYTES
            first = int(name.removesuffix(QUEUE_CHUNK_END)) * entries
            if not first < queue.end_position or first + entries <= queue.start_position:
                self._disk.remove(held.path)
                continue
            if queue.end_position - first < entries:
                used = ENTRIES_AT + (queue.end_position - first) * UNIT_BYTES
                with closing(self._disk.open(held.path)) as file:
                    held = held._replace(sent_bytes=used, head=file.pread(ENTRIES_AT, 0))
            self._files.append(held)

    def head(self) -> SnapshotHead:
        """What the snapshot consists of."""
        log = self._log
        return SnapshotHead(
            epoch=log.epoch,
            applied_offset=0 if self._manifest is None else self._manifest.applied_offset,
            log_start_offset=log.segments[0].start_offset if log.segments else 0,
            epochs=[EpochMark(epoch=epoch, start_offset=at) for epoch, at in log.epochs],
            files=[SnapshotFile(name=one.name, size_bytes=one.size_bytes) for one in self._files],
        )

    def pieces(self) -> Iterator[SnapshotBytes]:
        """The files' bytes, in order.

        Raises:
            CorruptFile: a file is shorter than it was.
        """
        for ordinal, held in enumerate(self._files):
            with closing(self._disk.open(held.path)) as file:
                yield from self._pieces_of(ordinal, held, file)

    def _pieces_of(self, ordinal: int, held: HeldFile, file: File) -> Iterator[SnapshotBytes]:
        position = 0
        while position < held.sent_bytes:
            length = min(_PIECE_BYTES, held.sent_bytes - position)
            raw = file.pread(length, position)
            if len(raw) != length:
                path = self._place.under(held.name)
                raise errors.CorruptFile(f"{path} has become shorter", file=path)
            if position == 0:
                raw = held.head + raw[len(held.head) :]
            yield SnapshotBytes(file=ordinal, position=position, data=raw, crc=crc32c(raw))
            position += length

    def close(self) -> None:
        """Hold nothing any more."""
        remove_tree(self._disk, self._directory)
        self._files = []
