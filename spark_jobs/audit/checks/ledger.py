"""The ledger: what became of each message of a range of the log, by the log alone.

    void        (rejected) of a refused request, or of a topic that was not there, or refused by
                its dedup key (`facts.uniqueness`)
    at once     due_ms <= store_ms, or key <= cursor at its place in the log
    cancelled   by a CANCEL behind it, or by a PUBLISH that replaces it, in front of the DISPATCH
                that reaches its key
    moved       by a RESCHEDULE there: its key is another one from then on; or it is released by it
    released    by the first DISPATCH that reaches its key
    discarded   that DISPATCH came when its topic was deleted
    pending     no DISPATCH has reached it

A range is some MiB of PUBLISH batches, and everything is done for all its messages at once. What
goes on from here is small (counts, histograms) or a packed array of releases for the stage that
puts them in order (`checks.releases`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Flag
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC, GENE_UNKNOWN
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.dispatch import DispatchTable
from spark_jobs.audit.facts.lateness import LATE_MS_MAX, OVERDUE, LateSums, late_rows
from spark_jobs.audit.facts.records import MOVE
from spark_jobs.audit.facts.requests import RejectedRanges
from spark_jobs.audit.facts.result import BIN_COUNT, lateness_bins
from spark_jobs.audit.facts.sums import HourSums, Sparse, hash_units, sparse_counts, tries_of
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
        ("was_moved", "<u4"),
    ]
)
"""A first release: the record that did it, the message, the offset at which its metadata begins,
a hash over what else its queue entry must say (`audit_sums.hash_units`), and 1 where it was moved
to that due time: then the entry's attempt is 0."""
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
    """`audit_records.CANCEL`, by sequence, then offset: also of messages that a PUBLISH replaced,
    which may be of the same batch."""
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
    """A message is late if its release is more than this behind its due time."""
    last_store_ms: int = -1
    """Of the audited log's last record: what is pending then may be late, too; -1: not known."""
    indexes: tuple[IndexCopy, ...] = ()
    """The replicas' sequence indexes."""
    moves: Array = field(default_factory=lambda: np.empty(0, MOVE))
    """`audit_records.MOVE`, by sequence, then offset, then row."""


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


TAKEN: Final = np.dtype([("at", "<i8"), ("offset", "<u8"), ("due_ms", "<i8")])
"""A message (its ordinal) was moved by the record at an offset, to be due then."""


@dataclass(frozen=True)
class Moves:
    """How the messages of a piece were moved."""

    first_due_ms: I64
    """int64[n]: when each was to be due as it was published."""
    at_once: NDArray[np.bool_]
    """bool[n]: which were released by the record that moved them."""
    taken: Array
    """TAKEN[m], of each message in the order of the log."""


@dataclass(frozen=True)
class Messages:
    """The messages of some PUBLISH batches, and what became of them. All arrays of one length."""

    sequence: Array
    due_ms: I64
    """When it is due, or was, after all that moved it."""
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
    moves: Moves

    def due_at(self, applied: int) -> I64:
        """int64[n]: when each was due as of an offset of the log."""
        moved = self.moves.taken
        if not len(moved):
            return self.due_ms
        due = self.moves.first_due_ms.copy()
        before = moved[moved["offset"] < np.uint64(applied)]
        due[before["at"]] = before["due_ms"]  # the last one stays
        return due

    def tries_at(self, applied: int) -> Array | None:
        """uint64[n]: as `tries_of` of what was in the wheel at an offset; None: of all it is 0."""
        moved = self.moves.taken
        if not len(moved):
            return None
        found = np.zeros(len(self.due_ms), np.uint64)
        at = moved["at"][moved["offset"] < np.uint64(applied)]
        queues = self.topic_queue[at]
        found[at] = tries_of(np.zeros(len(at), np.uint32), queues >> QUEUE_BITS, queues)
        return found

    def were_pending(self, applied: int) -> NDArray[np.bool_]:
        """bool[n]: which were in the wheel at an offset of the log."""
        at = np.uint64(applied)
        found: NDArray[np.bool_] = (self.offset < at) & (self.end >= at)
        found &= (self.state >= CANCELLED) | self.moves.at_once
        return found


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
    due = due.copy() if len(plan.moves) else due
    played = _Played(sequence, due, offset, reached, state, end, died)
    moves = _move(plan, played)
    if len(plan.cancels):
        _cancel(plan, played, np.unique(moves.taken["at"]))
    facts = hash_units(
        _genes(table, plan, topic),
        messages.column("crc"),
        messages.column("body_len"),
        messages.column("meta_len"),
    )
    starts = table.headers["offset"][batches] - table.at[batches].astype(np.uint64)
    place = messages.column("blob_at").astype(np.uint64) + np.repeat(starts, counts)
    return Messages(sequence, due, store, offset, queue, state, end, reached, facts, place, moves)


