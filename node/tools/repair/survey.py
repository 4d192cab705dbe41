"""The survey of a damaged node: what it needs to start, and what of that is lost. Changes nothing.

What is pending is known three times: by the runs, by the sequence index (what was put into the
wheel, and neither released nor cancelled), and, where the log still has it, by its record. So a
damaged block of a run is made again of the log, and what the log has not any more is lost by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import Kind
from hourwheel.internal.v1.state_pb2 import Checkpoint, RunState
from hourwheel.types import (
    NO_EPOCH,
    Epoch,
    GroupId,
    Key,
    Offset,
    SequenceNumber,
    TopicQueue,
    queue_of,
    topic_of,
)
from node.shard.checkpoint import MANIFEST, ShardPlace
from node.shard.deduplication import units_of
from node.shard.views import check_feature_level
from node.tools.repair.images import Image, read_image
from node.tools.repair.log_pieces import LogPieces
from node.tools.repair.queue_chunks import Evidence, SalvagedChunk, rebuilt, salvage_chunk
from node.tools.repair.runs import SalvagedRun, salvage_run
from node.tools.repair.sequences import Sequences, read_sequences
from node.tools.repair.small_files import mend_small
from storage.files.file_header import FileType
from storage.queues.ack_state import AckStates
from storage.queues.consume_queue import CHUNK_ENTRIES
from storage.views.catalog import Catalog
from storage.views.unit import NO_UNITS, Units, join, pick, sort_by_key
from timewheel.bodies import Bodies


class Lost(NamedTuple):
    """A message that cannot be had back from this directory."""

    kind: str
    """pending: not released yet; released: consumers might have got it."""
    message_id: str
    due_ms: int
    topic: str
    """Empty where nothing says it."""
    queue: int
    """-1 where nothing says it."""
    position: int
    """In its queue, of one that was released; else -1."""
    is_certain: bool
    """The sequence index says the same; else these are words of the damaged place itself."""
    is_acknowledged: bool
    """All groups that receive from there have done with it."""


@dataclass
class Survey:
    """What was found; what `carry_out` does."""

    manifest: Checkpoint
    """As it is to be."""
    is_new_manifest: bool = False
    images: list[Image] = field(default_factory=list)
    """Files that are to be written over."""
    kept_units: list[tuple[RunState, Units]] = field(default_factory=list)
    """Runs that go, and what is left of each."""
    from_log: Units = field(default_factory=NO_UNITS.copy)
    """Pending messages that only the log has."""
    lost: list[Lost] = field(default_factory=list)
    unnamed_count: int = 0
    """Pending messages that are lost, and of which not even the name is left."""
    refused: list[str] = field(default_factory=list)
    """Files that are damaged beyond what this can do, and why."""

    @property
    def is_clean(self) -> bool:
        """Nothing is damaged."""
        return not (self.images or self.kept_units or self.refused or self.is_new_manifest)

    @property
    def is_lossless(self) -> bool:
        """All that somebody waits for can be had back."""
        is_missed = any(not one.is_acknowledged for one in self.lost)
        return not (self.refused or is_missed or self.unnamed_count)


def survey(place: ShardPlace) -> Survey:
    """Look at all files that the checkpoint names.

    Raises:
        ForeignDirectory, IncompatibleFormat: a file is not ours to read.
        CorruptFile: an invariant of the checkpoint does not hold.
    """
    found = Survey(Checkpoint())
    for name, file_type in (("epochs", FileType.EPOCHS), (MANIFEST, FileType.CHECKPOINT)):
        image = read_image(place, place.under(name))
        payload = mend_small(place, image, file_type, None)
        if image.mended and payload is not None:
            found.images.append(image)
        if payload is None:
            what = "is missing" if image.is_missing else "has more than one damaged bit"
            found.refused.append(f"{image.path} {what}, and nothing else says what it said")
        elif name == MANIFEST:
            found.manifest = Checkpoint.FromString(payload)
            check_feature_level(found.manifest.feature_level, file=image.path)
    if not found.refused:
        sequences, images, bad = read_sequences(place, found.manifest)
        found.images += [one for one in images if one.mended]
        if bad:
            found.refused.append(f"{bad} is damaged in more than one bit of a page or block")
        else:
            _Look(place, found, sequences).run()
    return found


class _Look:
    """At queues and runs."""

    def __init__(self, place: ShardPlace, found: Survey, sequences: Sequences) -> None:
        self._place, self._found, self._sequences = place, found, sequences
        manifest = found.manifest
        self._manifest = manifest
        self._cursor = Key(manifest.cursor.due_ms, manifest.cursor.sequence)
        self._log = LogPieces(place.disk, place.under("log"))
        self._topics = {one.topic_id: one.name for one in manifest.topics}
        starts = [one.start_sequence for one in manifest.epochs]
        self._epoch_starts = np.array(starts, np.uint64)
        self._epochs = [NO_EPOCH, *(Epoch(one.epoch) for one in manifest.epochs)]

    def run(self) -> None:
        bodies = Bodies(self._place.disk, self._place.under("wheel"), self._log)
        try:
            self._look_at_queues(bodies)
        finally:
            bodies.close()
        self._look_at_runs()

    # -- queues -----------------------------------------------------------------------------------

    def _look_at_queues(self, bodies: Bodies) -> None:
        evidence = Evidence(self._sequences, bodies, self._cursor, self._manifest.store_ms)
        acks = AckStates(self._manifest.acks)
        for number, chunk, count in self._chunks():
            salvaged = salvage_chunk(self._place, number, chunk, count, evidence)
            image = salvaged.image
            if salvaged.lost:
                self._give_up(salvaged, acks)
            if salvaged.units is not salvaged.raw:
                image = rebuilt(salvaged, self._log.start_offset, self._manifest.store_ms)
            if image.mended:
                self._found.images.append(image)

    def _chunks(self) -> Iterator[tuple[TopicQueue, int, int]]:
        for state in self._manifest.queues:
            first = state.start_position // CHUNK_ENTRIES
            end = -(-state.end_position // CHUNK_ENTRIES)
            for chunk in range(first, end):
                left = state.end_position - chunk * CHUNK_ENTRIES
                yield TopicQueue(state.topic_queue), chunk, min(left, CHUNK_ENTRIES)

    def _give_up(self, chunk: SalvagedChunk, acks: AckStates) -> None:
        """What is lost is done with, for each group that receives from there."""
        topic_id = topic_of(chunk.topic_queue)
        groups = {
            GroupId(one.group_id)
            for one in self._manifest.subscriptions
            if topic_id in (one.topic_id, one.retry_topic_id)
        }
        agreed = self._sequences.agree(chunk.raw)
        for ordinal in chunk.lost:
            position = chunk.number * CHUNK_ENTRIES + ordinal
            fresh = [acks.to_change(one, chunk.topic_queue).resolve(position, 1) for one in groups]
            unit = chunk.raw[ordinal]
            self._found.lost.append(
                Lost(
                    kind="released",
                    message_id=self._id(SequenceNumber(int(unit["sequence"])), int(unit["due_ms"])),
                    due_ms=int(unit["due_ms"]),
                    topic=self._topics.get(topic_id, ""),
                    queue=queue_of(chunk.topic_queue),
                    position=position,
                    is_certain=bool(agreed[ordinal]),
                    is_acknowledged=bool(groups) and not any(fresh),
                )
            )
        del self._manifest.acks[:]
        self._manifest.acks.extend(acks.state())
        self._found.is_new_manifest = True

    # -- runs -------------------------------------------------------------------------------------

    def _look_at_runs(self) -> None:
        found, manifest = self._found, self._manifest
        damaged: list[SalvagedRun] = []
        present: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
        for state in manifest.runs:
            run = salvage_run(self._place, state, self._sequences)
            units = run.units
            pending = pick(units, self._sequences.is_pending(units, self._cursor))
            present.append(pending["sequence"].copy())
            if not run.is_whole:
                damaged.append(run)
            elif run.image.mended:
                found.images.append(run.image)
        if not damaged:
            return
        found.is_new_manifest = True
        found.kept_units = [(run.state, run.units) for run in damaged]
        gone = [(run.state.covers_first, run.state.run_id) for run in damaged]
        kept = [one for one in manifest.runs if (one.covers_first, one.run_id) not in gone]
        del manifest.runs[:]
        manifest.runs.extend(kept)
        here = np.concatenate(present)
        missing = np.setdiff1d(self._sequences.pending(self._cursor), here)
        found.from_log = self._find_in_log(missing)
        missing = np.setdiff1d(missing, found.from_log["sequence"])
        left = len(here) + len(found.from_log)
        lost_count, manifest.pending_count = manifest.pending_count - left, left
        self._name(missing, join([run.doubtful for run in damaged]), here, lost_count)

    def _find_in_log(self, missing: NDArray[np.uint64]) -> Units:
        """Units of pending messages, made of their records."""
        if not len(missing):
            return NO_UNITS
        manifest = self._manifest
        catalog = Catalog.from_manifest(manifest)
        parts = [NO_UNITS]
        for batch in self._log.batches(Offset(self._manifest.applied_offset)):
            header = batch.header
            end = header.base_sequence + header.count
            first, last = np.searchsorted(missing, np.array([header.base_sequence, end], np.uint64))
            if header.kind == Kind.PUBLISH and first < last:
                chosen = (missing[first:last] - np.uint64(header.base_sequence)).astype(np.int64)
                parts.append(units_of(catalog, batch)[chosen])
        units = join(parts)
        units = units[self._sequences.agree(units)]
        moved = self._sequences.moved.find(np.ascontiguousarray(units["sequence"]))
        units["due_ms"][moved.are_moved] = moved.due_ms[moved.are_moved]
        units["attempt"][moved.are_moved] = 0
        return sort_by_key(units)

    def _name(
        self,
        missing: NDArray[np.uint64],
        doubtful: Units,
        here: NDArray[np.uint64],
        lost_count: int,
    ) -> None:
        """Say what is lost: what the index knows, and what the damaged place says of retries."""
        said = {int(unit["sequence"]): unit for unit in doubtful}
        due_ms = self._sequences.due_ms(missing)
        for sequence, due in zip(missing.tolist(), due_ms.tolist(), strict=True):
            self._found.lost.append(
                self._lost_pending(sequence, due, said.get(sequence), sure=True)
            )
        again = doubtful[(doubtful["attempt"] > 1) & self._sequences.agree(doubtful)]
        again = again[self._sequences.is_pending(again, self._cursor)]
        again = again[~np.isin(again["sequence"], np.concatenate((missing, here)))]
        for unit in again[: max(0, lost_count - len(missing))]:
            sequence, due = int(unit["sequence"]), int(unit["due_ms"])
            self._found.lost.append(
                self._lost_pending(SequenceNumber(sequence), due, unit, sure=False)
            )
        named = sum(one.kind == "pending" for one in self._found.lost)
        self._found.unnamed_count = max(0, lost_count - named)

    def _lost_pending(
        self, sequence: SequenceNumber, due_ms: int, unit: Units | None, *, sure: bool
    ) -> Lost:
        topic_queue = 0 if unit is None else int(unit["topic_queue"])
        topic = self._topics.get(topic_of(topic_queue), "")
        queue = queue_of(topic_queue) if topic else -1
        text = self._id(sequence, due_ms)
        return Lost(
            kind="pending",
            message_id=text,
            due_ms=due_ms,
            topic=topic,
            queue=queue,
            position=-1,
            is_certain=sure,
            is_acknowledged=False,
        )

    def _id(self, sequence: SequenceNumber, due_ms: int) -> str:
        at = int(np.searchsorted(self._epoch_starts, np.uint64(sequence), "right"))
        parts = MessageId(self._place.identity.shard, self._epochs[at], sequence, due_ms)
        return str(parts) if due_ms >= 0 else ""
