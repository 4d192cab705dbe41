"""The replica of a node alone, without a loop: it elects itself, and a test moves it on."""

from collections.abc import Callable
from typing import Final

from hourwheel.types import NodeId
from node.cluster.standalone import EpochInMemory, elected
from node.replica.effects import Assignment, ReplicaIdentity
from node.replica.replica import Replica
from node.shard.recovery import Opened
from replication.rules.follower import Follower
from replication.rules.master import ReplicationConfig
from replication.rules.master_lease import LeaseGrant

NODE: Final = NodeId("node-1")


def lone_replica(opened: Opened, now_ms: Callable[[], int], boot: int = 1) -> Replica:
    """It has begun its epoch: EPOCH_START is appended, and not durable yet.

    Raises:
        DiskFull: there is no room for noting the epoch.
    """
    place = opened.maintenance.place
    seen, boot_id = EpochInMemory.begin(place), f"{boot:06x}"
    identity = ReplicaIdentity(NODE, boot_id, place.identity.cluster_id, (NODE,))
    follower = Follower(
        me=NODE,
        boot_id=boot_id,
        cluster_id=identity.cluster_id,
        shard=place.identity.shard,
        seen=seen,
        grant=LeaseGrant(0.0, 0.0),
    )
    rules = ReplicationConfig(min_in_sync=1)
    replica = Replica(opened, follower, identity, rules, now_ms=now_ms)
    (shard,) = elected(opened, identity).shards.values()
    replica.on_assignment(Assignment(shard.epoch, NODE, frozenset({NODE}), 1), 0.0)
    replica.step(0.0)
    assert replica.mastership is not None
    return replica
