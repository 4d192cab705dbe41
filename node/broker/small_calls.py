"""Small calls share records: those that came since the last write wait together for the next one.

    publishes of few messages   one PUBLISH batch, with the producer of each message
    cancels by id               one CANCEL record
    reschedules                 RESCHEDULE records of some rows each
    acks and nacks              one RESOLVE record

Each caller gets the results of its own messages or rows. When the next write begins is the group
commit's affair (node/broker/group_commit.py); what it must know of the callers is counted here.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import HourwheelError, required
from hourwheel.formats.dedup_key import NO_DEDUP_KEY, DedupKey
from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC
from node.contracts.broker import IncomingMessages
from node.replica.mastership import Mastership, Proposer
from node.shard.deduplication import Published, PublishResults, result_of_call

Rows: TypeAlias = NDArray[np.void]
Results = TypeVar("Results", NDArray[np.uint8], NDArray[np.void], Sequence[int])
"""What apply says of the rows of one record, or a part of it, of one call."""
Caller = TypeVar("Caller")
AppendRows: TypeAlias = Callable[[Rows, Proposer[Results]], None]
PublishCaller: TypeAlias = "asyncio.Future[Published]"

_CALLERS_MIN: Final = 2.5
_CALLERS_ENOUGH: Final = 64
_USUAL_WEIGHT: Final = 0.2
_PEAK_KEPT: Final = 0.95
_IN_VAIN_KEPT: Final = 0.5
_MERGED_MESSAGES_MAX: Final = 4_096
_MERGED_BYTES_MAX: Final = 2 << 20
_CANCELS_MAX: Final = 4_096
RESCHEDULES_MAX: Final = 256
"""Rows of a record, which is applied as a whole: each is looked for in the wheel."""
RESOLVES_MAX: Final = 256
"""Rows of merged calls in a record, which is applied as a whole."""


class Merge(Generic[Caller]):
    """A batch being put together from the requests of several callers.

    Joining is on the path of each call, so requests are kept as they are; `build` makes columns.
    """

    __slots__ = ("_count", "_producers", "_queues", "_requests", "_size_bytes", "callers")

    def __init__(self) -> None:
        """Empty."""
        self.callers: list[tuple[Caller, int, int]] = []
        """(caller that waits, ordinal of its first message, how many)."""
        self._requests: list[IncomingMessages] = []
        self._queues: list[int] = []
        self._producers: set[int] = set()
        self._count = 0
        self._size_bytes = 0

    def takes(self, incoming: IncomingMessages, size_bytes: int) -> bool:
        """Whether these may join: there is room, and no other request of their producer is here.

        (Two requests of one producer side by side would look like one.)
        """
        return not self._count or (
            self._count + len(incoming.bodies) <= _MERGED_MESSAGES_MAX
            and self._size_bytes + size_bytes <= _MERGED_BYTES_MAX
            and incoming.producer_id not in self._producers
        )

    def add(
        self, incoming: IncomingMessages, queues: list[int], size_bytes: int, caller: Caller
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
        dedup: list[DedupKey] | None = None
        if any(one.dedup is not None for one in requests):
            each = [one.dedup or [NO_DEDUP_KEY] * len(one.bodies) for one in requests]
            dedup = list(joined(each))
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
                dedup=dedup,
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
        self._merges: list[Merge[PublishCaller]] = []

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._merges)

    def add(self, incoming: IncomingMessages, queues: list[int], caller: PublishCaller) -> None:
        """Have these messages in the next group commit."""
        size = sum(map(len, incoming.bodies)) + sum(map(len, incoming.metas))
        merges = self._merges
        if not merges or not merges[-1].takes(incoming, size):
            merges.append(Merge())
        merges[-1].add(incoming, queues, size, caller)

    def take(self) -> list[Merge[PublishCaller]]:
        """Remove and return what waits."""
        taken, self._merges = self._merges, []
        return taken


class MergedProposer:
    """The callers whose messages one batch holds."""

    __slots__ = ("_callers",)

    def __init__(self, callers: list[tuple[PublishCaller, int, int]]) -> None:
        """`callers` are (future, ordinal of the caller's first message, how many)."""
        self._callers = callers

    def answer(self, results: PublishResults | None, error: HourwheelError | None) -> None:
        """Tell each caller the result of its own messages."""
        for future, first, count in self._callers:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
                continue
            applied = required(results, "a batch that was applied has results")
            result = result_of_call(applied, first, count)
            if isinstance(result, HourwheelError):
                future.set_exception(result)
            else:
                future.set_result(result)


class RowsProposer(Generic[Results]):
    """The callers whose rows one record holds."""

    __slots__ = ("_callers",)

    def __init__(self, callers: list[tuple["asyncio.Future[Results]", int]]) -> None:
        """`callers` are (future, how many rows), in the order of their rows."""
        self._callers: list[tuple[asyncio.Future[Results], int]] = callers

    def answer(self, result: Results | None, error: HourwheelError | None) -> None:
        """Tell each caller the results of its own rows."""
        first = 0
        for future, count in self._callers:
            if future.done():
                pass
            elif error is not None:
                future.set_exception(error)
            else:
                whole = required(result, "a record that was applied has results")
                future.set_result(whole[first : first + count])
            first += count


class RowBuffer(Generic[Results]):
    """Rows of one kind that wait for the next group commit, in the order in which they came."""

    def __init__(self) -> None:
        """None wait."""
        self._rows: list[Rows] = []
        self._futures: list[asyncio.Future[Results]] = []

    def __bool__(self) -> bool:
        """Whether any wait."""
        return bool(self._futures)

    def add(self, rows: Rows, future: "asyncio.Future[Results]") -> None:
        """Have one call's rows in the next group commit; the future gets their results."""
        self._rows.append(rows)
        self._futures.append(future)

    def append(self, append: AppendRows[Results], count_max: int) -> None:
        """Append what waits, in records of `count_max` rows at most, or of one call's."""
        waiting = list(zip(self._futures, self._rows, strict=True))
        self._rows, self._futures = [], []
        first, count = 0, 0
        for end, (_, rows) in enumerate(waiting):
            if end > first and count + len(rows) > count_max:
                _append_together(waiting[first:end], append)
                first, count = end, 0
            count += len(rows)
        if waiting:
            _append_together(waiting[first:], append)

    def close(self, error: HourwheelError) -> None:
        """What waits never will be appended."""
        futures, self._futures, self._rows = self._futures, [], []
        RowsProposer([(future, 0) for future in futures]).answer(None, error)


def _append_together(
    calls: list[tuple["asyncio.Future[Results]", Rows]], append: AppendRows[Results]
) -> None:
    proposer = RowsProposer([(future, len(rows)) for future, rows in calls])
    append(join_rows([rows for _, rows in calls]), proposer)


class SmallCalls:
    """Calls with few messages or ids that wait for the next group commit of one mastership."""

    def __init__(self, mastership: Mastership) -> None:
        """None wait."""
        self._mastership = mastership
        self._merges = MergeBuffer()
        self._cancels = RowBuffer[NDArray[np.uint8]]()
        self._moves = RowBuffer[NDArray[np.void]]()
        self._resolves = RowBuffer[Sequence[int]]()
        self.waiting_count = 0
        """Publishes, cancels and reschedules that wait for the next write."""
        self._usual = 1.0
        """How many it were lately, each time."""
        self.taken_count = 0
        """How many it were the last time."""
        self._peak = 0.0
        """How many it were at most; slow to fall."""
        self._expected = _CALLERS_ENOUGH
        """With so many there is nothing more to wait for."""

    def __bool__(self) -> bool:
        """Whether any wait."""
        return bool(self._merges or self._cancels or self._moves or self._resolves)

    @property
    def has_publishes(self) -> bool:
        """Whether any of those that wait are publishes."""
        return bool(self._merges)

    def publish(self, incoming: IncomingMessages, queues: list[int], future: PublishCaller) -> None:
        """Wait for the next group commit; the future gets the result."""
        self._merges.add(incoming, queues, future)
        self.waiting_count += 1

    def cancel(self, ids: Rows, future: "asyncio.Future[NDArray[np.uint8]]") -> None:
        """As `publish`, of a cancel by id: array[n] of ID_DTYPE. The future gets its outcomes."""
        self._cancels.add(ids, future)
        self.waiting_count += 1

    def reschedule(self, rows: Rows, future: "asyncio.Future[NDArray[np.void]]") -> None:
        """As `publish`, of rows of RESCHEDULE, at most `RESCHEDULES_MAX`."""
        self._moves.add(rows, future)
        self.waiting_count += 1

    def resolve(self, rows: Rows, future: "asyncio.Future[Sequence[int]]") -> None:
        """As `publish`, of rows of RESOLVE; the future gets how many positions each has resolved.

        They wait for no others, and no others for them: a lease may end meanwhile.
        """
        self._resolves.add(rows, future)

    @property
    def is_complete(self) -> bool:
        """Whether waiting for more calls would not gain much: few callers, or all are there."""
        is_enough = self._usual < _CALLERS_MIN or self.waiting_count >= self._expected
        return is_enough or bool(self._resolves)

    def append(self, now_ms: Callable[[], int]) -> None:
        """Append what waits, in as few records as possible, by one reading of the clock."""
        if self.waiting_count:
            self._usual += _USUAL_WEIGHT * (self.waiting_count - self._usual)
            self.taken_count = self.waiting_count
            self._peak = max(self.waiting_count, self._peak * _PEAK_KEPT)
        self.waiting_count = 0
        if not self:
            return
        mastership, at_ms = self._mastership, now_ms()
        self._cancels.append(lambda ids, who: mastership.cancel(ids, at_ms, who), _CANCELS_MAX)
        self._moves.append(
            lambda rows, who: mastership.reschedule(rows, at_ms, who), RESCHEDULES_MAX
        )
        self._resolves.append(lambda rows, who: mastership.resolve(rows, at_ms, who), RESOLVES_MAX)
        for merge in self._merges.take():
            batch = merge.build()
            proposer = MergedProposer(merge.callers)
            mastership.publish(batch, batch.due_ms, batch.topic_queue, at_ms, proposer)

    def on_answered(self) -> None:
        """The last write's callers are answered just now: they may share the next with others."""
        expected = max(self.waiting_count + self.taken_count, int(self._peak))
        self._expected = min(expected, _CALLERS_ENOUGH)

    def on_waited_in_vain(self) -> None:
        """No caller joined those who wait: there are fewer callers than there were."""
        self._usual *= _IN_VAIN_KEPT
        self._peak *= _IN_VAIN_KEPT

    def close(self, error: HourwheelError) -> None:
        """The mastership is over: what waits to be appended never will be."""
        self.waiting_count = 0
        for merge in self._merges.take():
            MergedProposer(merge.callers).answer(None, error)
        self._cancels.close(error)
        self._moves.close(error)
        self._resolves.close(error)
