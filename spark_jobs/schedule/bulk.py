"""Schedules the rows of a DataFrame, each once, however often the job is run.

    from spark_jobs import bulk_schedule
    result = bulk_schedule.schedule(df, server="node-1:7400,node-2:7400", job="dunning-2027-03",
                                    ledger="s3://bucket/schedules", topic="reminders")

    df.write.format("hourwheel.schedule").mode("append").options(
        server="node-1:7400", job="dunning-2027-03", ledger="/shared/schedules").save()

Columns: see `spark_jobs.schedule.rows`. `job` names the rows; who runs the same job again gets the
same messages and no others. First the rows are frozen into the ledger, then sent from there
(`spark_jobs.schedule.plan`, `spark_jobs.schedule.window`; why: docs/decisions/0017). `schedule`
sends from Spark's tasks; the data source sends from the driver, since a writer of Spark has one
stage only, over several connections at a time.

Rows with bad values, and those that a node refuses, are in `problems.parquet` of the job's folder.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hourwheel import errors, limits
from hourwheel.clock import SystemClock
from hourwheel.instants import INSTANT_MS_MIN
from hourwheel.transport.access_files import AccessFiles
from hourwheel.transport.endpoints import parse_servers
from spark_jobs.runtime import output_files, paths
from spark_jobs.schedule import plan as schedule_plan
from spark_jobs.schedule import rows as schedule_rows
from spark_jobs.schedule import send as schedule_send
from spark_jobs.schedule.plan import Ledger, Plan
from spark_jobs.schedule.window import Outcome, Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_MESSAGES: Final = 1_000
PRODUCER_IDLE_MS: Final = 24 * 3_600_000
_SAFE_SHARE: Final = 2
"""After 1/2 of the nodes' `producer_idle_ms` a producer unknown to them counts as forgotten."""
_CONNECTIONS: Final = 4
"""Buckets that the data source sends at one time."""


_ACCESS: Final = tuple(one.name for one in fields(AccessFiles))


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """How to schedule. Goes to the executors."""

    server: str
    """host:port of a node; of a cluster several, with commas."""
    job: str
    """Names the rows. 1 to 100 letters, digits, '_', '.' or '-'."""
    ledger: str
    """Folder or URI that all executors reach; the job gets a folder in it."""
    topic: str | None = None
    """For rows without one."""
    batch_messages: int = BATCH_MESSAGES
    body_bytes_max: int = limits.MESSAGE_BODY_BYTES_DEFAULT
    """What the nodes are configured to accept (`limits.message_body_bytes`)."""
    due_ms_min: int = INSTANT_MS_MIN
    """Earlier instants are bad rows, as seconds by mistake; 0: what is past is due at once."""
    producer_idle_ms: int = PRODUCER_IDLE_MS
    """As the nodes are configured (`limits.producer_idle_ms`)."""
    patience_ms: float = schedule_send.PATIENCE_MS
    """How long a task waits for a node that takes anything."""
    retry_refused: bool = False
    """Try again what an earlier run was refused, or left in doubt."""
    sends_in_doubt: bool = False
    """See `schedule_send.SendSettings`."""
    access_files: AccessFiles = field(default_factory=AccessFiles)
    """How the nodes are known, and who sends: on the driver and on each executor at these paths."""
    parallelism: int = 0
    """Buckets sent at one time; 0: by the Spark cluster's cores (data source: 4)."""

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            ConfigError: with what is wrong.
        """
        try:
            parse_servers(self.server)
            self.access_files.read()
        except errors.InvalidArgument as error:
            raise errors.ConfigError(error.message) from None
        Ledger.of(self.ledger, self.job)
        if not 0 < self.batch_messages <= limits.BATCH_MESSAGE_COUNT_MAX:
            raise errors.ConfigError("batch_messages is out of range")
        if not 0 < self.body_bytes_max <= limits.MESSAGE_BODY_BYTES_MAX:
            raise errors.ConfigError("body_bytes_max is out of range")
        numbers = (self.parallelism, self.producer_idle_ms - 1, self.patience_ms, self.due_ms_min)
        if not all(one >= 0 for one in numbers):
            raise errors.ConfigError(
                "parallelism, producer_idle_ms, patience_ms and due_ms_min are numbers that are not"
                " negative"
            )


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """What became of a job's rows, this run and earlier ones together."""

    job: str
    rows: int
    scheduled: int
    """Taken by the cluster in this run."""
    repeated: int
    """Taken in an earlier run or by another attempt of a task: not sent or not taken again."""
    bad: int
    """Rows with a bad value; never sent."""
    refused: int
    """Refused by a node, or behind such a row."""
    in_doubt: int
    reasons: dict[str, int] = field(default_factory=dict)
    """Typed reason -> rows that are not scheduled for it."""
    problems: str = ""
    """Parquet file of the rows that are not scheduled; empty: there are none."""

    @property
    def is_complete(self) -> bool:
        """Whether each row is scheduled."""
        return self.rows == self.scheduled + self.repeated

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "is_complete": self.is_complete}


