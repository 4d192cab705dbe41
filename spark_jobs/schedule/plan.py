"""What a bulk schedule keeps: the frozen rows, and marks of what has been begun and done.

    <ledger>/<job>/plan.json           which rows the job consists of; made once, never changed
    <ledger>/<job>/rows-<nonce>/*.parquet   the rows, judged and sorted: one file is one bucket
    <ledger>/<job>/begun/<bucket>.json      since when rows of a bucket may have been sent
    <ledger>/<job>/done/<bucket>.json       what became of a bucket's rows: it is sent no more
    <ledger>/<job>/problems.parquet    the rows that are not scheduled, and why

Nothing is sent before there is a plan. A plan that is there is used, whatever table a rerun comes
with: the job's name stands for its rows. The ledger may lie on a disk or in an object store that
all executors reach. One file is written by one attempt, or by two with the same content.
"""

import os
import platform
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from hourwheel import errors
from hourwheel.client import batch_builder
from spark_jobs.runtime import output_files, paths
from spark_jobs.schedule import rows as schedule_rows
from spark_jobs.schedule.window import (
    Outcome,
    Piece,
    Receipt,
    RowRange,
    StreamKey,
    Tally,
    producer_id_of,
)

_JOB: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_READ_ROWS: Final = 16_384
_BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows of a job."""

    job: str
    nonce: str
    """Random: two plans never share a producer."""
    cluster: str
    """Id of the cluster that they are for."""
    created_ms: int
    batch_messages: int
    rows: int
    bad_rows: int
    """Rows with a problem of their own; they are never sent."""
    buckets: tuple[str, ...]
    """Names of the files in the rows' folder."""


@dataclass(frozen=True)
class Ledger:
    """The folder of a job. Cheap, and carried to where buckets are sent."""

    uri: str
    """Normalised."""

    @classmethod
    def of(cls, ledger: str, job: str) -> "Ledger":
        """The folder of `job` in the folder `ledger`.

        Raises:
            ConfigError: a name that cannot be a folder's.
        """
        if not _JOB.fullmatch(job) or set(job) == {"."}:
            raise errors.ConfigError(
                f"a job's name is 1 to 100 letters, digits, '_', '.' or '-', not {job[:200]!r}"
            )
        return cls(paths.child(paths.normalise(ledger), job))

    def place(self, *names: str) -> str:
        """The place of a file or folder in it."""
        uri = self.uri
        for name in names:
            uri = paths.child(uri, name)
        return uri

    def rows_folder(self, nonce: str) -> str:
        """Where the rows of a plan lie."""
        return self.place(f"rows-{nonce}")

    # --- the plan -------------------------------------------------------------------------------

    def find_plan(self) -> Plan | None:
        """The plan, if there is one.

        Raises:
            CorruptFile: it is no plan, or one of another version.
        """
        uri = self.place("plan.json")
        found = output_files.read_json(uri)
        with _understood(uri):
            return None if found is None else Plan(**{**found, "buckets": tuple(found["buckets"])})

    def settle_plan(self, plan: Plan) -> Plan:
        """Make it the job's plan, unless there is one by now; gives the one that holds."""
        if not output_files.create(self.place("plan.json"), output_files.json_bytes(asdict(plan))):
            return errors.required(self.find_plan(), "a plan that was there stays")
        return plan

    # --- marks ----------------------------------------------------------------------------------

    def begin(self, bucket: str, now_ms: int) -> int | None:
        """Note that rows of a bucket may be sent from now on.

        Returns:
            Since when they may have been sent, epoch ms; None: never before.
        """
        uri = self.place("begun", f"{bucket}.json")
        who = {"begun_ms": now_ms, "host": platform.node(), "pid": os.getpid()}
        if output_files.create(uri, output_files.json_bytes(who)):
            return None
        with _understood(uri):
            return int(output_files.read_json(uri)["begun_ms"])

    def finish(self, bucket: str, tally: Tally) -> None:
        """Note what became of a bucket's rows."""
        content = {
            "ranges": [list(each) for each in tally.ranges],
            "receipts": [list(each) for each in tally.receipts],
        }
        output_files.write_json(self.place("done", f"{bucket}.json"), content)

    def find_done(self, bucket: str) -> Tally | None:
        """What became of a bucket's rows, if it is done with."""
        uri = self.place("done", f"{bucket}.json")
        found = output_files.read_json(uri)
        if found is None:
            return None
        with _understood(uri):
            ranges = [
                RowRange._make([*each[:4], Outcome(each[4]), *each[5:]]) for each in found["ranges"]
            ]
            return Tally(ranges, [Receipt(*each) for each in found["receipts"]])

    def undo(self, bucket: str) -> None:
        """Forget that a bucket is done with: what was refused or in doubt is tried again."""
        output_files.remove(self.place("done", f"{bucket}.json"))


@contextmanager
def _understood(uri: str) -> Iterator[None]:
    """A mark of the ledger that says something else than it should is a damaged file."""
    try:
        yield
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise errors.CorruptFile(f"{uri} is not understood: {error!r}", file=uri) from None


