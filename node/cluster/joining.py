"""Build a shard's replica from what was opened, and make it a member of the cluster."""

from collections.abc import Callable
from typing import Any

from hourwheel import errors
from node.broker.disk_guard import DiskGuard
from node.cluster.cluster_time import ClusterTime
from node.cluster.member import ClusterMember
from node.cluster.snapshot_receiver import Fetch, SnapshotTaking, log_taken
from node.cluster.snapshot_sender import SnapshotGiver
from node.config.model import ClusterSection
from node.contracts.broker import Failure
from node.contracts.control import ControlPort
from node.repair.peers import PeerCalls
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
    place: ShardPlace,
    seen: EpochSeen,
    who: Who,
    config: ClusterSection,
    *,
    cluster_time: ClusterTime,
    control: ControlPort,
    mono_ms: Callable[[], float],
    dial: Callable[[str], Any],
    failure: Failure,
    guard: DiskGuard,
    is_registered: Callable[[], bool] = lambda: True,
    fetch: Fetch | None = None,
    calls: PeerCalls | None = None,
    on_snapshot_taken: Callable[[], None] = log_taken,
) -> ClusterMember:
    """A member that takes part when it is started.

    `fetch` begins a FetchSnapshot call to a node (without it no snapshot is taken);
    `calls` are those by which it asks other nodes for what it has lost;
    `on_snapshot_taken` is called when one is complete: the next start installs it.
    """
    watermark = opened.watermark
    errors.invariant(watermark is not None, "the shard was opened as a replica")
    rules = replication_config(config)
    # No lease was granted before the first epoch.
    grant = LeaseGrant(mono_ms(), rules.lease.lease_ms if seen.epoch else 0.0)
    follower = Follower(
        me=who.me,
        boot_id=who.boot_id,
        cluster_id=who.cluster_id,
        shard=place.identity.shard,
        seen=seen,
        grant=grant,
    )
    replica = Replica(
        opened.shard,
        opened.epochs,
        watermark,  # type: ignore[arg-type]
        follower,
        who,
        rules,
        now_ms=cluster_time.now_ms,
    )
    giver = SnapshotGiver(
        place,
        opened.shard,
        opened.epochs,
        epoch=lambda: replica.assignment.epoch,
        # With or without a lease, serving or not yet: what is committed is the same for ever, and
        # whoever asks may be the one without whom nothing more is committed, nor a lease granted.
        may_give=lambda: replica.master is not None,
        stats=replica.stats,
    )
    taking = None
    if fetch is not None:
        taking = SnapshotTaking(
            place,
            fetch,
            log_end=lambda: replica.facts.end_offset,
            is_needed=lambda: replica.master is None and follower.stage is not Stage.FOLLOWING,
            on_taken=on_snapshot_taken,
            on_failure=failure.report,
            stats=replica.stats,
        )
    return ClusterMember(
        replica,
        cluster_time,
        control,
        mono_ms=mono_ms,
        dial=dial,
        sync_interval_ms=config.sync_interval_ms,
        failure=failure,
        is_sound=opened.is_sound,
        guard=guard,
        is_registered=is_registered,
        giver=giver,
        taking=taking,
        calls=calls,
    )
