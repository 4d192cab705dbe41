"""Failover: a node is killed under load; when does the next due message arrive, and is any lost?"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, machine
from tests.bench.delivery_gaps import Stream
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size

MEDIAN_TARGET = at_most(1_000)
MAX_TARGET = at_most(2_500)
NONE_TARGET = at_most(0)
NODES: Final = 3
_BACK_S: Final = 30.0


async def run(size: Size, folder: Path) -> Report:
    """Masters and followers, killed in turn, with a backlog of pending messages.

    `FAILOVER_PENDING` in the environment is another backlog, `FAILOVER_KILLS` another number.
    """
    pending = int(os.environ.get("FAILOVER_PENDING", size.pick(2_000, 100_000, 1_000_000)))
    kills = int(os.environ.get("FAILOVER_KILLS", size.pick(1, 3, 20)))
    after_s = size.pick(1.0, 3.0, 3.0)
    report = Report(
        [
            f"{NODES} nodes and the client on one machine; {pending:,} messages pending",
            (
                f"{kills} kills (-9) each of the master and of a follower: every other one of the "
                "broker alone, of broker and control process"
            ),
            "load: 10,000 msg/s published, a message due every 5 ms to one consumer",
            "time: from the kill until deliveries go on; 0 where they never paused for 50 ms",
            f"the node is started again {after_s:.0f} s after its death",
        ]
    )
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        async with AsyncProducer(cluster.servers) as producer:
            work = load.cut_columns(load.spread_delays(pending), load.make_bodies())
            await load.publish_columns(producer, work)
        async with Stream(cluster.servers) as stream:
            for name, choose in (("master", _master), ("follower", _follower)):
                times = [
                    await _kill(
                        cluster,
                        stream,
                        await choose(cluster),
                        with_control=bool(one % 2),
                        after_s=after_s,
                    )
                    for one in range(kills)
                ]
                is_master = name == "master"
                target = MEDIAN_TARGET if is_master else None
                report.add_median(f"{name} killed: deliveries go on after", times, "ms", target)
                longest = float(np.max(times))
                target = MAX_TARGET if is_master else None
                report.add(f"{name} killed: longest", longest, "ms", target)
    report.add("acknowledged and lost", stream.missing, "messages", NONE_TARGET)
    note = f"by {stream.early_ms:.1f} ms at most" if stream.early else ""
    report.add("early", stream.early, "messages", NONE_TARGET, note)
    report.add("delivered again (leases that died with a master)", stream.redelivered, "messages")
    return report


async def _master(cluster: LocalCluster) -> int:
    return await cluster.wait_for_master(in_sync=NODES, timeout_s=_BACK_S)


async def _follower(cluster: LocalCluster) -> int:
    return (await _master(cluster) + 1) % NODES


async def _kill(
    cluster: LocalCluster, stream: Stream, index: int, *, with_control: bool, after_s: float
) -> float:
    children = machine.children(cluster.nodes[index].pid) if with_control else []
    begun_ms = time.time() * 1_000
    for pid in children:
        os.kill(pid, 9)
    await cluster.kill_node(index)
    await asyncio.sleep(after_s)
    took_ms = stream.first_after_ms(begun_ms)
    await cluster.start_node(index)
    return took_ms
