"""Build a shard's replica from what was opened, and make it a member of the cluster."""

from collections.abc import Callable

from node.broker.disk_guard import DiskGuard
from node.cluster.cluster_time import ClusterTime
from node.cluster.member import ClusterMember
from node.cluster.peer_links import PeerLinks
from node.cluster.snapshot_receiver import SnapshotReceiver, Snapshots, log_received
from node.cluster.snapshot_sender import SnapshotSender
from node.config.model import ClusterSection
from node.contracts.broker import Failure
from node.contracts.control import ControlPort
from node.replica.effects import Who
from node.replica.replica import Replica
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import Opened
from replication.rules.cluster_clock import ClockConfig
from replication.rules.epoch_store import EpochSeen
from replication.rules.follower import Follower, Stage
from replication.rules.master import ReplicationConfig
from replication.rules.master_lease import LeaseConfig, LeaseGrant

EPOCH_SEEN = "epoch_seen"


def replication_config(config: ClusterSection) -> ReplicationConfig:
    """What the rules are told."""
    return ReplicationConfig(
        min_in_sync=config.min_in_sync,
        lag_ms=float(config.lag_ms),
        lease=LeaseConfig(lease_ms=float(config.lease_ms)),
        clock=ClockConfig(),
    )


def open_epoch_seen(place: ShardPlace) -> EpochSeen:
    """The highest epoch that this node has seen. Raises CorruptFile."""
    seen = EpochSeen.open(place.disk, place.under(EPOCH_SEEN), place.identity)
    seen.keep_room()
    return seen


def build_member(
    opened: Opened,
    seen: EpochSeen,
    who: Who,
    rules: ReplicationConfig,
    *,
    time: ClusterTime,
    control: ControlPort,
    links: PeerLinks,
    guard: DiskGuard,
    failure: Failure,
    on_snapshot_received: Callable[[], None] = log_received,
) -> ClusterMember:
    """A member of the cluster, be it of one node, that takes part when it is started.

    `on_snapshot_received` is called when one is complete: the next start installs it.
    """
    place = opened.maintenance.place
    # No lease was granted before the first epoch, nor where there is no other node.
    granted_ms = rules.lease.lease_ms if seen.epoch and not who.is_alone else 0.0
    follower = Follower(
        me=who.me,
        boot_id=who.boot_id,
        cluster_id=who.cluster_id,
        shard=place.identity.shard,
        seen=seen,
        grant=LeaseGrant(time.mono_ms(), granted_ms),
    )
    replica = Replica(opened, follower, who, rules, now_ms=time.now_ms)
    sender = SnapshotSender(
        place,
        opened.shard,
        opened.epochs,
        epoch=lambda: replica.assignment.epoch,
        # With or without a lease, serving or not yet: what is committed is the same for ever, and
        # whoever asks may be the one without whom nothing more is committed, nor a lease granted.
        may_send=lambda: replica.mastership is not None,
        stats=replica.stats,
    )
    receiver = SnapshotReceiver(
        place,
        links.fetch_snapshot,
        log_end=lambda: replica.facts.end_offset,
        is_needed=lambda: replica.mastership is None and follower.stage is not Stage.FOLLOWING,
        on_received=on_snapshot_received,
        on_failure=failure.report,
        stats=replica.stats,
    )
    return ClusterMember(replica, time, control, links, Snapshots(sender, receiver), guard, failure)
