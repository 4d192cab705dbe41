"""The log as a lake of Parquet files that people can query and join.

    <lake>/messages/shard=0/range=<from>-<to>/day=2027-03-01/*.parquet    what was published
    <lake>/dispatches, cancels, resolves/shard=0/range=<from>-<to>/*.parquet
    <lake>/outcomes/shard=0/as_of=<to>/*.parquet      what had become of each message at <to>
    <lake>/_exports/shard-0/<from>-<to>.json          the ranges that are complete

`messages` join `outcomes` by (shard, sequence); columns: docs/AUDIT.md. An export takes the offsets
from where the last complete one ended up to what is committed now. What it will take is noted
before it begins, and a run that follows a broken one takes just that again, into the same folders:
so no range is there twice, and none is left out. `outcomes` is a picture of one moment, made anew
each time; the one before it is removed when the new one is complete.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from hourwheel import errors
from spark_jobs import outlet, paths
from spark_jobs.audit_ledger import NEVER, STATES, LedgerPlan, judge
from spark_jobs.audit_requests import Voids
from spark_jobs.audit_runner import Shared, SparkRunner
from spark_jobs.log_state import ShardLog, read_logs
from spark_jobs.ranges import SegmentRange
from spark_jobs.segment_reader import HEADERS, read_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = "messages"
EVENTS: Final = ("dispatches", "cancels", "resolves")
OUTCOMES: Final = "outcomes"
_EXPORTS: Final = "_exports"
_ROWS: Final = 1 << 16
_OUTCOMES_DDL: Final = (
    "sequence bigint, due_ms bigint, store_ms bigint, topic_id int, topic string, outcome string,"
    " end_offset bigint"
)


@dataclass(frozen=True)
class Exported:
    """One shard's export."""

    shard: int
    from_offset: int
    to_offset: int
    """Equal to `from_offset`: there was nothing new."""
    messages: int
    trimmed_bytes: int
    """Of the log between the last export and this one, gone by retention."""
    doubts: tuple[str, ...]
    """Why outcomes may be wrong or not all."""


def export(
    spark: "SparkSession",
    uris: Sequence[str],
    lake: str,
    *,
    bodies: bool = False,
    outcomes: bool = True,
    progress: Any = None,
) -> list[Exported]:
    """Bring a lake up to date.

    Args:
        spark: the session, with the format `hourwheel` registered.
        uris: directories of nodes, or folders above them.
        lake: folder or URI that the executors reach.
        bodies: also tags, keys, properties and bodies of messages; keep to one choice for a lake.
        outcomes: also what became of each message.
        progress: told what was done.

    Raises:
        NoLogs: there is no log.
        MixedClusters: logs of several clusters, or the lake is another cluster's.
        CorruptLog: no replica has a part of the log; an audit names it.
    """
    place = paths.normalise(lake)
    found = []
    for log in read_logs(SparkRunner(spark.sparkContext), uris, progress=progress):
        _check_cluster(place, log)
        job = _Export(spark, log, place, uris, with_bodies=bodies)
        found.append(job.run(with_outcomes=outcomes))
    return found


