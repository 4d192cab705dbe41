"""The ids of published messages: one numpy array that looks like a sequence of `MessageId`s."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.message_id import ID_CHARS, ID_DTYPE, MessageId


class PublishedIds(Sequence[MessageId]):
    """The ids of n published messages, in the order in which the messages were given."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        """`array`: structured array[n] with the fields of `message_id.ID_DTYPE`.

        It may be in another byte order: numpy's own functions change it behind one's back.
        """
        self.array = array.astype(ID_DTYPE, copy=False)

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

    def packed(self) -> bytes:
        """The ids as 24 bytes each, as `AsyncAdmin.cancel_many` takes them."""
        return self.array.tobytes()

    def texts(self) -> list[str]:
        """The printable ids."""
        text = self.packed().hex()
        return [text[at : at + ID_CHARS] for at in range(0, len(text), ID_CHARS)]
