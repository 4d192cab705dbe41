"""Three nodes on one machine: replicated publishing, what they cost idle, and planned hand-over."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Producer
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, machine, subject
from tests.bench.delivery_gaps import Stream
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size

PUBLISH_TARGET = at_least(150_000)
ONE_CALL_TARGET = at_least(110_000)
CANCEL_TARGET = at_least(90_000)
IDLE_TARGET = at_most(3)
PAUSE_TARGET = at_most(100)
NODES: Final = 3
_TOGETHER: Final = 500
"""Messages of one call, where one call is under way."""
_CALLERS: Final = 5
"""Threads of the blocking client, where several are."""
_SETTLE_S: Final = 3.0


async def run(size: Size, folder: Path) -> Report:
    """Idle first, then batches, then the mastership handed round under a steady stream."""
    count, rounds = size.pick(2_000, 100_000, 500_000), size.pick(1, 3, 5)
    transfers, idle_s = size.pick(1, 3, 10), size.pick(0.5, 10, 20)
    report = Report(
        [
            f"{NODES} nodes, each a broker and a control process, and the client on one machine",
            "durable on two of three before it is acknowledged",
            (
                f"publishing: {rounds} x {count:,} messages of {load.BODY_BYTES} bytes over 24 "
                f"hours, one producer, idempotent; asyncio: batches of {load.BATCH:,}, "
                f"{load.CALLERS} tasks; blocking: the same in {_CALLERS} threads, or "
                f"{_TOGETHER} and one call after the other; cancel: {_TOGETHER} ids in no order"
            ),
            "idle: user and system time of each node's two processes, in % of one core",
            (
                "hand-over: longest time without a delivery, of messages due every 5 ms, less "
                f"those 5; {transfers} transfers while 10,000 msg/s are published"
            ),
        ]
    )
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        await asyncio.sleep(size.pick(0.1, _SETTLE_S, _SETTLE_S))
        await _idle(cluster, report, idle_s)
        await _publish(cluster, report, count, rounds)
        await asyncio.to_thread(_call_blocking, cluster.servers, report, count, rounds)
        await _transfer(cluster, report, transfers)
    return report


async def _idle(cluster: LocalCluster, report: Report, seconds: float) -> None:
    pids = [node.pid for node in cluster.nodes]
    before = [machine.tree_cpu_seconds(pid) for pid in pids]
    await asyncio.sleep(seconds)
    spent = [
        (machine.tree_cpu_seconds(pid) - first) / seconds * 100
        for pid, first in zip(pids, before, strict=True)
    ]
    report.add_median("idle, each node", spent, "% CPU", IDLE_TARGET)


async def _publish(cluster: LocalCluster, report: Report, count: int, rounds: int) -> None:
    bodies, speeds = load.make_bodies(), []
    async with AsyncProducer(cluster.servers) as producer:
        warm_up = load.cut_columns(load.spread_delays(min(count, 50_000)), bodies)
        await load.publish_columns(producer, warm_up)
        with subject.frozen_garbage():
            for number in range(rounds):
                work = load.cut_columns(load.spread_delays(count, seed=number), bodies)
                begun = time.perf_counter()
                await load.publish_columns(producer, work)
                speeds.append(count / (time.perf_counter() - begun))
    report.add_median("publishing, asyncio", speeds, "msg/s", PUBLISH_TARGET)


def _call_blocking(servers: str, report: Report, count: int, rounds: int) -> None:
    """By the blocking client."""
    bodies = load.make_bodies()
    speeds: dict[str, list[float]] = {"several": [], "one": [], "cancel": []}
    with (
        Producer(servers) as producer,
        ThreadPoolExecutor(_CALLERS) as threads,
        subject.frozen_garbage(),
    ):
        publish = partial(producer.publish_batch, load.TOPIC)
        for number in range(rounds):
            delays = load.spread_delays(count, seed=number)
            work = load.cut_columns(delays, bodies)
            begun = time.perf_counter()
            list(threads.map(publish, work))
            speeds["several"].append(count / (time.perf_counter() - begun))
            work = load.cut_columns(delays, bodies, batch=_TOGETHER)
            begun = time.perf_counter()
            published = list(map(publish, work))
            speeds["one"].append(count / (time.perf_counter() - begun))
            ids = np.concatenate([each.array for each in published])
            np.random.default_rng(load.SEED).shuffle(ids)
            calls = [PublishedIds(ids[at : at + _TOGETHER]) for at in range(0, count, _TOGETHER)]
            begun = time.perf_counter()
            outcomes = [one for call in calls for one in producer.cancel_many(call)]
            speeds["cancel"].append(count / (time.perf_counter() - begun))
            if outcomes.count(CancelOutcome.CANCELLED) != count:
                raise RuntimeError("not all were cancelled")
    name = f"publishing, blocking, {_CALLERS} threads"
    report.add_median(name, speeds["several"], "msg/s", PUBLISH_TARGET)
    name = f"publishing, blocking, one call of {_TOGETHER}"
    report.add_median(name, speeds["one"], "msg/s", ONE_CALL_TARGET)
    name = f"cancel, blocking, one call of {_TOGETHER}"
    report.add_median(name, speeds["cancel"], "ids/s", CANCEL_TARGET)


async def _transfer(cluster: LocalCluster, report: Report, transfers: int) -> None:
    pauses: list[float] = []
    async with Stream(cluster.servers) as stream, AsyncAdmin(cluster.servers) as admin:
        for _ in range(transfers):
            begun_ms = time.time() * 1_000
            await admin.transfer_master()
            await asyncio.sleep(1.0)
            pauses.append(stream.longest_gap_ms(begun_ms, time.time() * 1_000))
    report.add_median("hand-over: pause", pauses, "ms", PAUSE_TARGET)
    report.add("hand-over: longest pause", float(np.max(pauses)), "ms", PAUSE_TARGET)
    report.add("hand-over: messages delivered again", stream.redelivered, "messages", at_most(0))
    report.add("hand-over: messages missing", stream.missing, "messages", at_most(0))
