"""The metrics of a node as one of several; a node alone has none of them. Part of the table."""

from collections.abc import Callable, Iterable
from typing import Final

from hourwheel.v1.status_pb2 import (
    SHARD_ROLE_FOLLOWER,
    SHARD_ROLE_MASTER,
    SHARD_ROLE_TAKING_OVER,
    ControlStatus,
    FollowerStatus,
)
from node.metrics.family import (
    SECONDS,
    ClusterFacts,
    ControlFacts,
    Family,
    Kind,
    Sample,
    Scrape,
)

_ROLES: Final = {
    "follower": SHARD_ROLE_FOLLOWER,
    "taking_over": SHARD_ROLE_TAKING_OVER,
    "master": SHARD_ROLE_MASTER,
}


def _one(kind: Kind, name: str, text: str, read: Callable[[ClusterFacts, Scrape], float]) -> Family:
    """A metric that each shard has one of."""

    def samples(it: Scrape) -> Iterable[Sample]:
        return () if it.cluster is None else [((str(it.status.shard),), read(it.cluster, it))]

    return Family(name, kind, ("shard",), text, samples)


def _gauge(name: str, text: str, read: Callable[[ClusterFacts], float]) -> Family:
    return _one("gauge", name, text, lambda cluster, _: read(cluster))


def _counter(name: str, text: str, read: Callable[[ClusterFacts], float]) -> Family:
    return _one("counter", name, text, lambda cluster, _: read(cluster))


def _follower(name: str, text: str, read: Callable[[FollowerStatus], float | None]) -> Family:
    """A gauge that a master tells of each follower of which it knows it."""

    def samples(it: Scrape) -> Iterable[Sample]:
        followers = () if it.cluster is None else it.cluster.shard.followers
        shard = str(it.status.shard)
        values = ((one.node_id, read(one)) for one in followers)
        return [((shard, node), value) for node, value in values if value is not None]

    return Family(name, "gauge", ("shard", "node"), text, samples)


def _control(name: str, text: str, read: Callable[[ControlStatus], float]) -> Family:
    """A gauge that the node tells of the control plane."""

    def samples(it: Scrape) -> Iterable[Sample]:
        return [] if it.cluster is None else [((), read(it.cluster.status.control))]

    return Family(name, "gauge", (), text, samples)


def _roles(it: Scrape) -> Iterable[Sample]:
    if it.cluster is None:
        return []
    shard, now = str(it.status.shard), it.cluster.shard.role
    return [((shard, name), float(role == now)) for name, role in _ROLES.items()]


def _forwarded(it: Scrape) -> Iterable[Sample]:
    return [] if it.cluster is None else [((), it.api.forwarded)]


def _process(name: str, kind: Kind, text: str, read: Callable[[ControlFacts], float]) -> Family:
    """What the node tells of the control process beside it."""

    def samples(it: Scrape) -> Iterable[Sample]:
        return [] if it.cluster is None else [((), read(it.cluster.control))]

    return Family(name, kind, (), text, samples)


def _commands(it: Scrape) -> Iterable[Sample]:
    if it.cluster is None or it.cluster.control.commands is None:
        return []
    return [((), it.cluster.control.commands)]


def _certificate_ends(it: Scrape) -> Iterable[Sample]:
    ends = None if it.cluster is None else it.cluster.certificate_ends
    return [] if ends is None else [(("node",), ends.node_s), (("authority",), ends.authority_s)]


def _refused_certificates(it: Scrape) -> Iterable[Sample]:
    return [] if it.cluster is None else [((), float(it.cluster.are_certificates_refused))]


def _is_under_replicated(cluster: ClusterFacts) -> float:
    return float(len(cluster.shard.in_sync) < len(cluster.status.nodes))