def schedule(df: "DataFrame", **options: Any) -> ScheduleResult:
    """Schedule the rows of `df`; blocks until each has its outcome.

    Args:
        df: columns as in `spark_jobs.schedule.rows`; not looked at if the job has a plan already.
        options: those of `ScheduleOptions`.

    Raises:
        ConfigError: an option or a column is wrong, or the job is another cluster's.
        HourwheelError: no node can be reached.
        Exception: a task failed as often as Spark is configured to try it. Run the job again.
    """
    wanted = ScheduleOptions(**options)
    wanted.check()
    spark = df.sparkSession
    cluster = schedule_send.ask_cluster(wanted.server, wanted.access_files.read())
    ledger = Ledger.of(wanted.ledger, wanted.job)
    plan = ledger.find_plan() or freeze(df, wanted, ledger, cluster)
    _check_cluster(plan, cluster)
    new = _send_in_tasks(spark, wanted, plan, _to_send(ledger, plan, wanted))
    return settle(ledger, plan, new)


def send_plan(options: ScheduleOptions, ledger: Ledger, plan: Plan, cluster: str) -> ScheduleResult:
    """Send what is left of a plan, in threads of this process. Raises as `schedule`."""
    _check_cluster(plan, cluster)
    send: Callable[[str], Tally] = partial(send_bucket, options, plan)
    with ThreadPoolExecutor(options.parallelism or _CONNECTIONS) as pool:
        tallies = list(pool.map(send, _to_send(ledger, plan, options)))
    return settle(ledger, plan, sum(tally.count(Outcome.SCHEDULED) for tally in tallies))


def send_bucket(options: ScheduleOptions, plan: Plan, bucket: str) -> Tally:
    """Send one bucket, unless it is done with; runs wherever it is called.

    Raises:
        HourwheelError: see `schedule_send.send`.
    """
    ledger = Ledger.of(options.ledger, options.job)
    done = ledger.find_done(bucket)
    if done is not None:
        return done
    now_ms = int(SystemClock().wall_ms())
    begun_ms = ledger.begin(bucket, now_ms)
    age_ms = 0 if begun_ms is None else now_ms - begun_ms
    settings = schedule_send.SendSettings(
        server=options.server,
        access=options.access_files.read(),
        is_resumed=begun_ms is not None,
        may_be_forgotten=age_ms * _SAFE_SHARE > options.producer_idle_ms,
        sends_in_doubt=options.sends_in_doubt,
        patience_ms=options.patience_ms,
    )
    rows = schedule_plan.read_bucket(paths.child(ledger.rows_folder(plan.nonce), bucket))
    tally = schedule_send.send(schedule_plan.pieces_of(rows, plan, bucket), settings)
    ledger.finish(bucket, tally)
    return tally


def settle(ledger: Ledger, plan: Plan, new: int) -> ScheduleResult:
    """The result, from the marks of all buckets; writes the problems.

    Args:
        ledger: the job's folder.
        plan: its plan.
        new: how many rows were taken in this run.
    """
    tallies = {bucket: ledger.find_done(bucket) or Tally() for bucket in plan.buckets}
    counts = {
        outcome: sum(tally.count(outcome) for tally in tallies.values()) for outcome in Outcome
    }
    good = plan.rows - plan.bad_rows
    errors.invariant(sum(counts.values()) == good, "rows without an outcome", good=good)
    folder, place = ledger.rows_folder(plan.nonce), ledger.place("problems.parquet")
    reasons = schedule_plan.write_problems(
        place,
        chain.from_iterable(
            schedule_plan.problems_of(
                schedule_plan.read_bucket(paths.child(folder, bucket)), bucket, tally
            )
            for bucket, tally in tallies.items()
        ),
    )
    taken = counts[Outcome.SCHEDULED] + counts[Outcome.REPEATED]
    return ScheduleResult(
        job=plan.job,
        rows=plan.rows,
        scheduled=new,
        repeated=taken - new,
        bad=plan.bad_rows,
        refused=counts[Outcome.REFUSED],
        in_doubt=counts[Outcome.IN_DOUBT],
        reasons=reasons,
        problems=place if reasons else "",
    )


# --- the driver ----------------------------------------------------------------------------------


def _check_cluster(plan: Plan, cluster: str) -> None:
    if plan.cluster != cluster:
        raise errors.ConfigError(
            f"the job {plan.job} was begun for the cluster {plan.cluster}, and this is {cluster}:"
            " give it another name"
        )


