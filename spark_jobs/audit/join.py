"""The later steps of one shard's audit: queues and groups. See `audit.shard` for the first ones."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Outcome
from hourwheel.types import QUEUE_BITS, TopicQueue
from spark_jobs.audit.checks import groups, retries
from spark_jobs.audit.checks.catalog import FOREVER
from spark_jobs.audit.checks.dispatch import check_sums, sums_by_record
from spark_jobs.audit.checks.entries import EntryDiff, Place, compare, settle
from spark_jobs.audit.checks.expiry import expiry_findings, find_wrong, plan_expiry
from spark_jobs.audit.checks.filters import find_missed, gene_finding, missed_finding, plan_filters
from spark_jobs.audit.checks.groups import GroupFacts, StaticQueue
from spark_jobs.audit.checks.ledger import RELEASE
from spark_jobs.audit.checks.order import (
    Keys,
    OrderRows,
    find_keys,
    ordered_topics,
    overtaking,
    plan_order,
)
from spark_jobs.audit.checks.partial import (
    PartialPart,
    PartialTask,
    SetSum,
    by_key,
    find_sum_difference,
    sum_entries,
)
from spark_jobs.audit.checks.releases import ReleasePart, Slice, first_positions, merge_chunks
from spark_jobs.audit.checks.retention import Trims
from spark_jobs.audit.checks.retries import Retries
from spark_jobs.audit.checks.windows import Window, windows_at
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.result import GroupAudit
from spark_jobs.audit.queues import chunk_findings, queue_findings
from spark_jobs.audit.shard import ShardState, checkpoint_limit
from spark_jobs.audit.steps import (
    Joined,
    JoinPlan,
    Known,
    QueueCopy,
    compare_copy,
    join_releases,
    look_up,
    read_pieces,
)
from spark_jobs.logs.block_table import Damage
from spark_jobs.logs.queue_reader import QueueRange, plan_by_seals, plan_queues
from spark_jobs.logs.replica import ERROR, Replica, ShardCopy
from storage.queues.consume_queue import CHUNK_ENTRIES

Array = NDArray[Any]
_BEHIND_MAX: Final = 100_000
"""Entries behind a queue's rightful end that are looked at."""


