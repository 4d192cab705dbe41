"""What a node says that is not the master."""

from types import MappingProxyType

import pytest

from hourwheel.types import Epoch, ShardId
from node.cluster.redirect import not_master
from replication.control_state.state import ControlState, Member, NodeInfo, ShardInfo

ISR = (Member("n1", b"1"), Member("n2", b"2"))


def state(master: Member | None, *nodes: str) -> ControlState:
    return ControlState(
        nodes=MappingProxyType(
            {one: NodeInfo(one, f"{one}:7400", "", "", b"", "1", {}, 1) for one in nodes}
        ),
        shards=MappingProxyType({0: ShardInfo(ShardId(0), Epoch(4), master, ISR, 9)}),
    )


def test_another_node_is_named_with_its_address_and_epoch() -> None:
    error = not_master(state(ISR[1], "n1", "n2"), 0, "n1")
    assert error.params == {"master": "n2", "master_address": "n2:7400", "epoch": "4"}


def test_address_is_empty_when_the_master_has_not_registered() -> None:
    error = not_master(state(ISR[1], "n1"), 0, "n1")
    assert (error.master_address, error.epoch) == ("", 4)


@pytest.mark.parametrize(
    ("known", "shard"),
    [
        (None, 0),
        (ControlState(), 0),
        (state(None), 0),
        (state(ISR[0], "n1"), 0),
        (state(ISR[1]), 7),
    ],
)
def test_nobody_is_named_when_nobody_else_is_master(known: ControlState | None, shard: int) -> None:
    error = not_master(known, shard, "n1")
    assert error.params == {}
    assert "no node is the master" in error.message
