"""What producers get about dedup keys, and how many of these a shard may have."""

import numpy as np

from hourwheel import errors, limits
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.outcomes import DedupOutcome
from node.contracts.publishing import DedupedIds, PublishedOne
from node.shard.deduplication import Published
from node.shard.shard import Shard
from node.shard.views import DEDUP_LEVEL, Views
from node.telemetry.stats import EngineStats
from storage.views.producer_state import Deduped


def check_room(views: Views, count: int) -> None:
    """Whether so many more messages with dedup keys may be published.

    Raises:
        FeatureLevelTooLow: not all nodes know of them.
        TooManyDedupKeys: there are as many as a shard keeps in memory.
    """
    if views.feature_level < DEDUP_LEVEL:
        raise errors.FeatureLevelTooLow(
            "dedup keys can be used when all nodes are of a version that knows how",
            level=views.feature_level,
            level_min=DEDUP_LEVEL,
        )
    known = views.dedup_keys.count
    if known + count > limits.DEDUP_KEY_COUNT_MAX:
        raise errors.TooManyDedupKeys(
            f"{known} pending messages have a dedup key; at most"
            f" {limits.DEDUP_KEY_COUNT_MAX} may have one",
            count=known,
            count_max=limits.DEDUP_KEY_COUNT_MAX,
        )
    answered = views.producers.deduped_bytes
    if answered > limits.DEDUP_ANSWER_BYTES_MAX:
        raise errors.TooManyDedupKeys(
            f"{answered} bytes are remembered of what producers were answered about dedup keys; at"
            f" most {limits.DEDUP_ANSWER_BYTES_MAX} may be",
            bytes=answered,
            bytes_max=limits.DEDUP_ANSWER_BYTES_MAX,
        )


def count(stats: EngineStats, published: Published) -> None:
    """Count the messages of a call that was not answered before."""
    if not len(published.deduped):
        stats.published += published.count
        return
    outcomes = published.deduped["outcome"]
    replaced = int((outcomes == DedupOutcome.REPLACED).sum())
    stats.dedup_rejected += int((outcomes == DedupOutcome.REJECTED).sum())
    stats.dedup_kept += int((outcomes == DedupOutcome.KEPT).sum())
    stats.dedup_replaced += replaced
    stats.published += published.count - (len(outcomes) - replaced)


def ids_of(shard: Shard, deduped: Deduped) -> DedupedIds | None:
    """With the ids of the messages that were pending; None: there are none."""
    if not len(deduped):
        return None
    sequences = np.ascontiguousarray(deduped["sequence"])
    ids = np.zeros(len(deduped), ID_DTYPE)
    ids["shard"], ids["sequence"] = shard.shard_id, sequences
    ids["epoch"] = shard.views.epochs_of(sequences)
    ids["due_ms"] = shard.views.sequences.read_many(sequences)[0]
    return DedupedIds(deduped["ordinal"].copy(), deduped["outcome"].copy(), ids)


def tell(published: list[PublishedOne], deduped: DedupedIds | None) -> None:
    """Put what became of some of them into the answers of a call."""
    if deduped is None:
        return
    rows = zip(*(column.tolist() for column in deduped), strict=True)
    for ordinal, outcome, fields in rows:
        other = MessageId(*fields)
        one = published[ordinal]._replace(outcome=outcome, pending_id=str(other))
        if outcome == DedupOutcome.KEPT:
            one = one._replace(message_id=str(other), due_ms=other.due_ms)
        elif outcome == DedupOutcome.REJECTED:
            one = one._replace(message_id="")
        published[ordinal] = one
