"""The idempotence table: what each producer was last heard to publish.

A producer numbers its messages densely from 0, and sends a batch again when it got no answer. Of
each producer the latest 5 batches are remembered, and a batch that arrives is

    new                the producer's next number, or number 0 of a producer that is not known
    a duplicate        its numbers lie within one remembered batch: it has those messages' sequences
    out of order       anything else of a known producer: before, between, across or beyond
    unknown producer   not known (or forgotten by EXPIRE), and not number 0: what came before it is
                       a guess, and a guess would be a lost or doubled message

"Within" and not only "equal": a producer may cut batches anew to send again. But a batch is taken
or refused as a whole, since its answer is one base sequence: one whose first part is known and the
rest is not has no answer that is true of all of it. The client never sends one such: what may have
been taken keeps its numbers and its bounds (`hourwheel.client.inflight_batches`). Producer 0
stands for no producer: its batches are always new, and never remembered.

Remembered batches are packed into one `bytes` a producer, oldest first, which is a third of the
memory of tuples, is no work for the garbage collector, and can be captured by copying the dict:

    byte  size
       0     8  first_sequence  u64   the producer's number of the first message
       8     8  base_sequence   u64   its sequence in the shard
      16     8  store_ms        i64
      24     4  count           u32
      28     4  epoch           u32

Of a batch with messages whose dedup key a pending message had, what became of these is remembered
with it, as rows of `DEDUPED`: a batch that is sent again gets the first answer.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from hourwheel.types import Epoch, SequenceNumber
from storage.views.digest import Hasher, feed_numbers

_BATCH: Final = Struct("<QQqII")
_BATCH_BYTES: Final = 32
assert _BATCH.size == _BATCH_BYTES
_STORE_MS: Final = Struct("<q")
_STORE_MS_FROM_END: Final = 16
_KEPT_BYTES: Final = _BATCH_BYTES * (PRODUCER_BATCHES_REMEMBERED - 1)
"""How much of the old memory stays when a batch comes to it."""


DEDUPED: Final = np.dtype([("ordinal", "<u4"), ("outcome", "<u4"), ("sequence", "<u8")])
"""A message of a batch whose dedup key a pending message had, that one's sequence, and what became
of it: a `DedupOutcome`."""
Deduped = NDArray[Any]
"""Structured array[n] of `DEDUPED`, by ordinal."""
NONE_DEDUPED: Final[Deduped] = np.empty(0, DEDUPED)


class New(Enum):
    """The type of `NEW`."""

    NEW = "new"


NEW: Final = New.NEW
"""The batch was not seen before and is the producer's next."""


class Duplicate(NamedTuple):
    """The batch was accepted before, as this."""

    base_sequence: SequenceNumber
    store_ms: int
    epoch: Epoch
    deduped: Deduped = NONE_DEDUPED
    """What it answered of dedup keys, by ordinals of this copy."""


class _Batch(NamedTuple):
    """One remembered batch, its fields in the order they are packed in."""

    first_sequence: int
    base_sequence: SequenceNumber
    store_ms: int
    message_count: int
    epoch: Epoch

    @property
    def end_sequence(self) -> int:
        return self.first_sequence + self.message_count


def _batches(packed: bytes) -> list[_Batch]:
    return list(map(_Batch._make, _BATCH.iter_unpack(packed)))


def _last(packed: bytes) -> _Batch:
    return _Batch._make(_BATCH.unpack_from(packed, len(packed) - _BATCH_BYTES))


def _last_ms(packed: bytes) -> int:
    """When the last batch was stored. Called for all producers at once, so it makes no objects."""
    store_ms: int = _STORE_MS.unpack_from(packed, len(packed) - _STORE_MS_FROM_END)[0]
    return store_ms


def _classify(packed: bytes | None, first: int, count: int) -> New | Duplicate | None:
    """What a batch of the producer that `packed` is remembered of is; None: to be refused."""
    errors.invariant(count > 0, "a batch without messages")
    if packed is None:
        return None if first else NEW
    if first == _last(packed).end_sequence:
        return NEW
    for batch in reversed(_batches(packed)):
        if batch.first_sequence <= first and first + count <= batch.end_sequence:
            base = SequenceNumber(batch.base_sequence + first - batch.first_sequence)
            return Duplicate(base, batch.store_ms, batch.epoch)
    return None


