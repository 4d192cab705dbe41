"""`spark.read.format("hourwheel")`: commit logs as tables. The shell around `spark_jobs.logs.scan`.

    register(spark)
    logs = spark.read.format("hourwheel").option("path", "/srv/node-1,/srv/node-2")
    logs.option("columns", "node,sequence,due_ms").load().groupBy("node").count()
    spark.readStream.format("hourwheel").option("path", "/srv/node-1").load()

Options and tables: `spark_jobs.logs.options`, `spark_jobs.logs.columns`. Spark does not say to
Python data sources which columns a query needs, so name them: by the option `columns`, or by a
schema (`.schema("sequence bigint, due_ms bigint")`), which does the same. Filters are pushed down
where `spark.sql.python.filterPushdown.enabled` is set, as `spark_jobs.session` does; Spark applies
all of them again, so that pushing down changes speed and nothing else.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import datasource as api
from pyspark.sql.types import StructType

from hourwheel import errors
from spark_jobs.logs.columns import TABLES
from spark_jobs.logs.options import LogOptions, parse_options
from spark_jobs.logs.scan import Condition, Part, Scan
from spark_jobs.logs.stream import LogStream

FORMAT: Final = "hourwheel"
_OPERATORS: Final = {
    api.EqualTo: "=",
    api.GreaterThan: ">",
    api.GreaterThanOrEqual: ">=",
    api.LessThan: "<",
    api.LessThanOrEqual: "<=",
    api.In: "in",
}


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(LogSource)


class PartPartition(api.InputPartition):
    """A `Part` on its way to the task that reads it."""

    def __init__(self, part: Part) -> None:
        """Carry `part`."""
        super().__init__(part)
        self.part = part


class LogSource(api.DataSource):
    """The format `hourwheel`."""

    @classmethod
    def name(cls) -> str:
        """See `DataSource.name`."""
        return FORMAT

    def schema(self) -> str:
        """See `DataSource.schema`. Raises ConfigError: see `parse_options`."""
        return parse_options(self.options).ddl

    def reader(self, schema: StructType) -> "LogReader":
        """See `DataSource.reader`."""
        return LogReader(with_schema(parse_options(self.options), schema))

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802 - Spark's name
        """See `DataSource.streamReader`."""
        return LogStreamReader(with_schema(parse_options(self.options), schema))


def with_schema(options: LogOptions, schema: StructType) -> LogOptions:
    """The options with the columns that a schema names, in its order.

    Raises:
        ConfigError: it names a column that is not there, or with another type.
    """
    table = TABLES[options.rows]
    for one in schema.fields:
        ddl = table[one.name].ddl if one.name in table else "absent"
        if one.dataType.simpleString() != ddl:
            raise errors.ConfigError(
                f"rows {options.rows}: column {one.name} is {ddl},"
                f" and {one.dataType.simpleString()} was asked for"
            )
    return replace(options, columns=tuple(one.name for one in schema.fields))


class LogReader(api.DataSourceReader):
    """One batch query."""

    def __init__(self, options: LogOptions) -> None:
        """Read what `options` ask for."""
        self._scan = Scan(options)

    def pushFilters(self, filters: list[api.Filter]) -> Iterable[api.Filter]:  # noqa: N802
        """See `DataSourceReader.pushFilters`. All stay with Spark too."""
        self._scan.conditions = tuple(one for one in map(_condition, filters) if one is not None)
        return filters

    def partitions(self) -> list[PartPartition]:
        """See `DataSourceReader.partitions`. Raises NoLogs, MixedClusters, ConfigError."""
        return [PartPartition(part) for part in self._scan.plan()]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """See `DataSourceReader.read`."""
        yield from self._scan.read(partition.part)


def _condition(one: Any) -> Condition | None:
    """A filter as a scan understands it; None for others, and for fields of structs."""
    sign = _OPERATORS.get(type(one))
    if sign is None or len(one.attribute) != 1:
        return None
    value = tuple(one.value) if sign == "in" else one.value
    values = value if sign == "in" else (value,)
    is_plain = all(isinstance(each, (int, str)) for each in values)
    return Condition(one.attribute[0], sign, value) if is_plain else None


class LogStreamReader(api.DataSourceStreamReader):
    """One streaming query; see `spark_jobs.logs.stream`."""

    def __init__(self, options: LogOptions) -> None:
        """Read what `options` ask for."""
        self._stream = LogStream(options)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """See `DataSourceStreamReader.initialOffset`."""
        return self._stream.initial()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """See `DataSourceStreamReader.latestOffset`. There is no limit."""
        del limit
        return self._stream.latest(start)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[PartPartition]:
        """See `DataSourceStreamReader.partitions`."""
        return [PartPartition(part) for part in self._stream.plan(start, end)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader.read`."""
        yield from self._stream.scan.read(partition.part)
