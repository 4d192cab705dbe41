"""The log as a lake of Parquet files that people can query and join.

    <lake>/messages/shard=0/range=<from>-<to>/day=2027-03-01/*.parquet    what was published
    <lake>/dispatches, cancels, reschedules, resolves/shard=0/range=<from>-<to>/*.parquet
    <lake>/outcomes/shard=0/as_of=<to>/*.parquet      what had become of each message at <to>
    <lake>/_exports/shard-0/<from>-<to>.json          the ranges that are complete
    <lake>/_exports/lake.json                         whose lake it is, and whether with bodies

`messages` join `outcomes` by (shard, sequence); columns: docs/AUDIT.md. An export takes the offsets
from where the last complete one ended up to what is committed now. What it will take is noted
before it begins, and a run that follows a broken one takes just that again, into the same folders:
so no range is there twice, and none is left out. `outcomes` is a picture of one moment, made anew
each time; the one before it is removed when the new one is complete.

What is written is read from the very ranges that were found whole a moment before; if a node has
removed one of them since, the export fails, and is repeated by the next.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hourwheel import errors
from spark_jobs.audit.log_state import ShardLog, read_logs
from spark_jobs.lake.rows import (
    OUTCOMES_DDL,
    LakeTable,
    count_accepted,
    lake_columns,
    packed_outcomes,
    packed_rows,
    unpack,
)
from spark_jobs.logs.columns import MESSAGES
from spark_jobs.logs.names import Names
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.runtime import output_files, paths
from spark_jobs.runtime.runner import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS: Final = ("dispatches", "cancels", "reschedules", "resolves")
OUTCOMES: Final = "outcomes"
_EXPORTS: Final = "_exports"
_NEXT: Final = "next.json"
_AS_OF: Final = "as_of="
_MARK: Final = re.compile(r"[0-9]{20}-([0-9]{20})\.json")
"""A complete range. Whatever else lies there (half a file of a run that was killed) is none."""


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
        bodies: also tags, keys, properties and bodies of messages; one choice for a lake.
        outcomes: also what became of each message.
        progress: receives each step that is done, in words.

    Raises:
        NoLogs: there is no log.
        MixedClusters: logs of several clusters, or the lake is another cluster's.
        ConfigError: the lake is one with bodies, or without, and the other is asked for.
        CorruptLog: no replica has a part of the log, and an audit names it; or a node removed a
            part while it was read.
    """
    place = paths.normalise(lake)
    found = []
    for log in read_logs(SparkRunner(spark.sparkContext), uris, progress=progress):
        claim_lake(place, log.cluster, with_bodies=bodies)
        job = _Export(spark, log, place, with_bodies=bodies)
        found.append(job.run(with_outcomes=outcomes))
    return found


class Span(NamedTuple):
    """What an export takes."""

    from_offset: int
    to_offset: int
    """Equal to `from_offset`: there is nothing new."""
    trimmed_bytes: int
    """Of the log before it, gone by retention before it was exported."""


class _Export:
    """The export of one shard."""

    def __init__(
        self, spark: "SparkSession", log: ShardLog, lake: str, *, with_bodies: bool
    ) -> None:
        self._spark, self._log, self._lake = spark, log, lake
        self._with_bodies = with_bodies
        self._runner = SparkRunner(spark.sparkContext)

    def run(self, *, with_outcomes: bool) -> Exported:
        log, marks = self._log, marks_folder(self._lake, self._log.shard)
        low, high, trimmed = span = find_span(marks, log.start_offset, log.end_offset)
        check_whole(log, low, high, marks)
        messages = 0
        if low < high:
            output_files.write_json(paths.child(marks, _NEXT), span._asdict())
            messages = self._write_range(low, high)
        done = Exported(log.shard, low, high, messages, trimmed, log.doubts)
        if low < high:
            output_files.write_json(
                paths.child(marks, f"{_mark_text(low, high)}.json"), asdict(done)
            )
            output_files.remove(paths.child(marks, _NEXT))
        if with_outcomes:
            self._write_outcomes(log.end_offset)
        return done

    def _write_range(self, low: int, high: int) -> int:
        """Write all tables of [low, high); how many messages."""
        ranges = cut_ranges(self._log, low, high)
        folders = {
            name: self._folder(name, f"range={_mark_text(low, high)}")
            for name in (MESSAGES, *EVENTS)
        }
        messages = self._frame(MESSAGES, ranges)
        writer = messages.write.mode("overwrite").partitionBy("day")
        writer.parquet(output_files.for_spark(folders[MESSAGES]))
        for name in EVENTS:
            events = self._frame(name, ranges).coalesce(1)
            events.write.mode("overwrite").parquet(output_files.for_spark(folders[name]))
        return count_accepted(folders[MESSAGES])

    def _frame(self, rows: str, ranges: Sequence[SegmentRange]) -> "DataFrame":
        log = self._log
        columns = lake_columns(rows, with_bodies=self._with_bodies)
        table = LakeTable(rows, columns, Names(log.topics, log.groups))
        rejected = self._runner.share(log.plan.rejected)
        return self._frame_of(partial(packed_rows, table, rejected), ranges, table.ddl)

    def _frame_of(self, work: Any, ranges: Sequence[SegmentRange], ddl: str) -> "DataFrame":
        """Rows that tasks make, a range each; they travel as Arrow's bytes."""
        tasks = self._spark.sparkContext.parallelize(list(ranges), max(1, len(ranges)))
        packed = self._spark.createDataFrame(tasks.flatMap(work), "raw binary")
        return packed.mapInArrow(unpack, ddl)

    def _write_outcomes(self, as_of: int) -> None:
        root = self._folder(OUTCOMES)
        if not needs_picture(root, as_of):
            return
        shared = self._runner.share(self._log.plan)
        work = partial(packed_outcomes, shared, self._log.topics)
        ranges = cut_ranges(self._log, 0, as_of)
        frame = self._frame_of(work, ranges, OUTCOMES_DDL)
        name = _picture(as_of)
        frame.write.mode("overwrite").parquet(output_files.for_spark(paths.child(root, name)))
        for other in output_files.folders(root):
            if other.startswith(_AS_OF) and other != name:
                output_files.remove_folder(paths.child(root, other))

    def _folder(self, table: str, *names: str) -> str:
        place = paths.child(paths.child(self._lake, table), f"shard={self._log.shard}")
        for name in names:
            place = paths.child(place, name)
        return place