class ProducerStates:
    """All producers of a shard. Lies in the checkpoint's manifest. Not for two threads at once."""

    def __init__(self, state: Iterable[state_pb2.ProducerState] = ()) -> None:
        """Take up the state of a checkpoint."""
        self._producers: dict[int, bytes] = {}
        """producer_id -> its packed batches, at least one."""
        self._deduped: dict[int, bytes] = {}
        """base_sequence of a remembered batch -> its rows of DEDUPED, at least one."""
        self.deduped_bytes = 0
        """Of these."""
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
            for batch in each.batches:
                if batch.deduped:
                    self._deduped[batch.base_sequence] = batch.deduped
                    self.deduped_bytes += len(batch.deduped)

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
        found = _classify(packed, first_sequence, count)
        if isinstance(found, Duplicate) and self._deduped:
            return self._with_deduped(found, _base_of(packed or b"", first_sequence), count)
        if found is not None:
            return found
        if packed is None:
            raise errors.UnknownProducer(producer_id=producer_id, first_sequence=first_sequence)
        raise errors.OutOfOrderSequence(
            producer_id=producer_id,
            first_sequence=first_sequence,
            expected_sequence=_last(packed).end_sequence,
        )

    def _with_deduped(
        self, found: Duplicate, base_sequence: SequenceNumber, count: int
    ) -> Duplicate:
        """With what the first copy, of the batch that begins there, answered of dedup keys."""
        rows = np.frombuffer(self._deduped.get(base_sequence, b""), DEDUPED)
        skipped = found.base_sequence - base_sequence
        chosen = (rows["ordinal"] >= skipped) & (rows["ordinal"] < skipped + count)
        rows = rows[chosen].copy()
        rows["ordinal"] -= np.uint32(skipped)
        return found._replace(deduped=rows)

    def note_deduped(self, base_sequence: SequenceNumber, deduped: Deduped) -> None:
        """Remember what was answered of dedup keys with the batch that was just recorded."""
        if len(deduped):
            self._deduped[base_sequence] = deduped.tobytes()
            self.deduped_bytes += deduped.nbytes

    def _forget_deduped(self, base_sequences: Iterable[int]) -> None:
        for base_sequence in base_sequences:
            self.deduped_bytes -= len(self._deduped.pop(base_sequence, b""))

    def record(
        self,
        producer_id: int,
        first_sequence: int,
        count: int,
        base_sequence: SequenceNumber,
        store_ms: int,
        epoch: Epoch,
    ) -> None:
        """Remember a batch that `check` found new."""
        if not producer_id:
            return
        packed = self._producers.get(producer_id)
        errors.invariant(
            _classify(packed, first_sequence, count) is NEW,
            "recording a batch that is not the producer's next",
            producer_id=producer_id,
            first_sequence=first_sequence,
        )
        old = b"" if packed is None else packed[-_KEPT_BYTES:]
        if self._deduped and packed is not None and len(packed) > _KEPT_BYTES:
            self._forget_deduped([_batches(packed[:_BATCH_BYTES])[0].base_sequence])
        self._producers[producer_id] = old + _BATCH.pack(
            first_sequence, base_sequence, store_ms, count, epoch
        )

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
            packed = self._producers.pop(producer_id)
            if self._deduped:
                self._forget_deduped(batch.base_sequence for batch in _batches(packed))
        return len(idle)

    def capture(self) -> Callable[[], list[state_pb2.ProducerState]]:
        """The state as of now, to be encoded by another thread: for the manifest."""
        captured, deduped = self._producers.copy(), self._deduped.copy()
        return lambda: [_encode(*item, deduped) for item in sorted(captured.items())]

    def state(self) -> list[state_pb2.ProducerState]:
        """The state as of now, by producer id."""
        return self.capture()()

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, len(self._producers))
        for producer_id, packed in sorted(self._producers.items()):
            feed_numbers(hasher, producer_id, len(packed))
            hasher.update(packed)
        for base_sequence, rows in sorted(self._deduped.items()):
            feed_numbers(hasher, base_sequence, len(rows))
            hasher.update(rows)


def _base_of(packed: bytes, first: int) -> SequenceNumber:
    """Base sequence of the remembered batch that a producer's number lies in."""
    found = [one for one in _batches(packed) if one.first_sequence <= first < one.end_sequence]
    return found[-1].base_sequence


def _encode(producer_id: int, packed: bytes, deduped: dict[int, bytes]) -> state_pb2.ProducerState:
    batches = [
        state_pb2.ProducerBatch(
            first_sequence=batch.first_sequence,
            count=batch.message_count,
            base_sequence=batch.base_sequence,
            store_ms=batch.store_ms,
            epoch=batch.epoch,
            deduped=deduped.get(batch.base_sequence, b""),
        )
        for batch in _batches(packed)
    ]
    return state_pb2.ProducerState(
        producer_id=producer_id, last_ms=batches[-1].store_ms, batches=batches
    )
