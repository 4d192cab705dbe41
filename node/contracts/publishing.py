"""The answers to a publish, message by message."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.dedup_key import DedupKey

DedupKeys: TypeAlias = list[DedupKey] | None
"""Of each message; None: no message has one."""


class PublishedOne(NamedTuple):
    """What became of one message."""

    message_id: str
    """Printable; empty where it was rejected. Where a pending one was kept, that one's."""
    due_ms: int
    outcome: int = 0
    """`DedupOutcome`."""
    pending_id: str = ""
    """Of the message that had its dedup key."""


class DedupedIds(NamedTuple):
    """Messages of a batch whose dedup key a pending message had: arrays of one length."""

    ordinals: NDArray[np.uint32]
    outcomes: NDArray[np.uint32]
    """`DedupOutcome` of each."""
    ids: NDArray[np.void]
    """array[m] of `message_id.ID_DTYPE`: of the messages that were pending."""