class _Played(NamedTuple):
    """What became of some messages, so far; the last arrays are changed."""

    sequence: Array
    due: I64
    offset: Array
    reached: I64
    state: NDArray[np.uint8]
    end: Array
    died: Array
    """uint64[n]: when the topic of each went."""

    def find(self, sequences: Array) -> tuple[I64, NDArray[np.bool_]]:
        """(ordinals of messages of some sequences, which of them are among these messages)."""
        mine = self.sequence
        order = None if (mine[1:] > mine[:-1]).all() else np.argsort(mine, kind="stable")
        ascending = mine if order is None else mine[order]
        at = np.minimum(np.searchsorted(ascending, sequences), len(mine) - 1)
        at = at if order is None else order[at]
        return at, mine[at] == sequences


def _rows_about(rows: Array, played: _Played) -> Array:
    """Those of some rows, by sequence, that may be about these messages."""
    if not len(played.sequence) or not len(rows):
        return rows[:0]
    low = int(np.searchsorted(rows["sequence"], played.sequence.min(), "left"))
    high = int(np.searchsorted(rows["sequence"], played.sequence.max(), "right"))
    return rows[low:high]


def _epochs_of(plan: LedgerPlan, sequences: Array) -> Array:
    at = np.searchsorted(plan.epoch_sequences, sequences, "right")
    return np.concatenate((np.zeros(1, np.uint32), plan.epoch_numbers))[at]


_EVENT: Final = np.dtype(
    [
        ("at", "<i8"),
        ("offset", "<u8"),
        ("row", "<u4"),
        ("store_ms", "<i8"),
        ("new_due_ms", "<i8"),
        ("is_cancel", "?"),
    ]
)


def _events(plan: LedgerPlan, played: _Played) -> Array:
    """_EVENT[m]: what RESCHEDULE and CANCEL say of messages that the former name, in log order."""
    moves = _rows_about(plan.moves, played)
    if not len(moves):
        return np.empty(0, _EVENT)
    movers = np.unique(moves["sequence"])
    cancels = _rows_about(plan.cancels, played)
    cancels = cancels[np.isin(cancels["sequence"], movers)]
    parts = []
    for rows, is_cancel in ((moves, False), (cancels, True)):
        at, is_right = played.find(rows["sequence"])
        is_right &= played.due[at] == rows["due_ms"]
        is_right &= _epochs_of(plan, rows["sequence"]) == rows["epoch"]
        is_right &= played.offset[at] <= rows["offset"]
        found = np.zeros(int(is_right.sum()), _EVENT)
        found["at"], found["offset"] = at[is_right], rows["offset"][is_right]
        found["is_cancel"] = is_cancel
        if not is_cancel:
            for name in ("row", "store_ms", "new_due_ms"):
                found[name] = rows[name][is_right]
        parts.append(found)
    events = np.concatenate(parts)
    return events[np.lexsort((events["row"], events["offset"], events["at"]))]


