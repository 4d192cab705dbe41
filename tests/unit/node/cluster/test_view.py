"""What a node tells of its cluster, as master, as follower, and when it hears nothing."""

from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from hourwheel.internal.v1.control_link_pb2 import NodeReport, ShardReport
from hourwheel.internal.v1.replication_pb2 import FollowerAck, FollowerHello, SyncBeat
from hourwheel.types import Epoch, Key, ShardId
from hourwheel.v1 import status_pb2
from node.cluster.view import ActingMember, ClusterView
from node.config.checks import cluster_nodes
from node.replica.effects import Assignment, ReplicaIdentity, Role
from replication.control.client import Leader
from replication.control_state.state import ControlState, Member, NodeInfo, ShardInfo
from replication.rules.isr import InSyncReplicas
from replication.rules.master import EpochStart, Master, ReplicationConfig

NODES = cluster_nodes("n1=h:1,h:2,h:3 n2=h:11,h:12,h:13 n3=h:21,h:22,h:23")
BOOT = bytes(range(16))
ISR = frozenset({"n1", "n2"})
MONO_MS = 10_000.0
LOG_END = 500


def master() -> Master:
    """Of epoch 4: n2 follows and is 100 bytes behind, n3 is away."""
    start = EpochStart(4, "n1", "b1", bytes(16), 0, ("n1", "n2", "n3"), 100, 200, 100)
    found = Master(start, InSyncReplicas(4, ISR, 7, 2), ReplicationConfig(), MONO_MS - 900)
    found.on_appended(LOG_END)
    found.on_connected("n2")
    hello = FollowerHello(epoch=4, boot_id="b2", log_end_offset=0)
    found.on_hello("n2", hello, [], 0)
    found.on_sent("n2", LOG_END)
    ack = FollowerAck(
        epoch=4,
        flushed_end_offset=400,
        applied_offset=300,
        echo_us=int((MONO_MS - 12) * 1_000),
        clock_ms=1_000_003,
    )
    found.on_ack("n2", ack, MONO_MS - 8, 1_000_000.0)
    return found


def member(**changes: Any) -> ActingMember:
    replica = SimpleNamespace(
        identity=ReplicaIdentity("n1", "b1", bytes(16), ("n1", "n2", "n3")),
        role=Role.MASTER,
        rules=master(),
        assignment=Assignment(4, "n1", ISR, 7),
        follower=SimpleNamespace(last_heartbeat=None),
        shard=SimpleNamespace(
            shard_id=0,
            log=SimpleNamespace(end_offset=LOG_END, flushed_end_offset=450),
        ),
        mastership=SimpleNamespace(dispatcher=SimpleNamespace(append_cursor=Key(77, 5))),
    )
    acting = SimpleNamespace(replica=replica, act_until_ms=MONO_MS + 300, is_ready=True)
    for name, value in changes.items():
        setattr(replica if hasattr(replica, name) else acting, name, value)
    return cast(ActingMember, acting)


LEVEL = 3


def node_info(node: str) -> NodeInfo:
    return NodeInfo(node, f"{node}:1", "", "", BOOT, "0.3", MappingProxyType({}), 1, LEVEL)


def control() -> Any:
    """n1 and n2 have registered; n2 was heard of 20 ms ago, n3 never."""
    state = ControlState(
        cluster_id=bytes(16),
        revision=33,
        nodes={node: node_info(node) for node in ("n1", "n2")},
        shards={
            0: ShardInfo(
                ShardId(0),
                Epoch(4),
                Member("n1", BOOT),
                (Member("n1", BOOT), Member("n2", BOOT)),
                9,
            )
        },
    )
    said = ShardReport(shard=0, epoch=4, log_end=410, is_ready=True)
    report = NodeReport(node_id="n2", boot_id=BOOT, broker_alive=True, shards=[said])
    return SimpleNamespace(
        state=state,
        leader=Leader("n3", 6, True),
        reports={"n2": report},
        heard_ms={"n2": MONO_MS - 20},
    )


def view(acting: ActingMember, plane: Any) -> ClusterView:
    return ClusterView(NODES, plane, acting, lambda: MONO_MS, 1_000.0)


