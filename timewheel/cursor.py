"""The dispatch cursor: what is released, as a key; and the one rule that says when a message is.

    released at once   if due_ms <= the batch's store_ms, or its key <= the cursor
    else               into the wheel; a DISPATCH(prev, to] releases it when its key is in the range

`tick` and `local_index` are what the cursor looks like from outside: the second that is being
released, and how many of it have been.
"""

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import invariant
from hourwheel.internal.v1.state_pb2 import CursorState
from hourwheel.types import KEY_MIN, Key
from storage.views.unit import Units
from timewheel.levels import tick_of

_MASK = (1 << 64) - 1


def mix(sequences: NDArray[np.uint64]) -> int:
    """Wrapping sum of the sequences after splitmix64's finaliser.

    A sum of mixed numbers, with the count beside it, sees any set of repeats and losses that plain
    sums and xors let cancel out.
    """
    z = sequences + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))).sum(dtype=np.uint64))


class Cursor:
    """Everything with key <= `key` has been released, cancelled or discarded; nothing above has.

    (But for what fell due before it was stored, which never enters the order.)
    """

    def __init__(self, state: CursorState | None = None) -> None:
        """From a checkpoint, or at the very beginning."""
        self.key = KEY_MIN if state is None else Key(state.due_ms, state.sequence)
        self.released_count = 0 if state is None else state.released_count
        self.released_mix = 0 if state is None else state.released_mix
        self.local_index = 0 if state is None else state.local_index

    @property
    def tick(self) -> int:
        """Second being released, since the Unix epoch."""
        return tick_of(self.key.due_ms)

    def state(self) -> CursorState:
        """For the checkpoint."""
        return CursorState(
            due_ms=self.key.due_ms,
            sequence=self.key.sequence,
            released_count=self.released_count,
            released_mix=self.released_mix,
            local_index=self.local_index,
        )

    def is_due(
        self, due_ms: NDArray[np.int64], sequences: NDArray[np.uint64], store_ms: int
    ) -> NDArray[np.bool_]:
        """The release rule: bool[n], whether each message is released as it is applied."""
        key = self.key
        at_once = due_ms <= max(store_ms, key.due_ms - 1)
        within: NDArray[np.bool_] = (due_ms == key.due_ms) & (sequences <= key.sequence)
        return at_once | within

    def count_release(self, units: Units) -> None:
        """Units released, by whichever path."""
        self.released_count += len(units)
        self.released_mix = (self.released_mix + mix(units["sequence"])) & _MASK

    def advance(self, to: Key, released: Units) -> None:
        """A DISPATCH up to `to` released these units (in key order)."""
        invariant(to >= self.key, "the cursor never moves back", cursor=self.key, to=to)
        tick = tick_of(to.due_ms)
        if tick != self.tick:
            self.local_index = 0
        if len(released):
            self.local_index += int((released["due_ms"] >= tick * 1000).sum())
        self.key = to