def _move(plan: LedgerPlan, played: _Played) -> Moves:
    """Move what was moved: the first event of each message, then the second of each, and so on."""
    at_once = np.zeros(len(played.due), np.bool_)
    events = _events(plan, played)
    if not len(events):
        return Moves(played.due, at_once, np.empty(0, TAKEN))
    first_due = played.due.copy()
    is_over = np.zeros(len(first_due), np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], events["at"][1:] != events["at"][:-1])))
    ranks = np.arange(len(events)) - np.repeat(starts, np.diff(starts, append=len(events)))
    taken = [np.empty(0, TAKEN)]
    for rank in range(int(ranks.max()) + 1):
        some = events[ranks == rank]
        at = some["at"]
        is_open = ~is_over[at] & np.isin(played.state[at], (PENDING, RELEASED, DISCARDED))
        is_open &= played.reached[at] >= plan.dispatch.before(some["offset"])
        some = some[is_open]
        cancels, moves = some[some["is_cancel"]], some[~some["is_cancel"]]
        played.state[cancels["at"]], played.end[cancels["at"]] = CANCELLED, cancels["offset"]
        is_over[cancels["at"]] = True
        _move_once(plan, played, moves, at_once)
        is_over[moves["at"]] = at_once[moves["at"]] | is_over[moves["at"]]
        rows = np.zeros(len(moves), TAKEN)
        rows["at"], rows["offset"] = moves["at"], moves["offset"]
        rows["due_ms"] = played.due[moves["at"]]
        taken.append(rows)
    at_once &= played.state == AT_ONCE
    return Moves(first_due, at_once, np.concatenate(taken))


def _move_once(plan: LedgerPlan, played: _Played, moves: Array, at_once: NDArray[np.bool_]) -> None:
    """Move each of some messages once; marks those that the record releases, or throws away."""
    at, dispatch = moves["at"], plan.dispatch
    due = np.maximum(moves["new_due_ms"], moves["store_ms"])
    reached = dispatch.reaching(due, played.sequence[at])
    leaves = (due <= moves["store_ms"]) | (reached < dispatch.before(moves["offset"]))
    state = np.full(len(at), PENDING, np.uint8)
    end = np.full(len(at), NEVER, np.uint64)
    is_reached = ~leaves & (reached < len(dispatch))
    state[is_reached] = RELEASED
    if len(dispatch):
        end[is_reached] = dispatch.offset[reached[is_reached]]
    state[leaves], end[leaves] = AT_ONCE, moves["offset"][leaves]
    state[(leaves | is_reached) & (played.died[at] < end)] = DISCARDED
    played.due[at], played.reached[at] = due, reached
    played.state[at], played.end[at] = state, end
    at_once[at] = leaves


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


def _cancel(plan: LedgerPlan, played: _Played, moved: I64) -> None:
    """Mark what was cancelled: the first row that comes before the message's release counts.

    Of messages that were moved that is done already.
    """
    rows = _rows_about(plan.cancels, played)
    if not len(rows):
        return
    at, is_there = played.find(rows["sequence"])
    counts = (
        is_there
        & (played.due[at] == rows["due_ms"])
        & (_epochs_of(plan, rows["sequence"]) == rows["epoch"])
        & (played.offset[at] <= rows["offset"])
        & np.isin(played.state[at], (PENDING, RELEASED, DISCARDED))
        & (played.reached[at] >= plan.dispatch.before(rows["offset"]))
    )
    if len(moved):
        counts &= ~np.isin(at, moved)
    chosen, when = at[counts][::-1], rows["offset"][counts][::-1]
    played.state[chosen] = CANCELLED
    played.end[chosen] = when  # rows go by offset, and the first one is stored last


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
    at_once = (found.state == AT_ONCE) & ~found.moves.at_once
    state[at_once] = SlotState.RELEASED_AT_APPLY
    due = found.moves.first_due_ms.astype(np.uint64)
    entries: NDArray[np.uint64] = (due << np.uint64(2)) | state
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
    chosen, tries = found.were_pending(applied), found.tries_at(applied)
    return HourSums.of(
        found.due_at(applied)[chosen],
        found.sequence[chosen],
        found.store_ms[chosen],
        found.topic_queue[chosen],
        found.facts[chosen],
        None if tries is None else tries[chosen],
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
    rows["was_moved"] = 0
    if len(found.moves.taken):
        moved = np.zeros(len(out), np.uint32)
        moved[found.moves.taken["at"]] = 1
        rows["was_moved"] = moved[out]
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
