"""Voters change by generation: control processes as they run, killed at any step."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Final

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control.launcher import ControlProcess
from tests.support.control_cluster import ControlCluster, control_cluster, with_config

N1, N2, N3, N4 = map(NodeId, ("n1", "n2", "n3", "n4"))
NEW: Final = (N1, N2, N4)
"""Voters of the generation that follows."""


async def founded(cluster: ControlCluster) -> None:
    await asyncio.gather(*(each.register() for each in cluster))
    await cluster.until(lambda: all(each.state.membership.members for each in cluster))


def is_of(cluster: ControlCluster, generation: int, *nodes: NodeId) -> bool:
    return all(cluster[one].state.membership.generation == generation for one in nodes)


def can_decide(cluster: ControlCluster, *nodes: NodeId) -> bool:
    return all(cluster[one].client.leader.has_majority for one in nodes)


def is_ending(cluster: ControlCluster) -> bool:
    return any(one.state.membership.has_ended for one in cluster)


async def test_lost_voter_is_replaced_and_does_not_come_back(tmp_path: Path) -> None:
    async with control_cluster(tmp_path) as cluster:
        await founded(cluster)
        kept = await cluster[N1].put_topic("kept")
        joiner = cluster.add(tmp_path, N4)
        await cluster[N3].kill()
        result = await cluster.change_members(N1, N1, N2, N4)
        assert result.outcome == pb.CONTROL_OUTCOME_OK
        await cluster.until(lambda: is_of(cluster, 1, N1, N2))
        await cluster.until(lambda: can_decide(cluster, N1, N2))
        await joiner.start()
        await cluster.until(lambda: is_of(cluster, 1, N4) and "kept" in cluster[N4].state.topics)
        assert cluster[N4].state.topics["kept"].object_id == kept.object_id
        await cluster[N4].register()
        await cluster[N1].kill()  # the new one is of use
        await cluster.until(lambda: can_decide(cluster, N2, N4))
        assert (await cluster[N4].put_topic("later")).object_id == kept.object_id + 1

        former = cluster.brokers.pop(N3)
        await former.process.start()
        assert await former.process.wait() == 2
        assert "is not a member of the cluster since generation 1" in cluster.log.read_text()

        wiped = cluster.brokers.pop(N1)
        rmtree(wiped.process.config.directory)
        await wiped.process.start()
        assert await wiped.process.wait() == 2
        assert "has lost what it voted" in cluster.log.read_text()


async def wiped(cluster: ControlCluster, node_id: NodeId) -> ControlProcess:
    """A node whose directory is empty all of a sudden, started again."""
    broker = cluster.brokers.pop(node_id)
    await broker.kill()
    rmtree(broker.process.config.directory)
    # Without a broker it would end by itself, however long the others take.
    config = with_config(broker, linger_ms=600_000.0)
    process = ControlProcess(config, log_file=cluster.log)
    await process.start()
    return process


@pytest.mark.parametrize("generation", [0, 1])
async def test_voter_that_lost_its_disk_has_no_vote_in_the_same_generation(
    tmp_path: Path, generation: int
) -> None:
    """One of generation 0, and one that has joined in the generation that is in force."""
    async with control_cluster(tmp_path) as cluster:
        await founded(cluster)
        lost, others = N3, (N1, N2)
        if generation:
            lost = N4
            joiner = cluster.add(tmp_path, N4)
            await joiner.start()
            await cluster.brokers.pop(N3).kill()
            await cluster.change_members(N1, N1, N2, N4)
            await cluster.until(lambda: is_of(cluster, 1, N1, N2, N4))
            await joiner.register()
        await cluster.until(lambda: all(lost in cluster[one].state.nodes for one in others))
        process = await wiped(cluster, lost)
        assert await process.wait() == 2
        said = cluster.log.read_text()
        assert f"hourwheel members replace {lost} NEW=HOST:PORT" in said
        await cluster.until(lambda: can_decide(cluster, *others))


async def test_voter_that_lost_its_disk_waits_for_those_who_may_know_it(tmp_path: Path) -> None:
    """Where only one other is there, which has lost its disk as well, there is no cluster."""
    async with control_cluster(tmp_path) as cluster:
        await founded(cluster)
        await cluster[N1].kill()
        processes = [await wiped(cluster, one) for one in (N2, N3)]
        known = cluster.brokers[N1]
        await known.start()
        assert [await one.wait() for one in processes] == [2, 2]
        assert not known.client.leader.has_majority
        assert known.state.is_bootstrapped


MOMENTS: Final[dict[str, Callable[[ControlCluster], bool]]] = {
    "asked": lambda _: True,
    "agreed": is_ending,
    "first": lambda cluster: any(is_of(cluster, 1, one) for one in NEW),
    "kept": lambda cluster: is_of(cluster, 1, N1, N2),
    "all": lambda cluster: is_of(cluster, 1, *NEW),
}
"""Step of a change -> what is seen from then on: the stop-sign is on its way, it is agreed upon,
somebody is of the next generation, all who stay are, the new one is."""
LEADER: Final = NodeId("the leader")
CRASHES: Final = [
    *(("agreed", killed) for killed in ((N1,), (N2,), (N1, N2, N3))),
    *(("asked", (LEADER,)), ("agreed", (N4,)), ("first", (LEADER,)), ("kept", (N4, N1))),
]
IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
ALL_CRASHES: Final = [
    (moment, killed)
    for moment in MOMENTS
    for killed in ((N1,), (N2,), (N3,), (N4,), (LEADER,), (N1, N4), (N1, N2, N3), (N1, N2, N3, N4))
]


@pytest.mark.parametrize(
    ("moment", "killed"),
    ALL_CRASHES if IS_SOAK else CRASHES,
    ids=lambda one: one if isinstance(one, str) else "+".join(one),
)
async def test_change_that_a_crash_interrupts_is_finished(
    tmp_path: Path, moment: str, killed: tuple[NodeId, ...]
) -> None:
    """Once the stop-sign is agreed upon, whoever knows it tells the others; before, ask again."""
    async with control_cluster(tmp_path) as cluster:
        await founded(cluster)
        kept = await cluster[N1].put_topic("kept")
        await cluster.add(tmp_path, N4).start()
        asked = cluster.leader or cluster[N1]
        command = asyncio.ensure_future(cluster.change_members(asked.node_id, *NEW))
        await asyncio.sleep(0)
        await cluster.until(lambda: MOMENTS[moment](cluster))
        leader = (cluster.leader or asked).node_id
        ended = {leader if one == LEADER else one for one in killed}
        await asyncio.gather(*(cluster[one].kill() for one in ended))
        command.cancel()
        await asyncio.gather(command, return_exceptions=True)
        for one in sorted(ended - {N3}):
            await cluster[one].start()
        await cluster.until(lambda: can_decide(cluster, N1, N2))
        if moment == "asked" and is_of(cluster, 0, N1) and not is_ending(cluster):
            await cluster.change_members(N1, *NEW)
        await cluster.until(lambda: is_of(cluster, 1, *NEW))
        await cluster.until(lambda: can_decide(cluster, *NEW))
        made = await cluster[N4].put_topic("works")
        assert made.object_id == kept.object_id + 1, "nothing was lost, and nothing decided twice"
        former = cluster.brokers.pop(N3)
        if not former.process.is_running:
            await former.process.start()
        assert await former.process.wait() == 2


async def test_voter_that_is_configured_alone_does_not_start(tmp_path: Path) -> None:
    """It would be a majority of one, beside those that it leaves out."""
    async with control_cluster(tmp_path) as cluster:
        await founded(cluster)
        cut = cluster.brokers.pop(N3)
        await cut.kill()
        process = ControlProcess(with_config(cut, peers={}, min_in_sync=1), log_file=cluster.log)
        await process.start()
        assert await process.wait() == 2
        assert "cluster.nodes names n3, and the cluster of this directory has n1, n2, n3" in (
            cluster.log.read_text()
        )
        await cluster.until(lambda: can_decide(cluster, N1, N2))
