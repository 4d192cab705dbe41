"""What is decided about dedup keys as a PUBLISH batch is applied: in the order of its messages.

A message with a dedup key whose topic has a pending message with the same key is rejected, or kept
back, or cancels that one and takes its place. Which it is the message says. Whether the other one
is pending the views say at this place in the log, and earlier messages of the same batch.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.outcomes import DedupOutcome, IfPending
from hourwheel.types import QUEUE_BITS
from node.shard.views import DEDUP_LEVEL, Views
from storage.views.dedup_keys import pack_names
from storage.views.producer_state import DEDUPED, NONE_DEDUPED

_REFUSED: Final = {
    int(IfPending.REJECT): int(DedupOutcome.REJECTED),
    int(IfPending.KEEP): int(DedupOutcome.KEPT),
}
_REPLACED: Final = int(DedupOutcome.REPLACED)


@dataclass(frozen=True)
class Decisions:
    """What became of a batch's messages that have a dedup key."""

    outcomes: NDArray[Any]
    """DEDUPED[m], ascending: ordinals of messages for which one was pending."""
    rows: dict[bytes, int]
    """Rows of `DedupKeys` that are to be set."""

    @property
    def refused(self) -> NDArray[np.int64]:
        """int64[r]: ordinals of messages that are not stored."""
        chosen = self.outcomes["outcome"] != _REPLACED
        ordinals: NDArray[np.int64] = self.outcomes["ordinal"][chosen].astype(np.int64)
        return ordinals

    @property
    def replaced(self) -> NDArray[np.uint64]:
        """uint64[r], ascending: sequences of pending messages that are cancelled."""
        chosen = self.outcomes["outcome"] == _REPLACED
        return np.sort(self.outcomes["sequence"][chosen])


def decide(
    views: Views, batch: RecordBatch, accepted: NDArray[np.bool_] | None
) -> Decisions | None:
    """Decide about the accepted messages of a batch (None: all); None: none has a dedup key."""
    header = batch.header
    if not header.flags & Flag.DEDUP_KEYS or views.feature_level < DEDUP_LEVEL:
        return None
    columns = batch.dedup
    has_key = columns.if_pending > 0
    chosen = np.flatnonzero(has_key if accepted is None else has_key & accepted)
    if not len(chosen):
        return None
    topics = (batch.topic_queue >> QUEUE_BITS)[chosen]
    names = pack_names(topics, columns.high[chosen], columns.low[chosen])
    sequences = chosen.astype(np.uint64) + np.uint64(header.base_sequence)
    at_once = views.cursor.is_due(batch.due_ms[chosen], sequences, header.store_ms)
    pending = _pending_of(views, names)
    if not pending and len(set(names)) == len(names):  # as it is where each has a key of its own
        stay = ~at_once
        if not stay.all():
            names = [name for name, stays in zip(names, stay.tolist(), strict=True) if stays]
        return Decisions(NONE_DEDUPED, dict(zip(names, sequences[stay].tolist(), strict=True)))
    taken: dict[bytes, int] = {}
    gone: dict[bytes, None] = {}
    """Whose pending message was replaced by one that is released at once."""
    outcomes: list[tuple[int, int, int]] = []
    rows = zip(
        *(chosen.tolist(), names, sequences.tolist()),
        *(columns.if_pending[chosen].tolist(), at_once.tolist()),
        strict=True,
    )
    for ordinal, name, sequence, if_pending, leaves in rows:
        other = taken.get(name)
        if other is None and name not in gone:
            other = pending.get(name)
        if other is not None:
            if if_pending in _REFUSED:
                outcomes.append((ordinal, _REFUSED[if_pending], other))
                continue
            outcomes.append((ordinal, _REPLACED, other))
        if not leaves:
            taken[name] = sequence
        elif other is not None:
            taken.pop(name, None)
            gone[name] = None
    return Decisions(np.array(outcomes, DEDUPED), taken)


def _pending_of(views: Views, names: list[bytes]) -> dict[bytes, int]:
    """Name -> sequence of those that a pending message has."""
    known = {
        name: sequence
        for name, sequence in zip(names, views.dedup_keys.find(names), strict=True)
        if sequence is not None
    }
    if not known:
        return known
    sequences = np.fromiter(known.values(), np.uint64, len(known))
    pending = views.are_pending(sequences).tolist()
    return {name: one for (name, one), is_it in zip(known.items(), pending, strict=True) if is_it}
