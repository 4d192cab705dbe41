"""What is checked before a publish is appended, and how single publishes share one batch. Pure.

Nothing here decides anything that matters: apply does. It refuses what apply must never see (due
times out of range), gives queues and due times, and merges callers that wait for one group commit.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.record_batch import Flag, RecordBatch, build_publish
from hourwheel.tag_gene import GENE_SPARSE
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS
from node.api.ports import IncomingMessages

_MERGED_MESSAGES_MAX: Final = 4_096
_MERGED_BYTES_MAX: Final = 2 << 20


def resolve_due(batch: RecordBatch, now_ms: int, horizon_ms: int) -> NDArray[np.int64]:
    """int64[n]: the instants of a batch's messages.

    Raises:
        InvalidDueTime: one is negative.
        BeyondHorizon: one lies further ahead than the wheel reaches.
    """
    due = batch.due_ms
    if int(due.min()) < 0:
        raise errors.InvalidDueTime("a due time or delay is negative", due_ms=int(due.min()))
    relative = bool(batch.header.flags & Flag.RELATIVE_DUE)
    latest = int(due.max())
    check_horizon(latest + now_ms if relative else latest, now_ms, horizon_ms)
    return due + now_ms if relative else due


def check_horizon(due_ms: int, now_ms: int, horizon_ms: int) -> None:
    """Raises BeyondHorizon where an instant lies further ahead than the wheel reaches."""
    if due_ms > min(now_ms + horizon_ms, DUE_MS_MAX):
        raise errors.BeyondHorizon(
            f"due {due_ms - now_ms} ms ahead; the horizon is {horizon_ms} ms",
            due_ms=due_ms,
            horizon_ms=horizon_ms,
        )


def check_instants(due_ms: list[int], now_ms: int, horizon_ms: int) -> None:
    """As `resolve_due`, for a short list of instants."""
    least, latest = min(due_ms), max(due_ms)
    if least < 0:
        raise errors.InvalidDueTime("a due time is negative", due_ms=least)
    check_horizon(latest, now_ms, horizon_ms)


def choose_queues(
    topic_id: int, queue_count: int, key_hashes: NDArray[np.uint64], first_sequence: int
) -> NDArray[np.uint32]:
    """uint32[n]: topic_queue of each message: by its key, else in turn."""
    count = len(key_hashes)
    if queue_count == 1:
        return np.full(count, topic_id << QUEUE_BITS, np.uint32)
    turn = np.arange(first_sequence, first_sequence + count, dtype=np.uint64)
    chosen = np.where(key_hashes != 0, key_hashes, turn) % np.uint64(queue_count)
    return (chosen + np.uint64(topic_id << QUEUE_BITS)).astype(np.uint32)


@dataclass
class Merge:
    """A batch being put together from the requests of several callers."""

    tokens: list[tuple[Any, int, int]] = field(default_factory=list)
    """(token, ordinal of its first message, how many)."""
    due_ms: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    metas: list[bytes] = field(default_factory=list)
    genes: list[int] = field(default_factory=list)
    key_hashes: list[int] = field(default_factory=list)
    queues: list[int] = field(default_factory=list)
    producer_ids: list[int] = field(default_factory=list)
    producer_sequences: list[int] = field(default_factory=list)
    producers: set[int] = field(default_factory=set)
    size_bytes: int = 0

    def takes(self, incoming: IncomingMessages, size_bytes: int) -> bool:
        """Whether these may join: there is room, and no other request of their producer is here.

        (Two requests of one producer side by side could not be told from one.)
        """
        count = len(self.bodies)
        return not count or (
            count + len(incoming.bodies) <= _MERGED_MESSAGES_MAX
            and self.size_bytes + size_bytes <= _MERGED_BYTES_MAX
            and incoming.producer_id not in self.producers
        )

    def add(
        self, incoming: IncomingMessages, queues: list[int], size_bytes: int, token: object
    ) -> None:
        """Join."""
        first, count = len(self.bodies), len(incoming.bodies)
        self.tokens.append((token, first, count))
        self.due_ms += incoming.due_ms
        self.bodies += incoming.bodies
        self.metas += incoming.metas
        self.genes += incoming.tag_genes
        self.key_hashes += incoming.key_hashes
        self.queues += queues
        producer = incoming.producer_id
        self.producer_ids += [producer] * count
        if producer:
            self.producers.add(producer)
            start = incoming.producer_sequence
            self.producer_sequences += range(start, start + count)
        else:
            self.producer_sequences += [0] * count
        self.size_bytes += size_bytes

    def build(self) -> RecordBatch:
        """The batch, unstamped; due times and queues are in it, too."""
        return RecordBatch(
            build_publish(
                self.due_ms,
                self.bodies,
                metas=self.metas if any(self.metas) else None,
                tag_genes=self.genes if any(self.genes) else None,
                key_hashes=self.key_hashes if any(self.key_hashes) else None,
                topic_queues=self.queues,
                message_producers=(self.producer_ids, self.producer_sequences),
                gene_kind=GENE_SPARSE,
            )
        )


class MergeBuffer:
    """Requests that wait for the next group commit, merged in the order in which they came."""

    def __init__(self) -> None:
        """Empty."""
        self._merges: list[Merge] = []

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._merges)

    def add(self, incoming: IncomingMessages, queues: list[int], token: object) -> None:
        """Have these messages in the next group commit."""
        size = sum(map(len, incoming.bodies)) + sum(map(len, incoming.metas))
        if not self._merges or not self._merges[-1].takes(incoming, size):
            self._merges.append(Merge())
        self._merges[-1].add(incoming, queues, size, token)

    def take(self) -> list[Merge]:
        """Remove and return what waits."""
        taken, self._merges = self._merges, []
        return taken


def queues_of_few(topic_id: int, queue_count: int, key_hashes: list[int], turn: int) -> list[int]:
    """topic_queue of each of a few messages: `choose_queues` without numpy."""
    base = topic_id << QUEUE_BITS
    if queue_count == 1:
        return [base] * len(key_hashes)
    return [
        base + (key_hash or turn + ordinal) % queue_count
        for ordinal, key_hash in enumerate(key_hashes)
    ]
