"""The idempotence table: what each producer was last heard to publish.

A producer numbers its messages densely from 0, and sends a batch again when it got no answer. Of
each producer the latest 5 batches are remembered, and a batch that arrives is

    new                the producer's next number, or number 0 of a producer that is not known
    a duplicate        its numbers lie within one remembered batch: it has those messages' sequences
    out of order       anything else of a known producer: before, between, across or beyond
    unknown producer   not known (or forgotten by EXPIRE), and not number 0: what came before it is
                       a guess, and a guess would be a lost or doubled message

"Within" and not only "equal": the node merges single publishes into one batch, and what it
remembers as one batch of three is sent again as three. Producer 0 is nobody: always new, never
remembered.

Remembered batches are packed into one `bytes` a producer, oldest first, which is a third of the
memory of tuples, is no work for the garbage collector, and can be captured by copying the dict:

    byte  size
       0     8  first_sequence  u64   the producer's number of the first message
       8     8  base_sequence   u64   its sequence in the shard
      16     8  store_ms        i64
      24     4  count           u32
      28     4  epoch           u32
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from storage.views.digest import Hasher, feed_numbers

_BATCH: Final = Struct("<QQqII")
_BATCH_BYTES: Final = 32
assert _BATCH.size == _BATCH_BYTES
_STORE_MS: Final = Struct("<q")
_STORE_MS_FROM_END: Final = 16
_KEPT_BYTES: Final = _BATCH_BYTES * (PRODUCER_BATCHES_REMEMBERED - 1)
"""How much of the old memory stays when a batch comes to it."""


class New(Enum):
    """The type of `NEW`."""

    NEW = "new"


NEW: Final = New.NEW
"""The batch was not seen before and is the producer's next."""


class Duplicate(NamedTuple):
    """The batch was accepted before, as this."""

    base_sequence: int
    store_ms: int
    epoch: int


class Verdict(IntEnum):
    """What a message of a merged batch is."""

    NEW = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    UNKNOWN_PRODUCER = 3


@dataclass(frozen=True)
class Verdicts:
    """What the n messages of a merged batch are. All but the first column is of duplicates only."""

    verdict: NDArray[np.uint8]
    base_sequence: NDArray[np.uint64]
    """uint64[n]: the sequence in the shard that the message got when it was accepted."""
    store_ms: NDArray[np.int64]
    epoch: NDArray[np.uint32]


class _Batch(NamedTuple):
    """One remembered batch, its fields in the order they are packed in."""

    first_sequence: int
    base_sequence: int
    store_ms: int
    message_count: int
    epoch: int

    @property
    def end_sequence(self) -> int:
        return self.first_sequence + self.message_count


class _Accepted(NamedTuple):
    """What a batch's new messages are remembered with."""

    base_sequence: int
    store_ms: int
    epoch: int


class _Run(NamedTuple):
    """Neighbours in a merged batch: one producer, numbers that follow each other."""

    at: int
    message_count: int
    producer_id: int
    first_sequence: int


def _batches(packed: bytes) -> list[_Batch]:
    return list(map(_Batch._make, _BATCH.iter_unpack(packed)))


def _last(packed: bytes) -> _Batch:
    return _Batch._make(_BATCH.unpack_from(packed, len(packed) - _BATCH_BYTES))


def _last_ms(packed: bytes) -> int:
    """When the last batch was stored. Called for all producers at once, so it makes no objects."""
    store_ms: int = _STORE_MS.unpack_from(packed, len(packed) - _STORE_MS_FROM_END)[0]
    return store_ms


def _judge_prefix(packed: bytes | None, first: int, count: int) -> tuple[Verdict | Duplicate, int]:
    """What the first messages of a batch are, and how many of them are just that (at least 1)."""
    if packed is None:
        return (Verdict.UNKNOWN_PRODUCER if first else Verdict.NEW), count
    if first == _last(packed).end_sequence:
        return Verdict.NEW, count
    batches = _batches(packed)
    for batch in reversed(batches):
        if batch.first_sequence <= first < batch.end_sequence:
            base = batch.base_sequence + first - batch.first_sequence
            same = min(count, batch.end_sequence - first)
            return Duplicate(base, batch.store_ms, batch.epoch), same
    # Out of order up to where something begins that is remembered, or new.
    bounds = [*(batch.first_sequence for batch in batches), batches[-1].end_sequence]
    gaps = [at - first for at in bounds if at > first]
    return Verdict.OUT_OF_ORDER, min([count, *gaps])