class Joining:
    """Compares queues with the log, and follows what groups made of them.

    Attributes:
        part: what the releases, in their order, have given.
        diffs: how each queue of each node differs from the log, settled after `run`.
        retries: what was tried again.
        groups: what each group made of each topic.
    """

    def __init__(self, state: ShardState) -> None:
        """Behind `audit.shard.make_ledger`."""
        self._state = state
        self.part = ReleasePart()
        self.diffs: dict[Place, EntryDiff] = {}
        self.retries = Retries()
        self.groups: list[GroupAudit] = []
        self._queues: dict[int, StaticQueue] = {}
        self._trims = Trims(state.facts.trims, state.line, state.facts.levels)
        self._counts = np.empty(0, np.bool_)
        self._faults: list[Damage] = []
        self._sums: list[tuple[tuple[int, int], SetSum]] = []
        self._copies = [
            one
            for replica, copy in state.copies
            for one in (_copies_of if copy.applied_offset else _sealed_of)(state, replica, copy)
        ]
        sizes = [one.where.chunk_entries for one in self._copies]
        self._chunk_entries = state.options.chunk_entries or max(sizes, default=0) or CHUNK_ENTRIES

    def run(self) -> None:
        """All of it."""
        began = self._state.now_ms()
        self._join()
        self._state.timed("join", began)
        began = self._state.now_ms()
        if self._state.is_whole:
            self._follow()
            self._compare_dynamic()
            self._compare_ends()
            if not any(one.area == "groups" for one in self._state.checks):
                self._state.note("groups")
        else:
            reason = "the log does not begin at 0: what was resolved before it is not known"
            self._state.note("groups", "log-trimmed", reason)
            self._compare_sums()
        self._tell()
        self._state.timed("groups", began)

    # -- queues -----------------------------------------------------------------------------------

    def _join(self) -> None:
        state = self._state
        copies: dict[int, list[QueueCopy]] = {}
        for copy in self._copies if state.is_whole else ():
            if copy.where.topic_queue >> QUEUE_BITS not in state.line.internal:
                copies.setdefault(copy.where.topic_queue, []).append(copy)
        firsts = first_positions(state.ledger.queued)
        at = () if state.is_whole or state.plan is None else state.plan.wheel_at
        ordered = ordered_topics(state.line) if state.is_whole else frozenset[int]()
        plan = JoinPlan(firsts, copies, state.facts.resolves, self._chunk_entries, at, ordered)
        spread = errors.required(state.spread, "releases are spread before they are joined")
        for joined in spread.join(partial(join_releases, state.runner.share(plan))):
            self._take(joined)
        spread.close()
        self.part.chunks = merge_chunks(self.part.chunks)
        totals: Counter[int] = Counter()
        for (_, topic_queue), count in state.ledger.queued.items():
            totals[topic_queue] += count
        for topic_queue, count in totals.items():
            mine = self.part.chunks[self.part.chunks["topic_queue"] == topic_queue]
            trims = self._trims.of(topic_queue >> QUEUE_BITS)
            self._queues[topic_queue] = groups.trim_queue(count, mine, trims, self._chunk_entries)

    def _take(self, joined: Joined) -> None:
        self.part.merge(joined.part)
        self._faults += joined.faults
        self._sums += joined.sums
        for place, diff in joined.diffs.items():
            self.diffs.setdefault(place, EntryDiff()).merge(diff)

    def _compare_ends(self) -> None:
        """Look at what stands behind the entries that the log gives a queue, or in none of its."""
        state = self._state
        for copy in self._copies:
            if not copy.is_ended:
                continue  # the log is not known so far
            key = copy.where.topic_queue
            if key >> QUEUE_BITS in state.line.internal:
                wanted = self._dynamic_end(key, copy.applied_offset)
            else:
                wanted = count_below(state, key, copy.applied_offset)
            first = max(wanted, copy.where.start_position)
            last = min(copy.where.end_position, first + _BEHIND_MAX)
            if first < last:
                rows = np.empty(0, RELEASE)
                pieces = read_pieces(copy.where, first, last, self._faults)
                is_dynamic = key >> QUEUE_BITS in state.line.internal
                tries = np.empty(0, np.uint32) if is_dynamic else None
                diff = compare(Slice(key, first, rows, tries), pieces, copy.log_start)
                diff.uncounted += max(0, copy.where.end_position - last)
                self.diffs.setdefault(copy.place, EntryDiff()).merge(diff)
            self._check_start(copy)

    def _check_start(self, copy: QueueCopy) -> None:
        """Nothing may be trimmed that no TRIM record lets go."""
        state, key = self._state, copy.where.topic_queue
        if key >> QUEUE_BITS in state.line.internal:
            queue = self.retries.queues.get(key)
            allowed = queue.start if queue else 0
        else:
            starts = self._queues.get(key, StaticQueue(0)).starts
            allowed = max((at for offset, at in starts if offset < copy.applied_offset), default=0)
        start = copy.where.start_position
        if start > allowed:
            detail = (
                f"queue {key:08x} begins at {start}, and TRIM records let it begin at {allowed}"
            )
            state.add(
                Finding(
                    ERROR,
                    "queue-trimmed",
                    state.shard,
                    copy.place.node,
                    copy.where.folder,
                    position=start,
                    topic=state.line.name_of(key >> QUEUE_BITS),
                    detail=detail,
                )
            )

    def _dynamic_end(self, topic_queue: int, applied: int) -> int:
        queue = self.retries.queues.get(topic_queue)
        return sum(1 for at in queue.offsets if at < applied) if queue else 0

    def _compare_dynamic(self) -> None:
        state = self._state
        known = {copy.place for copy in self._copies}
        for replica, mine in state.copies:  # queues that the log has, and a checkpoint has not
            for key in sorted(self.retries.queues) if mine.applied_offset else ():
                is_there = state.line.deleted.get(key >> QUEUE_BITS, FOREVER) >= mine.applied_offset
                if is_there and Place(replica.node, key) not in known:
                    self._copies.append(_no_queue(state, replica, mine, key))
        for copy in self._copies:
            queue = self.retries.queues.get(copy.where.topic_queue)
            if copy.where.topic_queue >> QUEUE_BITS not in state.line.internal or queue is None:
                continue
            joined = Joined()
            compare_copy(queue.as_slice(copy.where.topic_queue), copy, joined)
            self._take(joined)

    def _compare_sums(self) -> None:
        """Of a log that does not begin at 0: see `checks.partial`."""
        state = self._state
        tasks = [
            PartialTask(one, state.first_sequence, copy.start_offset)
            for replica, copy in state.copies
            if copy.applied_offset
            for one in plan_queues(replica, copy)
        ]
        found: dict[Place, PartialPart] = {}
        for task, part in zip(tasks, state.runner.map(sum_entries, tasks), strict=True):
            place = Place(task.where.node, task.where.topic_queue)
            found.setdefault(place, PartialPart()).merge(part)
        wanted = by_key(self._sums)
        for copy in self._copies:
            part = found.get(copy.place, PartialPart())
            self.diffs[copy.place] = EntryDiff(compared=part.seen)
            self._faults += part.faults
            key, folder = copy.where.topic_queue, copy.where.folder
            topic = state.line.name_of(key >> QUEUE_BITS)
            for file, position, sequence, offset in part.lost:
                detail = f"queue {key:08x}, position {position}: points to offset {offset} of a log"
                detail += f" that begins at {copy.log_start}; so do {part.lost_count} entries"
                state.add(
                    Finding(
                        ERROR,
                        "body-lost",
                        state.shard,
                        copy.place.node,
                        file,
                        offset,
                        sequence,
                        position,
                        topic,
                        detail=detail,
                    )
                )
            is_static = key >> QUEUE_BITS not in state.line.internal
            if not is_static or not copy.is_ended or part.faults:
                continue
            is_trimmed = copy.where.start_position > 0
            why = find_sum_difference(
                wanted.get((key, copy.applied_offset), SetSum()), part.sums, is_trimmed=is_trimmed
            )
            if why:
                detail = f"queue {key:08x}, of messages that the log has: {why}"
                state.add(
                    Finding(
                        ERROR,
                        "queue-end",
                        state.shard,
                        copy.place.node,
                        folder,
                        topic=topic,
                        detail=detail,
                    )
                )

    # -- groups -----------------------------------------------------------------------------------

    def _follow(self) -> None:
        state = self._state
        resolves = state.facts.resolves
        facts = groups.check_rows(resolves, self.part.covers, self._queues, state.line, state.shard)
        state.add(*facts.findings)
        self._counts = facts.counts
        named = groups.effective(self.part.named, facts, resolves)
        self.retries = retries.follow(
            resolves,
            state.facts.holds,
            named,
            self._trims,
            state.line,
            state.dispatch,
            state.end_offset,
            self._chunk_entries,
        )
        passed = groups.effective(self.part.passed, facts, resolves)
        self._check_expiry(passed)
        outcomes = resolves["outcome"][passed["index"].astype(np.int64)]
        self._check_filters(passed[outcomes == Outcome.FILTERED])
        self._check_order(facts)
        for index, end in self.retries.undelivered:
            state.add(groups.undelivered(resolves[index], end, state.line, state.shard))
        state.add(*groups.dead_letters(self.retries, state.line, state.shard))
        offsets, sequences = self.retries.releases()
        order = np.argsort(offsets, kind="stable")
        more = sums_by_record(offsets[order], sequences[order])
        self.part.sums = np.concatenate((self.part.sums, more))
        state.add(*check_sums(state.facts.dispatches, self.part.sums, state.shard, is_whole=True))
        self.groups = groups.sum_up(
            resolves, facts, self._queues, self.retries, state.line, self._release_ms
        )

    def _check_filters(self, passed: Array) -> None:
        """Judge again what filters passed over, and the genes that they go by."""
        state, resolves = self._state, self._state.facts.resolves
        requested = plan_filters(passed, resolves, state.line, state.shard)
        state.add(*requested.findings)
        for index, unit in self.retries.filtered_units:
            gone = np.zeros(1, passed.dtype)
            gone["sequence"], gone["position"] = unit.sequence, resolves["first"][index]
            state.add(missed_finding(gone[0], resolves[index], state.line, state.shard))
        if requested.plan:
            plan = state.runner.share(requested.plan)
            for part in state.runner.map(partial(find_missed, plan), state.ranges):
                for row in part.rows:
                    index = int(passed["index"][row])
                    finding = missed_finding(passed[row], resolves[index], state.line, state.shard)
                    state.add(finding)
                state.add(*(gene_finding(one, state.line, state.shard) for one in part.genes))
        if requested.unread:
            state.note(
                "groups", "filter-unread", f"some filters were not judged: {requested.unread}"
            )

    def _check_order(self, facts: GroupFacts) -> None:
        """Find what overtook an earlier message of its ordering key."""
        state, keys = self._state, Keys()
        plan = plan_order(state.line)
        if not plan.topics:
            return
        shared = state.runner.share(plan)
        for part in state.runner.map(partial(find_keys, shared), state.ranges):
            keys.merge(part)
        rows = state.facts
        every = OrderRows(rows.resolves, rows.holds, self._queues, self.part.places)
        state.add(*overtaking(every, facts, keys, state.line, state.shard))

    def _check_expiry(self, passed: Array) -> None:
        """Judge again what is said to have expired, and what was acknowledged too late."""
        state, resolves = self._state, self._state.facts.resolves
        requested = plan_expiry(passed, self.retries, resolves)
        if len(requested.asks):
            plan = state.runner.share(requested)
            wrong = state.runner.map(partial(find_wrong, plan), state.ranges)
            state.add(*expiry_findings(wrong, resolves, state.line, state.shard))

    def windows_at(self, applied: int) -> dict[tuple[int, int], Window]:
        """What groups have resolved when records below an offset are applied."""
        queues = {key: (one.released, one.starts) for key, one in self._queues.items()}
        queues |= {key: (len(one.entries), one.starts) for key, one in self.retries.queues.items()}
        state = self._state
        return windows_at(state.facts.resolves, self._counts, queues, state.line, applied)

    def _release_ms(self, topic_queue: int, position: int) -> int:
        """Release time of an entry, by whichever replica has it; -1 without any."""
        for copy in self._copies:
            where = copy.where
            if where.topic_queue == topic_queue and (
                where.start_position <= position < where.end_position
            ):
                for piece in read_pieces(where, position, position + 1):
                    if piece.units is not None:
                        return int(max(piece.units["due_ms"][0], piece.units["store_ms"][0]))
        return -1

    # -- in words ---------------------------------------------------------------------------------

    def _tell(self) -> None:
        state = self._state
        damaged = {(one.node, one.file) for one in self._faults if not one.is_expected}
        state.add(*chunk_findings(self._faults, state.shard))
        opened = {one.place for one in self._copies if not one.is_ended}
        self.diffs = {
            place: settle(diff, is_open=place in opened) for place, diff in self.diffs.items()
        }
        applied = {
            replica.node: copy.applied_offset or state.end_offset for replica, copy in state.copies
        }
        state.add(*queue_findings(self.diffs, applied, state.line, state.shard, self.look_up))
        for replica, copy in state.copies:
            bad = sum(1 for node, _ in damaged if node == replica.node)
            if not copy.applied_offset:
                reason = self._what_seals_gave(replica.node)
                state.note("queues", "checkpoint-missing", reason, replica.node)
            if bad or copy.applied_offset:
                state.note("queues", *self._limit(copy, bad), node=replica.node)

    def _what_seals_gave(self, node: str) -> str:
        """What was compared of the queues of a node without a checkpoint, and what was not."""
        reason = "no checkpoint says what its queues must hold"
        if not self._state.is_whole:
            return f"{reason}; the log does not begin at 0: they are not compared"
        seen = sum(diff.compared for place, diff in self.diffs.items() if place.node == node)
        total = sum(self._state.ledger.queued.values())
        total += sum(len(queue.offsets) for queue in self.retries.queues.values())
        reason += f"; {seen:,} entries for which chunks vouch themselves were compared with the log"
        return f"{reason}, and of {max(0, total - seen):,} more that the log releases none was"

    def _limit(self, copy: ShardCopy, bad_chunks: int) -> tuple[str, str]:
        """(limit, reason) of what was compared of a node's queues."""
        state = self._state
        if bad_chunks:
            return "file-unread", f"{bad_chunks} chunks cannot be read"
        if not state.is_whole:
            return "log-trimmed", "the log does not begin at 0: only sums are compared"
        return checkpoint_limit(state, copy)

    def look_up(self, sequences: Sequence[int]) -> dict[int, Known]:
        """What the log says about each of some messages that it has."""
        state = self._state
        wanted = state.runner.share(np.array(sequences, np.uint64))
        found = state.runner.map(partial(look_up, state.shared_plan, wanted), state.ranges)
        return {one.sequence: one for part in found for one in part}