def test_master_tells_how_far_its_followers_are() -> None:
    acting = member()
    shard = view(acting, control()).status().shards[0]
    assert (shard.epoch, shard.master, shard.in_sync, shard.version) == (4, "n1", ["n1", "n2"], 9)
    assert (shard.role, shard.may_act) == (status_pb2.SHARD_ROLE_MASTER, True)
    assert shard.lease_left_ms == 600 * 0.95 - 12
    assert (shard.append_cursor_ms, shard.append_cursor_sequence) == (77, 5)
    near, away = shard.followers
    assert (near.node_id, near.phase) == ("n2", status_pb2.FOLLOWER_PHASE_REPLICATING)
    assert (near.acked_end_offset, near.lag_bytes, near.applied_offset) == (400, 100, 300)
    assert acting.replica.rules is not None
    offsets_ms = acting.replica.rules.clock.offsets(MONO_MS)
    assert (near.heard_ms_ago, near.clock_offset_ms) == (8, offsets_ms["n2"])
    assert shard.clock_offset_ms == 0.0
    assert away.phase == status_pb2.FOLLOWER_PHASE_ABSENT
    assert not away.HasField("heard_ms_ago")
    assert not away.HasField("clock_offset_ms")


def test_nodes_are_told_as_they_registered_and_report() -> None:
    me, other, silent = view(member(), control()).status().nodes
    assert (me.address, me.boot_id, me.log_end_offset, me.heard_ms_ago) == ("n1:1", "b1", 450, 0)
    assert (other.address, other.boot_id, other.version) == ("n2:1", BOOT.hex(), "0.3")
    assert (other.is_alive, other.is_ready, other.epoch) == (True, True, 4)
    assert (other.log_end_offset, other.heard_ms_ago) == (410, 20)
    assert (me.feature_level, other.feature_level, silent.feature_level) == (LEVEL, LEVEL, 0)
    assert (silent.address, silent.is_heard, silent.is_alive) == ("h:21", False, False)


def test_node_is_not_alive_when_it_is_silent_or_its_broker_is_gone() -> None:
    plane = control()
    plane.heard_ms["n2"] = MONO_MS - 1_000
    silent = view(member(), plane).status().nodes[1]
    assert (silent.is_alive, silent.is_ready, silent.is_heard) == (False, False, True)
    plane = control()
    plane.reports["n2"].broker_alive = False
    assert not view(member(), plane).status().nodes[1].is_alive


def test_status_is_answered_when_a_node_has_been_silent_for_longer_than_its_field_holds() -> None:
    acting, plane = member(), control()
    plane.heard_ms["n2"] = MONO_MS - (1 << 33)
    assert acting.replica.rules is not None
    acting.replica.rules.followers["n2"].heard_ms = MONO_MS - (1 << 33)
    status = view(acting, plane).status()
    most_ms = (1 << 32) - 1
    assert (status.nodes[1].is_alive, status.nodes[1].heard_ms_ago) == (False, most_ms)
    assert status.shards[0].followers[0].heard_ms_ago == most_ms


def test_follower_tells_what_its_master_told_last() -> None:
    beat = SyncBeat(append_cursor_ms=55, append_cursor_sequence=3)
    acting = member(
        role=Role.FOLLOWER,
        rules=None,
        mastership=None,
        follower=SimpleNamespace(last_heartbeat=beat),
        act_until_ms=float("-inf"),
    )
    shard = view(acting, control()).status().shards[0]
    assert (shard.role, shard.may_act, shard.master) == (
        status_pb2.SHARD_ROLE_FOLLOWER,
        False,
        "n1",
    )
    assert not shard.HasField("lease_left_ms")
    assert shard.followers == []
    assert (shard.append_cursor_ms, shard.append_cursor_sequence) == (55, 3)
    beat.append_cursor_ms = -1
    assert view(acting, control()).status().shards[0].append_cursor_ms == 0


def test_status_is_told_when_there_is_no_control_plane_yet() -> None:
    plane = SimpleNamespace(state=ControlState(), leader=Leader(), reports={}, heard_ms={})
    acting = member(
        role=Role.FOLLOWER,
        rules=None,
        mastership=None,
        assignment=Assignment(0, "", frozenset(), 0),
        act_until_ms=float("-inf"),
    )
    status = view(acting, plane).status()
    assert [node.address for node in status.nodes] == ["h:1", "h:11", "h:21"]
    (shard,) = status.shards
    assert (shard.master, shard.epoch, shard.in_sync) == ("", 0, [])
    assert status.HasField("control")
    assert not status.control.has_majority


def test_lease_has_no_end_when_there_is_nobody_to_grant_it() -> None:
    start = EpochStart(1, "n1", "b1", bytes(16), 0, ("n1",), 0, 0, 0)
    alone = Master(start, InSyncReplicas(1, frozenset({"n1"}), 1, 1), ReplicationConfig(), MONO_MS)
    one = replace(view(member(rules=alone), control()), nodes={"n1": NODES["n1"]})
    assert not one.status().shards[0].HasField("lease_left_ms")
