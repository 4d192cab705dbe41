"""What the API needs to know of the cluster, and the one thing that it asks of it.

The port is `ClusterPort`: node/cluster/transfer.py implements it, and `StandaloneCluster` here for
a node that has no others. What it says are the messages of proto/hourwheel/v1 themselves, filled in
as far as the cluster knows: the API adds what the engine says.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.types import NO_EPOCH, Epoch, NodeId, ShardId
from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.members_pb2 import ListMembersResponse
from hourwheel.v1.status_pb2 import SHARD_ROLE_MASTER, NodeStatus, ShardStatus

WAS_OPEN: Final = "was_open"
"""A fact of PeerRefused: the call was open when its node left, so its outcome is unknown."""
_ALONE: Final = "this node is alone: it is no cluster that has members"


class ClusterPort(Protocol):
    """The cluster, from one of its nodes. On the event loop's thread."""

    def status(self) -> GetStatusResponse:
        """Nodes, the shard and the control plane as of now, in a message of the caller's own.

        Needs neither a majority nor mastership. `shards` has one; `control` is not set by a node
        alone. What the engine knows of node and shard is not set.
        """
        ...

    async def transfer_master(self, shard: ShardId, to: NodeId) -> tuple[NodeId, Epoch]:
        """Make `to` the master, or the best node if it is empty: (master, epoch) from then on.

        Raises:
            NotMaster: this node is not the one to ask.
            InvalidArgument: there is no such shard.
            FailedPrecondition: `to` is not known or not in sync, or no node took over in time.
        """
        ...

    def members(self) -> ListMembersResponse:
        """Who votes and has copies, without the cluster's id.

        Raises FailedPrecondition: it is not known, or the node is alone.
        """
        ...

    async def change_members(
        self,
        add: Mapping[NodeId, str],
        remove: Collection[NodeId],
        expected_generation: int | None,
    ) -> int:
        """Change the members; the generation that is in force then.

        Raises:
            FailedPrecondition: why it is not done.
            InvalidArgument: no node is added or removed, or an address is not one.
            Timeout: the change is agreed upon and has not begun.
        """
        ...


class StandaloneCluster:
    """A cluster of one."""

    def __init__(self, node_id: NodeId, address: str, version: str) -> None:
        """Of the node: its id, where clients reach it, and its version."""
        self._me = node_id
        self._status = GetStatusResponse(
            nodes=[
                NodeStatus(
                    node_id=node_id,
                    address=address,
                    version=version,
                    is_alive=True,
                    is_ready=True,
                    is_heard=True,
                )
            ],
            shards=[
                ShardStatus(master=node_id, in_sync=[node_id], role=SHARD_ROLE_MASTER, may_act=True)
            ],
        )

    def status(self) -> GetStatusResponse:
        """See ClusterPort."""
        status = GetStatusResponse()
        status.CopyFrom(self._status)
        return status

    async def transfer_master(self, shard: ShardId, to: NodeId) -> tuple[NodeId, Epoch]:
        """See ClusterPort: there is no other node."""
        check_shard(shard)
        if to == self._me:
            return to, NO_EPOCH
        raise errors.FailedPrecondition("this node is alone: no other can take over", node=to)

    def members(self) -> ListMembersResponse:
        """See ClusterPort."""
        raise errors.FailedPrecondition(_ALONE)

    async def change_members(
        self, add: Mapping[NodeId, str], remove: Collection[NodeId], expected_generation: int | None
    ) -> int:
        """See ClusterPort."""
        del add, remove, expected_generation
        raise errors.FailedPrecondition(_ALONE)


def check_shard(shard: ShardId) -> None:
    """Raises InvalidArgument where there is no such shard."""
    if shard != 0:
        raise errors.InvalidArgument(f"there is no shard {shard}", shard=shard)
