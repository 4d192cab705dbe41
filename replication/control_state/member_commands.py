"""What commands do to the members of the cluster and to replica lists. Pure, total, deterministic.

A replica list follows the members one node at a time, at the master's word: majorities of two
lists that differ by one node have a node in common, so no two masters ever hold their leases by
two lists that know nothing of each other.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.answers import Answer, conflict, next_revision, ok, refused
from replication.control_state.membership import Members, Membership, members_of
from replication.control_state.state import ControlState, ShardInfo

GROWING_RULES: Final = 4
"""The first by which a cluster of one node grows to several at once, and raises min_in_sync."""
GROWN_MIN_IN_SYNC: Final = 2
"""What a cluster that was one node has to have in sync, once it can."""


def note_members(state: ControlState, command: pb.NoteMembersCommand) -> Answer:
    """Say who the members are that the cluster was made of."""
    members = members_of(command.members)
    if state.membership.members:
        return conflict(state, "the members are known")
    if not members:
        return refused(state, "members have an id of their own and an address")
    known = {one.node_id for shard in state.shards.values() for one in shard.isr}
    if not known <= set(members):
        return refused(state, "a node in sync would not be a member")
    return ok(with_members(state, Membership(members=members)))


def with_members(state: ControlState, membership: Membership) -> ControlState:
    """The same, with members; each shard's replica list is all of them."""
    replicas = tuple(sorted(membership.members))
    shards = {
        number: replace(shard, replicas=replicas, version=shard.version + 1)
        for number, shard in state.shards.items()
    }
    after = replace(state, membership=membership, shards=MappingProxyType(shards))
    return next_revision(after)


def change_members(state: ControlState, command: pb.ChangeMembersCommand) -> Answer:
    """The stop-sign: from here on nothing changes this state."""
    membership = state.membership
    if not membership.members:
        return refused(state, "the members are not known yet")
    if command.expected_generation != membership.generation:
        return conflict(state, f"generation {membership.generation} is in force")
    members = members_of(command.members)
    if not members:
        return refused(state, "members have an id of their own and an address")
    if members == membership.members:
        return conflict(state, "these are the members")
    why = membership.why_not(
        members, may_grow_from_one=state.codec_version >= GROWING_RULES
    ) or _why_shards_object(state, members)
    if why:
        return refused(state, why)
    ended = replace(membership, next_members=members)
    return ok(replace(next_revision(state), membership=ended))


def _why_shards_object(state: ControlState, members: Members) -> str:
    if len(members) < state.min_in_sync:
        return f"fewer members than min_in_sync, {state.min_in_sync}"
    current = frozenset(state.membership.members)
    for shard in state.shards.values():
        have = frozenset(shard.replicas)
        # A member that never got its copy may go again: nothing rests on it yet.
        if not have <= current or (current - have) & frozenset(members):
            return "the change before is not finished: replicas are still moving"
        kept = [one for one in shard.isr if one.node_id in members]
        if not kept or (len(kept) < len(shard.isr) and len(kept) < state.min_in_sync):
            return "too few copies in sync would stay"
    return ""


def next_state(state: ControlState) -> ControlState:
    """What the next generation begins with. The state's generation has ended.

    Who leaves is in sync no more, and not master. That nodes leave an in-sync set is safe at any
    time: a master that has not heard of it waits for more of them than it has to. Replica lists
    follow later.
    """
    membership = state.membership
    leaving = membership.leaving
    goal = state.min_in_sync_goal
    if state.codec_version >= GROWING_RULES and len(membership.members) == 1:
        goal = max(goal, GROWN_MIN_IN_SYNC)  # of one node it was 1
    shards = {number: _without(shard, leaving) for number, shard in state.shards.items()}
    nodes = {name: node for name, node in state.nodes.items() if name not in leaving}
    return next_revision(
        replace(
            state,
            membership=membership.next(),
            min_in_sync_goal=goal,
            shards=MappingProxyType(shards),
            nodes=MappingProxyType(nodes),
        )
    )


def _without(shard: ShardInfo, leaving: frozenset[NodeId]) -> ShardInfo:
    master = shard.master if shard.master and shard.master.node_id not in leaving else None
    isr = tuple(one for one in shard.isr if one.node_id not in leaving)
    return replace(shard, master=master, isr=isr, version=shard.version + 1)


def change_replicas(state: ControlState, command: pb.ChangeReplicasCommand) -> Answer:
    """One replica more or one less, at the master's word."""
    shard = state.shards.get(command.shard)
    if shard is None:
        return refused(state, "no such shard")
    found = {"epoch": shard.epoch, "version": shard.version}
    if shard.epoch != command.epoch or shard.version != command.expected_version:
        return conflict(state, "another epoch or version", **found)
    wanted, current = frozenset(map(NodeId, command.node_ids)), frozenset(shard.replicas)
    if len(wanted) != len(command.node_ids) or len(wanted ^ current) != 1:
        return refused(state, "one node at a time", **found)
    if not shard.isr_node_ids <= wanted:
        return refused(state, "a node in sync has a replica", **found)
    if not wanted - current <= frozenset(state.membership.members):
        return refused(state, "not a member", **found)
    changed = replace(shard, replicas=tuple(sorted(wanted)), version=shard.version + 1)
    shards = MappingProxyType({**state.shards, shard.shard: changed})
    after = next_revision(replace(state, shards=shards))
    return ok(after, epoch=changed.epoch, version=changed.version)


def raise_min_in_sync(state: ControlState, command: pb.RaiseMinInSyncCommand) -> Answer:
    """From now on nothing is acknowledged before so many nodes have it.

    Sound in whichever order masters hear of it: they wait for the whole in-sync set, which has so
    many nodes now, and does not shrink below.
    """
    wanted = command.min_in_sync
    if wanted <= state.min_in_sync:
        return conflict(state, f"min_in_sync is {state.min_in_sync}")
    if why := why_not_raise(state, wanted):
        return refused(state, why)
    goal = state.min_in_sync_goal and max(state.min_in_sync_goal, wanted)
    return ok(replace(next_revision(state), min_in_sync=wanted, min_in_sync_goal=goal))


def why_not_raise(state: ControlState, wanted: int) -> str:
    """Why so many cannot be asked for; empty: they can."""
    if wanted > len(state.membership.members):
        return f"more than the {len(state.membership.members)} members"
    if any(len(shard.isr) < wanted for shard in state.shards.values()):
        return "too few copies are in sync"
    return ""


def find_min_in_sync(state: ControlState) -> int:
    """What `min_in_sync` should become now, of its own accord; 0: it should stay.

    Not where all members would have to be in sync: the first that is down would stop the cluster,
    and could not leave it.
    """
    goal = state.min_in_sync_goal
    if goal <= state.min_in_sync or state.membership.has_ended:
        return 0
    if goal >= len(state.membership.members) or why_not_raise(state, goal):
        return 0
    return goal
