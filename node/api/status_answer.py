"""The answer to GetStatus: what the engine and the cluster say, as one message."""

import uuid
from dataclasses import asdict, dataclass
from typing import Any, Final

import hourwheel
from hourwheel.types import NodeId
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import status_pb2
from node.contracts.broker import ShardStatusData
from node.contracts.cluster import ClusterStatusData, MastershipData
from node.telemetry.stats import EngineStats

_MS_A_SECOND: Final = 1_000


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What the node says of itself."""

    node_id: NodeId
    address: str
    """Where clients reach it, host:port."""
    started_ms: int


def status_answer(
    identity: NodeIdentity,
    cluster_id: bytes,
    clock_ms: int,
    shard: ShardStatusData,
    cluster: ClusterStatusData,
    stats: EngineStats,
) -> wire.GetStatusResponse:
    """See the top of this file.

    Args:
        identity: of the answering node.
        cluster_id: 16 bytes.
        clock_ms: the cluster clock, as the answering node has it.
        shard: what its engine says.
        cluster: what it knows of the others.
        stats: what it has counted since its process started.
    """
    own: dict[str, Any] = {
        "started_ms": identity.started_ms,
        "clock_ms": clock_ms,
        "read_only_reason": shard.read_only_reason,
    }
    answer = wire.GetStatusResponse(
        cluster_id=str(uuid.UUID(bytes=cluster_id)),
        version=hourwheel.__version__,
        answered_by=identity.node_id,
        nodes=[
            status_pb2.NodeStatus(
                **asdict(node), **(own if node.node_id == identity.node_id else {})
            )
            for node in cluster.nodes
        ],
        shards=[_shard(shard, cluster.shard)],
    )
    answer.shards[0].delivery.CopyFrom(_delivery(stats))
    if cluster.control is not None:
        answer.control.CopyFrom(status_pb2.ControlStatus(**asdict(cluster.control)))
    return answer


def _delivery(stats: EngineStats) -> status_pb2.DeliveryStatus:
    lateness = stats.lateness.read()
    return status_pb2.DeliveryStatus(
        delivered_count=stats.delivered,
        acknowledged_count=stats.acknowledged,
        redelivered_count=stats.redelivered,
        dead_lettered_count=stats.dead_lettered,
        early_count=stats.early_deliveries,
        lateness_bounds_ms=[bound * _MS_A_SECOND for bound in lateness.bounds],
        lateness_counts=lateness.counts,
    )


def _shard(engine: ShardStatusData, cluster: MastershipData) -> status_pb2.ShardStatus:
    names = status_pb2.ShardStatus.DESCRIPTOR.fields_by_name
    values: dict[str, Any] = {
        name: value for name, value in asdict(engine).items() if name in names
    }
    known = {name: value for name, value in asdict(cluster).items() if value is not None}
    followers = known.pop("followers")
    values |= known
    values["epoch"] = cluster.epoch or engine.epoch
    answer = status_pb2.ShardStatus(**values)
    for follower in followers:
        known = {name: value for name, value in follower.items() if value is not None}
        answer.followers.append(status_pb2.FollowerStatus(**known))
    return answer
