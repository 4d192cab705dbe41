"""Order per key, checked again by the log alone: of one key and group nothing ends out of its turn.

An ordered group gets a message only when none before it, in its queue and of its ordering key, is
unresolved for the group. The log does not show leases; it shows what became of them: a message that
was acknowledged, given up or given back was leased before. So a RESOLVE row is wrong that says one
of these three of a message while an earlier one of its key is unresolved. An earlier message that
some filter of the group does not take may be passed over at any time and holds up nothing; nor does
one that retention has let go.

What is looked at are topics that ordered groups read, of which two things are kept for each
message: where it stands (`PLACE`), and a hash of its ordering key (`KEYED`). A log without ordered
groups costs nothing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import parse
from hourwheel.filter_language.tree import Node
from hourwheel.formats.record_batch import Outcome
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.filters import read_meta
from spark_jobs.audit.checks.groups import GroupFacts, StaticQueue
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.runner import Shared

Array = NDArray[Any]
I64 = NDArray[np.int64]
KEYED: Final = np.dtype([("sequence", "<u8"), ("key", "<u8")])
"""A message and the hash of its ordering key; two keys with one hash are one in 10**19 pairs."""
_NEVER: Final = np.int64(1 << 62)
_ENDS: Final = (int(Outcome.ACK), int(Outcome.DEAD))
"""What ends the hold of an ordered group on a message that it was given."""
_KEY_TAG: Final = b"\x32"
"""Begins an ordering key in `MessageMeta`."""


class Unwanted(NamedTuple):
    """A group that filters a topic, and its filters: a message must match all to hold up others."""

    group_id: int
    topic_id: int
    trees: tuple[Node, ...]


@dataclass(frozen=True)
class OrderPlan:
    """What is looked for in the log. Picklable."""

    topics: frozenset[int] = frozenset()
    """Ids of topics that an ordered group has ever read."""
    filters: tuple[Unwanted, ...] = ()


@dataclass
class Keys:
    """The ordering keys of messages, and what groups need not have."""

    rows: Array = field(default_factory=lambda: np.empty(0, KEYED))
    unwanted: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """(group, topic) -> sequences that hold up nothing."""

    def merge(self, other: "Keys") -> None:
        """Take in those of another range."""
        self.rows = np.concatenate((self.rows, other.rows))
        for name, found in other.unwanted.items():
            self.unwanted.setdefault(name, []).extend(found)


def ordered_topics(line: Timeline) -> frozenset[int]:
    """Ids of topics that an ordered group reads, or has read."""
    return frozenset(topic_id for _, topic_id in _readers(line))


def _readers(line: Timeline) -> Iterator[tuple[int, int]]:
    """(group, topic) of ordered groups; their order cannot change once they read a topic."""
    for group_id, topic_id in line.subscriptions:
        changes = line.groups.get(group_id, [])
        is_ordered = any(one is not None and one.is_ordered for _, one in changes)
        if is_ordered and topic_id not in line.internal:
            yield group_id, topic_id


def plan_order(line: Timeline) -> OrderPlan:
    """What to look for: nothing where no group is ordered."""
    filters = []
    for group_id, topic_id in _readers(line):
        changes = line.subscriptions[group_id, topic_id]
        texts = {one.filter for _, one in changes if one is not None and one.filter is not None}
        trees = []
        for text in texts:
            try:
                trees.append(parse(text))
            except errors.HourwheelError:
                continue  # `checks.filters` reports it
        if trees:
            filters.append(Unwanted(group_id, topic_id, tuple(trees)))
    return OrderPlan(ordered_topics(line), tuple(filters))


def find_keys(plan: Shared[OrderPlan], where: SegmentRange) -> Keys:
    """The ordering keys in a range of the log."""
    found = Keys()
    for table in read_blocks(where, verify=HEADERS):
        messages = table.messages
        if not len(messages):
            continue
        topics = messages.column("topic_id")
        mine = np.flatnonzero(np.isin(topics, list(plan.value.topics)))
        starts = messages.column("blob_at")[mine]
        ends = starts + messages.column("meta_len")[mine]
        rows: list[tuple[int, int]] = []
        for sequence, topic_id, low, high in zip(
            messages.column("sequence")[mine].tolist(),
            topics[mine].tolist(),
            starts.tolist(),
            ends.tolist(),
            strict=True,
        ):
            raw = table.raw[low:high]
            if _KEY_TAG not in raw:
                continue
            meta = read_meta(raw)
            if not meta.ordering_key:
                continue
            rows.append((sequence, key_hash(meta.ordering_key)))
            for one in plan.value.filters:
                if one.topic_id == topic_id and not all(
                    matches(tree, meta.tags, meta.properties) for tree in one.trees
                ):
                    found.unwanted.setdefault(one[:2], []).append(sequence)
        found.rows = np.concatenate((found.rows, np.array(rows, KEYED)))
    return found


def key_hash(key: str) -> int:
    """The audit's own hash of an ordering key; nodes use another (`tag_gene.key_hash`)."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")


