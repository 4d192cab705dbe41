"""Handing mastership over on request: to whom, when it is answered, and why not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hourwheel import errors
from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.status_pb2 import NodeStatus, ShardStatus
from node.cluster.members import MemberAdministration
from node.cluster.transfer import ServedCluster, TransferMember
from node.cluster.view import ClusterView
from tests.support.changed import changed
from tests.support.engine_world import let_others_run

NODES = tuple(
    NodeStatus(node_id=node, address=f"{node}:1", is_alive=True, is_ready=True)
    for node in ("n1", "n2", "n3")
)
BEFORE = ShardStatus(epoch=4, master="n1", in_sync=("n1", "n2"), may_act=True)


class World:
    """A member n1 in a cluster whose state the test moves."""

    def __init__(self, *, is_master: bool = True) -> None:
        self.replica = SimpleNamespace(identity=SimpleNamespace(node_id="n1"))
        self.now = GetStatusResponse(nodes=NODES, shards=[BEFORE])
        self.asked: list[str] = []
        self.stayed = 0
        self._is_master = is_master
        self.wish = asyncio.Event()
        self.serving = ("", 0)

    def status(self) -> GetStatusResponse:
        return self.now

    def check(self) -> None:
        if not self._is_master:
            raise errors.NotMaster(master_address="n2:1")

    def transfer_mastership(self, to: str) -> None:
        self.asked.append(to)
        self.wish.set()

    def cancel_transfer(self) -> None:
        self.stayed += 1

    def elect(self, master: str, epoch: int) -> None:
        self.now = changed(self.now, shards=[changed(BEFORE, master=master, epoch=epoch)])

    def is_serving(self, node: str, epoch: int) -> bool:
        return self.serving[0] == node and self.serving[1] >= epoch

    def served(self, timeout_s: float = 30.0) -> ServedCluster:
        view: Any = self
        return ServedCluster(
            cast(ClusterView, view),
            cast(TransferMember, view),
            cast(MemberAdministration, view),
            timeout_s=timeout_s,
        )


@pytest.mark.parametrize("to", ["", "n2"])
async def test_transfer_is_answered_when_another_node_serves_as_the_master(to: str) -> None:
    world = World()
    answer = asyncio.ensure_future(world.served().transfer_master(0, to))
    await world.wish.wait()
    world.elect("n1", 5)  # the control plane may try this one again
    await asyncio.sleep(0)
    assert not answer.done()
    world.elect("n2", 6)
    world.serving = ("n2", 5)
    await let_others_run()
    assert not answer.done(), "that was its last epoch"
    world.serving = ("n2", 6)
    assert await answer == ("n2", 6)
    assert (world.asked, world.stayed) == ([to], 0)


async def test_transfer_names_who_was_named_when_nobody_serves_in_time() -> None:
    world = World()
    answer = asyncio.ensure_future(world.served(timeout_s=0.05).transfer_master(0, "n2"))
    await world.wish.wait()
    world.elect("n2", 6)
    assert await answer == ("n2", 6)
    assert world.stayed == 0, "it cannot be taken back"


async def test_transfer_to_the_master_itself_changes_nothing() -> None:
    world = World()
    assert await world.served().transfer_master(0, "n1") == ("n1", 4)
    assert world.asked == []


@pytest.mark.parametrize(
    ("to", "in_sync", "why"),
    [
        ("n9", ("n1", "n2"), "there is no node n9"),
        ("n3", ("n1", "n2"), "n3 is not in sync"),
        ("", ("n1",), "no other node is in sync"),
    ],
)
async def test_transfer_is_refused_at_once_when_nobody_can_come(
    to: str, in_sync: tuple[str, ...], why: str
) -> None:
    world = World()
    world.now = changed(world.now, shards=[changed(BEFORE, in_sync=in_sync)])
    with pytest.raises(errors.FailedPrecondition, match=why):
        await world.served().transfer_master(0, to)
    assert world.asked == []


@pytest.mark.parametrize(
    ("to", "changes", "why"),
    [
        ("", {}, "no other node took over within"),
        ("n2", {}, "n2 did not take over within"),
        ("n2", {"is_alive": False}, "it is not alive"),
        ("n2", {"is_ready": False}, "keeps it from leading"),
    ],
)
async def test_wish_is_taken_back_when_nobody_comes(
    to: str, changes: dict[str, Any], why: str
) -> None:
    world = World()
    world.now = changed(world.now, nodes=(NODES[0], changed(NODES[1], **changes), NODES[2]))
    with pytest.raises(errors.FailedPrecondition, match=why):
        await world.served(timeout_s=0.01).transfer_master(0, to)
    assert (world.asked, world.stayed) == ([to], 1)


async def test_transfer_is_for_the_master_to_do() -> None:
    with pytest.raises(errors.NotMaster):
        await World(is_master=False).served().transfer_master(0, "n2")
    with pytest.raises(errors.InvalidArgument):
        await World().served().transfer_master(7, "n2")
