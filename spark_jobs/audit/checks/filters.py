"""What filters passed over, judged again: no message that its group wants may be among it.

A RESOLVE row with the outcome "filtered" says that the group's filter does not take some positions
of a topic's queue. The master looked at them some time after they were released and before the row
was appended, by the filter that the group had then; the filter may have been changed since, and the
row may have waited for long. So a message was passed over rightly if *some* filter that the group
had between the message's release and the row does not take it. A message that all of them take was
lost for the group, and so is everything where the group had no filter at all.

Messages are judged by the metadata in the log, one by one, by `hourwheel.filter_language.evaluate`:
the node decides by genes and by `filters.vector_program`, and shares only the parser with this.
Genes are made again, too, of messages of all topics that some group reads by a filter: one that
lacks a bit makes a filter pass over its message unread.

Only what filters are about is read: a log without them costs nothing here. Most messages are judged
without decoding their metadata: what a filter looks for is not among its bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import (
    EVERYTHING,
    And,
    BooleanIs,
    HasTag,
    Node,
    NumberIn,
    NumberOrder,
    NumbersOrder,
    Or,
    SameText,
    TagIn,
    TextIn,
    TextMatch,
)
from hourwheel.formats.meta import NO_META, MessageMeta, decode
from hourwheel.formats.record_batch import Flag
from hourwheel.formats.tag_gene import GENE_SPEC_OF_TOPIC, GENE_UNKNOWN, GeneKind, GeneSpec, gene_of
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.logs.block_table import BlockTable
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.runner import Shared

Array = NDArray[Any]
I64 = NDArray[np.int64]
ASK: Final = np.dtype([("sequence", "<u8"), ("choice", "<u4"), ("row", "<u4")])
"""Is this message one that all filters of a choice take? `row`: ordinal among what was asked."""
_REPORTED_MAX: Final = 10_000
"""Of one range of the log."""
_NEEDLES_MAX: Final = 16
_GENES_KEPT: Final = 4_096
_TAG_KEY: Final = 0x0A
"""Begins a tag in `MessageMeta`, ..."""
_LONG: Final = 0x80
"""... and its length is one byte below this."""
_WIDE: Final = int(Flag.PER_MESSAGE_PRODUCER)


@dataclass(frozen=True)
class FilterPlan:
    """What is looked for in the log. Picklable."""

    asks: Array = field(default_factory=lambda: np.empty(0, ASK))
    """ASK[n], by sequence."""
    choices: tuple[tuple[Node, ...], ...] = ()
    """Trees of filters, of which each takes a message that is lost."""
    specs: Mapping[int, GeneSpec] = field(default_factory=dict)
    """Topic id -> how its genes are made, of topics that are read by a filter."""

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(len(self.asks) or self.specs)


class WrongGene(NamedTuple):
    """A message whose gene denies what its metadata says."""

    sequence: int
    offset: int
    topic_id: int
    due_ms: int
    gene: int
    wanted: int


@dataclass
class Missed:
    """What was found in a range of the log."""

    rows: list[int] = field(default_factory=list)
    """`ASK.row` of messages that all their filters take."""
    genes: list[WrongGene] = field(default_factory=list)


@dataclass
class FilterQuestions:
    """What a shard's RESOLVE rows give to look for."""

    plan: FilterPlan
    findings: list[Finding] = field(default_factory=list)
    """About rows of groups that had no filter, and about filters that are not valid."""
    unread: str = ""
    """Why some filters could not be read here, through no fault of theirs."""


def plan_filters(passed: Array, resolves: Array, line: Timeline, shard: int) -> FilterQuestions:
    """What to look for.

    Args:
        passed: `audit_releases.PASSED`[n]: entries that were passed over, by the row that counts.
        resolves: `audit_records.RESOLVE` of the log.
        line: topics, groups and subscriptions.
        shard: for the findings.
    """
    return _Planner(resolves, line, shard).run(passed)


