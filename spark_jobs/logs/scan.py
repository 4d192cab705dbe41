"""A scan of logs: what is read where, and the Arrow batches that come of it. No Spark here.

    scan = Scan(parse_options({"path": "/var/lib/hourwheel"}))
    for part in scan.plan():                    # where the logs are listed
        for batch in scan.read(part): ...       # anywhere, any part by itself

Conditions are pushed down in two ways. Whole ranges are left out where node, shard, offset or
sequence say that nothing in them fits (a shard's sequences only grow along its log). In what is
left, rows are masked by numpy before anything becomes Arrow. A condition that a scan does not
understand is ignored: the caller applies all of them again.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES, unpack_header
from spark_jobs.logs.block_table import UNREADABLE, Damage
from spark_jobs.logs.columns import (
    DAMAGE,
    MESSAGES,
    QUEUE_ENTRIES,
    TABLES,
    View,
    arrow_type,
    as_signed,
    count_rows,
    make_array,
)
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.names import Names, read_names
from spark_jobs.logs.options import COMMITTED, LogOptions
from spark_jobs.logs.queue_reader import QueueRange, plan_queues, read_queue
from spark_jobs.logs.ranges import SegmentRange, plan_ranges
from spark_jobs.logs.replica import Inventory, Replica, ShardCopy
from spark_jobs.logs.segment_reader import read_blocks

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMED: Final = ("topic", "origin_topic", "group")
_QUEUE_ENTRY_BYTES: Final = 64
_SHARD_COLUMNS: Final = ("node", "shard", "cluster")

Mask: TypeAlias = NDArray[np.bool_]


class Condition(NamedTuple):
    """One of several that must all hold for a row."""

    column: str
    operator: str
    """Of `OPERATORS`, or `in`."""
    value: Any
    """A number or text; of `in` a tuple of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads; picklable."""

    ranges: tuple[SegmentRange | QueueRange, ...] = ()
    damages: tuple[Damage, ...] = ()
    """Known without reading: of files that are missing or unreadable."""
    cluster: str = ""
    names: dict[int, Names] = field(default_factory=dict)
    """By shard; empty where neither a column nor a condition needs any."""


@dataclass(slots=True)
class Scan:
    """One reading of logs. Picklable.

    What `plan` finds out goes with the parts: Spark copies a reader for the tasks before it asks
    for the parts.
    """

    options: LogOptions
    conditions: tuple[Condition, ...] = ()
    fails_on_gaps: bool = False
    """A file that cannot be read is an error, and not a row of `damage`: for streams, which go by
    and never come back."""

    def schema(self) -> pa.Schema:
        """Of the batches that `read` yields."""
        table = TABLES[self.options.rows]
        return pa.schema([(name, arrow_type(table[name].ddl)) for name in self.options.columns])

    def look(self) -> Inventory:
        """The directories as they are now.

        Raises:
            NoLogs, MixedClusters, ConfigError: see `discover`.
        """
        return discover(self.options.paths)

    def plan(self) -> list[Part]:
        """All that is to be read, in parts. Raises as `look`; ConfigError for unknown nodes."""
        inventory = self.look()
        there = [one.node for one in inventory.replicas]
        for node in self.options.nodes:
            if node not in there:
                raise errors.ConfigError(f"there is no node {node!r}, but {', '.join(there)}")
        ranges: list[SegmentRange | QueueRange] = []
        for replica in inventory.replicas:
            for copy in replica.shards:
                if self._wants(inventory, replica, copy):
                    ranges += self._plan_copy(replica, copy)
        return self._parts(inventory, ranges)

    def plan_spans(
        self, inventory: Inventory, spans: Iterable[tuple[Replica, ShardCopy, int, int]]
    ) -> list[Part]:
        """Parts of [from, to) of some logs: for streams. Nothing of queues."""
        ranges: list[SegmentRange | QueueRange] = []
        size = self.options.partition_bytes
        for replica, copy, begin, end in spans:
            ranges += plan_ranges(
                replica, copy, partition_bytes=size, from_offset=begin, to_offset=end
            )
        return self._parts(inventory, ranges)

    def _parts(self, inventory: Inventory, ranges: list[SegmentRange | QueueRange]) -> list[Part]:
        conditions = {one.column for one in self.conditions}
        needs_names = self.options.wants(*_NAMED) or not conditions.isdisjoint(_NAMED)
        shards = {one.shard for one in ranges} if needs_names else set()
        names = {shard: read_names(inventory, shard) for shard in shards}
        groups = _grouped(ranges, self.options.partition_bytes)
        parts = [Part(group, (), inventory.cluster, names) for group in groups]
        if self.options.rows == DAMAGE:
            parts.append(Part((), tuple(_problems_as_damage(inventory)), inventory.cluster))
        return parts

    def _wants(self, inventory: Inventory, replica: Replica, copy: ShardCopy) -> bool:
        if self.options.nodes and replica.node not in self.options.nodes:
            return False
        constants = {"node": replica.node, "shard": copy.shard, "cluster": inventory.cluster}
        return all(
            _holds(one, constants[one.column])
            for one in self.conditions
            if one.column in _SHARD_COLUMNS
        )

    def _plan_copy(self, replica: Replica, copy: ShardCopy) -> list[SegmentRange | QueueRange]:
        options = self.options
        found: list[SegmentRange | QueueRange] = []
        if options.rows != QUEUE_ENTRIES:
            to = copy.committed_offset if options.until == COMMITTED else None
            ranges = plan_ranges(
                replica, copy, partition_bytes=options.partition_bytes, to_offset=to
            )
            found += self._pruned(replica, ranges)
        if options.rows in {QUEUE_ENTRIES, DAMAGE}:
            entries = max(1, options.partition_bytes // _QUEUE_ENTRY_BYTES)
            found += plan_queues(replica, copy, partition_entries=entries)
        return found

    def _pruned(self, replica: Replica, ranges: list[SegmentRange]) -> list[SegmentRange]:
        """Without the ranges in which no offset or sequence fits."""
        if self.options.rows == DAMAGE:
            return ranges
        low, high = self._bounds("offset")
        ranges = [one for one in ranges if one.to_offset > low and one.from_offset <= high]
        low, high = self._bounds("sequence")
        if self.options.rows != MESSAGES or (low, high) == _EVERYTHING or not ranges:
            return ranges
        firsts = _first_sequences(replica, ranges)
        nexts = [*firsts[1:], None]
        return [
            one
            for one, first, following in zip(ranges, firsts, nexts, strict=True)
            if (first is None or first <= high) and (following is None or following > low)
        ]

    def _bounds(self, column: str) -> tuple[float, float]:
        """The smallest and the largest value that the conditions allow a column."""
        low, high = _EVERYTHING
        for one in self.conditions:
            if one.column != column:
                continue
            values = one.value if one.operator == "in" else (one.value,)
            if one.operator in {"=", "in", ">", ">="}:
                low = max(low, min(values, default=high))
            if one.operator in {"=", "in", "<", "<="}:
                high = min(high, max(values, default=low))
        return low, high

    # --- reading --------------------------------------------------------------------------------

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Damage becomes rows of `damage`, and is never an exception.

        Raises:
            CorruptLog: with `fails_on_gaps`, a file cannot be read.
        """
        if part.damages:
            yield from self._batches(View(part.cluster, Names(), damages=part.damages))
        for one in part.ranges:
            for view in self._views(part, one):
                yield from self._batches(view)

    def _views(self, part: Part, one: SegmentRange | QueueRange) -> Iterator[View]:
        cluster, names = part.cluster, part.names.get(one.shard, Names())
        if isinstance(one, SegmentRange):
            for table in read_blocks(one, verify=self.options.verify):
                gap = next((each for each in table.damages if each.reason == UNREADABLE), None)
                if gap is not None and self.fails_on_gaps:
                    raise errors.CorruptLog(
                        f"{gap.node}: {gap.file} from offset {gap.offset} on: {gap.detail}",
                        file=gap.file,
                        offset=gap.offset,
                    )
                yield View(cluster, names, table, damages=table.damages)
            return
        for piece in read_queue(one):
            if isinstance(piece, Damage):
                if self.options.rows == DAMAGE:
                    yield View(cluster, names, damages=(piece,))
            elif self.options.rows == QUEUE_ENTRIES:
                yield View(cluster, names, piece=piece)

    def _batches(self, view: View) -> Iterator[pa.RecordBatch]:
        options, table = self.options, TABLES[self.options.rows]
        count = count_rows(options.rows, view)
        keep = self._keep(view, count)
        if not count or (keep is not None and not len(keep)):
            return
        arrays = [
            make_array(table[name].ddl, table[name].make(view), count, keep)
            for name in options.columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema())

    def _keep(self, view: View, count: int) -> Any:
        """int64[m]: the rows for which all conditions hold; None: all rows."""
        tried = [self._mask(one, view) for one in self.conditions] if count else []
        masks = [one for one in tried if one is not None]
        if not masks:
            return None
        mask = np.logical_and.reduce(masks)
        return None if mask.all() else np.flatnonzero(mask)

    def _mask(self, one: Condition, view: View) -> Mask | None:
        """bool[n]: where a condition holds; None where that is not known here."""
        table, condition = TABLES[self.options.rows], one
        if one.column in {"topic", "origin_topic"}:
            if one.operator not in {"=", "in"}:
                return None
            wanted = one.value if one.operator == "in" else (one.value,)
            ids = [number for name in wanted for number in view.names.topic_ids(name)]
            condition = Condition(f"{one.column}_id", "in", tuple(ids))
        if condition.column not in table:
            return None
        found = table[condition.column].make(view)
        if not isinstance(found, np.ndarray) or not np.issubdtype(found.dtype, np.integer):
            return None
        return np.asarray(_holds(condition, as_signed(found)))


