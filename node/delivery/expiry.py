"""Finds messages that have expired, among those that were read, and filters them out.

A message's metadata says when it expires; a unit does not. So only those messages are looked at
whose topic has ever had one that expires (`Views.expiring_topics`), when a group is about to be
given them, or by the sweep. What has expired is neither leased nor delivered; the log says so at
once, by RESOLVE expired. Until it does that is in memory alone: another master looks again.
"""

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.batch_columns import expires_column
from hourwheel.types import TopicId
from node.delivery.filtered_ranges import FilteredRanges
from node.delivery.leases import Leases
from node.delivery.message_lease import runs_of
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.views.unit import Units, pick


def expiries_of(units: Units, blobs: bytes) -> NDArray[np.int64]:
    """int64[n]: when each message expires, in epoch milliseconds; 0: never.

    `blobs`: meta and body of each, one behind the other.
    """
    lengths = units["meta_len"].astype(np.int64)
    sizes = lengths + units["body_len"]
    stated = expires_column(blobs, np.cumsum(sizes) - sizes, lengths)
    return np.where(stated < 0, units["store_ms"] - stated, stated)


def are_expired(expires_ms: NDArray[np.int64], now_ms: int) -> NDArray[np.bool_]:
    """bool[n]: which have expired by now, by their `expiries_of`."""
    found: NDArray[np.bool_] = (expires_ms != 0) & (expires_ms <= now_ms)
    return found


class Expired:
    """What of a mastership's queues has expired and is not to be delivered."""

    def __init__(self, views: Views, leases: Leases, filtered_ranges: FilteredRanges) -> None:
        """What has expired is noted in `leases` and `filtered_ranges`."""
        self._views, self._leases, self._filtered_ranges = views, leases, filtered_ranges

    def may_have(self, topic_id: TopicId) -> bool:
        """Whether messages of a topic, or a group's retries of it, may expire."""
        return topic_id in self._views.expiring_topics

    def find(self, units: Units, blobs: bytes, now_ms: int) -> NDArray[np.bool_] | None:
        """bool[n]: which of these have expired; None: none has."""
        gone = are_expired(expiries_of(units, blobs), now_ms)
        return gone if gone.any() else None

    def give_up(self, group_queue: GroupQueue, positions: NDArray[np.int64], now_ms: int) -> None:
        """Deliver the messages at `positions`, which ascend, to no consumer, and log that."""
        for first, end in runs_of(positions).tolist():
            self._leases.skip(group_queue, first, end)
            self._filtered_ranges.add_expired(group_queue, first, end, now_ms)


def without(
    units: Units, blobs: bytes, gone: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], Units, bytes]:
    """What is left: (ordinals of it, units, meta and body of each)."""
    kept = np.flatnonzero(~gone)
    ends = (units["meta_len"].astype(np.int64) + units["body_len"]).cumsum().tolist()
    starts = [0, *ends]
    raw = b"".join([blobs[starts[at] : ends[at]] for at in kept.tolist()])
    return kept, pick(units, kept), raw
