"""The lake against what the log's maker asked for; run twice, broken off, and gone on."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from hourwheel import errors
from spark_jobs.lake import export
from tests.support.log_maker import Made


def test_a_lake_has_each_message_once_with_its_outcome(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    (first,) = export.export(spark, [str(made.directory)], str(lake), bodies=True)
    assert first.messages == len(made.accepted)
    assert (first.trimmed_bytes, first.doubts) == (0, ())
    messages = spark.read.parquet(f"file://{lake}/messages")
    accepted = messages.where("accepted").collect()
    assert {row.sequence: (row.topic, row.due_ms) for row in accepted} == made.accepted
    assert {row.sequence: bytes(row.body) for row in accepted} == made.bodies
    assert messages.where("not accepted").count() == made.void
    assert {row.shard for row in accepted} == {0}

    outcomes = spark.read.parquet(f"file://{lake}/outcomes")
    joined = messages.where("accepted").join(outcomes, ["shard", "sequence"])
    assert joined.count() == len(made.accepted)
    by_outcome = {
        row.outcome: row.n
        for row in joined.groupBy("outcome").agg(f.count("*").alias("n")).collect()
    }
    assert by_outcome["cancelled"] == len(made.cancelled)
    assert spark.read.parquet(f"file://{lake}/dispatches").count() > 0
    cancels = spark.read.parquet(f"file://{lake}/cancels").select("sequence").collect()
    assert made.cancelled <= {row.sequence for row in cancels}

    # Again: nothing new, and nothing twice.
    (second,) = export.export(spark, [str(made.directory)], str(lake), bodies=True)
    assert (second.from_offset, second.to_offset) == (first.to_offset, first.to_offset)
    assert spark.read.parquet(f"file://{lake}/messages").count() == messages.count()
    assert spark.read.parquet(f"file://{lake}/outcomes").count() == outcomes.count()


def test_a_run_that_was_broken_off_is_repeated_by_the_next(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    paths = [str(made.directory)]
    (whole,) = export.export(spark, paths, str(lake), outcomes=False)
    marks = lake / "_exports" / "shard-0"
    (mark,) = marks.iterdir()
    done = json.loads(mark.read_bytes())
    mark.unlink()  # as if it had been killed before the range was complete, with half of its files
    intent = {"from_offset": 0, "to_offset": done["to_offset"], "trimmed_bytes": 0}
    (marks / "next.json").write_text(json.dumps(intent))
    days = sorted((lake / "messages").rglob("*.parquet"))
    days[0].unlink()
    (again,) = export.export(spark, paths, str(lake), outcomes=False)
    assert (again.from_offset, again.to_offset) == (whole.from_offset, whole.to_offset)
    assert again.messages == whole.messages
    assert not (marks / "next.json").exists()


def test_a_lake_of_another_cluster_and_a_log_with_a_hole_are_refused(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    (lake / "_exports").mkdir(parents=True)
    (lake / "_exports" / "lake.json").write_text('{"cluster": "another"}')
    with pytest.raises(errors.MixedClusters, match="another"):
        export.export(spark, [str(made.directory)], str(lake))
    node = tmp_path / "node-1"
    shutil.copytree(made.directory, node)
    segments = sorted((node / "shard-0" / "log").glob("*.log"))
    raw = bytearray(segments[0].read_bytes())
    raw[len(raw) // 2] ^= 1
    segments[0].write_bytes(raw)
    with pytest.raises(errors.CorruptLog, match="hourwheel audit"):
        export.export(spark, [str(node)], str(tmp_path / "other"))
    (mended,) = export.export(
        spark, [str(node), str(made.directory)], str(tmp_path / "both"), outcomes=False
    )
    assert mended.messages == len(made.accepted)
