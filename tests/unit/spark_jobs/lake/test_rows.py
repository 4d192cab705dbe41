"""Rows of a lake are all that a range has, or an error."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hourwheel import errors
from spark_jobs.audit.log_state import ShardLog, read_logs
from spark_jobs.lake import forecast
from spark_jobs.lake import rows as lake_rows
from spark_jobs.lake.rows import LakeTable, lake_columns, outcomes_of, rows_of
from spark_jobs.logs.names import Names
from spark_jobs.runtime.runner import LocalRunner
from tests.support.audited import copied
from tests.support.log_maker import Made, segments


def read_log(directory: Path) -> ShardLog:
    (log,) = read_logs(LocalRunner(), [str(directory)], partition_bytes=1 << 14)
    return log


def table_of(log: ShardLog, rows: str, *, with_bodies: bool = False) -> LakeTable:
    columns = lake_columns(rows, with_bodies=with_bodies)
    return LakeTable(rows, columns, Names(log.topics, log.groups))


def all_rows(log: ShardLog, rows: str, *, with_bodies: bool = False) -> pa.Table:
    table = table_of(log, rows, with_bodies=with_bodies)
    found = [one for where in log.ranges for one in rows_of(table, log.plan.rejected, where)]
    return pa.Table.from_batches(found, table.schema)


def test_messages_when_written_are_those_that_were_accepted(made: Made) -> None:
    log = read_log(made.directory)
    found = all_rows(log, "messages", with_bodies=True)
    every = found.to_pylist()
    accepted = {row["sequence"]: row for row in every if row["accepted"]}
    assert {n: (row["topic"], row["due_ms"]) for n, row in accepted.items()} == made.accepted
    assert {n: row["body"] for n, row in accepted.items()} == made.bodies
    assert len(every) - len(accepted) == made.void
    assert {(row["day"] - _EPOCH).days for row in every} == {
        row["store_ms"] // 86_400_000 for row in every
    }
    assert "body" not in all_rows(log, "messages").schema.names


_EPOCH = pa.scalar(0, pa.date32()).as_py()


def test_rows_of_records_have_the_names_of_topics_and_groups(made: Made) -> None:
    log = read_log(made.directory)
    resolves = all_rows(log, "resolves").to_pylist()
    assert {row["group"] for row in resolves} == {"billing", "archive"}
    assert {"orders"} <= {row["topic"] for row in resolves}
    assert made.cancelled <= {row["sequence"] for row in all_rows(log, "cancels").to_pylist()}
    ddl = table_of(log, "dispatches").ddl
    assert ddl.startswith(
        "`offset` bigint, `epoch` bigint, `store_ms` bigint, `prev_due_ms` bigint"
    )


def test_rows_when_a_file_has_gone_since_the_scan_are_an_error(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    log = read_log(node)
    segments(node)[0].unlink()
    with pytest.raises(errors.CorruptLog, match="whole a moment ago"):
        all_rows(log, "messages")
    with pytest.raises(errors.CorruptLog, match="whole a moment ago"):
        list(outcomes_of(log.plan, log.topics, log.ranges[0]))
    with pytest.raises(errors.CorruptLog, match="run it again"):
        forecast.count_pending(LocalRunner().share(log.plan), log.ranges[0])


def test_rows_when_a_byte_has_changed_since_the_scan_are_an_error(
    made: Made, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    log = read_log(node)
    raw = bytearray(segments(node)[1].read_bytes())
    raw[len(raw) // 2] ^= 1
    segments(node)[1].write_bytes(raw)
    with pytest.raises(errors.CorruptLog, match="at offset"):
        all_rows(log, "messages")


def test_count_when_a_range_has_no_message_is_none(tmp_path: Path) -> None:
    empty, some = tmp_path / "range=0-1", tmp_path / "range=1-2"
    empty.mkdir()
    (empty / "_SUCCESS").touch()
    assert lake_rows.count_accepted(str(empty)) == 0
    (some / "day=2027-01-15").mkdir(parents=True)
    table = pa.table({"sequence": [1, 2, 3], "accepted": [True, False, True]})
    pq.write_table(table, some / "day=2027-01-15" / "part-0.parquet")
    pq.write_table(table, some / "day=2027-01-15" / "part-1.parquet")
    assert lake_rows.count_accepted(str(some)) == 4


def test_packed_rows_come_out_as_they_went_in(made: Made) -> None:
    log = read_log(made.directory)
    table, shared = table_of(log, "messages"), LocalRunner().share(log.plan.rejected)
    where = log.ranges[0]
    packed = [raw for (raw,) in lake_rows.packed_rows(table, shared, where)]
    batch = pa.RecordBatch.from_pydict({"raw": packed})
    assert list(lake_rows.unpack(iter([batch]))) == list(rows_of(table, log.plan.rejected, where))
