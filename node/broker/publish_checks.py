"""What is checked before a publish is appended, and how single publishes share one batch. Pure.

Nothing here decides anything that matters: apply does. It refuses what apply must never see (due
times out of range), gives queues and due times, and merges callers that wait for one group commit.
"""

from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Flag, RecordBatch, build_publish
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS
from node.contracts.broker import IncomingMessages

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


class Merge:
    """A batch being put together from the requests of several callers.

    Joining is on the path of each call, so requests are kept as they are; `build` makes columns.
    """

    __slots__ = ("_count", "_producers", "_queues", "_requests", "_size_bytes", "callers")

    def __init__(self) -> None:
        """Empty."""
        self.callers: list[tuple[Any, int, int]] = []
        """(who waits, ordinal of its first message, how many)."""
        self._requests: list[IncomingMessages] = []
        self._queues: list[int] = []
        self._producers: set[int] = set()
        self._count = 0
        self._size_bytes = 0

    def takes(self, incoming: IncomingMessages, size_bytes: int) -> bool:
        """Whether these may join: there is room, and no other request of their producer is here.

        (Two requests of one producer side by side could not be told from one.)
        """
        return not self._count or (
            self._count + len(incoming.bodies) <= _MERGED_MESSAGES_MAX
            and self._size_bytes + size_bytes <= _MERGED_BYTES_MAX
            and incoming.producer_id not in self._producers
        )

    def add(
        self, incoming: IncomingMessages, queues: list[int], size_bytes: int, caller: Any
    ) -> None:
        """Join."""
        count = len(incoming.bodies)
        self.callers.append((caller, self._count, count))
        self._requests.append(incoming)
        self._queues += queues
        if incoming.producer_id:
            self._producers.add(incoming.producer_id)
        self._count += count
        self._size_bytes += size_bytes

    def build(self) -> RecordBatch:
        """The batch, unstamped; due times and queues are in it, too."""
        requests, joined = self._requests, chain.from_iterable
        metas = list(joined([one.metas for one in requests]))
        genes = list(joined([one.tag_genes for one in requests]))
        key_hashes = list(joined([one.key_hashes for one in requests]))
        return RecordBatch(
            build_publish(
                list(joined([one.due_ms for one in requests])),
                list(joined([one.bodies for one in requests])),
                metas=metas if any(metas) else None,
                tag_genes=genes if any(genes) else None,
                key_hashes=key_hashes if any(key_hashes) else None,
                topic_queues=self._queues,
                message_producers=self._message_producers(),
                gene_spec=GENE_SPEC_OF_TOPIC,
            )
        )

    def _message_producers(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(producer uint64[n], its number uint64[n]) of each message, zeros for none."""
        ids, numbers = np.zeros(self._count, np.uint64), np.zeros(self._count, np.uint64)
        if self._producers:
            for request, (_, first, count) in zip(self._requests, self.callers, strict=True):
                if request.producer_id:
                    start = request.producer_sequence
                    ids[first : first + count] = request.producer_id
                    numbers[first : first + count] = range(start, start + count)
        return ids, numbers


class MergeBuffer:
    """Requests that wait for the next group commit, merged in the order in which they came."""

    def __init__(self) -> None:
        """Empty."""
        self._merges: list[Merge] = []

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._merges)

    def add(self, incoming: IncomingMessages, queues: list[int], caller: Any) -> None:
        """Have these messages in the next group commit."""
        size = sum(map(len, incoming.bodies)) + sum(map(len, incoming.metas))
        merges = self._merges
        if not merges or not merges[-1].takes(incoming, size):
            merges.append(Merge())
        merges[-1].add(incoming, queues, size, caller)

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