# --- who overtakes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderRows:
    """What decides: the rows of the log, and where messages stand."""

    resolves: Array
    """`audit_records.RESOLVE`, of what resolves."""
    holds: Array
    """The same, of what resolves nothing."""
    queues: dict[int, StaticQueue]
    places: Array
    """PLACE, of the topics of `ordered_topics`, in any order."""


def overtaking(
    rows: OrderRows, facts: GroupFacts, keys: Keys, line: Timeline, shard: int
) -> list[Finding]:
    """One finding for each message of an ordered group that ended, or failed, out of its turn.

    Args:
        rows: see there.
        facts: which RESOLVE row counts for which position.
        keys: of the whole log.
        line: topics, groups and subscriptions.
        shard: for the findings.
    """
    if not len(keys.rows):
        return []
    by_sequence = keys.rows[np.argsort(keys.rows["sequence"], kind="stable")]
    times = _Times(rows.resolves, rows.holds)
    found: list[Finding] = []
    for group_id, topic_id in sorted(_readers(line)):
        unwanted = np.array(keys.unwanted.get((group_id, topic_id), []), np.uint64)
        for topic_queue, queue in sorted(rows.queues.items()):
            if topic_queue >> QUEUE_BITS != topic_id:
                continue
            mine = rows.places[rows.places["topic_queue"] == topic_queue]
            keyed = _keyed(mine, by_sequence)
            if not len(keyed.position):
                continue
            case = _Case(group_id, topic_queue, queue, keyed, unwanted)
            found += _in_queue(case, rows, facts, times, line, shard)
    return found


class _Times:
    """When rows take effect: their order in the log, both kinds together, in even numbers."""

    def __init__(self, resolves: Array, holds: Array) -> None:
        both = np.concatenate((resolves, holds))
        order = np.lexsort((both["row"], both["offset"]))
        ranks = np.empty(len(both), np.int64)
        ranks[order] = 2 * np.arange(len(both))
        self.of_resolves, self.of_holds = ranks[: len(resolves)], ranks[len(resolves) :]
        self._offsets = both["offset"][order]

    def of_offset(self, offset: int) -> int:
        """Of another record: between the rows before and behind it."""
        return 2 * int(np.searchsorted(self._offsets, np.uint64(offset), "left")) - 1


class _Keyed(NamedTuple):
    """The messages of a queue that have a key: by key, then by position."""

    position: I64
    sequence: Array
    is_first: NDArray[np.bool_]
    """The first one of its key."""


class _Case(NamedTuple):
    group_id: int
    topic_queue: int
    queue: StaticQueue
    keyed: _Keyed
    unwanted: Array


def _keyed(places: Array, by_sequence: Array) -> _Keyed:
    at = np.searchsorted(by_sequence["sequence"], places["sequence"])
    at = np.minimum(at, len(by_sequence) - 1)
    has_key = by_sequence["sequence"][at] == places["sequence"]
    places, key = places[has_key], by_sequence["key"][at[has_key]]
    order = np.lexsort((places["position"], key))
    places, key = places[order], key[order]
    is_first = np.ones(len(key), np.bool_)
    is_first[1:] = key[1:] != key[:-1]
    return _Keyed(places["position"].astype(np.int64), places["sequence"], is_first)


