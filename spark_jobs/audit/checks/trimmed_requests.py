"""Which of the first requests in a trimmed log are rejected: the nodes' sequence indexes say it.

Where a log does not begin at 0, it does not show whether a producer's first request is new, or one
that was sent again and whose first copy lay in what retention has removed. So this looks up, in the
replicas' sequence indexes, what became of those few sequences, and of nothing else.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import ShardId
from spark_jobs.audit.facts.requests import FIRSTS
from spark_jobs.logs.replica import Replica, ShardCopy
from storage.files.file_header import Identity
from storage.views.sequence_index import BLOCK_ENTRIES, SequenceIndex, SlotState

Array = NDArray[Any]
_NO_SEQUENCE: Final = np.empty(0, np.uint64)


def rejected_firsts(copies: Iterable[tuple[Replica, ShardCopy]], requests: Array) -> frozenset[int]:
    """First sequences of requests that the replicas took for no messages.

    Args:
        copies: the replicas.
        requests: `audit_requests.REQUEST`[n] of the log, in its order. Of each producer only the
            first few are asked for.

    Returns:
        Those that some replica calls rejected and none calls a message. What the indexes do not
        reach, or cannot be read, is not among them.
    """
    return frozenset(rejected_among(copies, first_sequences(requests)))


def rejected_among(copies: Iterable[tuple[Replica, ShardCopy]], requested: Array) -> set[int]:
    """As `rejected_firsts`, of these sequences, which ascend."""
    rejected, real = set[int](), set[int]()
    for replica, copy in copies:
        found, state = _states(replica, copy, requested)
        is_rejected = state == SlotState.REJECTED
        rejected.update(found[is_rejected].tolist())
        real.update(found[~is_rejected].tolist())
    return rejected - real


def first_sequences(requests: Array) -> Array:
    """uint64[m], ascending: of each producer's first `FIRSTS` requests."""
    if not len(requests):
        return _NO_SEQUENCE
    order = np.lexsort((requests["sequence"], requests["producer"]))
    producer = requests["producer"][order]
    starts = np.flatnonzero(np.concatenate(([True], producer[1:] != producer[:-1])))
    counts = np.diff(starts, append=len(producer))
    ordinal = np.arange(len(producer)) - np.repeat(starts, counts)
    found: Array = np.sort(requests["sequence"][order][ordinal < FIRSTS])
    return found


def _states(replica: Replica, copy: ShardCopy, requested: Array) -> tuple[Array, Array]:
    """(sequences, `SlotState` of each) of those that a replica's index has in whole blocks."""
    manifest = copy.manifest
    count = manifest.sequence_index_count if manifest else 0
    known = requested[requested < np.uint64(count // BLOCK_ENTRIES * BLOCK_ENTRIES)]
    if not len(known):
        return _NO_SEQUENCE, np.empty(0, np.uint8)
    try:
        identity = Identity(replica.cluster_id, ShardId(copy.shard))
        index = SequenceIndex(replica.open_disk(), copy.path("sequences"), identity, count)
        return known, index.read_many(known)[1]
    except (errors.HourwheelError, OSError):
        return _NO_SEQUENCE, np.empty(0, np.uint8)