FAMILIES: Final = (
    # --- who is master
    Family(
        "hourwheel_role",
        "gauge",
        ("shard", "role"),
        "1 for what this node is to the shard: follower, taking_over or master.",
        _roles,
    ),
    _gauge(
        "hourwheel_is_master",
        "1 while this node may act as master: it has the lease and the cluster clock.",
        lambda it: float(it.shard.may_act),
    ),
    _gauge("hourwheel_epoch", "The epoch as this node knows it.", lambda it: it.shard.epoch),
    _gauge(
        "hourwheel_lease_left_seconds",
        "How long the master may act without hearing from others; 0 on other nodes.",
        lambda it: it.shard.lease_left_ms * SECONDS,
    ),
    _counter(
        "hourwheel_takeovers_total",
        "How often this node has become master and served.",
        lambda it: it.epoch_stats.takeovers,
    ),
    _counter(
        "hourwheel_step_downs_requested_total",
        "How often this node, as master, asked for another one by itself: damage, a full disk.",
        lambda it: it.epoch_stats.step_down_requests,
    ),
    _gauge(
        "hourwheel_takeover_duration_seconds",
        "The last takeover: from the election until it served, the old lease included.",
        lambda it: it.epoch_stats.takeover_ms * SECONDS,
    ),
    _counter(
        "hourwheel_catch_up_released_messages_total",
        "Messages that were overdue when this node became master, and that it released at once.",
        lambda it: it.epoch_stats.catch_up_released,
    ),
    # --- replication
    _gauge(
        "hourwheel_in_sync_replicas",
        "Nodes of the in-sync set, the master included.",
        lambda it: len(it.shard.in_sync),
    ),
    _gauge(
        "hourwheel_min_in_sync_replicas",
        "With fewer nodes in sync no message is accepted (key cluster.min_in_sync).",
        lambda it: it.min_in_sync,
    ),
    _gauge(
        "hourwheel_members_generation",
        "Counts changes of the members, as this node knows them: the same on all nodes.",
        lambda it: it.status.control.generation,
    ),
    _gauge(
        "hourwheel_cluster_nodes",
        "Nodes of the cluster, by its configuration.",
        lambda it: len(it.status.nodes),
    ),
    _gauge(
        "hourwheel_under_replicated",
        "1 while a node of the cluster is not in the in-sync set.",
        _is_under_replicated,
    ),
    _one(
        "gauge",
        "hourwheel_uncommitted_bytes",
        "The log beyond the high watermark.",
        lambda _, it: max(0, it.status.log_end_offset - it.status.high_watermark),
    ),
    _follower(
        "hourwheel_follower_lag_bytes",
        "What a follower has not acknowledged of the log; on the master.",
        lambda one: one.lag_bytes,
    ),
    _follower(
        "hourwheel_follower_ack_age_seconds",
        "Since a follower's last acknowledgement; on the master, once there was one.",
        lambda one: one.heard_ms_ago * SECONDS if one.HasField("heard_ms_ago") else None,
    ),
    _counter(
        "hourwheel_heartbeats_sent_total",
        "Heartbeats that this master sent (tick and local index), to all followers together.",
        lambda it: it.epoch_stats.heartbeats_sent,
    ),
    _counter(
        "hourwheel_heartbeats_received_total",
        "Heartbeats that this follower received from a master.",
        lambda it: it.epoch_stats.heartbeats_received,
    ),
    _gauge(
        "hourwheel_heartbeat_age_seconds",
        "Time since the master's last heartbeat; 0 on the master, -1 before the first.",
        lambda it: it.heartbeat_age_ms * SECONDS if it.heartbeat_age_ms >= 0 else -1.0,
    ),
    _counter(
        "hourwheel_snapshots_sent_total",
        "Snapshots that this node sent to another.",
        lambda it: it.epoch_stats.snapshots_sent,
    ),
    _counter(
        "hourwheel_snapshots_received_total",
        "Snapshots that this node received and installed.",
        lambda it: it.epoch_stats.snapshots_received,
    ),
    # --- cluster clock
    _follower(
        "hourwheel_peer_clock_offset_seconds",
        "A node's clock minus the master's own; on the master.",
        lambda one: one.clock_offset_ms * SECONDS if one.HasField("clock_offset_ms") else None,
    ),
    _gauge(
        "hourwheel_cluster_clock_offset_seconds",
        "The cluster clock minus the master's own; 0 on other nodes.",
        lambda it: it.shard.clock_offset_ms * SECONDS,
    ),
    _gauge(
        "hourwheel_cluster_clock_unsure",
        "1 while a master does not know the clocks of a majority, and so dispatches nothing.",
        lambda it: float(it.is_clock_unsure),
    ),
    # --- calls and control plane
    Family(
        "hourwheel_forwarded_calls_total",
        "counter",
        (),
        "Calls and streams of clients that were passed on to the master.",
        _forwarded,
    ),
    _control(
        "hourwheel_raft_leader_known",
        "1 while this node's control process knows who leads Raft.",
        lambda it: float(bool(it.leader_node_id)),
    ),
    _control("hourwheel_raft_term", "Raft's term; never an epoch.", lambda it: it.term),
    _control(
        "hourwheel_raft_has_majority",
        "1 while this node's control process hears from a majority.",
        lambda it: float(it.has_majority),
    ),
    _control(
        "hourwheel_control_revision",
        "Changes of the control plane's state that this node knows of.",
        lambda it: it.revision,
    ),
    _process(
        "hourwheel_raft_leader_changes_total",
        "counter",
        "How often this node has seen another leader of Raft than the one before.",
        lambda it: it.leader_changes,
    ),
    Family(
        "hourwheel_control_command_duration_seconds",
        "histogram",
        (),
        "Commands that this node proposed to the control plane, until they were answered.",
        _commands,
    ),
    _process(
        "hourwheel_control_commands_failed_total",
        "counter",
        "Commands that were not carried out, or whose outcome is unknown.",
        lambda it: it.commands_failed,
    ),
    _process(
        "hourwheel_control_restarts_total",
        "counter",
        "How often this node's control process has ended by itself, and the node with it; kept over"
        " restarts.",
        lambda it: it.ends,
    ),
    _process(
        "hourwheel_control_last_exit_code",
        "gauge",
        "How it ended the last time, negative for a signal: 2 it could not start, 70 Raft or its"
        " disk failed. 0 while it never has.",
        lambda it: it.last_exit_code,
    ),
    _process(
        "hourwheel_control_stalls_total",
        "counter",
        "How often its Raft thread stood still for more than 250 ms, since it started.",
        lambda it: it.stall_count,
    ),
    _process(
        "hourwheel_control_stall_seconds_max",
        "gauge",
        "The longest of these.",
        lambda it: it.stall_ms_max * SECONDS,
    ),
    Family(
        "hourwheel_tls_certificate_not_after_timestamp_seconds",
        "gauge",
        ("certificate",),
        "Until when the certificate that this node shows to others, and its authority's, are valid;"
        " not without TLS.",
        _certificate_ends,
    ),
    Family(
        "hourwheel_cluster_tls_files_refused",
        "gauge",
        (),
        "1 while the tls_ files of section cluster cannot be used and the former certificates stay"
        " in use.",
        _refused_certificates,
    ),
)
