"""The answer to GetStatus: what the engine and the cluster say, as one message."""

import uuid
from dataclasses import dataclass
from typing import Final

import hourwheel
from hourwheel.types import NodeId
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import status_pb2
from node.contracts.broker import EnginePort
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
    identity: NodeIdentity, engine: EnginePort, cluster: wire.GetStatusResponse
) -> wire.GetStatusResponse:
    """See the top of this file.

    Args:
        identity: of the answering node.
        engine: says what it has and has done.
        cluster: what the node knows of the others (`ClusterPort.status`).
    """
    answer = wire.GetStatusResponse(
        cluster_id=str(uuid.UUID(bytes=engine.cluster_id)),
        version=hourwheel.__version__,
        answered_by=identity.node_id,
        shards=[engine.status()],
    )
    # What the cluster leaves empty, such as the epoch of a node alone, stays as the engine says it.
    answer.shards[0].MergeFrom(cluster.shards[0])
    answer.shards[0].delivery.CopyFrom(_delivery(engine.stats))
    answer.nodes.MergeFrom(cluster.nodes)
    for node in answer.nodes:
        if node.node_id == identity.node_id:
            node.started_ms = identity.started_ms
            node.clock_ms = engine.now_ms()
            node.read_only_reason = engine.gauges().read_only_reason
    if cluster.HasField("control"):
        answer.control.CopyFrom(cluster.control)
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
