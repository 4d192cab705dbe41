"""What a node's directory holds, read from its log alone: the format is public, the views are not.

The log is read by `LogModel`, a second and naive reading of what records mean. Nothing of the
node's own code takes part.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from chaos.history import Begun, Entry, Expired, Kept, Occurred, Stored, serial_of
from chaos.log_model import LogModel
from chaos.log_parts.entries import Log
from chaos.log_parts.expiry import Expiries
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch, unpack_header
from hourwheel.internal.v1.state_pb2 import Subscription

_SHARD: Final = "shard-0"
_FILE_HEADER_BYTES: Final = 64


class Segment(NamedTuple):
    """A file of the log, its header left out."""

    start_offset: int
    raw: bytes

    @property
    def end_offset(self) -> int:
        """Where the next one begins."""
        return self.start_offset + len(self.raw)


class LogFiles:
    """The log of a node that does not run. Is a `Log`."""

    def __init__(self, directory: Path) -> None:
        """Read all of it; `directory` is the node's data directory."""
        files = sorted((directory / _SHARD / "log").glob("*.log"))
        self.segments = [
            Segment(int(path.stem), path.read_bytes()[_FILE_HEADER_BYTES:]) for path in files
        ]

    @property
    def start_offset(self) -> int:
        """First offset that is there."""
        return self.segments[0].start_offset if self.segments else 0

    def raw(self, from_: int, to: int) -> bytes:
        """The bytes of a range; fewer where the log is shorter."""
        pieces = []
        for segment in self.segments:
            first, last = (max(0, at - segment.start_offset) for at in (from_, to))
            pieces.append(segment.raw[first:last])
        return b"".join(pieces)

    def scan(self, from_: int, to: int) -> Iterator[RecordBatch]:
        """The batches of a range, verified.

        Raises:
            HourwheelError: one is damaged.
        """
        for segment in self.segments:
            view, at = memoryview(segment.raw), max(0, from_ - segment.start_offset)
            end = min(len(view), to - segment.start_offset)
            while at < end:
                header = unpack_header(view, at)
                batch = RecordBatch(view[at : at + header.total_bytes], header)
                batch.verify()
                yield batch
                at += header.total_bytes


@dataclass
class _Patient(LogModel):
    """Goes on where somebody was overtaken, or got what had expired: the checker tells of it."""

    overtaken: list[tuple[int, int]] = field(default_factory=list)
    skipped: set[tuple[int, int]] = field(default_factory=set)
    """(group, sequence)."""

    def overtakes(self, sequence: int, position: int, before: int) -> None:
        """Noted."""
        del position
        self.overtaken.append((sequence, before))

    def see_resolved(
        self, reads: Subscription, outcome: int, place: tuple[int, int], store_ms: int
    ) -> None:
        """Noted: what blocked its key may never have come to anybody."""
        if outcome == Outcome.SKIPPED:
            self.skipped.add((reads.group_id, self.queues[place[0]][place[1]].sequence))
        super().see_resolved(reads, outcome, place, store_ms)


def read_stored(log: Log, until_offset: int) -> tuple[LogModel, Stored]:
    """Read a log up to an offset.

    Raises:
        AssertionError: it cannot be the log of anything sound: released twice, a gap, and so on.
        HourwheelError: a batch is damaged.
    """
    stored = Stored()
    expiries = Expiries(goes_on=True, faults=stored.expiry_faults)
    model = _Patient(overtaken=stored.overtaken, expiries=expiries)
    for batch in log.scan(0, until_offset):
        model.read(batch)
        for reset in model.resets.done[sum(map(len, stored.begun.values())) :]:
            positions = dict(zip(reset.topic_queues, reset.positions, strict=True))
            place = reset.receipts_epoch, reset.receipts_lease_id
            begun = Begun(positions, place, batch.header.store_ms)
            stored.begun.setdefault(_group(model, reset.group_id), []).append(begun)
        if batch.header.kind == Kind.PUBLISH:
            _keep(batch, model, stored)
    model.check()
    for number, entries in model.queues.items():
        topic = _topic(model, number)
        stored.queued += [Entry(topic, one.sequence, one.attempt) for one in entries]
        if not topic.startswith("%"):
            stored.places.update((one.sequence, (number, at)) for at, one in enumerate(entries))
    for one in model.waiting.values():
        stored.pending.append(Entry(_topic(model, one.topic_queue), one.sequence, one.attempt))
    stored.cancelled = set(model.cancelled)
    stored.deduped = dict(model.unique.taken)
    for group, sequence, at_ms in model.expiries.ended:
        stored.expired.append(Expired(_group(model, group), sequence, at_ms))
    stored.skipped = {(_group(model, group), sequence) for group, sequence in model.skipped}
    stored.moved = {sequence: due_ms for sequence, (due_ms, _) in model.moved.items()}
    for (version, index), sequence in model.recurring.taken.items():
        stored.occurrences[sequence] = Occurred(version, index, model.messages[sequence])
    for name, every in model.recurring.due_ms.items():
        stored.recurred[name.rpartition("\n")[2]] = list(every)
    return model, stored


def _group(model: LogModel, group: int) -> str:
    return model.groups[group].name if group in model.groups else f"(group {group})"


def _topic(model: LogModel, topic_queue: int) -> str:
    number = topic_queue >> 8
    return model.topics.get(number) or model.deleted.get(number, f"(topic {number})")


def _keep(batch: RecordBatch, model: LogModel, stored: Stored) -> None:
    """Take down the new messages of a batch, by what is in their bodies."""
    base, blobs, at = batch.header.base_sequence, bytes(batch.blobs), 0
    lengths = zip(batch.meta_len.tolist(), batch.body_len.tolist(), strict=True)
    epoch = model.epoch_of(base)
    for sequence, (meta_len, body_len) in enumerate(lengths, base):
        end = at + meta_len + body_len
        if sequence in model.messages:
            serial = serial_of(blobs[at + meta_len : end])
            stored.messages[sequence] = Kept(serial, epoch, model.messages[sequence])
        at = end
