"""The answer to GetStatus, from what engine and cluster say."""

from hourwheel.client.cluster_status import Phase, Role, cluster_status
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import status_pb2
from node.api.status_answer import NodeIdentity, status_answer
from node.contracts.broker import ShardGauges
from tests.support.fake_engine import FakeEngine

ME = NodeIdentity("n1", "h:1", 500)
ENGINE = status_pb2.ShardStatus(epoch=3, log_end_offset=90, tick=7, local_index=2, run_count=1)
NODES = (
    status_pb2.NodeStatus(
        node_id="n1", address="h:1", boot_id="aa", is_alive=True, is_ready=True, is_heard=True
    ),
    status_pb2.NodeStatus(
        node_id="n2", address="h:2", version="0.1", epoch=4, log_end_offset=80, heard_ms_ago=9
    ),
)
MASTERSHIP = status_pb2.ShardStatus(
    epoch=4,
    master="n1",
    in_sync=("n1", "n2"),
    version=12,
    role=status_pb2.SHARD_ROLE_MASTER,
    may_act=True,
    lease_left_ms=0,
    followers=(
        status_pb2.FollowerStatus(
            node_id="n2",
            phase=status_pb2.FOLLOWER_PHASE_REPLICATING,
            acked_end_offset=80,
            lag_bytes=10,
            applied_offset=70,
            heard_ms_ago=0,
            clock_offset_ms=-1.5,
        ),
        status_pb2.FollowerStatus(node_id="n3", phase=status_pb2.FOLLOWER_PHASE_ABSENT),
    ),
    append_cursor_ms=8_000,
    append_cursor_sequence=5,
    clock_offset_ms=0.25,
)


def engine() -> FakeEngine:
    return FakeEngine(
        clock_ms=1_000,
        shard_status=ENGINE,
        shard_gauges=ShardGauges(read_only_reason="DISK_FULL"),
    )


def test_answer_has_everything_that_engine_and_cluster_say() -> None:
    control = status_pb2.ControlStatus(leader_node_id="n2", term=6, has_majority=True, revision=40)
    cluster = wire.GetStatusResponse(nodes=NODES, shards=[MASTERSHIP], control=control)
    answer = status_answer(ME, engine(), cluster)
    found = cluster_status(wire.GetStatusResponse.FromString(answer.SerializeToString()))
    me, other = found.nodes
    assert (me.started_ms, me.clock_ms, me.boot_id) == (500, 1_000, "aa")
    assert (me.read_only_reason, other.read_only_reason) == ("DISK_FULL", "")
    assert (other.started_ms, other.clock_ms, other.is_heard) == (0, 0, False)
    assert (other.version, other.epoch, other.log_end_offset, other.heard_ms_ago) == (
        *("0.1", 4, 80),
        9,
    )
    assert found.answered_by == "n1"
    assert found.address_of("n2") == "h:2"
    assert found.address_of("n9") == ""
    assert found.control is not None
    assert (found.control.leader_node_id, found.control.term) == ("n2", 6)
    assert (found.control.has_majority, found.control.revision) == (True, 40)
    (shard,) = found.shards
    assert (shard.epoch, shard.master, shard.in_sync, shard.version) == (4, "n1", ("n1", "n2"), 12)
    assert (shard.role, shard.may_act, shard.lease_left_ms) == (Role.MASTER, True, 0)
    assert (shard.tick, shard.local_index, shard.log_end_offset) == (7, 2, 90)
    assert (shard.append_cursor_ms, shard.append_cursor_sequence) == (8_000, 5)
    assert shard.clock_offset_ms == 0.25
    near, gone = shard.followers
    assert (near.phase, near.acked_end_offset, near.lag_bytes) == (Phase.REPLICATING, 80, 10)
    assert (near.heard_ms_ago, near.clock_offset_ms, near.applied_offset) == (0, -1.5, 70)
    assert (gone.phase, gone.heard_ms_ago, gone.clock_offset_ms) == (Phase.ABSENT, None, None)


def test_answer_of_a_node_alone_has_the_epoch_of_its_shard_and_no_control_plane() -> None:
    alone = wire.GetStatusResponse(nodes=NODES[:1], shards=[status_pb2.ShardStatus(master="n1")])
    answer = status_answer(ME, engine(), alone)
    assert not answer.HasField("control")
    assert answer.shards[0].epoch == 3
    assert not answer.shards[0].HasField("lease_left_ms")


def test_answer_tells_what_was_delivered_and_how_late() -> None:
    busy = engine()
    busy.stats.delivered, busy.stats.acknowledged = 5, 3
    busy.stats.redelivered, busy.stats.dead_lettered = 2, 1
    busy.stats.lateness.observe(0.002)
    busy.stats.lateness.observe(7_200.0)
    answer = status_answer(ME, busy, wire.GetStatusResponse(nodes=NODES, shards=[MASTERSHIP]))
    told = cluster_status(answer).shards[0].delivery
    assert told is not None
    assert (told.delivered_count, told.acknowledged_count, told.redelivered_count) == (5, 3, 2)
    assert (told.dead_lettered_count, told.early_count) == (1, 0)
    assert len(told.lateness_counts) == len(told.lateness_bounds_ms) + 1
    late = {
        bound: count
        for bound, count in zip(
            (*told.lateness_bounds_ms, float("inf")), told.lateness_counts, strict=True
        )
        if count
    }
    assert late == {2.0: 1, float("inf"): 1}
