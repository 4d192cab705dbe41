"""Copies of real logs whose bytes can be changed in place, with every checksum made anew.

For `tests.support.tampering`. Nothing of the audit takes part: what a log means is told by
`chaos.log_model`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from chaos.log_model import LogModel
from chaos.log_parts.entries import Entry
from chaos.stored import LogFiles
from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Kind, RecordBatch, Stamp, stamp
from hourwheel.types import Offset, SequenceNumber, TopicQueue
from storage.views.unit import UNIT, Units
from tests.support.broken_logs import batches_of
from tests.support.log_maker import log_end, segments, set_high_watermark

SHARD: Final = "shard-0"


class Expected(NamedTuple):
    """An error that an audit must name. Fields as those of a `Finding`."""

    check: str
    node: str = ""
    file: str = ""
    offset: int = -1
    sequence: int = -1
    position: int = -1


class Cluster:
    """Replicas of one log, and what it means; `nodes` have no faults yet."""

    def __init__(self, nodes: Sequence[Path]) -> None:
        """Read the log of the first one."""
        self.nodes = list(nodes)
        self.batches = list(batches_of(self.nodes[0]))
        self.released_by: dict[int, list[int]] = {}
        """topic_queue -> offset of the record that released each entry."""
        model = self.model = LogModel()
        for batch in self.batches:
            model.read(batch)
            for number, entries in model.queues.items():
                known = self.released_by.setdefault(number, [])
                known += [batch.header.offset] * (len(entries) - len(known))
        assert LogFiles(self.nodes[0]).segments[-1].end_offset == model.offset

    def of(self, kind: Kind) -> list[RecordBatch]:
        """The batches of a kind."""
        return [one for one in self.batches if one.header.kind == kind]

    def entries(self, topic_queue: TopicQueue) -> list[Entry]:
        """What the log has released to a queue."""
        return self.model.queues[topic_queue]

    def own_queues(self, *, retries: bool = False) -> list[int]:
        """Queues of topics that people publish to, with some entries; or those for retries."""
        return [
            number
            for number, entries in self.model.queues.items()
            if len(entries) > 1 and self.model.topics[number >> 8].startswith("%") is retries
        ]

    def batch_of(self, sequence: int) -> tuple[RecordBatch, int]:
        """(the batch of a message, its ordinal in it)."""
        every = self.of(Kind.PUBLISH)
        at = bisect_right([one.header.base_sequence for one in every], sequence) - 1
        return every[at], sequence - every[at].header.base_sequence

    def unit_of(self, sequence: int) -> Units:
        """UNIT[1]: a true entry of a message, as its first release would make it."""
        batch, at = self.batch_of(sequence)
        lengths = batch.meta_len[:at].sum() + batch.body_len[:at].sum()
        unit = np.zeros(1, UNIT)
        unit["due_ms"], unit["sequence"] = batch.due_ms[at], sequence
        unit["store_ms"], unit["tag_gene"] = batch.header.store_ms, batch.tag_gene[at]
        unit["position"] = batch.header.offset + batch.blob_offset + int(lengths)
        unit["body_len"], unit["meta_len"] = batch.body_len[at], batch.meta_len[at]
        unit["crc"], unit["attempt"] = batch.crc[at], 1
        unit["topic_queue"], unit["origin_topic"] = (
            batch.topic_queue[at],
            batch.topic_queue[at] >> 8,
        )
        return unit

    # -- edits ------------------------------------------------------------------------------------

    def put(self, batch: RecordBatch, raw: bytes, *nodes: Path) -> None:
        """Write other bytes of the same length over a batch."""
        assert len(raw) == batch.header.total_bytes
        for node in nodes or self.nodes:
            path = segment_of(node, batch.header.offset)
            at = 64 + batch.header.offset - int(path.stem)
            with path.open("r+b") as file:
                if at + len(raw) <= path.stat().st_size:  # else a fault before has taken it away
                    file.seek(at)
                    file.write(raw)

    def append(self, raw: bytes, *, skip: int = 0, due_ms: Any = None, queues: Any = None) -> int:
        """Append a batch to every log, stamped as a master would; returns its offset.

        Args:
            raw: unstamped.
            skip: its sequence is so much too high.
            due_ms: of a PUBLISH.
            queues: of a PUBLISH.
        """
        last, end = self.batches[-1].header, log_end(self.nodes[0])
        sequence = self.model.next_sequence + skip
        place = Stamp(
            Offset(end),
            SequenceNumber(sequence),
            last.store_ms,
            last.flushed_end_offset,
            last.epoch,
        )
        head, payload = stamp(RecordBatch(raw), place, due_ms=due_ms, topic_queue=queues)
        for node in self.nodes:
            with segments(node)[-1].open("ab") as file:
                file.write(head + bytes(payload))
            set_high_watermark(node, log_end(node))
        return end


def segment_of(node: Path, offset: int) -> Path:
    """The file of a log that an offset is in."""
    return [one for one in segments(node) if int(one.stem) <= offset][-1]


def changed(batch: RecordBatch, payload: bytes | None = None, **fields: Any) -> bytes:
    """A batch with another payload of the same length, or other header fields; CRCs are right."""
    raw = bytes(batch.payload) if payload is None else payload
    size = batch.header.column_bytes + batch.header.blob_bytes
    header = batch.header._replace(payload_crc=crc32c(raw[:size]), **fields)
    whole = RecordBatch(bytes(batch.head) + raw, header)
    place = Stamp(*header[6:11])
    if header.kind == Kind.PUBLISH:
        head, body = stamp(whole, place, due_ms=batch.due_ms, topic_queue=batch.topic_queue)
    else:
        head, body = stamp(whole, place)
    found = head + bytes(body)
    RecordBatch(found).verify()
    return found


def with_rows(batch: RecordBatch, rows: Any) -> bytes:
    """A batch with other rows."""
    return changed(batch, rows.tobytes() + bytes(batch.payload)[rows.nbytes :])


def log_file(node: Path, offset: int) -> str:
    """The segment of an offset, as findings name it."""
    return f"{SHARD}/log/{segment_of(node, offset).name}"


def chunk_file(topic_queue: TopicQueue) -> str:
    """The one chunk of a queue, as findings name it."""
    return f"{SHARD}/queues/{topic_queue:08x}/{0:012}.cq"
