"""What falls due when: the pending messages of a cluster by topic and minute, from its logs.

    forecast = make_forecast(SparkRunner(spark.sparkContext), ["/var/lib/hourwheel"])
    forecast.table()          # shard, topic_id, topic, minute_ms, messages, body_bytes
    forecast.hours()          # (hour_ms, messages), and `peaks`: the fullest minutes

First attempts only: what is being tried again falls due within hours and is not in here. Of a
trimmed log only the messages that it still has are counted; `doubts` says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.ledger import PENDING, LedgerPlan, find_states
from spark_jobs.audit.log_state import ShardLog, read_logs, whole_blocks
from spark_jobs.audit.plots import instant_text
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.segment_reader import HEADERS
from spark_jobs.runtime import output_files, paths
from spark_jobs.runtime.runner import Runner, Shared

I64 = NDArray[np.int64]
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
PARQUET: Final = "forecast.parquet"
CSV: Final = "forecast.csv"


class Peak(NamedTuple):
    """A minute in which much falls due."""

    minute_ms: int
    messages: int
    topic: str
    """The topic with the most of them."""


@dataclass(frozen=True)
class Forecast:
    """Pending messages; one row a (shard, topic, minute) that has some. Arrays of one length."""

    shard: I64
    topic_id: I64
    minute_ms: I64
    messages: I64
    body_bytes: I64
    names: dict[tuple[int, int], str]
    """(shard, topic_id) -> name."""
    as_of_ms: int
    """`store_ms` of the last record: what was published later is not in here. -1: no record."""
    doubts: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All pending messages."""
        return int(self.messages.sum())

    def topic(self, row: int) -> str:
        """The topic's name of a row."""
        key = int(self.shard[row]), int(self.topic_id[row])
        return self.names.get(key, f"#{key[1]}")

    def hours(self) -> list[tuple[int, int]]:
        """(start of the hour in epoch ms, messages), ascending."""
        hours, place = np.unique(self.minute_ms // HOUR_MS, return_inverse=True)
        sums = np.bincount(place, self.messages, len(hours)).astype(np.int64)
        return list(zip((hours * HOUR_MS).tolist(), sums.tolist(), strict=True))

    def topics(self) -> list[tuple[str, int, int, int]]:
        """(topic, messages, first minute, last minute) of each topic, the fullest first."""
        found: dict[str, tuple[int, int, int]] = {}
        for row in range(len(self.messages)):
            name, minute = self.topic(row), int(self.minute_ms[row])
            count, first, last = found.get(name, (0, minute, minute))
            total = count + int(self.messages[row])
            found[name] = total, min(first, minute), max(last, minute)
        order = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
        return [(name, *facts) for name, facts in order]

    def peaks(self, most: int) -> list[Peak]:
        """The fullest minutes, fullest first."""
        minutes, place = np.unique(self.minute_ms, return_inverse=True)
        sums = np.bincount(place, self.messages, len(minutes)).astype(np.int64)
        chosen = np.argsort(-sums, kind="stable")[:most]
        peaks = []
        for at in chosen.tolist():
            rows = np.flatnonzero(place == at)
            fullest = int(rows[np.argmax(self.messages[rows])])
            peaks.append(Peak(int(minutes[at]), int(sums[at]), self.topic(fullest)))
        return peaks

    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        topics = [self.topic(row) for row in range(len(self.messages))]
        return pa.table(
            {
                "shard": pa.array(self.shard, pa.int32()),
                "topic_id": pa.array(self.topic_id, pa.int32()),
                "topic": pa.array(topics, pa.string()),
                "minute_ms": self.minute_ms,
                "messages": self.messages,
                "body_bytes": self.body_bytes,
            }
        )

    def summary(self, most: int = 10) -> dict[str, Any]:
        """Plain values for people and scripts."""
        return {
            "as_of_ms": self.as_of_ms,
            "pending": self.total,
            "body_bytes": int(self.body_bytes.sum()),
            "doubts": list(self.doubts),
            "topics": [
                dict(zip(("topic", "messages", "first_ms", "last_ms"), row, strict=True))
                for row in self.topics()
            ],
            "peaks": [peak._asdict() for peak in self.peaks(most)],
            "hours": [{"hour_ms": at, "messages": count} for at, count in self.hours()],
        }


def make_forecast(runner: Runner, uris: Sequence[str], *, progress: Any = None) -> Forecast:
    """Read the logs in and below some places. Raises as `log_state.read_logs`."""
    logs = read_logs(runner, uris, progress=progress)
    parts = [_pending(runner, log) for log in logs]
    rows = np.concatenate([np.zeros((5, 0), np.int64), *parts], axis=1)
    names = {(log.shard, number): name for log in logs for number, name in log.topics.items()}
    doubts = tuple(f"shard {log.shard}: {doubt}" for log in logs for doubt in log.doubts)
    as_of_ms = max((log.last_store_ms for log in logs), default=-1)
    shard, topic_id, minute_ms, messages, body_bytes = rows
    return Forecast(
        shard, topic_id, minute_ms, messages, body_bytes, names, as_of_ms=as_of_ms, doubts=doubts
    )


def write(forecast: Forecast, folder: str) -> dict[str, str]:
    """Write the rows as Parquet and CSV; gives name -> place. Raises as `outlet.opened`."""
    place, rows = paths.normalise(folder), forecast.table()
    written = {name: paths.child(place, name) for name in (PARQUET, CSV)}
    with output_files.opened(written[PARQUET]) as sink:
        pq.write_table(rows, sink)
    with output_files.opened(written[CSV]) as sink:
        pyarrow.csv.write_csv(rows, sink)
    return written


def lines(forecast: Forecast, most: int) -> list[str]:
    """The forecast as text for a terminal: topics, peaks, and a bar an hour."""
    as_of = instant_text(forecast.as_of_ms) if forecast.as_of_ms >= 0 else "an empty log"
    found = [f"{forecast.total:,} messages are pending, as of {as_of} (UTC)"]
    found += [f"  note: {doubt}" for doubt in forecast.doubts]
    if not forecast.total:
        return found
    found += ["", "topics"]
    found += [
        f"  {count:>14,}  {instant_text(first)} to {instant_text(last)}  {topic}"
        for topic, count, first, last in forecast.topics()[:most]
    ]
    found += ["", "fullest minutes"]
    found += [
        f"  {peak.messages:>14,}  {instant_text(peak.minute_ms)}  most of {peak.topic}"
        for peak in forecast.peaks(most)
    ]
    hours = forecast.hours()
    top = max(count for _, count in hours)
    found += ["", "next hours with messages"]
    found += [
        f"  {count:>14,}  {instant_text(at)}  {'#' * max(1, round(40 * count / top))}"
        for at, count in hours[:most]
    ]
    if len(hours) > most:
        found.append(f"  ... and {len(hours) - most:,} more hours: see the files")
    return found


def _pending(runner: Runner, log: ShardLog) -> I64:
    """int64[5, n]: shard, topic id, minute in ms, messages, bytes of bodies."""
    shared = runner.share(log.plan)
    sums = _summed(runner.map(partial(count_pending, shared), list(log.ranges)))
    shards = np.full(sums.shape[1], log.shard, np.int64)
    return np.vstack((shards, sums[0], sums[1] * MINUTE_MS, sums[2:]))


def count_pending(plan: Shared[LedgerPlan], where: SegmentRange) -> I64:
    """int64[4, n] of one range: topic id, minute, pending messages, bytes of their bodies."""
    parts = []
    for table in whole_blocks(where, verify=HEADERS):
        found = find_states(table, plan.value)
        waits = found.state == PENDING
        topic = (found.topic_queue[waits] >> QUEUE_BITS).astype(np.int64)
        sizes = table.messages.column("body_len")[waits].astype(np.int64)
        minutes = found.due_ms[waits] // MINUTE_MS
        parts.append(_summed([np.vstack((topic, minutes, np.ones_like(minutes), sizes))]))
    return _summed(parts)


def _summed(parts: Sequence[I64]) -> I64:
    """The same rows with (topic, minute) once each, in that order."""
    rows = np.concatenate([np.zeros((4, 0), np.int64), *parts], axis=1)
    order = np.lexsort((rows[1], rows[0]))
    rows = rows[:, order]
    if not rows.shape[1]:
        return rows
    fresh = (rows[0, 1:] != rows[0, :-1]) | (rows[1, 1:] != rows[1, :-1])
    starts = np.flatnonzero(np.concatenate(([True], fresh)))
    sums = np.add.reduceat(rows[2:], starts, axis=1)
    return np.vstack((rows[:2, starts], sums))
