"""Bulk scheduling by Spark into a real node: killed, run again, run by two at a time."""

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from hourwheel import Admin, Consumer, errors
from hourwheel.instants import INSTANT_MS_MIN
from node.process.subprocess_node import ChildNode
from spark_jobs.schedule import bulk, send
from spark_jobs.schedule import plan as schedule_plan
from spark_jobs.schedule.bulk import ScheduleOptions, schedule
from spark_jobs.schedule.plan import Ledger, Plan
from spark_jobs.schedule.source import register
from spark_jobs.schedule.window import Outcome, Piece
from tests.support.addresses import free_address

FAR_MS = 4_000_000_000_000
"""Beyond the horizon of any node."""


class Node:
    """A real node in a process of its own, for threads without an event loop."""

    def __init__(self, child: ChildNode) -> None:
        self._child = child

    @property
    def address(self) -> str:
        return self._child.address

    def accepted(self) -> int:
        """Messages; `published_count` counts batches that were refused by their numbers, too."""
        with Admin(self.address) as admin:
            (shard,) = admin.status().shards
        return shard.pending_count + shard.released_count

    def bodies(self, topic: str, count: int) -> Counter[bytes]:
        """Of the topic's messages, which are all due: `count`, and those that come with them."""
        found: Counter[bytes] = Counter()
        with Consumer(self.address, group="tests", topic=topic) as consumer:
            while found.total() < count:
                for message in consumer.receive(1_000):
                    found[bytes(message.body)] += 1
                    consumer.ack_soon(message)
            found.update(bytes(message.body) for message in consumer.receive(1, wait_ms=0))
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    with asyncio.Runner() as runner:
        child = ChildNode(folder / "data", log_file=folder / "log")
        runner.run(child.__aenter__())
        try:
            yield Node(child)
        finally:
            runner.run(child.__aexit__(None, None, None))


def orders(spark: SparkSession, topic: str, count: int, parts: int = 2) -> DataFrame:
    body = f.concat(f.lit(f"{topic}-"), f.col("id"))
    return spark.range(0, count, 1, parts).select(
        body.alias("body"),
        f.lit(topic).alias("topic"),
        (f.col("id") + INSTANT_MS_MIN).alias("due_ms"),
    )


def expected(topic: str, count: int) -> Counter[bytes]:
    return Counter(f"{topic}-{number}".encode() for number in range(count))


def until(condition: Callable[[], object]) -> None:
    """Spin until it holds; a test that hangs is ended by its own timeout elsewhere."""
    while not condition():
        os.sched_yield()


