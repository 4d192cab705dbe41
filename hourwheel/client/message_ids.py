"""The ids of published messages: one numpy array that looks like a sequence of `MessageId`s."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.message_id import ID_CHARS, ID_DTYPE, MessageId, unpack_many
from hourwheel.outcomes import DedupOutcome
from hourwheel.v1.broker_pb2 import PublishedBatch


class DedupAnswer(NamedTuple):
    """What became of a message that has a dedup key."""

    outcome: DedupOutcome
    message_id: MessageId
    """Of the message that is pending now: this one, or the one that was before (REJECTED, KEPT)."""
    replaced_id: MessageId | None = None
    """Of the message that was cancelled: REPLACED."""


class Deduped(NamedTuple):
    """Messages of a batch whose dedup key a pending message had."""

    ordinals: tuple[int, ...] = ()
    """Ascending."""
    outcomes: tuple[int, ...] = ()
    pending: tuple[MessageId, ...] = ()
    """Of the messages that had it."""

    @classmethod
    def of(cls, taken: PublishedBatch) -> Self:
        """As a node tells it."""
        if not taken.dedup_ordinals:
            return cls()
        ids = unpack_many(taken.dedup_message_ids).astype(ID_DTYPE).tolist()
        return cls(
            tuple(taken.dedup_ordinals),
            tuple(taken.dedup_outcomes),
            tuple(map(MessageId._make, ids)),
        )

    def of_part(self, first: int, count: int) -> dict[int, tuple[DedupOutcome, MessageId]]:
        """Of messages [first, first + count), by ordinal from there on."""
        low, high = (bisect_left(self.ordinals, at) for at in (first, first + count))
        return {
            self.ordinals[at] - first: (DedupOutcome(self.outcomes[at]), self.pending[at])
            for at in range(low, high)
        }


NONE_DEDUPED: Final = Deduped()


def answer_of(message_id: MessageId, found: tuple[DedupOutcome, MessageId] | None) -> DedupAnswer:
    """What became of a message; None: no pending one had its dedup key."""
    if found is None:
        return DedupAnswer(DedupOutcome.PUBLISHED, message_id)
    outcome, other = found
    if outcome is DedupOutcome.REPLACED:
        return DedupAnswer(outcome, message_id, other)
    return DedupAnswer(outcome, other)


def already_pending(message_id: MessageId) -> errors.AlreadyPending:
    """The error for a message that was rejected."""
    return errors.AlreadyPending(
        f"the message {message_id} with this dedup key is pending", message_id=message_id
    )


class PublishedIds(Sequence[MessageId]):
    """The ids of n published messages, in the order in which the messages were given."""

    __slots__ = ("array", "deduped")

    def __init__(
        self, array: NDArray[Any], deduped: Mapping[int, DedupAnswer] | None = None
    ) -> None:
        """`array`: structured array[n] with the fields of `message_id.ID_DTYPE`.

        `deduped`: ordinal -> what became of each message whose dedup key a pending one had; its id
        here is that of the message which is pending now.

        It may be in another byte order: numpy's own functions change it behind one's back.
        """
        self.array = array.astype(ID_DTYPE, copy=False)
        self.deduped: Mapping[int, DedupAnswer] = deduped or {}

    @classmethod
    def of_batch(
        cls, shard: int, epoch: int, base_sequence: int, due_ms: NDArray[np.int64]
    ) -> "PublishedIds":
        """The ids of messages that follow one another in one batch; `due_ms`: int64[n] instants."""
        ids = np.empty(len(due_ms), ID_DTYPE)
        ids["shard"] = shard
        ids["epoch"] = epoch
        ids["sequence"] = np.arange(base_sequence, base_sequence + len(due_ms), dtype=np.uint64)
        ids["due_ms"] = due_ms
        return cls(ids)

    def __len__(self) -> int:
        """How many messages."""
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> MessageId: ...
    @overload
    def __getitem__(self, index: slice) -> "PublishedIds": ...
    def __getitem__(self, index: int | slice) -> "MessageId | PublishedIds":
        """One id, or those of a slice."""
        if isinstance(index, slice):
            return PublishedIds(self.array[index])
        return MessageId(*self.array[index].item())

    def __iter__(self) -> Iterator[MessageId]:
        """The ids in order."""
        return map(MessageId._make, self.array.tolist())

    def __repr__(self) -> str:
        """How many, and the first."""
        return f"<PublishedIds {len(self)}: {self[0]}, ...>" if len(self) else "<PublishedIds 0>"

    def with_deduped(self, found: Mapping[int, tuple[DedupOutcome, MessageId]]) -> "PublishedIds":
        """With what became of messages whose dedup key pending ones had."""
        array = self.array.copy()
        answers = {at: answer_of(self[at], one) for at, one in found.items()}
        for at, answer in answers.items():
            array[at] = tuple(answer.message_id)
        return PublishedIds(array, answers)

    def packed(self) -> bytes:
        """The ids as 24 bytes each, as `AsyncAdmin.cancel_many` takes them."""
        return self.array.tobytes()

    def texts(self) -> list[str]:
        """The printable ids."""
        text = self.packed().hex()
        return [text[at : at + ID_CHARS] for at in range(0, len(text), ID_CHARS)]
