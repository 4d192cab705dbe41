"""What Spark says is understood: schemas and filters. With a session: tests/spark/."""

from typing import Any

import pytest
from pyspark.sql import datasource as api
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from hourwheel import errors
from spark_jobs.logs.options import parse_options
from spark_jobs.logs.scan import Condition
from spark_jobs.logs.source import LogReader, LogSource, with_schema

OPTIONS = parse_options({"path": "/a"})


def test_schema_when_given_chooses_columns_in_its_order() -> None:
    schema = StructType([StructField("topic", StringType()), StructField("sequence", LongType())])
    assert with_schema(OPTIONS, schema).columns == ("topic", "sequence")


@pytest.mark.parametrize(
    "field", [StructField("sequence", IntegerType()), StructField("price", LongType())]
)
def test_schema_when_it_does_not_fit_is_refused(field: StructField) -> None:
    with pytest.raises(errors.ConfigError, match=field.name):
        with_schema(OPTIONS, StructType([field]))


def test_source_when_asked_says_its_name_and_schema() -> None:
    source = LogSource({"path": "/a", "columns": "node,sequence"})
    assert LogSource.name() == "hourwheel"
    assert source.schema() == "`node` string, `sequence` bigint"


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (api.EqualTo(("topic",), "a"), Condition("topic", "=", "a")),
        (api.GreaterThan(("sequence",), 5), Condition("sequence", ">", 5)),
        (api.GreaterThanOrEqual(("sequence",), 5), Condition("sequence", ">=", 5)),
        (api.LessThan(("sequence",), 5), Condition("sequence", "<", 5)),
        (api.LessThanOrEqual(("sequence",), 5), Condition("sequence", "<=", 5)),
        (api.In(("sequence",), (1, 2)), Condition("sequence", "in", (1, 2))),
        (api.EqualTo(("a", "b"), 1), None),
        (api.EqualTo(("sequence",), 1.5), None),
        (api.IsNotNull(("sequence",)), None),
        (api.Not(api.EqualTo(("sequence",), 1)), None),
    ],
)
def test_filter_when_pushed_down_stays_with_spark_too(
    given: Any, understood: Condition | None
) -> None:
    reader = LogReader(OPTIONS)
    assert list(reader.pushFilters([given])) == [given]
    expected = () if understood is None else (understood,)
    assert reader._scan.conditions == expected
