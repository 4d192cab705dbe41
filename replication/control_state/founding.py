"""The state that a cluster begins with which takes over another's users, grants and names. Pure.

    of a backup              --> `founded`: a new cluster of some nodes, in its generation 1
    of a node alone          --> the same, with this one node
    of a backup              --> `left_alone`: a node alone

Who was registered, who was master and which nodes voted is of the former life, and stays there.
So do topics and groups: the log that comes along has them as of its own end, which may be another
moment than this state's. They are imported from it again, with their ids.

Of several members only the first by id is in sync, for it alone is known to have what was restored:
it takes the state over. One that was not restored must not become master. Each of the others joins
as any follower does, at once where its log is the same, and nothing is committed before
`min_in_sync` are there.

Generation 1, and not 0: a node that does not know this state is still in generation 0, and members
of a later generation send it theirs (replication/raft/generations.py). Were this generation 0, that
node would begin a log without all this.
"""

from dataclasses import replace
from types import MappingProxyType

from hourwheel import errors
from hourwheel.types import Epoch, NodeId, ShardId
from replication.control_state.member_commands import GROWN_MIN_IN_SYNC
from replication.control_state.membership import Members, Membership
from replication.control_state.state import (
    CODEC_VERSION,
    CatalogImport,
    ControlState,
    Member,
    ShardInfo,
)

FIRST_GENERATION = 1


def founded(
    state: ControlState, cluster_id: bytes, members: Members, min_in_sync: int
) -> ControlState:
    """What generation 1 of a cluster begins with.

    Args:
        state: whose users, grants and quotas it takes over.
        cluster_id: 16 bytes.
        members: who votes, and has a replica. The first by id is in sync.
        min_in_sync: at most as many as members.
    """
    errors.invariant(1 <= min_in_sync <= len(members), "so many nodes are there")
    membership = Membership(FIRST_GENERATION, members)
    return _begun(state, cluster_id, sorted(members), min_in_sync, membership)


def left_alone(state: ControlState, cluster_id: bytes, node_id: NodeId) -> ControlState:
    """What a node alone begins with. Arguments as of `founded`."""
    return _begun(state, cluster_id, [node_id], 1, Membership())


def _begun(
    state: ControlState,
    cluster_id: bytes,
    node_ids: list[NodeId],
    min_in_sync: int,
    membership: Membership,
) -> ControlState:
    isr = (Member(node_ids[0], b""),)
    replicas = tuple(node_ids) if membership.members else ()
    shards = {
        number: ShardInfo(ShardId(number), Epoch(0), None, isr, 1, replicas=replicas)
        for number in sorted(state.shards) or [0]
    }
    return replace(
        state,
        codec_version=CODEC_VERSION,
        cluster_id=cluster_id,
        min_in_sync=min_in_sync,
        revision=state.revision + 1,
        nodes=MappingProxyType({}),
        shards=MappingProxyType(shards),
        membership=membership,
        min_in_sync_goal=GROWN_MIN_IN_SYNC if len(membership.members) == 1 else 0,
        topics=MappingProxyType({}),
        groups=MappingProxyType({}),
        catalog_import=CatalogImport(),
    )
