"""Failover: a node is killed under load; when does the next due message arrive, and is any lost?"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, machine
from tests.bench.delivery_gaps import Stream
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size
from tests.bench.takeover_log import find_steps, read_events

MEDIAN_TARGET = at_most(500)
MAX_TARGET = at_most(1_500)
NONE_TARGET = at_most(0)
NODES: Final = 3
_BACK_S: Final = 30.0
_SETTLE_S: Final = 1.0


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
            f"{kills} kills (-9) of each kind of the master, and of a follower",
            "broker: its process alone; both: and its control process in the same moment",
            "load: 10,000 msg/s published, a message due every 5 ms to one consumer",
            "time: from the kill until deliveries go on; 0 where they never paused for 50 ms",
            f"the node is started again {after_s:.0f} s after its death",
            "steps: medians from the logs of the nodes",
        ]
    )
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        async with AsyncProducer(cluster.servers) as producer:
            work = load.cut_columns(load.spread_delays(pending), load.make_bodies())
            await load.publish_columns(producer, work)
        async with Stream(cluster.servers) as stream, AsyncAdmin(cluster.servers) as admin:
            for kind in _KINDS:
                times, steps = [], defaultdict[str, list[float]](list)
                for _ in range(kills):
                    index = await _choose(cluster, admin, kind)
                    begun_ms, took_ms = await _kill(cluster, stream, index, kind, after_s)
                    times.append(took_ms)
                    if kind.is_master:
                        _collect(cluster, begun_ms, steps)
                _add(report, kind, times)
                for step, found in steps.items():
                    report.add_median(f"    {step}", found, "ms")
    report.add("acknowledged and lost", stream.missing, "messages", NONE_TARGET)
    note = f"by {stream.early_ms:.1f} ms at most" if stream.early else ""
    report.add("early", stream.early, "messages", NONE_TARGET, note)
    report.add("delivered again (leases that died with a master)", stream.redelivered, "messages")
    return report


class _Kind(NamedTuple):
    """What is killed."""

    name: str
    is_master: bool
    with_control: bool
    leads_raft: bool | None = None
    """Whether Raft's leader is on the same node; None: wherever it is."""


_KINDS: Final = (
    _Kind("master killed, broker", is_master=True, with_control=False),
    _Kind("master killed, both", is_master=True, with_control=True, leads_raft=False),
    _Kind("master and Raft's leader killed, both", True, True, leads_raft=True),
    _Kind("follower killed, both", is_master=False, with_control=True),
)


def _add(report: Report, kind: _Kind, times: list[float]) -> None:
    target = MEDIAN_TARGET if kind.is_master else None
    report.add_median(f"{kind.name}: deliveries go on after", times, "ms", target)
    target = MAX_TARGET if kind.is_master else None
    report.add(f"{kind.name}: longest", float(np.max(times)), "ms", target)


def _collect(cluster: LocalCluster, begun_ms: float, steps: dict[str, list[float]]) -> None:
    events = read_events((node.log_file for node in cluster.nodes), begun_ms)
    for step, after_ms in find_steps(events, begun_ms).items():
        steps[step].append(after_ms)


async def _choose(cluster: LocalCluster, admin: AsyncAdmin, kind: _Kind) -> int:
    """Which node to kill, when all is well; the mastership is where it is to be."""
    master = await cluster.wait_for_master(in_sync=NODES, timeout_s=_BACK_S)
    if not kind.is_master:
        return (master + 1) % NODES
    leader = (await admin.status()).control.leader_node_id
    names = [node.node_id for node in cluster.nodes]
    if kind.leads_raft is None or kind.leads_raft == (names[master] == leader):
        return master
    to = next(name for name in names if (name == leader) == kind.leads_raft)
    await admin.transfer_master(to=to)
    await asyncio.sleep(_SETTLE_S)
    return await cluster.wait_for_master(in_sync=NODES, timeout_s=_BACK_S)


async def _kill(
    cluster: LocalCluster, stream: Stream, index: int, kind: _Kind, after_s: float
) -> tuple[float, float]:
    """When the node was killed, and how long after that deliveries went on."""
    children = machine.children(cluster.nodes[index].pid) if kind.with_control else []
    begun_ms = time.time() * 1_000
    for pid in (*children, cluster.nodes[index].pid):
        os.kill(pid, signal.SIGKILL)
    await cluster.kill_node(index)
    await asyncio.sleep(after_s)
    took_ms = stream.first_after_ms(begun_ms)
    await cluster.start_node(index)
    return begun_ms, took_ms
