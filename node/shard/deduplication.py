"""Decides, as a PUBLISH batch is applied, which messages are accepted, and what their genes are.

A batch with the flag TRANSACTION is the commit of a transaction. It counts where that is open and
all of its topics are there; else all of its messages are rejected, and nothing else happens.

Dedup keys are decided in the order of a batch's messages (`check_keys`). A message with a
dedup key whose topic has a pending message with the same key is rejected, or kept back, or cancels
that one and takes its place. Which it is the message says. Whether the other one is pending the
views say at this place in the log, and earlier messages of the same batch.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.formats.record_batch import Flag, RecordBatch
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC, GENE_UNKNOWN
from hourwheel.outcomes import DedupOutcome, IfPending, TransactionState
from hourwheel.types import QUEUE_BITS, Epoch, Offset, SequenceNumber, numbers_from, topic_of
from node.shard.views import DEDUP_LEVEL, Views
from storage.views.catalog import Catalog
from storage.views.dedup_keys import pack_names
from storage.views.producer_state import DEDUPED, NONE_DEDUPED, Deduped, Duplicate
from storage.views.transactions import Transaction
from storage.views.unit import UNIT, Units

_REFUSED: Final = {
    int(IfPending.REJECT): int(DedupOutcome.REJECTED),
    int(IfPending.KEEP): int(DedupOutcome.KEPT),
}
_REPLACED: Final = int(DedupOutcome.REPLACED)


class Published(NamedTuple):
    """Where a producer's messages are: these ones', or those of the first copy of a duplicate."""

    epoch: Epoch
    base_sequence: SequenceNumber
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called
    store_ms: int
    duplicate: bool = False
    deduped: Deduped = NONE_DEDUPED
    """Of messages whose dedup key a pending message had, what became of them."""


PublishResult: TypeAlias = Published | HourwheelError
PublishResults: TypeAlias = dict[int, PublishResult]
Mask: TypeAlias = NDArray[np.bool_]


def deduplicate(views: Views, batch: RecordBatch) -> tuple[PublishResults, Mask | None]:
    """(results, which messages are accepted: None for all)."""
    header = batch.header
    if header.flags & Flag.TRANSACTION:
        return _decide_commit(views, batch)
    if header.flags & Flag.OCCURRENCES:
        return _take_occurrences(views, batch)
    if header.flags & Flag.PER_MESSAGE_PRODUCER:
        return _deduplicate_each(views, batch)
    own = Published(header.epoch, header.base_sequence, header.count, header.store_ms)
    topic_id = topic_of(int(batch.topic_queue[0]))
    if not views.catalog.find_topic_by_id(topic_id):
        return {0: errors.UnknownTopic("the topic was deleted")}, _none(header.count)
    if not header.producer_id:
        return {0: own}, None
    result = _check_producer(views, header.producer_id, header.producer_sequence, header.count, own)
    fresh = result is own
    return {0: result}, None if fresh else _none(header.count)


def _check_producer(
    views: Views, producer_id: int, first: int, count: int, own: Published
) -> PublishResult:
    producers = views.producers
    try:
        found = producers.check(producer_id, first, count)
    except (errors.OutOfOrderSequence, errors.UnknownProducer) as refusal:
        return refusal
    if isinstance(found, Duplicate):
        known = Published(found.epoch, found.base_sequence, count, found.store_ms, True)
        return known._replace(deduped=found.deduped)
    producers.record(producer_id, first, count, own.base_sequence, own.store_ms, own.epoch)
    return own


def _decide_commit(views: Views, batch: RecordBatch) -> tuple[PublishResults, Mask | None]:
    """Of the messages of a transaction: all of them are accepted, or none."""
    header, transactions = batch.header, views.transactions
    offset = Offset(header.producer_id)
    one = transactions.find(offset)
    if one is None or not one.is_open:
        return {0: _too_late(one)}, _none(header.count)
    topics = set((batch.topic_queue >> QUEUE_BITS).tolist())
    if not all(map(views.catalog.find_topic_by_id, topics)):
        gone = errors.UnknownTopic("a topic of the transaction was deleted")
        return {0: gone}, _none(header.count)
    transactions.decide(
        offset,
        TransactionState.COMMITTED,
        header.store_ms,
        base_sequence=header.base_sequence,
        epoch=header.epoch,
    )
    own = Published(header.epoch, header.base_sequence, header.count, header.store_ms)
    return {0: own}, None


def _too_late(one: Transaction | None) -> PublishResult:
    if one is None:
        return errors.UnknownTransaction()
    if one.state == TransactionState.COMMITTED:
        return Published(
            one.published_epoch, one.base_sequence, one.message_count, one.decided_ms, True
        )
    return transaction_decided(one)


def transaction_decided(one: Transaction) -> errors.TransactionDecided:
    """The error for a caller that wants another outcome."""
    state = one.state.name
    return errors.TransactionDecided(f"the transaction is {state} already", state=state)


def _deduplicate_each(views: Views, batch: RecordBatch) -> tuple[PublishResults, Mask | None]:
    """Merged publishes of several producers: a producer's neighbours are one request's.

    (No merge puts two requests of one producer into one batch.)
    """
    header, catalog = batch.header, views.catalog
    ids, numbers = (column.tolist() for column in batch.message_producers)
    topics = (batch.topic_queue >> QUEUE_BITS).tolist()
    known = {topic: catalog.find_topic_by_id(topic) for topic in set(topics)}
    if not any(ids) and all(known.values()):
        base, epoch, store_ms = header.base_sequence, header.epoch, header.store_ms
        sequences = numbers_from(base, header.count)
        return {at: Published(epoch, one, 1, store_ms) for at, one in enumerate(sequences)}, None
    accepted = np.ones(header.count, np.bool_)
    results: PublishResults = {}
    at = 0
    while at < header.count:
        end, producer = at + 1, ids[at]
        while producer and end < header.count and ids[end] == producer:
            end += 1
        base = SequenceNumber(header.base_sequence + at)
        own = Published(header.epoch, base, end - at, header.store_ms)
        result: PublishResult = own
        if not known[topics[at]]:
            result = errors.UnknownTopic("the topic was deleted")
        elif producer:
            result = _check_producer(views, producer, numbers[at], end - at, own)
        if result is not own:
            accepted[at:end] = False
        results[at] = result
        at = end
    return results, None if accepted.all() else accepted


def _take_occurrences(views: Views, batch: RecordBatch) -> tuple[PublishResults, Mask | None]:
    """Occurrences of recurrences: see storage/views/recurrences.py."""
    header, catalog = batch.header, views.catalog
    versions, indices = (column.tolist() for column in batch.message_producers)
    topics, due_ms = (batch.topic_queue >> QUEUE_BITS).tolist(), batch.due_ms.tolist()
    accepted = np.zeros(header.count, np.bool_)
    results: PublishResults = {}
    for at, version in enumerate(versions):
        sequence = SequenceNumber(header.base_sequence + at)
        if not catalog.find_topic_by_id(topics[at]):
            results[at] = errors.UnknownTopic("the topic was deleted")
        elif views.recurrences.take(version, indices[at], due_ms[at], sequence):
            accepted[at] = True
            results[at] = Published(header.epoch, sequence, 1, header.store_ms)
        else:
            results[at] = errors.OutOfOrderSequence("this occurrence is not the next one")
    return results, None if accepted.all() else accepted


def with_deduped(
    views: Views, batch: RecordBatch, results: PublishResults, deduped: Deduped
) -> PublishResults:
    """The results with what became of messages with dedup keys, which producers are remembered by.

    `deduped` is of the whole batch: each result gets the rows of its own messages.
    """
    header, found = batch.header, dict(results)
    is_merged = header.flags & Flag.PER_MESSAGE_PRODUCER
    for at, result in results.items():
        if isinstance(result, HourwheelError) or result.duplicate:
            continue
        low, high = np.searchsorted(deduped["ordinal"], (at, at + result.count))
        if low == high:
            continue
        rows = deduped[low:high].copy()
        rows["ordinal"] -= np.uint32(at)
        found[at] = result._replace(deduped=rows)
        producer = int(batch.message_producers[0][at]) if is_merged else header.producer_id
        if producer:
            views.producers.note_deduped(result.base_sequence, rows)
    return found


def result_of_call(results: PublishResults, first: int, count: int) -> PublishResult:
    """Of one call, whose `count` messages begin at the ordinal `first` of a merged batch.

    Messages without a producer have a result each: nothing says that they came together.
    """
    result = results[first]
    if isinstance(result, HourwheelError) or result.count >= count:
        return result
    parts: list[Deduped] = []
    for ordinal in range(count):
        one = results[first + ordinal]
        if isinstance(one, Published) and len(one.deduped):
            rows = one.deduped.copy()
            rows["ordinal"] += np.uint32(ordinal)
            parts.append(rows)
    return result._replace(deduped=np.concatenate(parts)) if parts else result


def genes_of(catalog: Catalog, batch: RecordBatch) -> NDArray[np.uint64]:
    """uint64[n]: the tag gene of each message's unit.

    The batch's own genes where they were made as the topic wants them. Others say nothing: then a
    filter reads each message that has any metadata. (One without any has neither tags nor
    properties, and gene 0 in every specification.)
    """
    number = batch.header.gene_spec
    is_merged = bool(batch.header.flags & Flag.PER_MESSAGE_PRODUCER)
    if is_merged or number == GENE_SPEC_OF_TOPIC:
        is_known = number == GENE_SPEC_OF_TOPIC  # a node's own word; see check_batch
    else:
        topic = catalog.find_topic_by_id(topic_of(int(batch.topic_queue[0])))
        is_known = topic is not None and topic.gene.number == number
    if is_known:
        return batch.tag_gene
    genes: NDArray[np.uint64] = np.where(batch.meta_len, np.uint64(GENE_UNKNOWN), np.uint64(0))
    return genes


def units_of(catalog: Catalog, batch: RecordBatch) -> Units:
    """Units of all messages of a PUBLISH batch, as they lie in the log."""
    header, count = batch.header, batch.header.count
    units = np.empty(count, UNIT)
    body_len, meta_len = batch.body_len, batch.meta_len
    sizes = body_len.astype(np.uint64) + meta_len
    units["due_ms"] = batch.due_ms
    units["sequence"] = np.arange(
        header.base_sequence, header.base_sequence + count, dtype=np.uint64
    )
    units["store_ms"] = header.store_ms
    units["tag_gene"] = genes_of(catalog, batch)
    units["position"] = np.uint64(header.offset + batch.blob_offset) + (np.cumsum(sizes) - sizes)
    units["dlog_id"] = 0
    units["body_len"] = body_len
    units["crc"] = batch.crc
    units["meta_len"] = meta_len
    units["attempt"] = 1
    topic_queue = batch.topic_queue
    units["topic_queue"] = topic_queue
    units["origin_topic"] = topic_queue >> QUEUE_BITS
    return units


def _none(count: int) -> Mask:
    return np.zeros(count, np.bool_)


@dataclass(frozen=True)
class DedupDecisions:
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


def check_keys(
    views: Views, batch: RecordBatch, accepted: NDArray[np.bool_] | None
) -> DedupDecisions | None:
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
        return DedupDecisions(NONE_DEDUPED, dict(zip(names, sequences[stay].tolist(), strict=True)))
    taken: dict[bytes, int] = {}
    gone: dict[bytes, None] = {}
    """Whose pending message was replaced by one that is released at once."""
    outcomes: list[tuple[int, int, int]] = []
    rows = zip(
        chosen.tolist(),
        names,
        sequences.tolist(),
        columns.if_pending[chosen].tolist(),
        at_once.tolist(),
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
    return DedupDecisions(np.array(outcomes, DEDUPED), taken)


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