_EVERYTHING: Final = (float("-inf"), float("inf"))


def _holds(one: Condition, value: Any) -> Any:
    """Whether a condition holds for a value, or for each of an array."""
    if one.operator != "in":
        return OPERATORS[one.operator](value, one.value)
    if isinstance(value, np.ndarray):
        return np.isin(value, list(one.value))
    return value in one.value


def _first_sequences(replica: Replica, ranges: Sequence[SegmentRange]) -> list[int | None]:
    """The sequence at which each range begins; None where that cannot be read."""
    disk, found = replica.open_disk(), list[int | None]()
    for one in ranges:
        try:
            with closing(disk.open(one.path)) as file:
                raw = file.pread(HEADER_BYTES, one.position(one.from_offset))
            header = unpack_header(raw)
            is_right = header.offset == one.from_offset
            found.append(header.base_sequence if is_right else None)
        except (errors.HourwheelError, OSError):
            found.append(None)
    return found


def _grouped(
    ranges: list[SegmentRange | QueueRange], partition_bytes: int
) -> Iterator[tuple[SegmentRange | QueueRange, ...]]:
    """Neighbours together, as long as they are small."""
    group: list[SegmentRange | QueueRange] = []
    size = 0
    for one in ranges:
        own = _bytes_of(one)
        if group and size + own > partition_bytes + partition_bytes // 4:
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += own
    if group:
        yield tuple(group)


def _bytes_of(one: SegmentRange | QueueRange) -> int:
    if isinstance(one, SegmentRange):
        return one.to_offset - one.from_offset
    return (one.end_position - one.start_position) * _QUEUE_ENTRY_BYTES


def _problems_as_damage(inventory: Inventory) -> Iterator[Damage]:
    for one in inventory.problems:
        yield Damage(one.node, one.shard, one.file, one.offset, 0, one.check, one.detail)
