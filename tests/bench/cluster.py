"""Three nodes on one machine: replicated publishing, what they cost idle, and planned hand-over."""

import asyncio
import time
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, machine, subject
from tests.bench.delivery_gaps import Stream
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size

PUBLISH_TARGET = at_least(100_000)
IDLE_TARGET = at_most(3)
PAUSE_TARGET = at_most(200)
NODES: Final = 3
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
                f"hours, batches of {load.BATCH:,}, {load.CALLERS} tasks, one producer, idempotent"
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
    report.add_median("publishing, replicated", speeds, "msg/s", PUBLISH_TARGET)


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