class _Planner:
    def __init__(self, resolves: Array, line: Timeline, shard: int) -> None:
        self._resolves, self._line, self._shard = resolves, line, shard
        self._trees: dict[FilterExpression, Node | None] = {}
        self._choices: dict[tuple[Node, ...], int] = {}
        self._requested = FilterQuestions(FilterPlan())

    def run(self, passed: Array) -> FilterQuestions:
        rows = self._resolves[passed["index"].astype(np.int64)]
        keys = rows["group_id"].astype(np.int64) << 32 | (rows["topic_queue"] >> QUEUE_BITS)
        asks = np.zeros(len(passed), ASK)
        asks["sequence"], asks["row"] = passed["sequence"], np.arange(len(passed))
        is_requested = np.zeros(len(passed), np.bool_)
        for key in np.unique(keys).tolist():
            mine = np.flatnonzero(keys == key)
            changes = self._line.subscriptions.get((key >> 32, key & 0xFFFFFFFF), [])
            begins = np.array([begin for begin, _ in changes], np.int64)
            low = np.searchsorted(begins, passed["offset"][mine].astype(np.int64), "left") - 1
            high = np.searchsorted(begins, rows["offset"][mine].astype(np.int64), "left")
            spans = np.stack((np.maximum(low, 0), high), axis=1)
            for first, end in np.unique(spans, axis=0).tolist():
                chosen = mine[(spans == (first, end)).all(axis=1)]
                filters = [one.filter for _, one in changes[first:end] if one is not None]
                choice = self._choice(filters, key)
                if choice is None:
                    self._tell_all(passed[chosen])
                    continue
                if choice:
                    asks["choice"][chosen] = self._choices.setdefault(choice, len(self._choices))
                    is_requested[chosen] = True
        found = asks[is_requested]
        found = found[np.argsort(found["sequence"], kind="stable")]
        self._requested.plan = FilterPlan(found, tuple(self._choices), self._specs())
        return self._requested

    def _choice(self, filters: list[FilterExpression | None], key: int) -> tuple[Node, ...] | None:
        """Trees of the filters that were in force; None: there was none; (): one cannot be read."""
        trees: list[Node] = []
        for one in filters:
            if one is None:
                continue
            if one not in self._trees:
                self._trees[one] = self._read(one, key)
            tree = self._trees[one]
            if tree is None:
                return ()
            if tree != EVERYTHING:
                trees.append(tree)
        return tuple(dict.fromkeys(trees)) if trees else None

    def _read(self, expression: FilterExpression, key: int) -> Node | None:
        try:
            return parse(expression)
        except errors.FailedPrecondition as error:
            self._requested.unread = error.message
        except errors.InvalidFilter as error:
            topic = self._line.name_of(key & 0xFFFFFFFF)
            group = self._line.group_names.get(key >> 32, f"#{key >> 32}")
            detail = f"the filter of group {group}, {expression.text!r}: {error.message}"
            self._requested.findings.append(
                Finding(ERROR, "filter-unreadable", self._shard, "", topic=topic, detail=detail)
            )
        return None

    def _tell_all(self, passed: Array) -> None:
        """One finding a RESOLVE row."""
        for index in np.unique(passed["index"]).tolist():
            mine = passed[passed["index"] == index]
            detail = f"{len(mine)} messages are said to be passed over, and the group had no filter"
            finding = missed_finding(mine[0], self._resolves[index], self._line, self._shard)
            self._requested.findings.append(finding._replace(detail=detail))

    def _specs(self) -> dict[int, GeneSpec]:
        """Of topics that any group ever read by a filter."""
        line = self._line
        return {
            topic_id: line.gene_specs[topic_id]
            for (_, topic_id), changes in line.subscriptions.items()
            if topic_id not in line.internal
            and any(one is not None and one.filter is not None for _, one in changes)
        }


def missed_finding(passed: Array, row: Array, line: Timeline, shard: int) -> Finding:
    """The finding that a message which was passed over is."""
    group = line.group_names.get(int(row["group_id"]), f"#{int(row['group_id'])}")
    return Finding(
        ERROR,
        "filter-missed",
        shard,
        "",
        offset=int(row["offset"]),
        sequence=int(passed["sequence"]),
        position=int(passed["position"]),
        topic=line.name_of(int(row["topic_queue"]) >> QUEUE_BITS),
        detail=f"it was passed over for group {group}, whose filter takes it",
    )


def gene_finding(one: WrongGene, line: Timeline, shard: int) -> Finding:
    """The finding that a wrong gene is."""
    detail = f"its gene is {one.gene:016x}, and by its metadata it must have {one.wanted:016x}:"
    detail += " filters pass over it unread"
    return Finding(
        ERROR,
        "gene-wrong",
        shard,
        "",
        offset=one.offset,
        sequence=one.sequence,
        topic=line.name_of(one.topic_id),
        due_ms=one.due_ms,
        detail=detail,
    )


# --- in the log ---------------------------------------------------------------------------------


def find_missed(plan: Shared[FilterPlan], where: SegmentRange) -> Missed:
    """What of the plan is in a range of the log, and as it must not be."""
    found = Missed()
    for table in read_blocks(where, verify=HEADERS):
        if len(table.messages):
            _check_part(table, plan.value, found)
    return found


