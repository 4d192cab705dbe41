"""Whether clients should be sent to a node: it is in sync and serves, or follows whoever does.

An orchestrator goes by it: it sends clients to nodes that are ready, and restarts the next node
when the one before is ready again. So a node is ready only when another one may go.
"""

from node.metrics.family import ClusterFacts


def why_not_ready(facts: ClusterFacts, me: str, silent_ms: float) -> str:
    """The reason against it, as the node itself knows; empty where there is none.

    Args:
        facts: what the node knows of its cluster.
        me: its id.
        silent_ms: a master that sends no heartbeat for so long is not followed.
    """
    shard, control = facts.status.shard, facts.status.control
    if control is None or not control.has_majority:
        return "its control process does not hear from a majority"
    if not shard.master:
        return "there is no master"
    if me not in shard.in_sync:
        return "it is not in sync"
    if shard.master == me:
        return "" if shard.may_act else "it is the master, and may not act"
    if not 0 <= facts.heartbeat_age_ms <= silent_ms:
        return f"it does not hear from the master, {shard.master}"
    return ""