def count_below(state: ShardState, topic_queue: int, offset: int) -> int:
    """How many first releases to a queue lie below an offset that is an edge of buckets."""
    plan = errors.required(state.plan, "a ledger has a plan")
    last = int(np.searchsorted(plan.bucket_edges, np.uint64(offset), "left"))
    return sum(
        count
        for (bucket, key), count in state.ledger.queued.items()
        if key == topic_queue and bucket <= last
    )


def _copies_of(state: ShardState, replica: Replica, copy: ShardCopy) -> list[QueueCopy]:
    """Every queue that a node's checkpoint has, or that the log says it must have."""
    applied = copy.applied_offset
    whole: dict[int, QueueRange] = {}
    for one in plan_queues(replica, copy):
        first = whole.setdefault(one.topic_queue, one)
        whole[one.topic_queue] = first._replace(end_position=one.end_position)
    manifest = copy.manifest
    for each in manifest.queues if manifest else ():
        whole.setdefault(
            each.topic_queue, _empty(replica, copy, TopicQueue(each.topic_queue), each.end_position)
        )
    died = state.line.deleted
    if state.is_whole and applied <= state.end_offset:
        for key in {key for _, key in state.ledger.queued}:
            if key not in whole and died.get(key >> QUEUE_BITS, FOREVER) >= applied:
                whole[key] = _empty(replica, copy, TopicQueue(key), 0)
    found = []
    for key, where in sorted(whole.items()):
        place = Place(replica.node, key)
        if died.get(key >> QUEUE_BITS, FOREVER) < applied <= state.end_offset:
            detail = f"queue {key:08x} of a topic that was deleted before its checkpoint"
            state.add(
                Finding(ERROR, "queue-void", state.shard, replica.node, where.folder, detail=detail)
            )
            continue
        limit = min(applied, state.end_offset)
        found.append(QueueCopy(place, where, limit, copy.start_offset, limit == applied))
    return found