def new_nonce() -> str:
    """A new plan's nonce."""
    return secrets.token_hex(16)


# --- frozen rows ---------------------------------------------------------------------------------


def write_bucket(uri: str, table: pa.Table) -> None:
    """Write rows of `schedule_rows.FROZEN` as a bucket; they are sorted here."""
    with output_files.opened(uri) as sink:
        pq.write_table(schedule_rows.sort(table), sink, row_group_size=_READ_ROWS)


def count_rows(uri: str) -> tuple[int, int]:
    """(rows, rows with a problem) of a bucket."""
    system, path = output_files.open_folder(uri)
    rows = bad = 0
    with system.open_input_file(path) as file:
        parquet = pq.ParquetFile(file)
        for batch in parquet.iter_batches(1 << 20, columns=["problem"]):
            rows += batch.num_rows
            bad += batch.num_rows - batch["problem"].null_count
    return rows, bad


def read_bucket(uri: str) -> Iterator[pa.RecordBatch]:
    """Rows of a bucket, in order, a few thousand at a time."""
    system, path = output_files.open_folder(uri)
    with system.open_input_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(_READ_ROWS):
            columns = [batch[field.name].cast(field.type) for field in schedule_rows.FROZEN]
            yield pa.RecordBatch.from_arrays(columns, schema=schedule_rows.FROZEN)


def pieces_of(batches: Iterator[pa.RecordBatch], plan: Plan, bucket: str) -> Iterator[Piece]:
    """A bucket's good rows as batches to send: the same ones in every attempt."""
    numbers: dict[StreamKey, int] = {}
    for batch in batches:
        for topic, is_delay, rows in schedule_rows.runs(batch):
            key = StreamKey(topic, is_delay)
            producer_id = producer_id_of(plan.nonce, bucket, key)
            draft = schedule_rows.to_draft(rows)
            for part in batch_builder.cut(
                draft, messages_max=plan.batch_messages, bytes_max=_BATCH_BYTES
            ):
                first = numbers.get(key, 0)
                numbers[key] = first + part.count
                yield Piece(key, producer_id, first, part)


def problems_of(
    batches: Iterator[pa.RecordBatch], bucket: str, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Rows of a bucket that are not scheduled, as `PROBLEMS`, with what is wrong."""
    wrong: dict[StreamKey, list[RowRange]] = {}
    for each in tally.ranges:
        if each.outcome in (Outcome.REFUSED, Outcome.IN_DOUBT):
            wrong.setdefault(StreamKey(each.topic, each.is_delay), []).append(each)
    numbers: dict[StreamKey, int] = {}
    for batch in batches:
        good = batch["problem"].null_count
        if good < batch.num_rows:
            yield _problems(batch.slice(good), bucket, "bad row")
        for topic, is_delay, rows in schedule_rows.runs(batch):
            key = StreamKey(topic, is_delay)
            first = numbers.get(key, 0)
            numbers[key] = end = first + rows.num_rows
            for each in wrong.get(key, ()):
                low, high = max(first, each.first), min(end, each.end)
                if low < high:
                    part = rows.slice(low - first, high - low)
                    yield _problems(part, bucket, each.outcome.value, each.reason, each.detail)


PROBLEMS: Final = pa.schema(
    [
        ("outcome", pa.string()),
        *((name, schedule_rows.FROZEN.field(name).type) for name in schedule_rows.FROZEN.names),
        ("bucket", pa.string()),
    ]
)
"""Rows that are not scheduled: `outcome` is "bad row", "refused" or "in doubt"."""


def _problems(
    rows: pa.RecordBatch, bucket: str, outcome: str, reason: str = "", detail: str = ""
) -> pa.RecordBatch:
    columns = {name: rows[name] for name in rows.schema.names}
    count = rows.num_rows
    if reason:
        columns["problem"] = pa.array([reason] * count, pa.string())
        columns["detail"] = pa.array([detail] * count, pa.string())
    columns["outcome"] = pa.array([outcome] * count, pa.string())
    columns["bucket"] = pa.array([bucket] * count, pa.string())
    return pa.RecordBatch.from_arrays([columns[name] for name in PROBLEMS.names], schema=PROBLEMS)


def write_problems(uri: str, batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Write rows of `PROBLEMS` as one Parquet file, as they come; none if there are none.

    Returns:
        Typed reason -> rows.
    """
    reasons: dict[str, int] = {}
    found = iter(batches)
    first = next(found, None)
    if first is None:
        output_files.remove(uri)
        return reasons
    with output_files.opened(uri) as sink, pq.ParquetWriter(sink, PROBLEMS) as writer:
        for batch in chain((first,), found):
            writer.write_batch(batch)
            for each in batch["problem"].value_counts().to_pylist():
                reasons[each["values"]] = reasons.get(each["values"], 0) + each["counts"]
    return reasons
