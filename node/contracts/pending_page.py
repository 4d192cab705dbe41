"""What a page of a listing or a bulk cancel, or a cancel by key holds; names of messages."""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.message_id import ID_CHARS, ID_DTYPE
from hourwheel.types import ShardId
from node.shard.pending_scan import Blob
from node.shard.views import Views
from storage.views.unit import Units

Ids: TypeAlias = NDArray[np.void]


@dataclass(slots=True)
class PendingPage:
    """A page of a listing, in key order."""

    parts: list["PendingPart"] = field(default_factory=list)
    scanned_count: int = 0
    matched_count: int = 0
    corrupt_count: int = 0
    next_token: bytes = b""
    """Empty: this was the last page."""


@dataclass(frozen=True, slots=True)
class PendingPart:
    """Some messages of a page."""

    units: Units
    """Structured array[n] of `UNIT`."""
    blobs: list[Blob]
    """What was read of each."""
    ids: Ids
    """Structured array[n] of `ID_DTYPE`."""

    def printable_ids(self) -> list[str]:
        """The n message ids as clients see them."""
        return printable(self.ids)


@dataclass(slots=True)
class ChangedPage:
    """What became of a page of a bulk cancel or reschedule."""

    changed_count: int = 0
    """Cancelled, or moved."""
    missed_count: int = 0
    """It was too late for these."""
    scanned_count: int = 0
    corrupt_count: int = 0
    next_token: bytes = b""
    """Empty: done."""


class KeysCancelled(NamedTuple):
    """What became of the messages of n keys."""

    outcomes: NDArray[np.uint8]
    """uint8[n] of CancelOutcome: CANCELLED where the call has cancelled one, else ALREADY_RELEASED
    where one was released, else CANCELLED where one was cancelled before, else UNKNOWN."""
    cancelled_counts: NDArray[np.uint32]
    """uint32[n]: how many the call has cancelled; each message is counted for one key, once."""


@dataclass(slots=True)
class KeyPage:
    """A page of the messages that have a key, those that were published last first."""

    parts: list["KeyPart"] = field(default_factory=list)
    matched_count: int = 0
    next_token: bytes = b""
    """Empty: this was the last page."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Some messages of a page."""

    ids: Ids
    """Structured array[n] of `ID_DTYPE`."""
    states: NDArray[np.uint8]
    """uint8[n] of MessageState: PENDING, RELEASED or CANCELLED."""
    due_ms: NDArray[np.int64]
    """int64[n]: when each is or was due."""


def printable(ids: Ids) -> list[str]:
    """n message ids, structured array[n] of `ID_DTYPE`, as clients see them."""
    text = ids.tobytes().hex()
    return [text[at : at + ID_CHARS] for at in range(0, len(text), ID_CHARS)]


def ids_of(shard: ShardId, views: Views, units: Units) -> Ids:
    """Structured array[n] of `ID_DTYPE`: the ids of published messages.

    An id has the due time that its message was published with, and not where it was moved to.
    """
    ids = np.zeros(len(units), ID_DTYPE)
    ids["shard"] = shard
    ids["epoch"] = views.epochs_of(units["sequence"])
    ids["sequence"], ids["due_ms"] = units["sequence"], units["due_ms"]
    moved = np.flatnonzero(units["attempt"] == 0)
    if len(moved):
        sequences = np.ascontiguousarray(units["sequence"][moved])
        ids["due_ms"][moved] = views.sequences.read_many(sequences)[0]
    return ids