def _check_part(table: BlockTable, plan: FilterPlan, found: Missed) -> None:
    messages = table.messages
    sequence = messages.column("sequence")
    asks = _asks_in(plan.asks, sequence)
    order = np.argsort(sequence, kind="stable")
    at = order[np.minimum(np.searchsorted(sequence[order], asks["sequence"]), len(order) - 1)]
    is_here = sequence[at] == asks["sequence"]
    asks, at = asks[is_here], at[is_here]
    starts = messages.column("blob_at")
    ends = starts + messages.column("meta_len")
    needles = [tuple(filter(None, map(needles_of, trees))) for trees in plan.choices]
    view = table.raw
    for low, high, choice, row in zip(
        starts[at].tolist(),
        ends[at].tolist(),
        asks["choice"].tolist(),
        asks["row"].tolist(),
        strict=True,
    ):
        raw = view[low:high]
        if not all(any(one in raw for one in some) for some in needles[choice]):
            continue
        meta = read_meta(raw)
        if all(matches(tree, meta.tags, meta.properties) for tree in plan.choices[choice]):
            found.rows.append(row)
    if plan.specs and len(found.genes) < _REPORTED_MAX:
        _check_genes(table, plan.specs, (starts, ends), found)


def _asks_in(asks: Array, sequence: Array) -> Array:
    low = np.searchsorted(asks["sequence"], sequence.min(), "left")
    high = np.searchsorted(asks["sequence"], sequence.max(), "right")
    return asks[low:high]


def read_meta(raw: bytes) -> MessageMeta:
    """As a client reads it: what cannot be read says nothing."""
    try:
        return decode(raw)
    except (errors.InvalidArgument, errors.MessageTooLarge):
        return NO_META


def needles_of(tree: Node) -> tuple[bytes, ...]:  # noqa: PLR0911 - one for each kind
    """Texts of which one is among the bytes of the metadata of every message that matches.

    None of them where nothing is known. Metadata has tags, names and values as they are, in UTF-8.
    """
    match tree:
        case HasTag(tag):
            return (tag.encode(),)
        case TagIn(texts) | TextIn(_, texts) if len(texts) <= _NEEDLES_MAX:
            return tuple(text.encode() for text in texts)
        case TextMatch(_, _, part):
            return (part.encode(),)
        case NumberIn(name) | NumberOrder(name) | BooleanIs(name):
            return (name.encode(),)
        case SameText(name) | NumbersOrder(name):
            return (name.encode(),)
        case And(operands):
            every = [found for found in map(needles_of, operands) if found]
            return max(every, key=lambda some: min(map(len, some)), default=())
        case Or(operands):
            every = list(map(needles_of, operands))
            some = tuple(one for each in every for one in each)
            return some if all(every) and len(some) <= _NEEDLES_MAX else ()
    return ()


def _check_genes(
    table: BlockTable, specs: Mapping[int, GeneSpec], spans: tuple[I64, I64], found: Missed
) -> None:
    messages = table.messages
    topics, genes = messages.column("topic_id"), messages.column("tag_gene")
    numbers, is_wide = messages.of_batch("gene_spec"), messages.of_batch("flags") & _WIDE
    for topic_id, spec in specs.items():
        # Others are not used: filters read those messages.
        is_used = (numbers == GENE_SPEC_OF_TOPIC) | ((is_wide == 0) & (numbers == spec.number))
        mine = np.flatnonzero((topics == topic_id) & is_used & (genes != np.uint64(GENE_UNKNOWN)))
        lows, highs = (column[mine].tolist() for column in spans)
        for at, gene, low, high in zip(
            mine.tolist(), genes[mine].tolist(), lows, highs, strict=True
        ):
            raw = table.raw[low:high]
            wanted = _gene(spec, raw if spec.properties else _leading_tags(raw))
            if wanted & ~gene and _denies(spec, gene, wanted):
                found.genes.append(
                    WrongGene(
                        int(messages.column("sequence")[at]),
                        int(messages.column("offset")[at]),
                        topic_id,
                        int(messages.column("due_ms")[at]),
                        gene,
                        wanted,
                    )
                )


def _leading_tags(raw: bytes) -> bytes:
    """The tags that metadata begins with, as they are: all of them, but for odd encoders."""
    at, size = 0, len(raw)
    while at + 1 < size and raw[at] == _TAG_KEY:
        if raw[at + 1] >= _LONG:
            return raw
        at += 2 + raw[at + 1]
    return raw[:at]


@lru_cache(maxsize=_GENES_KEPT)
def _gene(spec: GeneSpec, raw: bytes) -> int:
    meta = read_meta(raw)
    return gene_of(spec, meta.tags, meta.properties)


def _denies(spec: GeneSpec, gene: int, wanted: int) -> bool:
    """Whether a gene says "certainly not" to something that the message has."""
    if spec.kind is GeneKind.HASH_SET:
        return wanted not in (0, gene)
    return gene & wanted != wanted
