"""The ledger: what became of each message of a range of the log, by the log alone.

    void        (rejected) of a refused request, or of a topic that was not there
    at once     due_ms <= store_ms, or key <= cursor at its place in the log
    cancelled   by a CANCEL behind it, in front of the DISPATCH that reaches its key
    released    by the first DISPATCH that reaches its key
    discarded   that DISPATCH came when its topic was deleted
    pending     no DISPATCH has reached it

A range is some MiB of PUBLISH batches, and everything is done for all its messages at once. What
goes on from here is small (counts, histograms) or a packed array of releases for the stage that
puts them in order (`audit_releases`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC, GENE_UNKNOWN
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.dispatch import DispatchTable
from spark_jobs.audit.facts.lateness import LATE_MS_MAX, OVERDUE, LateSums, late_rows
from spark_jobs.audit.facts.requests import RejectedRanges
from spark_jobs.audit.facts.result import BIN_COUNT, lateness_bins
from spark_jobs.audit.facts.sums import HourSums, Sparse, hash_units, sparse_counts
from spark_jobs.logs.block_table import BlockTable
from spark_jobs.logs.sequence_reader import IndexCopy, IndexPart
from storage.views.sequence_index import SlotState

Array = NDArray[Any]
I64 = NDArray[np.int64]
HOUR_MS: Final = 3_600_000
SECOND_MS: Final = 1_000
RELEASE: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("due_ms", "<i8"),
        ("sequence", "<u8"),
        ("store_ms", "<i8"),
        ("place", "<u8"),
        ("topic_queue", "<u4"),
        ("facts", "<u4"),
    ]
)
"""A first release: the record that did it, the message, the offset at which its metadata begins,
and a hash over what else its queue entry must say (`audit_sums.hash_units`)."""
BY_DISPATCH: Final = np.uint64(1)
"""Added to the offset of a release by a DISPATCH (offsets are multiples of 8): such a record
releases in the order of keys, and a PUBLISH in that of sequences."""
NEVER: Final = np.uint64(1 << 63)

ENDED: Final = np.dtype([("sequence", "<u8"), ("end", "<u8")])
"""A message, and the offset of the record that ended it."""

REJECTED, AT_ONCE, CANCELLED, RELEASED, DISCARDED, PENDING = range(6)
STATES: Final = ("void", "released at once", "cancelled", "released", "discarded", "pending")


@dataclass(frozen=True)
class LedgerPlan:
    """What is true of the whole log, and is sent to where ranges are read. Picklable."""

    shard: int
    end_offset: int
    """Records from here on are not audited."""
    dispatch: DispatchTable
    rejected: RejectedRanges
    cancels: Array
    """`audit_records.CANCEL`, by sequence, then offset."""
    epoch_sequences: Array
    """uint64[e]: first sequence of each epoch."""
    epoch_numbers: Array
    born: Array
    """uint64[t]: offset at which each topic came to be, by its id."""
    died: Array
    genes: Array
    """uint32[t]: `Timeline.genes`."""
    bucket_edges: Array
    """uint64[b]: releases by records in [edge i - 1, edge i) go to bucket i."""
    wheel_at: tuple[int, ...] = ()
    """Applied offsets of the checkpoints whose wheels are compared."""
    late_ms_max: int = LATE_MS_MAX
    """What was released later after its due time is told of."""
    last_store_ms: int = -1
    """Of the audited log's last record: what is pending then may be late, too; -1: not known."""
    indexes: tuple[IndexCopy, ...] = ()
    """The replicas' sequence indexes."""