def _in_queue(
    case: _Case, rows: OrderRows, facts: GroupFacts, times: _Times, line: Timeline, shard: int
) -> list[Finding]:
    keyed, queue = case.keyed, case.queue
    winners = facts.winners.get((case.group_id, case.topic_queue))
    if winners is None:
        winners = np.full(queue.released, -1, np.int32)
    winner = winners[keyed.position].astype(np.int64)
    ended = np.where(winner < 0, _NEVER, times.of_resolves[winner] if len(rows.resolves) else 0)
    outcome = np.where(winner < 0, 0, rows.resolves["outcome"][winner] if len(rows.resolves) else 0)
    latest, blocker = _held_up_until(case, ended, times)
    late = np.flatnonzero(np.isin(outcome, _ENDS) & (latest > ended))
    found = [
        _finding(case, at, blocker[at], rows.resolves[winner[at]], line, shard)
        for at in late.tolist()
    ]
    held = _held(case, rows.holds, times, ended)
    return found + [
        _finding(case, at, blocker[at], rows.holds[index], line, shard)
        for index, at in held
        if latest[at] > times.of_holds[index]
    ]


def _held_up_until(case: _Case, ended: I64, times: _Times) -> tuple[I64, I64]:
    """(until when, by which one) each is held up by those before it of its key; -1: by none."""
    keyed = case.keyed
    holds_up = ended.copy()
    for offset, start in case.queue.starts:
        gone = keyed.position < start
        holds_up[gone] = np.minimum(holds_up[gone], times.of_offset(offset))
    holds_up[np.isin(keyed.sequence, case.unwanted)] = -1
    # The greatest so far within each key: with a base that grows from key to key. Ranks stand for
    # times, so that bases and ranks fit together.
    order = np.argsort(holds_up, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    base = (np.cumsum(keyed.is_first) - 1) * len(order)
    best = np.maximum.accumulate(rank + base) - base
    before = np.full(len(order), -1, np.int64)
    before[1:] = best[:-1]
    before[keyed.is_first] = -1
    blocker = np.where(before < 0, -1, order[before])
    return np.where(before < 0, -1, holds_up[blocker]), blocker


def _held(case: _Case, holds: Array, times: _Times, ended: I64) -> Iterator[tuple[int, int]]:
    """(row of `holds`, ordinal among the keyed) of what was given back and unresolved then."""
    is_mine = (holds["group_id"] == case.group_id) & (holds["topic_queue"] == case.topic_queue)
    is_mine &= holds["outcome"] == Outcome.HELD
    at = {position: each for each, position in enumerate(case.keyed.position.tolist())}
    for index in np.flatnonzero(is_mine).tolist():
        time = times.of_holds[index]
        first, end = int(holds["first"][index]), int(holds["end"][index])
        for position in range(first, min(end, case.queue.released)):
            each = at.get(position, -1)
            if each >= 0 and ended[each] > time:
                yield index, each


def _finding(case: _Case, at: int, blocker: int, row: Array, line: Timeline, shard: int) -> Finding:
    group = line.group_names.get(case.group_id, f"#{case.group_id}")
    what = Outcome(int(row["outcome"])).name.lower()
    detail = f"{what} by ordered group {group} at position {case.keyed.position[at]} of queue"
    detail += f" {case.topic_queue:08x}, while sequence {case.keyed.sequence[blocker]}, before it"
    detail += f" at {case.keyed.position[blocker]} and of its key, was not resolved"
    return Finding(
        ERROR,
        "order-overtaken",
        shard,
        "",
        offset=int(row["offset"]),
        sequence=int(case.keyed.sequence[at]),
        position=int(case.keyed.position[at]),
        topic=line.name_of(case.topic_queue >> QUEUE_BITS),
        detail=detail,
    )
