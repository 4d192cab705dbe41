"""The rows of a lake (`spark_jobs.lake.export`): tasks make them, a range of a log each. No Spark.

A range was found whole by a scan before. If it is not whole any more when its rows are made, that
is an error: a lake never lacks a row without a word.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.ledger import NEVER, STATES, LedgerPlan, find_states
from spark_jobs.audit.facts.requests import RejectedRanges
from spark_jobs.audit.log_state import whole_blocks
from spark_jobs.logs.columns import (
    BODY_COLUMNS,
    MESSAGES,
    TABLES,
    View,
    arrow_type,
    count_rows,
    make_array,
)
from spark_jobs.logs.names import Names
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.segment_reader import FULL, HEADERS
from spark_jobs.runtime import output_files
from spark_jobs.runtime.runner import Shared

_PLACE: Final = ("node", "segment", "shard", "cluster")
"""Columns that a lake does without: they are in the folders' names, or differ by replica."""
OUTCOMES_DDL: Final = (
    "sequence bigint, due_ms bigint, store_ms bigint, topic_id int, topic string, outcome string,"
    " end_offset bigint"
)


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake that is made from the log alone. Picklable."""

    rows: str
    """Of `log_columns.TABLES`."""
    columns: tuple[str, ...]
    names: Names

    @property
    def ddl(self) -> str:
        """Its schema for Spark."""
        table = TABLES[self.rows]
        more = ("accepted boolean", "day date") if self.rows == MESSAGES else ()
        return ", ".join((*(f"`{name}` {table[name].ddl}" for name in self.columns), *more))

    @property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""
        table = TABLES[self.rows]
        more = [("accepted", pa.bool_()), ("day", pa.date32())] if self.rows == MESSAGES else []
        return pa.schema([*((name, arrow_type(table[name].ddl)) for name in self.columns), *more])


def lake_columns(rows: str, *, with_bodies: bool) -> tuple[str, ...]:
    """Columns of a table in a lake."""
    return tuple(
        name
        for name in TABLES[rows]
        if name not in _PLACE and (with_bodies or name not in BODY_COLUMNS)
    )


def rows_of(
    table: LakeTable, rejected: RejectedRanges, where: SegmentRange
) -> Iterator[pa.RecordBatch]:
    """A table's rows of one range. Raises CorruptLog: see `whole_blocks`."""
    makers = TABLES[table.rows]
    for block in whole_blocks(where, verify=FULL):
        view = View("", table.names, block)
        count = count_rows(table.rows, view)
        if not count:
            continue
        arrays = [
            make_array(makers[name].ddl, makers[name].make(view), count) for name in table.columns
        ]
        if table.rows == MESSAGES:
            messages = block.messages
            days = messages.column("store_ms") // 86_400_000
            arrays.append(pa.array(~rejected.contains(messages.column("sequence")), pa.bool_()))
            arrays.append(pa.array(days.astype(np.int32)).cast(pa.date32()))
        yield pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def outcomes_of(
    plan: LedgerPlan, topics: dict[int, str], where: SegmentRange
) -> Iterator[pa.RecordBatch]:
    """What became of the messages of one range; see `OUTCOMES_DDL`. Raises as `rows_of`."""
    states = pa.array(STATES, pa.string())
    for table in whole_blocks(where, verify=HEADERS):
        found = find_states(table, plan)
        if not len(found.sequence):
            continue
        topic = (found.topic_queue >> QUEUE_BITS).astype(np.int32)
        ids, place = np.unique(topic, return_inverse=True)
        names = pa.array([topics.get(number) for number in ids.tolist()], pa.string())
        ends = pa.array(found.end.astype(np.int64), mask=found.end >= NEVER >> np.uint64(1))
        yield pa.RecordBatch.from_pydict(
            {
                "sequence": found.sequence.astype(np.int64),
                "due_ms": found.due_ms,
                "store_ms": found.store_ms,
                "topic_id": topic,
                "topic": names.take(pa.array(place)),
                "outcome": states.take(pa.array(found.state.astype(np.int32))),
                "end_offset": ends,
            }
        )


def count_accepted(folder: str) -> int:
    """How many messages of a range of the lake are accepted; a range may have none at all."""
    system, path = output_files.open_folder(folder)
    schema = pa.schema([("accepted", pa.bool_())])
    found = pds.dataset(path, schema=schema, filesystem=system, format="parquet")
    return int(found.count_rows(filter=pc.field("accepted")))


def packed_rows(
    table: LakeTable, rejected: Shared[RejectedRanges], where: SegmentRange
) -> Iterator[tuple[bytes]]:
    """`rows_of`, as Arrow's bytes."""
    return map(_packed, rows_of(table, rejected.value, where))


def packed_outcomes(
    plan: Shared[LedgerPlan], topics: dict[int, str], where: SegmentRange
) -> Iterator[tuple[bytes]]:
    """`outcomes_of`, as Arrow's bytes."""
    return map(_packed, outcomes_of(plan.value, topics, where))


def _packed(batch: pa.RecordBatch) -> tuple[bytes]:
    """A row of Arrow's bytes: a few large values for Spark to carry."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return (sink.getvalue().to_pybytes(),)


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What was packed, for `mapInArrow`; batches have a column `raw`."""
    for batch in batches:
        for raw in batch["raw"].to_pylist():
            yield from pa.ipc.open_stream(raw)