@dataclass
class LedgerPart:
    """What one range, or several together, give."""

    states: I64 = field(default_factory=lambda: np.zeros(6, np.int64))
    """How many messages are in each state."""
    seconds: Sparse = field(default_factory=Sparse)
    """Second -> (due, released, cancelled, pending)."""
    pending_hours: Sparse = field(default_factory=Sparse)
    lateness: Sparse = field(default_factory=Sparse)
    """(topic id << 32 | hour) * BIN_COUNT + bin -> count."""
    queued: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(bucket, topic_queue) -> releases."""
    wheels: dict[int, HourSums] = field(default_factory=dict)
    """Applied offset -> sums of what was pending then, by due hour."""
    ended: dict[int, I64] = field(default_factory=dict)
    """Applied offset -> (cancelled, discarded, released by a DISPATCH in the cursor's second) by
    records below it."""
    late: LateSums = field(default_factory=LateSums)
    cancelled: Array = field(default_factory=lambda: np.empty(0, ENDED))
    indexes: IndexPart = field(default_factory=IndexPart)
    """How the replicas' sequence indexes differ from what the log makes them."""

    def merge(self, other: "LedgerPart") -> None:
        """Take in what another one has."""
        self.states = self.states + other.states
        self.seconds = self.seconds.plus(other.seconds)
        self.pending_hours = self.pending_hours.plus(other.pending_hours)
        self.lateness = self.lateness.plus(other.lateness)
        self.queued.update(other.queued)
        for offset, sums in other.wheels.items():
            self.wheels[offset] = self.wheels[offset].plus(sums) if offset in self.wheels else sums
        for offset, counts in other.ended.items():
            self.ended[offset] = self.ended.get(offset, np.zeros(3, np.int64)) + counts
        self.late = self.late.plus(other.late)
        self.cancelled = np.concatenate((self.cancelled, other.cancelled))
        self.indexes.merge(other.indexes)


@dataclass(frozen=True)
class Messages:
    """The messages of some PUBLISH batches, and what became of them. All arrays of one length."""

    sequence: Array
    due_ms: I64
    store_ms: I64
    offset: Array
    topic_queue: Array
    state: NDArray[np.uint8]
    end: Array
    """uint64: offset of the record that released, cancelled or discarded it; `NEVER` if pending."""
    dispatch: I64
    """Ordinal of the DISPATCH that reaches its key."""
    facts: Array
    place: Array
    """uint64: offset of the log at which its metadata begins, and then its body."""


def find_states(table: BlockTable, plan: LedgerPlan) -> Messages:
    """What became of the messages of a piece of the log."""
    messages = table.messages
    sequence, due = messages.column("sequence"), messages.column("due_ms")
    store, offset = messages.of_batch("store_ms"), messages.of_batch("offset")
    queue = messages.column("topic_queue")
    dispatch = plan.dispatch
    batches, counts = _batches_of(messages.batch)
    place = np.repeat(dispatch.before(table.headers["offset"][batches]), counts)
    reached = dispatch.reaching(due, sequence)
    at_once = (due <= store) | (reached < place)
    state = np.full(len(sequence), PENDING, np.uint8)
    end = np.full(len(sequence), NEVER, np.uint64)
    is_reached = ~at_once & (reached < len(dispatch))
    state[is_reached] = RELEASED
    if len(dispatch):
        end[is_reached] = dispatch.offset[reached[is_reached]]
    state[at_once] = AT_ONCE
    end[at_once] = offset[at_once]
    topic = np.minimum(queue >> QUEUE_BITS, len(plan.born) - 1)
    born, died = plan.born[topic], plan.died[topic]
    if int(plan.died.min()) < int(NEVER) >> 1:
        late = is_reached & (died < end)
        state[late] = DISCARDED
    rejected = plan.rejected.contains(sequence) | (died < offset) | (born > offset)
    state[rejected] = REJECTED
    if len(plan.cancels):
        _cancel(plan, sequence, due, reached, state, end, offset)
    facts = hash_units(
        _genes(table, plan, topic),
        messages.column("crc"),
        messages.column("body_len"),
        messages.column("meta_len"),
    )
    starts = table.headers["offset"][batches] - table.at[batches].astype(np.uint64)
    place = messages.column("blob_at").astype(np.uint64) + np.repeat(starts, counts)
    return Messages(sequence, due, store, offset, queue, state, end, reached, facts, place)


def _genes(table: BlockTable, plan: LedgerPlan, topic: Array) -> Array:
    """uint64[n]: the gene of each message's unit: its own, if it was made as the topic wants it."""
    messages = table.messages
    genes = messages.column("tag_gene")
    spec = messages.of_batch("gene_spec")
    is_wide = (messages.of_batch("flags") & int(Flag.PER_MESSAGE_PRODUCER)) != 0
    of_topic = np.uint32(GENE_SPEC_OF_TOPIC)
    is_known = (spec == of_topic) | (~is_wide & (spec == plan.genes[topic]))
    if is_known.all():
        return genes
    unknown = np.where(messages.column("meta_len") > 0, np.uint64(GENE_UNKNOWN), np.uint64(0))
    return np.where(is_known, genes, unknown)


def _batches_of(batch: I64) -> tuple[I64, I64]:
    """(each batch once, its messages) of the batch of each message."""
    firsts = np.flatnonzero(
        np.concatenate((np.ones(min(1, len(batch)), np.bool_), batch[1:] != batch[:-1]))
    )
    return batch[firsts], np.diff(firsts, append=len(batch))


def _cancel(
    plan: LedgerPlan,
    sequence: Array,
    due: I64,
    reached: I64,
    state: NDArray[np.uint8],
    end: Array,
    offset: Array,
) -> None:
    """Mark what was cancelled: the first row that comes before the message's release counts."""
    if not len(sequence):
        return
    low = int(np.searchsorted(plan.cancels["sequence"], sequence.min(), "left"))
    high = int(np.searchsorted(plan.cancels["sequence"], sequence.max(), "right"))
    rows = plan.cancels[low:high]
    if not len(rows):
        return
    order = None if (sequence[1:] > sequence[:-1]).all() else np.argsort(sequence, kind="stable")
    ascending = sequence if order is None else sequence[order]
    at = np.minimum(np.searchsorted(ascending, rows["sequence"]), len(sequence) - 1)
    at = at if order is None else order[at]
    epoch_at = np.searchsorted(plan.epoch_sequences, rows["sequence"], "right")
    epochs = np.concatenate((np.zeros(1, np.uint32), plan.epoch_numbers))[epoch_at]
    counts = (
        (sequence[at] == rows["sequence"])
        & (due[at] == rows["due_ms"])
        & (epochs == rows["epoch"])
        & (offset[at] < rows["offset"])
        & np.isin(state[at], (PENDING, RELEASED, DISCARDED))
        & (reached[at] >= plan.dispatch.before(rows["offset"]))
    )
    chosen, when = at[counts][::-1], rows["offset"][counts][::-1]
    state[chosen] = CANCELLED
    end[chosen] = when  # rows go by offset, and the first one is stored last


def tally(found: Messages, plan: LedgerPlan) -> tuple[LedgerPart, dict[int, Array]]:
    """Sum up a piece: (its counts, bucket -> RELEASE rows in sequence order)."""
    part = LedgerPart()
    state = found.state
    part.cancelled = _cancelled(found)
    part.states = np.bincount(state, minlength=6).astype(np.int64)
    real = state != REJECTED
    every = bool(real.all())
    due = found.due_ms if every else found.due_ms[real]
    state_of = state if every else state[real]
    store = found.store_ms if every else found.store_ms[real]
    second = due // SECOND_MS
    is_out = (state_of == AT_ONCE) | (state_of == RELEASED)
    by_dispatch = state_of == RELEASED
    when = np.maximum(due, store)
    dispatch = found.dispatch if every else found.dispatch[real]
    stamps = plan.dispatch.store_ms
    if by_dispatch.any():
        stamped = stamps[dispatch[by_dispatch]]
        when[by_dispatch] = np.maximum(when[by_dispatch], stamped)
        topic = (found.topic_queue if every else found.topic_queue[real])[by_dispatch] >> QUEUE_BITS
        late = np.maximum(stamped - due[by_dispatch], 0)
        hours = due[by_dispatch] // HOUR_MS
        part.lateness = _lateness(topic.astype(np.int64), hours, lateness_bins(late))
        if int(late.max()) > plan.late_ms_max:
            chosen = np.flatnonzero(state == RELEASED)
            part.late = _late(found, plan, chosen, found.dispatch[chosen], stamped)
    columns = (
        second,
        when[is_out] // SECOND_MS,
        second[state_of == CANCELLED],
        second[state_of == PENDING],
    )
    part.seconds = sparse_counts(*columns)
    part.pending_hours = sparse_counts(due[state_of == PENDING] // HOUR_MS)
    waiting = np.flatnonzero(state == PENDING)
    if len(waiting):
        none = np.full(len(waiting), OVERDUE, np.int64)
        end_ms = np.full(len(waiting), plan.last_store_ms, np.int64)
        part.late = part.late.plus(_late(found, plan, waiting, none, end_ms))
    for at in plan.wheel_at:
        part.wheels[at] = _in_wheel(found, at)
        part.ended[at] = _ended(found, at, plan.dispatch.cursor_at(at)[0] // SECOND_MS * SECOND_MS)
    return part, _releases(found, plan, part)


def index_entries(found: Messages) -> NDArray[np.uint64]:
    """uint64[n]: what a node's sequence index must say of each message."""
    state = np.full(len(found.state), SlotState.WHEEL, np.uint64)
    state[found.state == REJECTED] = SlotState.REJECTED
    state[found.state == AT_ONCE] = SlotState.RELEASED_AT_APPLY
    entries: NDArray[np.uint64] = (found.due_ms.astype(np.uint64) << np.uint64(2)) | state
    return entries


def _cancelled(found: Messages) -> Array:
    """ENDED[m]: those that were cancelled."""
    chosen = found.state == CANCELLED
    rows = np.empty(int(chosen.sum()), ENDED)
    rows["sequence"], rows["end"] = found.sequence[chosen], found.end[chosen]
    return rows


def _late(
    found: Messages, plan: LedgerPlan, chosen: I64, dispatch: I64, visible_ms: I64
) -> LateSums:
    """Of some messages, those that were late; the other arrays are as long as `chosen`."""
    columns = (found.sequence[chosen], found.due_ms[chosen], found.topic_queue[chosen])
    return LateSums.of(late_rows(*columns, dispatch, visible_ms, plan.late_ms_max))


def _lateness(topic: I64, hour: I64, bins: I64) -> Sparse:
    """Counts by (topic, hour, bin): in a small table, since a piece has few topics and hours."""
    first_topic, first_hour = int(topic.min()), int(hour.min())
    hours, width = int(hour.max()) - first_hour + 1, int(bins.max()) + 1
    table = sparse_counts(((topic - first_topic) * hours + (hour - first_hour)) * width + bins)
    cells, found = np.divmod(table.keys, width)
    topics, when = np.divmod(cells, hours)
    keys = ((topics + first_topic) << 32 | (when + first_hour)) * BIN_COUNT + found
    return Sparse(keys, table.counts)


def _in_wheel(found: Messages, applied: int) -> HourSums:
    """Sums over the messages that were pending at an applied offset."""
    at = np.uint64(applied)
    chosen = (found.offset < at) & (found.end >= at) & (found.state >= CANCELLED)
    return HourSums.of(
        found.due_ms[chosen],
        found.sequence[chosen],
        found.store_ms[chosen],
        found.topic_queue[chosen],
        found.facts[chosen],
    )


def _ended(found: Messages, applied: int, second_ms: int) -> I64:
    """What records below an applied offset ended: see `LedgerPart.ended`."""
    before = found.end < np.uint64(applied)
    released = before & (found.state == RELEASED) & (found.due_ms >= second_ms)
    ended = [before & (found.state == one) for one in (CANCELLED, DISCARDED)]
    return np.array([int(one.sum()) for one in (*ended, released)], np.int64)


def _releases(found: Messages, plan: LedgerPlan, part: LedgerPart) -> dict[int, Array]:
    out = (found.state == AT_ONCE) | (found.state == RELEASED)
    rows = np.empty(int(out.sum()), RELEASE)
    every = len(rows) == len(out)
    rows["offset"] = found.end if every else found.end[out]
    rows["offset"] |= ((found.state if every else found.state[out]) == RELEASED).astype(np.uint64)
    for name in ("due_ms", "sequence", "store_ms", "place", "topic_queue", "facts"):
        column = getattr(found, name)
        rows[name] = column if every else column[out]
    bucket = np.searchsorted(plan.bucket_edges, rows["offset"], "right").astype(np.uint16)
    if not len(rows):
        return {}
    low, high = int(bucket.min()), int(bucket.max())
    if low == high:
        parts = {low: rows}
    else:
        order = np.argsort(bucket, kind="stable")
        cuts = np.searchsorted(bucket[order], np.arange(low, high + 2))
        opaque = rows.view(np.dtype((np.void, RELEASE.itemsize)))[order].view(RELEASE)
        parts = {
            low + index: opaque[cuts[index] : cuts[index + 1]]
            for index in range(high - low + 1)
            if cuts[index] < cuts[index + 1]
        }
    for number, piece in parts.items():
        queues, counts = np.unique(piece["topic_queue"], return_counts=True)
        for queue, count in zip(queues.tolist(), counts.tolist(), strict=True):
            part.queued[number, queue] += count
    return parts