class _Export:
    """The export of one shard."""

    def __init__(
        self,
        spark: "SparkSession",
        log: ShardLog,
        lake: str,
        uris: Sequence[str],
        *,
        with_bodies: bool,
    ) -> None:
        self._spark, self._log, self._lake, self._uris = spark, log, lake, list(uris)
        self._with_bodies = with_bodies
        self._marks = paths.child(paths.child(lake, _EXPORTS), f"shard-{log.shard}")

    def run(self, *, with_outcomes: bool) -> Exported:
        log = self._log
        low, high, trimmed = self._span()
        self._check_whole(low, high)
        if low < high:
            span = {"from_offset": low, "to_offset": high, "trimmed_bytes": trimmed}
            outlet.write_json(paths.child(self._marks, "next.json"), span)
            messages = self._write_range(low, high)
            done = Exported(log.shard, low, high, messages, trimmed, log.doubts)
            outlet.write_json(paths.child(self._marks, _mark(low, high)), asdict(done))
            outlet.remove(paths.child(self._marks, "next.json"))
        else:
            done = Exported(log.shard, low, high, 0, trimmed, log.doubts)
        if with_outcomes:
            self._write_outcomes(log.end_offset)
        return done

    def _span(self) -> tuple[int, int, int]:
        """(from, to, bytes that are gone in between): those of a broken run, or what is new."""
        ends = [
            int(outlet.read_json(paths.child(self._marks, name))["to_offset"])
            for name in outlet.names(self._marks)
            if name != "next.json"
        ]
        last = max(ends, default=0)
        low, high = max(last, self._log.start_offset), self._log.end_offset
        intent = outlet.read_json(paths.child(self._marks, "next.json"))
        if intent is not None and intent["to_offset"] > last:
            return intent["from_offset"], intent["to_offset"], intent["trimmed_bytes"]
        return low, max(low, high), low - last

    def _check_whole(self, low: int, high: int) -> None:
        """Raises CorruptLog where something that is to be exported is on no replica."""
        if low < self._log.start_offset:
            raise errors.CorruptLog(
                f"the log begins at {self._log.start_offset}, and an export that was broken off"
                f" needs it from {low} on: remove next.json from {self._marks} to go on without",
                offset=low,
            )
        covered = sum(
            max(0, min(one.to_offset, high) - max(one.from_offset, low)) for one in self._log.ranges
        )
        damaged = [at for at in self._log.damaged_at if at >= low]
        if covered < high - low or damaged:
            raise errors.CorruptLog(
                f"shard {self._log.shard}: of the log from offset {low} on {high - low - covered}"
                f" bytes are on no replica, damage is at {damaged}: see `hourwheel audit`",
                offset=min(damaged, default=low),
            )

    def _write_range(self, low: int, high: int) -> int:
        """Write all tables of [low, high); how many messages."""
        voids = self._log.plan.voids
        parts = [self._table(MESSAGES, one) for one in self._nodes(low, high)]
        messages = parts[0]
        for part in parts[1:]:
            messages = messages.unionByName(part)
        judged = messages.mapInArrow(
            partial(_with_day, voids=voids), _ddl(messages, "accepted boolean, day date")
        )
        folder = self._folder(MESSAGES, f"range={_mark_text(low, high)}")
        judged.write.mode("overwrite").partitionBy("day").parquet(outlet.for_spark(folder))
        for name in EVENTS:
            events = [self._table(name, one) for one in self._nodes(low, high)]
            whole = events[0]
            for part in events[1:]:
                whole = whole.unionByName(part)
            folder = self._folder(name, f"range={_mark_text(low, high)}")
            whole.coalesce(1).write.mode("overwrite").parquet(outlet.for_spark(folder))
        return self._count(low, high)

    def _nodes(self, low: int, high: int) -> list[SegmentRange]:
        """Ranges of [low, high), neighbours on one node joined: which replica to read for what."""
        found: list[SegmentRange] = []
        for one in self._log.ranges:
            cut = one._replace(
                from_offset=max(one.from_offset, low), to_offset=min(one.to_offset, high)
            )
            if cut.from_offset >= cut.to_offset:
                continue
            if found and found[-1].node == cut.node and found[-1].to_offset == cut.from_offset:
                found[-1] = found[-1]._replace(to_offset=cut.to_offset)
            else:
                found.append(cut)
        return found

    def _table(self, rows: str, one: SegmentRange) -> "DataFrame":
        reader = self._spark.read.format("hourwheel").option("path", one.uri).option("rows", rows)
        if rows == MESSAGES and self._with_bodies:
            reader = reader.option("bodies", "true")
        return (
            reader.load()
            .where(f"shard = {self._log.shard}")
            .where(f"offset >= {one.from_offset} and offset < {one.to_offset}")
            .drop("node", "segment", "shard", "cluster")
        )

    def _count(self, low: int, high: int) -> int:
        folder = self._folder(MESSAGES, f"range={_mark_text(low, high)}")
        written = self._spark.read.parquet(outlet.for_spark(folder))
        return written.where("accepted").count()

    def _write_outcomes(self, as_of: int) -> None:
        root = self._folder(OUTCOMES)
        place = paths.child(root, f"as_of={as_of:020d}")
        if "_SUCCESS" in outlet.names(place):
            return
        ranges = [one for one in self._log.ranges if one.from_offset < as_of]
        shared = SparkRunner(self._spark.sparkContext).share(self._log.plan)
        rows = self._spark.sparkContext.parallelize(ranges, max(1, len(ranges))).flatMap(
            partial(_outcome_batches, shared, self._log.topics)
        )
        frame = self._spark.createDataFrame(rows, "raw binary").mapInArrow(_unpack, _OUTCOMES_DDL)
        frame.write.mode("overwrite").parquet(outlet.for_spark(place))
        for name in outlet.folders(root):
            if name != f"as_of={as_of:020d}":
                outlet.remove_folder(paths.child(root, name))

    def _folder(self, table: str, *names: str) -> str:
        place = paths.child(paths.child(self._lake, table), f"shard={self._log.shard}")
        for name in names:
            place = paths.child(place, name)
        return place


def _check_cluster(lake: str, log: ShardLog) -> None:
    uri = paths.child(paths.child(lake, _EXPORTS), "lake.json")
    if outlet.create(uri, outlet.json_bytes({"cluster": log.cluster})):
        return
    owner = outlet.read_json(uri)["cluster"]
    if owner != log.cluster:
        raise errors.MixedClusters(f"{lake} has logs of cluster {owner}, and this is {log.cluster}")


def _mark_text(low: int, high: int) -> str:
    return f"{low:020d}-{high:020d}"


def _mark(low: int, high: int) -> str:
    return f"{_mark_text(low, high)}.json"


def _ddl(frame: "DataFrame", more: str) -> str:
    own = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in frame.schema.fields)
    return f"{own}, {more}"


def _with_day(batches: Iterator[pa.RecordBatch], voids: Voids) -> Iterator[pa.RecordBatch]:
    """Messages with whether they were accepted, and the day (UTC) of their `store_ms`."""
    for batch in batches:
        sequences = batch["sequence"].to_numpy().astype(np.uint64)
        days = batch["store_ms"].to_numpy() // 86_400_000
        yield pa.RecordBatch.from_arrays(
            [
                *batch.columns,
                pa.array(~voids.contains(sequences), pa.bool_()),
                pa.array(days.astype(np.int32)).cast(pa.date32()),
            ],
            names=[*batch.schema.names, "accepted", "day"],
        )


def outcomes_of(
    plan: LedgerPlan, topics: dict[int, str], where: SegmentRange
) -> Iterator[pa.RecordBatch]:
    """What became of the messages of one range; see `_OUTCOMES_DDL`."""
    states = pa.array(STATES, pa.string())
    for table in read_blocks(where, verify=HEADERS):
        found = judge(table, plan)
        if not len(found.sequence):
            continue
        topic = (found.topic_queue >> 8).astype(np.int32)
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


def _outcome_batches(
    plan: Shared[LedgerPlan], topics: dict[int, str], where: SegmentRange
) -> Iterator[tuple[bytes]]:
    """The same as rows of Arrow's bytes: a few large values for Spark to carry."""
    for batch in outcomes_of(plan.value, topics, where):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield (sink.getvalue().to_pybytes(),)


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for raw in batch["raw"].to_pylist():
            yield from pa.ipc.open_stream(raw)
