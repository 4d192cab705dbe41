"""The audit's steps as Spark runs them: read a range or a stretch, and give it to the cores."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.entries import EntryDiff, Piece, Place, compare
from spark_jobs.audit.checks.ledger import (
    NEVER,
    RELEASE,
    STATES,
    LedgerPart,
    LedgerPlan,
    Messages,
    find_states,
    index_entries,
    tally,
)
from spark_jobs.audit.checks.partial import SetSum, sum_slice
from spark_jobs.audit.checks.releases import (
    ReleasePart,
    Resolves,
    Slice,
    by_queue,
    chunk_facts,
    in_order,
    places_of,
    sums_of,
)
from spark_jobs.audit.facts.scan import ScanPart, scan
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.queue_reader import BY_SEALS, QueueRange, read_queue
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.segment_reader import FULL, HEADERS, read_blocks
from spark_jobs.logs.sequence_reader import IndexPart, SequenceReader
from spark_jobs.runtime.runner import Shared
from spark_jobs.runtime.shuffle import FACTS
from storage.views.unit import UNIT

Array = NDArray[Any]


class ScanTask(NamedTuple):
    """A range to be scanned."""

    where: SegmentRange
    with_facts: bool
    is_verified: bool = False
    """It was scanned before."""
    moments_at: tuple[int, ...] = ()
    """See `audit_scan.scan`."""


def scan_range(task: ScanTask) -> ScanPart:
    """See `audit_scan.scan`."""
    verify = HEADERS if task.is_verified else FULL
    tables = read_blocks(task.where, verify=verify)
    return scan(task.where, tables, with_facts=task.with_facts, moments_at=task.moments_at)


def ledger_of(plan: Shared[LedgerPlan], where: SegmentRange) -> Iterator[tuple[int, Any]]:
    """The releases of a range by bucket, as bytes; then its counts, as `FACTS`."""
    part = LedgerPart()
    pieces: dict[int, list[Array]] = {}
    with ExitStack() as opened:
        readers = [opened.enter_context(SequenceReader(one)) for one in plan.value.indexes]
        for table in read_blocks(where, verify=HEADERS):
            if not len(table.messages):
                continue
            found = find_states(table, plan.value)
            compare_indexes(found, readers, part.indexes)
            counts, releases = tally(found, plan.value)
            part.merge(counts)
            for bucket, rows in releases.items():
                pieces.setdefault(bucket, []).append(rows)
    for bucket, every in pieces.items():
        yield bucket, np.concatenate(every).tobytes()
    yield FACTS, part


def compare_indexes(found: Messages, readers: Sequence[SequenceReader], part: IndexPart) -> None:
    """Hold the replicas' sequence indexes against what became of some messages."""
    if not readers:
        return
    wanted = index_entries(found)
    for reader in readers:
        mine = found.offset < np.uint64(reader.copy.applied_offset)
        if mine.all():
            reader.compare(found.sequence, wanted, found.topic_queue, part)
        elif mine.any():
            columns = (found.sequence[mine], wanted[mine], found.topic_queue[mine])
            reader.compare(*columns, part)


class QueueCopy(NamedTuple):
    """One replica's copy of a queue, as far as its checkpoint goes, or its chunks' seals."""

    place: Place
    where: QueueRange
    """All of it."""
    applied_offset: int
    """Releases below it are in the queue: its checkpoint's, or where the audited log ends."""
    log_start: int
    is_ended: bool
    """The audited log reaches up to the checkpoint: what is behind the last release is too much."""


@dataclass(frozen=True)
class JoinPlan:
    """What the stage that puts releases in order must know. Picklable."""

    firsts: dict[int, dict[int, int]]
    """Bucket -> topic_queue -> position of the first entry released in it."""
    copies: dict[int, list[QueueCopy]]
    """topic_queue -> the replicas' copies."""
    resolves: Array
    chunk_entries: int
    sums_at: tuple[int, ...] = ()
    """Applied offsets: of a log that does not begin at 0, what was released below them is summed
    up."""
    ordered_topics: frozenset[int] = frozenset()
    """Ids of the topics whose messages' positions are kept (`ReleasePart.places`)."""