def test_a_job_is_scheduled_once_and_its_bad_rows_are_rows(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    good = orders(spark, "first", 3_000)
    bad = spark.createDataFrame(
        [("x", "no topic", 1), (None, "first", 1), ("far", "first", FAR_MS), ("s", "first", 1)],
        "body string, topic string, due_ms bigint",
    )
    options = {"server": node.address, "job": "first", "ledger": str(tmp_path)}
    done = schedule(good.unionByName(bad), **options)
    assert (done.rows, done.scheduled, done.repeated, done.bad) == (3_004, 3_000, 0, 3)
    assert (done.refused, done.in_doubt, done.is_complete) == (1, 0, False)
    assert done.reasons == {
        "INVALID_TOPIC": 1,
        "INVALID_ARGUMENT": 1,
        "INVALID_DUE_TIME": 1,
        "BEYOND_HORIZON": 1,
    }
    rows = spark.read.parquet(f"file://{done.problems}").collect()
    assert {(row.outcome, row.problem, row.topic) for row in rows} == {
        ("bad row", "INVALID_TOPIC", "no topic"),
        ("bad row", "INVALID_ARGUMENT", "first"),
        ("bad row", "INVALID_DUE_TIME", "first"),
        ("refused", "BEYOND_HORIZON", "first"),
    }
    assert node.bodies("first", 3_000) == expected("first", 3_000)

    # Again, and even with other rows: the job's rows are those that it was begun with.
    before = node.accepted()
    again = schedule(orders(spark, "first", 9), **options)
    assert (again.rows, again.scheduled, again.repeated) == (3_004, 0, 3_000)
    assert (again.bad, again.refused, again.reasons) == (3, 1, done.reasons)
    third = schedule(good, **options, retry_refused=True)
    assert (third.scheduled, third.repeated, third.refused) == (0, 3_000, 1)
    assert node.accepted() == before


def test_tasks_that_are_killed_in_the_middle_double_and_lose_nothing(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    count = 12_000
    ledger = Ledger.of(str(tmp_path), "killed")
    before, killed = node.accepted(), list[str]()

    def kill_tasks() -> None:
        # All of them: any one may not have sent a thing yet.
        until(lambda: node.accepted() - before > 500)
        for mark in (tmp_path / "killed" / "begun").iterdir():
            os.kill(json.loads(mark.read_bytes())["pid"], signal.SIGKILL)
            if ledger.find_done(mark.stem) is None:
                killed.append(mark.stem)

    killer = threading.Thread(target=kill_tasks)
    killer.start()
    done = schedule(
        orders(spark, "killed", count),
        server=node.address,
        job="killed",
        ledger=str(tmp_path),
        batch_messages=10,
    )
    killer.join()
    assert killed, "no task was under way any more"
    assert done.is_complete
    assert done.repeated > 0  # what the killed tasks had sent
    assert node.accepted() - before == count
    assert node.bodies("killed", count) == expected("killed", count)


def test_a_driver_that_died_is_followed_by_one_that_goes_on(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    options = ScheduleOptions(
        server=node.address, job="died", ledger=str(tmp_path), batch_messages=50
    )
    ledger, plan = frozen(orders(spark, "died", 2_000), options)
    bucket = plan.buckets[0]
    pieces = read(ledger, plan, bucket)

    def dying() -> Iterator[Piece]:
        for _ in range(7):
            yield next(pieces)
        raise ZeroDivisionError

    ledger.begin(bucket, 2_000_000_000_000)
    settings = send.SendSettings(server=node.address, is_resumed=False)
    with pytest.raises(ZeroDivisionError):
        send.send(dying(), settings)
    done = schedule(orders(spark, "died", 2_000), **vars_of(options))
    assert done.is_complete
    assert node.bodies("died", 2_000) == expected("died", 2_000)


def test_two_attempts_at_one_time_are_one(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    options = ScheduleOptions(
        server=node.address, job="both", ledger=str(tmp_path), batch_messages=20
    )
    before = node.accepted()
    ledger, plan = frozen(orders(spark, "both", 3_000, parts=1), options)
    (bucket,) = plan.buckets
    ledger.begin(bucket, 2_000_000_000_000)
    settings = send.SendSettings(server=node.address, is_resumed=True)
    with ThreadPoolExecutor(3) as pool:
        attempts = [pool.submit(send.send, read(ledger, plan, bucket), settings) for _ in range(3)]
    tallies = [attempt.result() for attempt in attempts]
    assert sum(tally.count(Outcome.SCHEDULED) for tally in tallies) == 3_000
    for tally in tallies:
        assert tally.count(Outcome.SCHEDULED) + tally.count(Outcome.REPEATED) == 3_000
    assert node.accepted() - before == 3_000


async def test_a_node_that_is_killed_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    address = free_address()
    loop = asyncio.get_running_loop()
    values = {"node": {"listen": address}}
    async with ChildNode(tmp_path / "data", values, log_file=tmp_path / "log") as child:
        options = ScheduleOptions(
            server=address, job="crash", ledger=str(tmp_path), batch_messages=20
        )
        rows = orders(spark, "crash", 2_000, parts=1)
        ledger, plan = await asyncio.to_thread(frozen, rows, options)
        (bucket,) = plan.buckets

        async def crash() -> None:
            await child.kill()
            await child.start()

        def through_a_crash() -> Iterator[Piece]:
            for ordinal, piece in enumerate(read(ledger, plan, bucket)):
                if ordinal == 30:
                    asyncio.run_coroutine_threadsafe(crash(), loop).result()
                yield piece

        settings = send.SendSettings(server=address, is_resumed=False)
        tally = await asyncio.to_thread(send.send, through_a_crash(), settings)
        assert tally.count(Outcome.SCHEDULED) + tally.count(Outcome.REPEATED) == 2_000
        node = Node(child)
        assert await asyncio.to_thread(node.accepted) == 2_000
        assert await asyncio.to_thread(node.bodies, "crash", 2_000) == expected("crash", 2_000)


def test_what_nodes_may_have_forgotten_is_left_in_doubt(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    options = ScheduleOptions(server=node.address, job="old", ledger=str(tmp_path))
    before = node.accepted()
    rows = orders(spark, "old", 100, parts=1)
    ledger, plan = frozen(rows, options)
    ledger.begin(plan.buckets[0], 1)  # long ago
    done = schedule(rows, **vars_of(options))
    assert (done.scheduled, done.in_doubt, done.is_complete) == (0, 100, False)
    assert done.reasons == {"UNKNOWN_PRODUCER": 100}
    assert node.accepted() == before
    sent = schedule(rows, **vars_of(options), retry_refused=True, sends_in_doubt=True)
    assert (sent.scheduled, sent.in_doubt, sent.problems) == (100, 0, "")


def test_a_job_of_another_cluster_is_refused(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    options = ScheduleOptions(server=node.address, job="moved", ledger=str(tmp_path))
    Ledger.of(str(tmp_path), "moved").settle_plan(
        Plan(
            job="moved",
            nonce="n",
            cluster="another",
            created_ms=1,
            batch_messages=1,
            rows=0,
            bad_rows=0,
            buckets=(),
        )
    )
    with pytest.raises(errors.ConfigError, match="another"):
        schedule(orders(spark, "moved", 1), **vars_of(options))


def test_a_data_frame_writer_does_the_same(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    register(spark)
    before = node.accepted()
    for _ in range(2):
        orders(spark, "written", 2_000).write.format("hourwheel.schedule").mode("append").options(
            server=node.address, job="written", ledger=str(tmp_path)
        ).save()
    assert node.accepted() - before == 2_000
    assert node.bodies("written", 2_000) == expected("written", 2_000)
    plan = Ledger.of(str(tmp_path), "written").find_plan()
    assert plan is not None
    assert (plan.rows, plan.bad_rows) == (2_000, 0)


@pytest.mark.parametrize(
    ("mode", "options", "what"),
    [
        ("append", {"job": "j"}, "missing options: ledger"),
        ("overwrite", {"job": "j", "ledger": "/x"}, "append"),
    ],
)
def test_a_writer_with_wrong_options_says_so(
    spark: SparkSession, mode: str, options: dict[str, str], what: str
) -> None:
    register(spark)
    writer = orders(spark, "t", 1).write.format("hourwheel.schedule").mode(mode)
    with pytest.raises(Exception, match=what):
        writer.options(server="127.0.0.1:1", **options).save()


def frozen(df: DataFrame, options: ScheduleOptions) -> tuple[Ledger, Plan]:
    """A job that has been frozen, and nothing more."""
    ledger = Ledger.of(options.ledger, options.job)
    cluster = send.ask_cluster(options.server)
    return ledger, bulk.freeze(df, options, ledger, cluster)


def read(ledger: Ledger, plan: Plan, bucket: str) -> Iterator[Piece]:
    rows = schedule_plan.read_bucket(f"{ledger.rows_folder(plan.nonce)}/{bucket}")
    return schedule_plan.pieces_of(rows, plan, bucket)


def vars_of(options: ScheduleOptions) -> dict[str, Any]:
    return {
        "server": options.server,
        "job": options.job,
        "ledger": options.ledger,
        "batch_messages": options.batch_messages,
    }
