"""What the nodes say of the cluster, put together for one page. Pure: statuses in, values out.

The node asks each node for its status. Each knows itself best, the master knows its followers, and
of one that does not answer the own node says what it heard last.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from hourwheel.client.cluster_status import (
    ClusterStatus,
    FollowerStatus,
    NodeStatus,
    ShardStatus,
    find_master,
)

CLOCK_OFFSET_MS_MAX: Final = 100.0
"""Clocks of two nodes that differ by more are worth a word."""


def read_only_because(
    own_id: str, statuses: Mapping[str, ClusterStatus], *, changes_allowed: bool
) -> str:
    """Why nothing can be changed from here now; empty: it can."""
    if not changes_allowed:
        return "This console only shows: console.changes does not allow more."
    if find_master(statuses) is not None:
        return ""
    own = statuses.get(own_id)
    if own is None:
        return "The node behind this console does not answer."
    if own.control is not None and not own.control.has_majority:
        return "This node hears from no majority of the cluster, and sees no master."
    return "No node is master now. A new one takes over within seconds, as a rule."


def snapshot(
    own_id: str,
    known: ClusterStatus,
    statuses: Mapping[str, ClusterStatus],
    *,
    changes_allowed: bool,
) -> dict[str, object]:
    """The cluster as JSON has it.

    Args:
        own_id: of the node behind the console.
        known: what that one says, or said last.
        statuses: what those nodes say now that answer, by id.
        changes_allowed: whether the configuration lets the console change anything.
    """
    master = find_master(statuses)
    shard = _shard_to_show(known, statuses, master)
    followers = {} if shard is None else {one.node_id: one for one in shard.followers}
    nodes = [
        _node(node, statuses.get(node.node_id), followers.get(node.node_id), shard, master)
        for node in known.nodes
    ]
    why = read_only_because(own_id, statuses, changes_allowed=changes_allowed)
    return {
        "cluster_id": known.cluster_id,
        "node_id": own_id,
        "version": known.version,
        "master": None if master is None else master[0],
        "control": None if known.control is None else asdict(known.control),
        "read_only_because": why,
        "nodes": nodes,
        "shard": None if shard is None else _show_shard(shard),
        "problems": _problems(nodes, shard, master),
    }


def _shard_to_show(
    known: ClusterStatus,
    statuses: Mapping[str, ClusterStatus],
    master: tuple[str, ShardStatus] | None,
) -> ShardStatus | None:
    """As the master says; without one, as the node that has applied most of the log does."""
    if master is not None:
        return master[1]
    values = [shard for status in statuses.values() for shard in status.shards[:1]]
    return max(values or known.shards[:1], key=lambda one: one.applied_offset, default=None)


def _node(
    node: NodeStatus,
    answer: ClusterStatus | None,
    follower: FollowerStatus | None,
    shard: ShardStatus | None,
    master: tuple[str, ShardStatus] | None,
) -> dict[str, object]:
    own = node
    if answer is not None:
        own = next((one for one in answer.nodes if one.node_id == node.node_id), node)
    role = answer.shards[0].role.value if answer is not None and answer.shards else "unknown"
    return {
        "node_id": node.node_id,
        "address": node.address,
        "answers": answer is not None,
        "is_alive": own.is_alive,
        "is_ready": own.is_ready,
        "is_master": master is not None and master[0] == node.node_id,
        "is_in_sync": shard is not None and node.node_id in shard.in_sync,
        "role": role,
        "version": own.version,
        "epoch": own.epoch,
        "started_ms": own.started_ms,
        "log_end_offset": own.log_end_offset,
        "read_only_reason": own.read_only_reason,
        "phase": None if follower is None else follower.phase.value,
        "lag_bytes": None if follower is None else follower.lag_bytes,
        "clock_offset_ms": None if follower is None else follower.clock_offset_ms,
    }


def _show_shard(shard: ShardStatus) -> dict[str, object]:
    values = asdict(shard)
    del values["followers"]
    return values


def _problems(
    nodes: list[dict[str, Any]],
    shard: ShardStatus | None,
    master: tuple[str, ShardStatus] | None,
) -> list[dict[str, str]]:
    """What an operator should know, the worst first: [{"level", "text"}]."""
    found: list[tuple[str, str]] = []
    if master is None:
        found.append(("bad", "No node is master: nothing is accepted, and nothing is delivered."))
    elif shard is not None and shard.delivery is not None and shard.delivery.early_count:
        count = shard.delivery.early_count
        found.append(("bad", f"{count:,} messages were visible before they were due."))
    for node in nodes:
        name = node["node_id"]
        if not node["answers"]:
            found.append(("bad", f"{name} does not answer."))
            continue
        if reason := node["read_only_reason"]:
            found.append(("bad", f"{name} accepts no messages: {reason}."))
        if shard is not None and shard.in_sync and not node["is_in_sync"]:
            found.append(("warn", f"{name} is not in sync."))
        offset_ms = node["clock_offset_ms"]
        if offset_ms is not None and abs(offset_ms) > CLOCK_OFFSET_MS_MAX:
            found.append(("warn", f"The clock of {name} is {offset_ms:+.0f} ms off the master's."))
    found.sort(key=lambda one: one[0] != "bad")
    return [{"level": level, "text": text} for level, text in found]
