"""Three nodes on one machine: how late messages come, and what each process pays for a message."""

import asyncio
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, machine, subject
from tests.bench.lateness import receive_late_ms
from tests.bench.results import Report, add_lateness, at_most
from tests.bench.sizes import Size

P50_TARGET = at_most(2.5)
P99_TARGET = at_most(15)
RATES: Final = (2_000, 20_000)
"""Messages due each second."""
NODES: Final = 3
_GROUP: Final = "steady"


async def run(size: Size, folder: Path) -> Report:
    """Published before, due evenly; the same at each rate."""
    seconds = size.pick(0.3, 5.0, 15.0)
    report = Report(
        [
            f"{NODES} nodes, each a broker and a control process, and the client on one machine",
            f"messages of {load.BODY_BYTES} bytes, due evenly over {seconds} s, published before",
            "arrival (receive_batch returns) minus due time, by the clock of one machine",
            "one AsyncConsumer, acknowledging within 50 ms; garbage collector off while measuring",
            "processor time: user and system, for each message received",
        ]
    )
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        async with AsyncAdmin(cluster.servers) as admin:
            await admin.create_topic(load.TOPIC)
        await _steady(cluster, 1_000, 1, size)  # each path once
        for per_second in RATES:
            late_ms, spent = await _steady(cluster, per_second, seconds, size)
            name = f"{per_second:,}/s"
            add_lateness(report, name, late_ms, P50_TARGET, P99_TARGET)
            for role, cpu_s in spent._asdict().items():
                each_us = cpu_s / len(late_ms) * 1e6
                share = f"{cpu_s / seconds * 100:.0f} % of a core"
                report.add(f"{name}: {role}", each_us, "us CPU a message", note=share)
    return report


class _Spent(NamedTuple):
    """Processor time of the processes, in seconds; of followers and control processes, the mean."""

    master: float
    follower: float
    control: float
    client: float


async def _steady(
    cluster: LocalCluster, per_second: int, seconds: float, size: Size
) -> tuple[NDArray[np.float64], _Spent]:
    count = int(per_second * seconds)
    start_ms = int(time.time() * 1_000 + size.pick(1_000, 4_000, 4_000) + count / 50)
    dues = start_ms + np.arange(count) * 1_000 // per_second
    np.random.default_rng(load.SEED).shuffle(dues)
    work = load.cut_columns(dues, load.make_bodies(), are_instants=True)
    async with AsyncProducer(cluster.servers) as producer:
        await load.publish_columns(producer, work)
    if time.time() * 1_000 > start_ms - 500 and size is not Size.TINY:
        raise RuntimeError("publishing took too long: a slow machine")
    consumer = AsyncConsumer(
        cluster.servers, group=_GROUP, topic=load.TOPIC, prefetch_messages=8_000
    )
    async with consumer:
        await asyncio.sleep(max(0.0, start_ms / 1_000 - 0.5 - time.time()))
        before = await _read_cpu(cluster)
        with subject.frozen_garbage(is_off=True):
            late_ms = await receive_late_ms(consumer, count)
        after = await _read_cpu(cluster)
    return late_ms, _Spent(*np.subtract(after, before).tolist())


async def _read_cpu(cluster: LocalCluster) -> _Spent:
    master, _ = await cluster.find_master()
    brokers = [machine.cpu_seconds(node.pid) for node in cluster.nodes]
    both = [machine.tree_cpu_seconds(node.pid) for node in cluster.nodes]
    return _Spent(
        brokers[master],
        (sum(brokers) - brokers[master]) / (NODES - 1),
        (sum(both) - sum(brokers)) / NODES,
        time.process_time(),
    )
