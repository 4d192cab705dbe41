"""Large logs in the true format, made at numpy speed: for benchmarks of what reads logs.

    made = write_log(folder / "node-1", messages=5_000_000)
    copy_node(made.directory, folder / "node-2", "node-2")

What a busy node leaves: in each millisecond a batch of messages for queues of some topics, due
within the next seconds; every 20 ms a DISPATCH with its check, the acknowledgements of what the one
before released, and a CANCEL of some that are still pending. At the end all is released or
cancelled; queues, sequence index, tombstones, epochs, marks and a checkpoint are there too, and say
the same. The wheel has no runs.

Batches are built and stamped by hourwheel.formats.record_batch, entries are storage.views.unit's.
One second of such a node's life is made at once, so that memory does not grow with the log.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats import record_batch
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    DISPATCH_ROW,
    FEATURE_LEVEL_ROW,
    RESOLVE_ROW,
    Kind,
    Outcome,
    RecordBatch,
    Stamp,
)
from hourwheel.internal.v1 import state_pb2 as wire
from hourwheel.types import SEQUENCE_MAX, topic_queue
from node.shard.node_meta import NODE_META
from storage.files import atomic_file
from storage.files.disk import RealDisk
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.log.epochs import EpochFile
from storage.log.flushed_mark import FlushedMark
from storage.log.segment import segment_path
from storage.log.sparse_index import SparseIndex
from storage.queues.queue_chunk import ENTRIES_AT, NO_ENTRIES, chunk_bytes, pack_seal
from storage.views.sequence_index import SequenceIndex, SlotState
from storage.views.tombstones import Tombstones, TombstoneState
from storage.views.unit import UNIT
from timewheel.cursor import mix

START_MS: Final = 1_800_000_000_000
STEP_MS: Final = 20
"""From one DISPATCH to the next."""
SECOND_MS: Final = 1_000
CHUNK_ENTRIES: Final = 16_384
ACK_POSITIONS: Final = 128
TOPICS: Final = 4
QUEUES: Final = 4
GROUP: Final = 1
_RETRY_TOPICS: Final = 100
_DEAD_LETTERS: Final = 200
_MASK: Final = (1 << 64) - 1
_BODY_KINDS: Final = 1_024
_EPOCH: Final = 1
_SHARD: Final = "shard-0"
_INDEX_BYTES: Final = 65_536


@dataclass
class LargeLog:
    """What was written."""

    directory: Path
    messages: int = 0
    cancelled: int = 0
    batches: int = 0
    log_bytes: int = 0
    log_rows: int = 0
    """Messages, and rows of all other kinds: what auditors call log messages."""


@dataclass
class _Queue:
    """A consume queue while it is written: full chunks go to disk at once."""

    number: int
    end: int = 0
    rest: NDArray[Any] = field(default_factory=lambda: np.empty(0, UNIT))


class LargeLogWriter:
    """One node's directory, second by second."""

    def __init__(
        self, directory: Path, identity: Identity, *, segment_bytes: int, seed: int
    ) -> None:
        directory.mkdir(parents=True)
        self.made = LargeLog(directory)
        self.disk = RealDisk(directory)
        self._identity, self._segment_bytes = identity, segment_bytes
        self._rng = np.random.default_rng(seed)
        for name in ("log", "queues"):
            self.disk.make_dir(f"{_SHARD}/{name}")
        place = f"{_SHARD}/sequences"
        self._sequences = SequenceIndex.open(self.disk, place, identity, 0)
        place = f"{_SHARD}/tombstones"
        self._tombstones = Tombstones.open(self.disk, place, identity, TombstoneState())
        self._file: Any = None
        self._index: SparseIndex | None = None
        self._start = self.offset = 0
        self.now_ms = START_MS
        self._sequence = 0
        self._released, self._mix = 0, 0
        self._cursor = (-1, 0)
        self._of_second = self._epoch_at = 0
        self._check = (0, 0, 0)
        self._pending = np.empty(0, UNIT)
        self._unacked: list[tuple[int, int, int]] = []
        self._acks: dict[int, int] = {}
        numbers = [topic_queue(1 + t, q) for t in range(TOPICS) for q in range(QUEUES)]
        self.queues = [_Queue(int(number)) for number in numbers]
        self._numbers = np.array(numbers, "<u4")
        self.bodies: list[bytes] = []

    # -- log ----------------------------------------------------------------------------------

    def append(
        self, raw: bytes, *, due_ms: Any = None, queues: Any = None, rows: int = 0
    ) -> RecordBatch:
        """Stamp a batch and write it."""
        stamp = Stamp(self.offset, self._sequence, self.now_ms, self.offset, _EPOCH)
        pieces = record_batch.stamp(RecordBatch(raw), stamp, due_ms=due_ms, topic_queue=queues)
        size = sum(map(len, pieces))
        if self._file is None or self.offset - self._start + size > self._segment_bytes:
            self._roll()
        assert self._index is not None
        self._index.add(self.offset, self.offset + size, self._sequence, self.now_ms)
        self._file.writelines(pieces)
        self.offset += size
        self.made.batches += 1
        self.made.log_rows += rows
        return RecordBatch.from_pieces(*pieces)

    def _roll(self) -> None:
        self._close_segment()
        self._start = self.offset
        path = self.made.directory / segment_path(f"{_SHARD}/log", self._start)
        self._file = path.open("wb", buffering=1 << 20)
        self._file.write(pack_file_header(FileType.LOG_SEGMENT, self._identity, self._start))
        self._index = SparseIndex(self._start, _INDEX_BYTES)

    def _close_segment(self) -> None:
        if self._file is None or self._index is None:
            return
        self._file.close()
        path = segment_path(f"{_SHARD}/log", self._start).removesuffix(".log") + ".index"
        header = pack_file_header(FileType.LOG_INDEX, self._identity, self._start)
        atomic_file.write(self.disk, path, header, self._index.pack())

    def begin(self, body_bytes: int) -> None:
        """Feature level, epoch, topics, group, subscriptions."""
        self.bodies = [self._rng.bytes(body_bytes) for _ in range(_BODY_KINDS)]
        level = np.array([(2, 0)], FEATURE_LEVEL_ROW)
        self.append(record_batch.build_rows(Kind.FEATURE_LEVEL, level))
        self._epoch_at = self.offset
        start = wire.EpochStart(node_id="node-1", boot_id="made")
        self.append(record_batch.build_blob(Kind.EPOCH_START, start.SerializeToString()))
        for change in self._changes():
            self.append(record_batch.build_blob(Kind.CONFIG, change.SerializeToString()))

    def _changes(self) -> list[wire.ConfigChange]:
        topics, group, subscriptions = _catalog()
        return [
            *(wire.ConfigChange(put_topic=one) for one in topics),
            wire.ConfigChange(put_group=group),
            *(wire.ConfigChange(put_subscription=one) for one in subscriptions),
        ]

    # -- a second -----------------------------------------------------------------------------

    def second(self, per_ms: int, ahead_ms: int, cancel_share: float) -> None:
        """Publish `per_ms` messages in each millisecond of a second (0: none), and dispatch."""
        begin_ms, rng = self.now_ms, self._rng
        count = per_ms * SECOND_MS
        units = np.zeros(count, UNIT)
        units["sequence"] = self._sequence + np.arange(count, dtype=np.uint64)
        units["store_ms"] = begin_ms + np.repeat(np.arange(SECOND_MS), per_ms)
        units["due_ms"] = units["store_ms"] + rng.integers(1, ahead_ms, count)
        units["topic_queue"] = rng.choice(self._numbers, count)
        units["origin_topic"] = units["topic_queue"] >> 8
        units["attempt"] = 1
        is_cancelled = (rng.random(count) < cancel_share) & (
            units["due_ms"] > units["store_ms"] + 2 * STEP_MS
        )
        alive = np.concatenate([self._pending, units[~is_cancelled]])
        order = np.argsort(alive["due_ms"], kind="stable")
        bounds = alive["due_ms"][order].searchsorted(
            begin_ms + np.arange(STEP_MS, SECOND_MS + 1, STEP_MS), "right"
        )
        released = order[: bounds[-1]]
        queues = np.searchsorted(self._numbers, alive["topic_queue"][released])
        for step, (low, high) in enumerate(zip([0, *bounds[:-1]], bounds, strict=True)):
            self._publish_step(units, per_ms, step)
            self._cancel_step(units[is_cancelled], begin_ms + step * STEP_MS)
            chosen = alive["sequence"][released[low:high]]
            self._dispatch_step(chosen, np.bincount(queues[low:high], minlength=len(self.queues)))
        # The places of what was published just now are known only after it was written.
        positions = units["position"]
        alive[len(self._pending) :]["position"] = positions[~is_cancelled]
        for name in ("crc", "body_len"):
            alive[len(self._pending) :][name] = units[name][~is_cancelled]
        gone = alive[released]
        self._of_second = int((gone["due_ms"] >= self.now_ms // SECOND_MS * SECOND_MS).sum())
        for number, queue in enumerate(self.queues):
            self._enqueue(queue, gone[queues == number])
        self._pending = alive[order[bounds[-1] :]]
        self._pending = self._pending[np.argsort(self._pending["sequence"])]
        self.made.cancelled += int(is_cancelled.sum())
        self._sequences.append(units["due_ms"].copy(), np.full(count, SlotState.WHEEL, np.uint8))
        self._tombstones.add(units["sequence"][is_cancelled])

    def _publish_step(self, units: NDArray[Any], per_ms: int, step: int) -> None:
        for ms in range(step * STEP_MS, (step + 1) * STEP_MS if per_ms else 0):
            part = units[ms * per_ms : (ms + 1) * per_ms]
            chosen = self._rng.integers(0, _BODY_KINDS, per_ms)
            bodies = [self.bodies[one] for one in chosen.tolist()]
            due_ms, queues = part["due_ms"].copy(), part["topic_queue"].copy()
            raw = record_batch.build_publish(due_ms, bodies, topic_queues=queues)
            batch = self.append(raw, due_ms=due_ms, queues=queues, rows=per_ms)
            size = len(self.bodies[0])
            first = batch.header.offset + batch.blob_offset
            part["position"] = first + size * np.arange(per_ms)
            part["crc"], part["body_len"] = batch.crc, size
            self._sequence += per_ms
            self.now_ms += 1
        if not per_ms:
            self.now_ms += STEP_MS

    def _cancel_step(self, cancelled: NDArray[Any], from_ms: int) -> None:
        low, high = cancelled["store_ms"].searchsorted([from_ms, from_ms + STEP_MS])
        if low == high:
            return
        rows = np.zeros(high - low, CANCEL_ROW)
        rows["due_ms"], rows["sequence"] = (
            cancelled[name][low:high] for name in ("due_ms", "sequence")
        )
        rows["epoch"] = _EPOCH
        self.append(record_batch.build_rows(Kind.CANCEL, rows), rows=len(rows))

    def _dispatch_step(self, sequences: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
        self._ack()
        row = np.array([(*self._cursor, self.now_ms, SEQUENCE_MAX, *self._check)], DISPATCH_ROW)
        self.append(record_batch.build_rows(Kind.DISPATCH, row), rows=1)
        self._cursor = (self.now_ms, SEQUENCE_MAX)
        self._released += len(sequences)
        self._mix = (self._mix + mix(sequences)) & _MASK
        self._check = (self.offset, self._released, self._mix)
        for queue, count in zip(self.queues, counts.tolist(), strict=True):
            begin = self._acks.get(queue.number, 0)
            self._acks[queue.number] = begin + count
            self._unacked += [
                (queue.number, first, min(ACK_POSITIONS, begin + count - first))
                for first in range(begin, begin + count, ACK_POSITIONS)
            ]

    def _ack(self) -> None:
        if not self._unacked:
            return
        rows = np.zeros(len(self._unacked), RESOLVE_ROW)
        rows["topic_queue"], rows["first_position"], rows["count"] = np.array(self._unacked).T
        rows["group_id"], rows["outcome"] = GROUP, Outcome.ACK
        self.append(record_batch.build_rows(Kind.RESOLVE, rows), rows=len(rows))
        self._unacked = []

    # -- views --------------------------------------------------------------------------------

    def _enqueue(self, queue: _Queue, units: NDArray[Any]) -> None:
        queue.rest = np.concatenate([queue.rest, units])
        queue.end += len(units)
        while len(queue.rest) >= CHUNK_ENTRIES:
            self._write_chunk(queue, queue.end - len(queue.rest), queue.rest[:CHUNK_ENTRIES])
            queue.rest = queue.rest[CHUNK_ENTRIES:].copy()

    def _write_chunk(self, queue: _Queue, first: int, units: NDArray[Any]) -> None:
        folder, number = f"{_SHARD}/queues/{queue.number:08x}", first // CHUNK_ENTRIES
        self.disk.make_dir(folder)
        entries = np.ascontiguousarray(units)
        seal = pack_seal(NO_ENTRIES.extended(entries), queue.number)
        with (self.made.directory / folder / f"{number:012d}.cq").open("wb") as file:
            file.write(pack_file_header(FileType.CONSUME_QUEUE, self._identity, number))
            file.write(seal)
            file.seek(ENTRIES_AT)
            file.write(entries.data)
            file.truncate(chunk_bytes(CHUNK_ENTRIES))

    def finish(self, node: str) -> LargeLog:
        """Acknowledge the rest, and write what lies beside the log."""
        self._ack()
        self._close_segment()
        for queue in self.queues:
            if len(queue.rest):
                self._write_chunk(queue, queue.end - len(queue.rest), queue.rest)
        EpochFile.open(self.disk, f"{_SHARD}/epochs", self._identity).append(_EPOCH, 0)
        for name, file_type in (
            ("flushed.mark", FileType.FLUSHED_MARK),
            ("high_watermark", FileType.HIGH_WATERMARK),
        ):
            mark = FlushedMark.open(self.disk, f"{_SHARD}/{name}", self._identity, file_type)
            mark.lower(self.offset)  # type: ignore[arg-type]
            mark.close()
        for work in (*self._sequences.begin_checkpoint(), *self._tombstones.begin_checkpoint()):
            work()
        header = pack_file_header(FileType.CHECKPOINT, self._identity)
        atomic_file.write(
            self.disk, f"{_SHARD}/checkpoint", header, self._manifest().SerializeToString()
        )
        _write_node_meta(self.disk, self._identity, node)
        self.made.messages = self._sequence
        self.made.log_bytes = self.offset
        return self.made

    def _manifest(self) -> wire.Checkpoint:
        topics, group, subscriptions = _catalog()
        return wire.Checkpoint(
            applied_offset=self.offset,
            next_sequence=self._sequence,
            feature_level=2,
            store_ms=self.now_ms,
            cursor=wire.CursorState(
                due_ms=self._cursor[0],
                sequence=self._cursor[1],
                released_count=self._released,
                released_mix=self._mix,
                local_index=self._of_second,
            ),
            topics=topics,
            groups=[group],
            subscriptions=subscriptions,
            queues=[
                wire.QueueState(topic_queue=one.number, end_position=one.end) for one in self.queues
            ],
            acks=[
                wire.AckState(group_id=GROUP, topic_queue=one.number, floor_position=one.end)
                for one in self.queues
            ],
            next_topic_id=max(one.topic_id for one in topics) + 1,
            next_group_id=GROUP + 1,
            next_run_id=1,
            epochs=[wire.EpochState(epoch=_EPOCH, start_offset=self._epoch_at)],
            sequence_index_count=self._sequence,
            tombstone_file=self._tombstones.state.file,
            tombstone_bytes=self._tombstones.state.valid_bytes,
            cancelled_count=self.made.cancelled,
        )


def _catalog() -> tuple[list[wire.TopicConfig], wire.GroupConfig, list[wire.Subscription]]:
    own = range(1, TOPICS + 1)
    topics = [wire.TopicConfig(topic_id=t, name=f"topic-{t}", queue_count=QUEUES) for t in own]
    for number, name in (
        *((_RETRY_TOPICS + t, f"%RETRY%workers|topic-{t}") for t in own),
        (_DEAD_LETTERS, "%DLQ%workers"),
    ):
        one = wire.TopicConfig(topic_id=number, name=name, queue_count=1, internal=True)
        topics.append(one)
    group = wire.GroupConfig(
        group_id=GROUP, name="workers", attempts_max=16, dead_letter_topic_id=_DEAD_LETTERS
    )
    subscriptions = [
        wire.Subscription(group_id=GROUP, topic_id=t, retry_topic_id=_RETRY_TOPICS + t) for t in own
    ]
    return topics, group, subscriptions


def _write_node_meta(disk: RealDisk, identity: Identity, node: str) -> None:
    header = pack_file_header(FileType.NODE, Identity(identity.cluster_id, 0))
    atomic_file.write(disk, NODE_META, header, node.encode())


def write_log(
    directory: Path,
    *,
    messages: int,
    per_ms: int = 1_000,
    body_bytes: int = 100,
    ahead_ms: int = 2_000,
    cancel_share: float = 0.02,
    segment_bytes: int = 128 << 20,
    seed: int = 1,
) -> LargeLog:
    """Write a node's directory with about so many messages.

    Args:
        directory: is made.
        messages: rounded up to whole seconds of `per_ms` a millisecond.
        per_ms: messages of a record batch, of which there is one a millisecond.
        body_bytes: of each message.
        ahead_ms: messages are due within so long.
        cancel_share: of the messages, about.
        segment_bytes: of a file of the log.
        seed: of due times, queues and cancels.
    """
    identity = Identity(bytes(range(16)), 0)
    writer = LargeLogWriter(directory, identity, segment_bytes=segment_bytes, seed=seed)
    writer.begin(body_bytes)
    for _ in range(-(-messages // (per_ms * SECOND_MS))):
        writer.second(per_ms, ahead_ms, cancel_share)
    for _ in range(-(-ahead_ms // SECOND_MS) + 1):
        writer.second(0, ahead_ms, 0.0)
    return writer.finish(directory.name)


def copy_node(directory: Path, to: Path, node: str, *, link: bool = True) -> Path:
    """Another node's directory with the same log: by hard links, or with bytes of its own."""
    shutil.copytree(directory, to, copy_function=os.link if link else shutil.copy2)
    (to / NODE_META).unlink()
    _write_node_meta(RealDisk(to), Identity(bytes(range(16)), 0), node)
    return to
