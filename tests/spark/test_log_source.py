"""The data source inside Spark: tables, filters, schemas, damage, streams. One small log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from spark_jobs.logs.options import parse_options
from spark_jobs.logs.scan import Scan
from tests.support.audited import copied, only_copy, tables_of
from tests.support.log_maker import Made, make_log, replicate, segments, set_high_watermark

FORMAT = "hourwheel"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    return asyncio.run(make_log(folder / "node-1", seed=5, rounds=2))


def table(spark: SparkSession, place: object, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).option("path", str(place)).options(**options).load()


def scanned(place: object, **options: str) -> list[tuple[Any, ...]]:
    """The same table without Spark."""
    scan = Scan(parse_options({"path": str(place), **options}))
    return [
        tuple(row.values())
        for part in scan.plan()
        for batch in scan.read(part)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("rows", ["messages", "queue_entries", "batches", "resolves"])
def test_table_when_read_has_the_rows_of_the_scan(
    spark: SparkSession, made: Made, rows: str
) -> None:
    found = table(spark, made.directory, rows=rows).collect()
    expected = scanned(made.directory, rows=rows)
    assert expected
    assert sorted(map(tuple, found)) == sorted(expected)


def test_bodies_when_asked_for_are_bytes_and_metadata(spark: SparkSession, made: Made) -> None:
    columns = "sequence,body,tags,keys,properties"
    for row in table(spark, made.directory, columns=columns).collect():
        if row.sequence in made.bodies:
            assert bytes(row.body) == made.bodies[row.sequence]
        assert len(row.tags) == len(row.keys)
        assert row.properties == {}


def test_filters_when_pushed_down_change_nothing(spark: SparkSession, made: Made) -> None:
    messages = table(spark, made.directory, partition_bytes="8192")
    wanted = (F.col("topic") == "orders") & F.col("sequence").between(20, 60)
    found = messages.filter(wanted).select("sequence").collect()
    rows = scanned(made.directory, columns="sequence,topic")
    assert sorted(one.sequence for one in found) == [
        sequence for sequence, topic in rows if topic == "orders" and 20 <= sequence <= 60
    ]


def test_schema_when_given_reads_only_its_columns(spark: SparkSession, made: Made) -> None:
    schema = "due_ms bigint, sequence bigint"
    reader = spark.read.format(FORMAT).option("path", str(made.directory)).schema(schema)
    frame = reader.load()
    assert frame.columns == ["due_ms", "sequence"]
    assert {tuple(one) for one in frame.collect()} == {
        (due, sequence) for sequence, due in scanned(made.directory, columns="sequence,due_ms")
    }


def test_damage_when_there_is_some_is_rows(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    places = replicate(copied(made.directory, tmp_path))
    path = segments(places[1])[0]
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 1
    path.write_bytes(raw)
    (row,) = table(spark, tmp_path, rows="damage").collect()
    assert (row.node, row.reason) == ("node-2", "corrupt-payload")
    counts = table(spark, tmp_path, columns="node").groupBy("node").count().collect()
    assert len({one["count"] for one in counts}) <= 2
    assert {one.node for one in counts} == {"node-1", "node-2", "node-3"}


@pytest.mark.parametrize(
    ("options", "said"),
    [({"rows": "tables"}, "rows is one of"), ({"path": "/absent"}, "no logs in /absent")],
)
def test_error_when_nothing_can_be_read_says_why(
    spark: SparkSession, made: Made, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        table(spark, made.directory, **options).collect()


def test_stream_when_the_log_grows_reads_each_batch_once(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    (directory,) = replicate(copied(made.directory, tmp_path / "log"), 1)
    (directory / "shard-0" / "checkpoint").unlink()
    offsets = [
        int(offset)
        for block in tables_of(*only_copy(directory))
        for offset in block.headers["offset"]
    ]
    reader = spark.readStream.format(FORMAT).option("path", str(directory))
    frame = reader.options(rows="batches", columns="node,offset").load()
    out, seen = str(tmp_path / "out"), list[int]()

    def run_to_the_end() -> None:
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(60)

    for count in (10, 40):  # the second query goes on where the first one's checkpoint ends
        set_high_watermark(directory, offsets[count])
        for tries_left in (3, 2, 1, 0):
            try:
                run_to_the_end()
                break
            except StreamingQueryException as error:
                # Spark gives its Python process 10 s to begin; on a busy day that is not enough.
                if not tries_left or "failed to connect back" not in str(error):
                    raise
        seen = sorted(row.offset for row in spark.read.parquet(out).collect())
        assert seen == offsets[:count]
