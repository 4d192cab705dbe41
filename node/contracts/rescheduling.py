"""The engine's calls that move messages to other due times, as the API makes them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class KeysRescheduled(NamedTuple):
    """What became of the messages of n keys."""

    outcomes: NDArray[np.uint8]
    """uint8[n] of RescheduleOutcome: RESCHEDULED where the call has moved one, else
    ALREADY_RELEASED where one was released, else CANCELLED where one was, else UNKNOWN."""
    due_ms: NDArray[np.int64]
    """int64[n]: when those that were moved are due now; else 0."""
    rescheduled_counts: NDArray[np.uint32]
    """uint32[n]: how many the call has moved."""


class ReschedulePort(Protocol):
    """A part of `node.contracts.broker.EnginePort`."""

    async def reschedule(
        self, ids: NDArray[np.void], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> NDArray[np.void]:
        """Move n pending messages to other due times.

        Args:
            ids: structured array[n] of `message_id.ID_DTYPE`.
            times_ms: int64[n], instants, or delays from now. What is past is released at once.
            are_delays: which of the two.

        Returns:
            Structured array[n] of `node.shard.apply.RESCHEDULED`.

        Raises:
            InvalidDueTime, BeyondHorizon: of one of the times; nothing is moved.
            FeatureLevelTooLow: not all nodes know of it. DiskFull. TooManyMoved.
        """
        ...

    async def reschedule_keys(
        self, topic: str, keys: Sequence[bytes], times_ms: NDArray[np.int64], *, are_delays: bool
    ) -> KeysRescheduled:
        """Move all messages of a topic that have one of n keys, and are pending.

        Raises:
            As `reschedule`, and as `EnginePort.cancel_keys`.
        """
        ...