@dataclass
class Joined:
    """What one stretch of releases gives."""

    part: ReleasePart = field(default_factory=ReleasePart)
    diffs: dict[Place, EntryDiff] = field(default_factory=dict)
    """Only of copies that were compared."""
    faults: list[Damage] = field(default_factory=list)
    """Chunks that cannot be read."""
    sums: list[tuple[tuple[int, int], SetSum]] = field(default_factory=list)
    """((topic_queue, applied offset), sum of what was released below it)."""


def join_releases(plan: Shared[JoinPlan], bucket: int, blocks: Iterable[bytes]) -> Joined:
    """Put the releases of a bucket in order, and compare the replicas' entries with them."""
    rows = in_order([np.frombuffer(block, RELEASE) for block in blocks])
    joined = Joined()
    joined.part.sums = sums_of(rows)
    resolves = Resolves(plan.value.resolves)
    chunks, covers, named, passed, places = [], [], [], [], []
    for one in by_queue(rows, plan.value.firsts.get(bucket, {})):
        chunks.append(chunk_facts(one, plan.value.chunk_entries))
        cover, entries, over = resolves.cover(one)
        covers.append(cover)
        named.append(entries)
        passed.append(over)
        if one.topic_queue >> QUEUE_BITS in plan.value.ordered_topics:
            places.append(places_of(one))
        for at in plan.value.sums_at:
            joined.sums.append(((one.topic_queue, at), sum_slice(one, at)))
        for copy in plan.value.copies.get(one.topic_queue, ()):
            compare_copy(one, copy, joined)
    part = joined.part
    parts = {"chunks": chunks, "covers": covers, "named": named, "passed": passed}
    parts["places"] = places
    for name, found in parts.items():
        setattr(part, name, np.concatenate([getattr(part, name), *found]))
    return joined


def compare_copy(one: Slice, copy: QueueCopy, joined: Joined) -> None:
    """Compare the entries of a replica with a slice of what its queue must have."""
    count = int(np.searchsorted(one.rows["offset"], np.uint64(copy.applied_offset), "left"))
    low = max(one.first, copy.where.start_position)
    high = min(one.first + count, copy.where.end_position)
    pieces: list[Piece] = []
    if low < high:
        pieces += read_pieces(copy.where, low, high, joined.faults)
    behind = max(one.first, copy.where.end_position)
    is_known = copy.where.sealed_end != BY_SEALS
    if is_known and behind < one.first + count:  # the queue ends too early
        size, file = copy.where.chunk_entries, copy.where.folder
        file = copy.where.chunk_path(behind // size) if size else file
        pieces.append(Piece(behind, one.first + count - behind, np.empty(0, UNIT), file))
    if not pieces:
        return
    diff = compare(one, pieces, copy.log_start)
    joined.diffs.setdefault(copy.place, EntryDiff()).merge(diff)


def read_pieces(
    where: QueueRange, low: int, high: int, faults: list[Damage] | None = None
) -> Iterator[Piece]:
    """Entries [low, high) of a queue, chunk by chunk; without those of unreadable chunks."""
    part = where._replace(start_position=low, end_position=high)
    for found in read_queue(part):
        if isinstance(found, Damage):
            if faults is not None:
                faults.append(found)
            continue
        yield Piece(found.first_position, len(found.units), found.units, found.file)


class Known(NamedTuple):
    """What the log says about one message."""

    sequence: int
    state: str
    offset: int
    """Of its batch."""
    end: int
    """Of the record that released, cancelled or discarded it; -1: none has."""
    due_ms: int
    store_ms: int
    topic_queue: int


def look_up(plan: Shared[LedgerPlan], sequences: Shared[Array], where: SegmentRange) -> list[Known]:
    """What the log says about some messages, as far as they are in a range."""
    found = []
    for table in read_blocks(where, verify=HEADERS):
        if not len(table.messages):
            continue
        chosen = np.isin(table.messages.column("sequence"), sequences.value)
        if not chosen.any():
            continue
        messages = find_states(table, plan.value)
        for at in np.flatnonzero(chosen).tolist():
            end = messages.end[at]
            found.append(
                Known(
                    int(messages.sequence[at]),
                    STATES[int(messages.state[at])],
                    int(messages.offset[at]),
                    -1 if end >= NEVER else int(end),
                    int(messages.due_ms[at]),
                    int(messages.store_ms[at]),
                    int(messages.topic_queue[at]),
                )
            )
    return found