def _sealed_of(state: ShardState, replica: Replica, copy: ShardCopy) -> list[QueueCopy]:
    """The queues of a node without a checkpoint, as far as their chunks vouch for themselves.

    A log that does not begin at 0 gives none: then only sums are compared, up to a checkpoint.
    A topic's queues may stay for a while when it is deleted.
    """
    if not state.is_whole:
        return []
    return [
        QueueCopy(
            Place(replica.node, one.topic_queue),
            one,
            state.end_offset,
            copy.start_offset,
            is_ended=False,
        )
        for one in plan_by_seals(replica, copy)
        if one.topic_queue >> QUEUE_BITS not in state.line.deleted
    ]


def _no_queue(state: ShardState, replica: Replica, copy: ShardCopy, key: int) -> QueueCopy:
    limit = min(copy.applied_offset, state.end_offset)
    where = _empty(replica, copy, TopicQueue(key), 0)
    is_ended = limit == copy.applied_offset
    return QueueCopy(Place(replica.node, key), where, limit, copy.start_offset, is_ended)


def _empty(replica: Replica, copy: ShardCopy, topic_queue: TopicQueue, at: int) -> QueueRange:
    folder = copy.path("queues", f"{topic_queue:08x}")
    return QueueRange(
        replica.uri,
        replica.node,
        copy.shard,
        replica.cluster_id.hex(),
        folder,
        topic_queue,
        at,
        at,
        0,
        at,
    )
