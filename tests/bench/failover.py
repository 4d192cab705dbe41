"""Failover: a node is killed under load; when does the next due message arrive, and is any lost?

Hand-overs (planned transfers of mastership) are measured beside the kills.
"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
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
from tests.bench.takeover_log import KILL_STEPS, TRANSFER_STEPS, find_steps, read_events

MEDIAN_TARGET = at_most(500)
MAX_TARGET = at_most(1_500)
TRANSFER_TARGET = at_most(100)
NONE_TARGET = at_most(0)
NODES: Final = 3
_BACK_S: Final = 120.0
"""A node that was killed is in sync again: at 10,000 msg/s that takes a while on a busy machine."""
_SETTLE_S: Final = 1.0
_FOLLOWERS_SHARE: Final = 4
"""A kill of a follower for so many of the master: nothing is promised of it."""


async def run(size: Size, folder: Path) -> Report:
    """Masters and followers, killed in turn, with a backlog of pending messages.

    `FAILOVER_PENDING` in the environment is another backlog, `FAILOVER_KILLS` another number.
    """
    pending = int(os.environ.get("FAILOVER_PENDING", size.pick(2_000, 100_000, 1_000_000)))
    kills = int(os.environ.get("FAILOVER_KILLS", size.pick(1, 3, 20)))
    after_s = size.pick(1.0, 2.0, 2.0)
    report = Report(
        [
            f"{NODES} nodes and the client on one machine; {pending:,} messages pending at first",
            f"{kills} hand-overs, {kills} kills (-9) of each kind of master, some of a follower",
            "broker: its process alone; both: and its control process in the same moment",
            "load: 10,000 msg/s published, a message due every 5 ms to one consumer",
            "time: from the kill until the consumer has a message of the next master",
            "hand-over, follower: the longest time without a message, less the 5 ms between two",
            f"the node is started again {after_s:.0f} s after its death",
            "steps: medians from the logs of the nodes, since the kill or the call",
        ]
    )
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        async with AsyncProducer(cluster.servers) as producer:
            work = load.cut_columns(load.spread_delays(pending), load.make_bodies())
            await load.publish_columns(producer, work)
        async with Stream(cluster.servers) as stream, AsyncAdmin(cluster.servers) as admin:
            await _measure_transfers(report, cluster, admin, stream, kills)
            for kind in _KINDS:
                count = kills if kind.is_master else max(1, kills // _FOLLOWERS_SHARE)
                await _measure_kills(report, cluster, admin, stream, kind, count, after_s)
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
    _Kind("master killed, both, Raft's leader lives", True, True, leads_raft=False),
    _Kind("master killed, both, Raft's leader with it", True, True, leads_raft=True),
    _Kind("follower killed, both", is_master=False, with_control=True),
)


class _Steps:
    """When each step came, in ms since the kill or the call, of all trials."""

    def __init__(self, cluster: LocalCluster, steps: Mapping[str, str]) -> None:
        self._cluster, self._steps = cluster, steps
        self._found: dict[str, list[float]] = defaultdict(list)

    def collect(self, begun_ms: float) -> None:
        """What the nodes' logs say of the trial that began then, and has ended."""
        events = read_events((node.log_file for node in self._cluster.nodes), begun_ms)
        for step, after_ms in find_steps(events, begun_ms, self._steps).items():
            self._found[step].append(after_ms)

    def add_to(self, report: Report) -> None:
        """Their medians."""
        for step in self._steps:
            if found := self._found[step]:
                report.add_median(f"    {step}", found, "ms")


async def _measure_transfers(
    report: Report, cluster: LocalCluster, admin: AsyncAdmin, stream: Stream, count: int
) -> None:
    gaps, calls, steps = list[float](), list[float](), _Steps(cluster, TRANSFER_STEPS)
    for _ in range(count):
        await cluster.wait_for_master(in_sync=NODES, timeout_s=_BACK_S)
        begun_ms = time.time() * 1_000
        await admin.transfer_master()
        calls.append(time.time() * 1_000 - begun_ms)
        await asyncio.sleep(_SETTLE_S)
        gaps.append(stream.longest_gap_ms(begun_ms, begun_ms + calls[-1] + _SETTLE_S * 500))
        steps.collect(begun_ms)
    report.add_median("hand-over: no message for", gaps, "ms", TRANSFER_TARGET)
    report.add("hand-over: longest", float(np.max(gaps)), "ms")
    report.add_median("hand-over: the call returns after", calls, "ms")
    steps.add_to(report)


async def _measure_kills(
    report: Report,
    cluster: LocalCluster,
    admin: AsyncAdmin,
    stream: Stream,
    kind: _Kind,
    count: int,
    after_s: float,
) -> None:
    times, steps = list[float](), _Steps(cluster, KILL_STEPS)
    for _ in range(count):
        index = await _choose(cluster, admin, kind)
        begun_ms, took_ms = await _kill(cluster, stream, index, kind, after_s)
        times.append(took_ms)
        if kind.is_master:
            steps.collect(begun_ms)
    median, longest = (MEDIAN_TARGET, MAX_TARGET) if kind.is_master else (None, None)
    what = "next message after" if kind.is_master else "no message for"
    report.add_median(f"{kind.name}: {what}", times, "ms", median)
    report.add(f"{kind.name}: longest", float(np.max(times)), "ms", longest)
    steps.add_to(report)


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
    """When the node was killed, and how long after that the next message came."""
    children = machine.children(cluster.nodes[index].pid) if kind.with_control else []
    begun_ms = time.time() * 1_000
    for pid in (*children, cluster.nodes[index].pid):
        os.kill(pid, signal.SIGKILL)
    await cluster.kill_node(index)
    await asyncio.sleep(after_s)
    if kind.is_master:
        took_ms = await stream.first_of_next_ms(begun_ms)
    else:
        took_ms = stream.longest_gap_ms(begun_ms, begun_ms + after_s * 1_000)
    await cluster.start_node(index)
    return begun_ms, took_ms