def _judge(packed: bytes | None, first: int, count: int) -> Verdict | Duplicate:
    """What one batch of the producer that `packed` is remembered of is, as a whole."""
    errors.invariant(count > 0, "a batch without messages")
    verdict, same = _judge_prefix(packed, first, count)
    return verdict if same == count else Verdict.OUT_OF_ORDER


def _remember(packed: bytes | None, first: int, count: int, accepted: _Accepted) -> bytes:
    base_sequence, store_ms, epoch = accepted
    old = b"" if packed is None else packed[-_KEPT_BYTES:]
    return old + _BATCH.pack(first, base_sequence, store_ms, count, epoch)


def _runs(producer_ids: NDArray[np.uint64], sequences: NDArray[np.uint64]) -> Iterator[_Run]:
    """The runs of a merged batch, in order."""
    follows = (producer_ids[1:] == producer_ids[:-1]) & (sequences[1:] == sequences[:-1] + 1)
    starts = np.concatenate(([0], np.flatnonzero(~follows) + 1))
    counts = np.diff(starts, append=len(producer_ids))
    columns = (starts, counts, producer_ids[starts], sequences[starts])
    return map(_Run._make, zip(*(column.tolist() for column in columns), strict=True))


class ProducerStates:
    """All producers of a shard. Lies in the checkpoint's manifest. Not for two threads at once."""

    def __init__(self, state: Iterable[state_pb2.ProducerState] = ()) -> None:
        """Take up the state of a checkpoint."""
        self._producers: dict[int, bytes] = {}
        """producer_id -> its packed batches, at least one."""
        for each in state:
            errors.invariant(
                each.producer_id > 0
                and 0 < len(each.batches) <= PRODUCER_BATCHES_REMEMBERED
                and each.last_ms == each.batches[-1].store_ms,
                "a producer's state contradicts itself",
                producer_id=each.producer_id,
            )
            self._producers[each.producer_id] = b"".join(
                _BATCH.pack(
                    batch.first_sequence,
                    batch.base_sequence,
                    batch.store_ms,
                    batch.count,
                    batch.epoch,
                )
                for batch in each.batches
            )

    def __len__(self) -> int:
        """How many producers are known."""
        return len(self._producers)

    def check(self, producer_id: int, first_sequence: int, count: int) -> New | Duplicate:
        """What a batch of `count` messages from `first_sequence` on is. Changes nothing.

        Raises:
            OutOfOrderSequence: it neither follows the producer's last batch nor is known.
            UnknownProducer: the producer is not known and does not start at 0.
        """
        if not producer_id:
            return NEW
        packed = self._producers.get(producer_id)
        verdict = _judge(packed, first_sequence, count)
        if isinstance(verdict, Duplicate):
            return verdict
        if verdict is Verdict.NEW:
            return NEW
        if packed is None:
            raise errors.UnknownProducer(producer_id=producer_id, first_sequence=first_sequence)
        raise errors.OutOfOrderSequence(
            producer_id=producer_id,
            first_sequence=first_sequence,
            expected_sequence=_last(packed).end_sequence,
        )

    def record(
        self,
        producer_id: int,
        first_sequence: int,
        count: int,
        base_sequence: int,
        store_ms: int,
        epoch: int,
    ) -> None:
        """Remember a batch that `check` found new."""
        if not producer_id:
            return
        packed = self._producers.get(producer_id)
        errors.invariant(
            _judge(packed, first_sequence, count) is Verdict.NEW,
            "recording a batch that is not the producer's next",
            producer_id=producer_id,
            first_sequence=first_sequence,
        )
        accepted = _Accepted(base_sequence, store_ms, epoch)
        self._producers[producer_id] = _remember(packed, first_sequence, count, accepted)

    def check_many(
        self,
        producer_ids: NDArray[np.uint64],
        sequences: NDArray[np.uint64],
        base_sequence: int,
        store_ms: int,
        epoch: int,
    ) -> Verdicts:
        """What the n messages of a merged batch are, each after those before it. Changes nothing.

        Args:
            producer_ids: uint64[n], 0 for messages without idempotence.
            sequences: uint64[n], each producer's own numbers.
            base_sequence: sequence in the shard of the first message, if it is accepted so.
            store_ms: when, if it is accepted so.
            epoch: in which epoch, if it is accepted so.
        """
        accepted = _Accepted(base_sequence, store_ms, epoch)
        return self._judge_many(producer_ids, sequences, accepted, {})

    def record_many(
        self,
        producer_ids: NDArray[np.uint64],
        sequences: NDArray[np.uint64],
        base_sequence: int,
        store_ms: int,
        epoch: int,
    ) -> Verdicts:
        """As `check_many`, and remember the new ones. For apply."""
        changed: dict[int, bytes] = {}
        accepted = _Accepted(base_sequence, store_ms, epoch)
        verdicts = self._judge_many(producer_ids, sequences, accepted, changed)
        self._producers.update(changed)
        return verdicts

    def _judge_many(
        self,
        producer_ids: NDArray[np.uint64],
        sequences: NDArray[np.uint64],
        accepted: _Accepted,
        changed: MutableMapping[int, bytes],
    ) -> Verdicts:
        count = len(producer_ids)
        verdicts = Verdicts(
            np.zeros(count, np.uint8),
            np.zeros(count, np.uint64),
            np.zeros(count, np.int64),
            np.zeros(count, np.uint32),
        )
        if not producer_ids.any():
            return verdicts
        for run in _runs(producer_ids, sequences):
            if run.producer_id:
                self._judge_run(run, accepted, changed, verdicts)
        return verdicts

    def _judge_run(
        self,
        run: _Run,
        accepted: _Accepted,
        changed: MutableMapping[int, bytes],
        verdicts: Verdicts,
    ) -> None:
        """Judge a run piece by piece: a piece is all new, or lies within one remembered batch."""
        producer_id, at, first = run.producer_id, run.at, run.first_sequence
        end = at + run.message_count
        packed = changed.get(producer_id) or self._producers.get(producer_id)
        while at < end:
            verdict, same = _judge_prefix(packed, first, end - at)
            if verdict is Verdict.NEW:
                base_sequence = accepted.base_sequence + at
                packed = _remember(
                    packed, first, same, accepted._replace(base_sequence=base_sequence)
                )
                changed[producer_id] = packed
            else:
                _put(verdicts, slice(at, at + same), verdict)
            at += same
            first += same

    def oldest_ms(self) -> int | None:
        """When the producer that is idle for longest was last heard of, or None without any."""
        return min((_last_ms(packed) for packed in self._producers.values()), default=None)

    def expire(self, idle_before_ms: int) -> int:
        """Forget the producers whose last batch was stored before `idle_before_ms`; how many."""
        idle = [
            producer_id
            for producer_id, packed in self._producers.items()
            if _last_ms(packed) < idle_before_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def capture(self) -> Callable[[], list[state_pb2.ProducerState]]:
        """The state as of now, to be encoded by another thread: for the manifest."""
        captured = self._producers.copy()
        return lambda: [_encode(*item) for item in sorted(captured.items())]

    def state(self) -> list[state_pb2.ProducerState]:
        """The state as of now, by producer id."""
        return self.capture()()

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, len(self._producers))
        for producer_id, packed in sorted(self._producers.items()):
            feed_numbers(hasher, producer_id, len(packed))
            hasher.update(packed)


def _put(verdicts: Verdicts, messages: slice, verdict: Verdict | Duplicate) -> None:
    """Note a verdict that some neighbouring messages share."""
    if not isinstance(verdict, Duplicate):
        verdicts.verdict[messages] = verdict
        return
    verdicts.verdict[messages] = Verdict.DUPLICATE
    base, count = verdict.base_sequence, messages.stop - messages.start
    verdicts.base_sequence[messages] = np.arange(base, base + count, dtype=np.uint64)
    verdicts.store_ms[messages] = verdict.store_ms
    verdicts.epoch[messages] = verdict.epoch


def _encode(producer_id: int, packed: bytes) -> state_pb2.ProducerState:
    batches = [
        state_pb2.ProducerBatch(
            first_sequence=batch.first_sequence,
            count=batch.message_count,
            base_sequence=batch.base_sequence,
            store_ms=batch.store_ms,
            epoch=batch.epoch,
        )
        for batch in _batches(packed)
    ]
    return state_pb2.ProducerState(
        producer_id=producer_id, last_ms=batches[-1].store_ms, batches=batches
    )