def freeze(df: "DataFrame", options: ScheduleOptions, ledger: Ledger, cluster: str) -> Plan:
    """Write the rows down, sorted, one file a partition; then the plan that names the files."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - tasks need no pyspark.sql

    schedule_rows.check_columns(df.columns, topic=options.topic)
    types = to_arrow_schema(df.schema, timezone="UTC")  # Spark's timestamps are instants
    schedule_rows.check_types(types, topic=options.topic)
    nonce = schedule_plan.new_nonce()
    folder = ledger.rows_folder(nonce)
    checked = partial(_check_batches, options=options)
    rows = df.mapInArrow(checked, schedule_rows.FROZEN_DDL)
    rows.sortWithinPartitions(*schedule_rows.SORT).write.option("maxRecordsPerFile", 0).parquet(
        output_files.for_spark(folder)
    )
    buckets = [name for name in output_files.names(folder) if name.endswith(".parquet")]
    return make_plan(options, ledger, cluster, nonce, buckets)


def make_plan(
    options: ScheduleOptions, ledger: Ledger, cluster: str, nonce: str, buckets: Sequence[str]
) -> Plan:
    """The plan of rows that were written down, or the one that another driver made before."""
    folder = ledger.rows_folder(nonce)
    counted = [schedule_plan.count_rows(paths.child(folder, name)) for name in buckets]
    plan = Plan(
        job=options.job,
        nonce=nonce,
        cluster=cluster,
        created_ms=int(SystemClock().wall_ms()),
        batch_messages=options.batch_messages,
        rows=sum(rows for rows, _ in counted),
        bad_rows=sum(bad for _, bad in counted),
        buckets=tuple(name for name, (rows, _) in zip(buckets, counted, strict=True) if rows),
    )
    holds = ledger.settle_plan(plan)
    if holds != plan:
        output_files.remove_folder(folder)
    return holds


def check_batch(batch: pa.RecordBatch, options: ScheduleOptions) -> pa.RecordBatch:
    """`schedule_rows.check_batch`, by the options."""
    return schedule_rows.check_batch(
        batch,
        topic=options.topic,
        body_bytes_max=options.body_bytes_max,
        due_ms_min=options.due_ms_min,
    )


def _check_batches(
    batches: Iterator[pa.RecordBatch], options: ScheduleOptions
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield check_batch(batch, options)


def _to_send(ledger: Ledger, plan: Plan, options: ScheduleOptions) -> list[str]:
    """The buckets that have no mark; with `retry_refused` also those where something was left."""
    left = []
    for bucket in plan.buckets:
        done = ledger.find_done(bucket)
        left_out = done and done.count(Outcome.REFUSED) + done.count(Outcome.IN_DOUBT)
        if left_out and options.retry_refused:
            ledger.undo(bucket)
            done = None
        if done is None:
            left.append(bucket)
    return left


def _send_in_tasks(
    spark: "SparkSession", options: ScheduleOptions, plan: Plan, buckets: Sequence[str]
) -> int:
    """Send buckets in tasks; how many rows were taken as new."""
    if not buckets:
        return 0
    slices = min(len(buckets), options.parallelism or len(buckets))
    named = spark.sparkContext.parallelize(list(buckets), slices)
    counts: list[int] = named.map(partial(_send_in_task, options, plan)).collect()
    return sum(counts)


def _send_in_task(options: ScheduleOptions, plan: Plan, bucket: str) -> int:
    """How many rows of a bucket were taken as new."""
    return send_bucket(options, plan, bucket).count(Outcome.SCHEDULED)


def _boolean(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.strip().lower() == "true"


def to_options(texts: dict[str, str]) -> ScheduleOptions:
    """The options of a data source, which are texts, and whose names may have lost their case.

    Raises:
        ConfigError: an option is missing, unknown or of the wrong type.
    """
    kinds: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(("server", "job", "ledger", "topic", *_ACCESS), str),
        **dict.fromkeys(
            ("batch_messages", "body_bytes_max", "due_ms_min", "producer_idle_ms", "parallelism"),
            int,
        ),
        "patience_ms": float,
        **dict.fromkeys(("retry_refused", "sends_in_doubt"), _boolean),
    }
    given = {name.lower(): text for name, text in texts.items() if name.lower() != "path"}
    unknown = sorted(given.keys() - kinds.keys())
    if unknown:
        raise errors.ConfigError(f"unknown options: {', '.join(unknown)}")
    missing = sorted({"server", "job", "ledger"} - given.keys())
    if missing:
        raise errors.ConfigError(f"missing options: {', '.join(missing)}")
    try:
        values = {name: kinds[name](text) for name, text in given.items()}
    except ValueError as error:
        raise errors.ConfigError(f"an option has a wrong value: {error}") from None
    files = {name: values.pop(name) for name in _ACCESS if name in values}
    return replace(
        ScheduleOptions(server="", job="", ledger=""), access_files=AccessFiles(**files), **values
    )
