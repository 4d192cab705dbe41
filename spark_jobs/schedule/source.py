"""The data source `hourwheel.schedule`: `df.write.format("hourwheel.schedule")`.

Spark runs one stage for a writer, and may run each of its tasks twice, or again with other rows. So
the tasks only write their rows down; when all are done Spark names one attempt of each, the plan is
made of those, and the driver sends. Of a job that has a plan the tasks write nothing.

Register it with `register(spark)`, as `spark_jobs.session` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from hourwheel import errors
from spark_jobs.runtime import output_files, paths
from spark_jobs.schedule import bulk, rows, send
from spark_jobs.schedule import plan as schedule_plan
from spark_jobs.schedule.bulk import ScheduleOptions, check_batch
from spark_jobs.schedule.plan import Ledger, Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "hourwheel.schedule"
BUCKET_ROWS: Final = 200_000
"""Rows that a task sorts at once, and that make a bucket."""


def register(spark: "SparkSession") -> None:
    """Make the format known to a session."""
    spark.dataSource.register(ScheduleSource)


@dataclass
class _Written(WriterCommitMessage):
    """Buckets that one attempt of a task wrote."""

    buckets: list[str]


class ScheduleSource(DataSource):
    """See the top of this file."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "ScheduleWriter":  # noqa: FBT001
        """A writer for one job.

        Raises:
            ConfigError: an option or a column is wrong, or the mode is not "append".
        """
        if overwrite:
            raise errors.ConfigError("a schedule cannot be overwritten: mode must be append")
        options = bulk.to_options(dict(self.options))
        options.check()
        rows.check_columns(schema.names, topic=options.topic)
        return ScheduleWriter(options)


class ScheduleWriter(DataSourceArrowWriter):
    """See the top of this file."""

    def __init__(self, options: ScheduleOptions) -> None:
        """Ask the cluster, and look for a plan: on the driver."""
        self._options = options
        self._cluster = send.ask_cluster(options.server, options.access_files.read())
        self._ledger = Ledger.of(options.ledger, options.job)
        self._plan: Plan | None = self._ledger.find_plan()
        self._nonce = schedule_plan.new_nonce()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a partition's rows down, in a task."""
        written: list[str] = []
        waiting: list[pa.RecordBatch] = []
        if self._plan is None:
            for batch in iterator:
                waiting.append(check_batch(batch, self._options))
                if sum(each.num_rows for each in waiting) >= BUCKET_ROWS:
                    written.append(self._write_down(waiting))
                    waiting = []
            if waiting:
                written.append(self._write_down(waiting))
        return _Written(written)

    def commit(self, messages: list[Any]) -> None:
        """Make the plan and send it, on the driver. Raises as `bulk_schedule.send_bucket`."""
        plan = self._plan
        if plan is None:
            buckets = sorted(name for message in messages if message for name in message.buckets)
            plan = bulk.make_plan(self._options, self._ledger, self._cluster, self._nonce, buckets)
        bulk.send_plan(self._options, self._ledger, plan, self._cluster)

    def abort(self, messages: list[Any]) -> None:  # noqa: ARG002 - the port's
        """A task failed: nothing was sent; remove what was written down."""
        if self._plan is None and self._ledger.find_plan() is None:
            output_files.remove_folder(self._ledger.rows_folder(self._nonce))

    def _write_down(self, batches: list[pa.RecordBatch]) -> str:
        name = f"{schedule_plan.new_nonce()}.parquet"
        uri = paths.child(self._ledger.rows_folder(self._nonce), name)
        schedule_plan.write_bucket(uri, pa.Table.from_batches(batches))
        return name