# --- what is there, and what is to be done ------------------------------------------------------


def claim_lake(lake: str, cluster: str, *, with_bodies: bool) -> None:
    """Make a lake this cluster's, or see that it is.

    Raises:
        MixedClusters: it is another cluster's.
        ConfigError: it has bodies, and they are not asked for; or the other way round.
        CorruptFile: what the lake says of itself cannot be read.
    """
    uri = paths.child(paths.child(lake, _EXPORTS), "lake.json")
    mine = {"cluster": cluster, "bodies": with_bodies}
    if output_files.create(uri, output_files.json_bytes(mine)):
        return
    found = _fields(output_files.read_json(uri), uri, "cluster")
    if found["cluster"] != cluster:
        raise errors.MixedClusters(
            f"{lake} has logs of cluster {found['cluster']}, and this is {cluster}"
        )
    if found.get("bodies", with_bodies) != with_bodies:
        has = "has" if found["bodies"] else "has no"
        raise errors.ConfigError(
            f"{lake} {has} bodies of messages: a lake is exported always with --bodies, or never"
        )


def marks_folder(lake: str, shard: int) -> str:
    """Where a shard's complete ranges are noted."""
    return paths.child(paths.child(lake, _EXPORTS), f"shard-{shard}")


def find_span(marks: str, start_offset: int, end_offset: int) -> Span:
    """What is to be exported: the range of a run that was broken off, or what is new.

    Args:
        marks: `marks_folder`.
        start_offset: where the log begins.
        end_offset: where it ends, committed.

    Raises:
        CorruptFile: the note of the run that was broken off cannot be read.
    """
    last = 0
    for name in output_files.names(marks):
        match = _MARK.fullmatch(name)
        if match is not None:
            last = max(last, int(match[1]))
    uri = paths.child(marks, _NEXT)
    broken = output_files.read_json(uri)
    if broken is not None:
        span = Span(*(int(_fields(broken, uri, *Span._fields)[name]) for name in Span._fields))
        if span.to_offset > last:
            return span
    low = max(last, start_offset)
    return Span(low, max(low, end_offset), low - last)


def _fields(found: Any, uri: str, *names: str) -> dict[str, Any]:
    """A JSON object that has these fields. Raises CorruptFile where it has not."""
    if not isinstance(found, dict) or not found.keys() >= set(names):
        raise errors.CorruptFile(f"{uri}: it should say {', '.join(names)}", file=uri)
    return found


def check_whole(log: ShardLog, low: int, high: int, marks: str) -> None:
    """See that all of [low, high) can be exported; `marks` for the message.

    Raises:
        CorruptLog: something of it is on no replica.
    """
    if low < min(log.start_offset, high):
        raise errors.CorruptLog(
            f"the log begins at {log.start_offset}, and an export that was broken off needs it"
            f" from {low} on: remove {_NEXT} from {marks} to go on without",
            offset=low,
        )
    covered = sum(one.to_offset - one.from_offset for one in cut_ranges(log, low, high))
    damaged = [at for at in log.damaged_at if low <= at]
    if covered < high - low or damaged:
        raise errors.CorruptLog(
            f"shard {log.shard}: of the log from offset {low} on {high - low - covered}"
            f" bytes are on no replica, damage is at {damaged}: see `hourwheel audit`",
            offset=min(damaged, default=low),
        )


def cut_ranges(log: ShardLog, low: int, high: int) -> list[SegmentRange]:
    """What of the log's ranges lies in [low, high): which replica to read for what."""
    cut = (
        one._replace(from_offset=max(one.from_offset, low), to_offset=min(one.to_offset, high))
        for one in log.ranges
    )
    return [one for one in cut if one.from_offset < one.to_offset]


def needs_picture(root: str, as_of: int) -> bool:
    """Whether `outcomes` are to be made: not if there is a complete picture as new, or newer."""
    return not any(
        name.startswith(_AS_OF)
        and name >= _picture(as_of)
        and "_SUCCESS" in output_files.names(paths.child(root, name))
        for name in output_files.folders(root)
    )


def _picture(as_of: int) -> str:
    return f"{_AS_OF}{as_of:020d}"


def _mark_text(low: int, high: int) -> str:
    return f"{low:020d}-{high:020d}"
