"""When clients should be sent to a node."""

import pytest

from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.status_pb2 import (
    SHARD_ROLE_FOLLOWER,
    SHARD_ROLE_MASTER,
    ControlStatus,
    ShardStatus,
)
from node.cluster.view import why_not_ready
from node.metrics.family import ClusterFacts
from node.telemetry.epoch_stats import EpochStats
from tests.support.changed import changed

SILENT_MS = 1_000.0
CONTROL = ControlStatus(leader_node_id="b", term=4, has_majority=True)
MASTER = ShardStatus(epoch=5, master="a", in_sync=("a", "b"), role=SHARD_ROLE_MASTER, may_act=True)
FOLLOWER = changed(MASTER, role=SHARD_ROLE_FOLLOWER, may_act=False)


def reason(
    me: str,
    shard: ShardStatus,
    control: ControlStatus | None = CONTROL,
    *,
    heartbeat_age_ms: float = 0.0,
) -> str:
    status = GetStatusResponse(shards=[shard], control=control)
    facts = ClusterFacts(
        status, EpochStats(), is_clock_unsure=False, heartbeat_age_ms=heartbeat_age_ms
    )
    return why_not_ready(facts, me, SILENT_MS)


def test_master_is_ready_when_it_may_act() -> None:
    assert reason("a", MASTER) == ""
    assert "may not act" in reason("a", changed(MASTER, may_act=False))


def test_follower_is_ready_when_it_is_in_sync_and_hears_the_master() -> None:
    assert reason("b", FOLLOWER, heartbeat_age_ms=SILENT_MS) == ""
    assert reason("c", FOLLOWER) == "it is not in sync"


@pytest.mark.parametrize("heartbeat_age_ms", [-1.0, SILENT_MS + 1])
def test_follower_is_not_ready_when_the_master_is_silent(heartbeat_age_ms: float) -> None:
    assert "master, a" in reason("b", FOLLOWER, heartbeat_age_ms=heartbeat_age_ms)


@pytest.mark.parametrize("control", [None, changed(CONTROL, has_majority=False)])
def test_nobody_is_ready_without_a_majority(control: ControlStatus | None) -> None:
    assert "majority" in reason("a", MASTER, control)
    assert "majority" in reason("b", FOLLOWER, control)


def test_nobody_is_ready_without_a_master() -> None:
    assert reason("b", changed(FOLLOWER, master="")) == "there is no master"
