"""A cluster of one: what it says, and that nobody else can take over."""

import pytest

from hourwheel import errors
from hourwheel.v1.status_pb2 import SHARD_ROLE_MASTER
from node.contracts.cluster import StandaloneCluster, check_shard


def test_lone_node_is_the_master_of_itself() -> None:
    status = StandaloneCluster("n1", "127.0.0.1:7400", "1.2").status()
    (node,), (shard,) = status.nodes, status.shards
    assert (node.node_id, node.address, node.version) == ("n1", "127.0.0.1:7400", "1.2")
    assert (node.is_alive, node.is_ready, node.is_heard) == (True, True, True)
    assert (shard.master, shard.in_sync) == ("n1", ["n1"])
    assert (shard.role, shard.may_act) == (SHARD_ROLE_MASTER, True)
    assert not status.HasField("control")


async def test_transfer_is_refused_when_there_is_nobody_else() -> None:
    lone = StandaloneCluster("n1", "a:1", "1")
    assert await lone.transfer_master(0, "n1") == ("n1", 0)
    for to in ("", "n2"):
        with pytest.raises(errors.FailedPrecondition):
            await lone.transfer_master(0, to)


def test_shard_is_refused_when_there_is_none_of_that_number() -> None:
    check_shard(0)
    with pytest.raises(errors.InvalidArgument):
        check_shard(1)
