"""The cluster as the API sees it: its status, its members, and transfers of mastership."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.types import Epoch, NodeId, ShardId
from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.members_pb2 import ListMembersResponse
from node.cluster.members import MemberAdministration
from node.cluster.view import ActingMember, ClusterView
from node.contracts.cluster import check_shard
from node.telemetry import logs

_TRANSFER_S: Final = 3.0
_LOOK_S: Final = 0.002
_log = logs.get(__name__)


class TransferMember(ActingMember, Protocol):
    """What a transfer uses of node/cluster/member.py."""

    def check(self) -> None:
        """Raises NotMaster."""
        ...

    def transfer_mastership(self, to: NodeId) -> None:
        """Request another master: `to`, or the best one."""
        ...

    def cancel_transfer(self) -> None:
        """Take that back."""
        ...


class ServedCluster:
    """Is a `ClusterPort`. On the event loop's thread."""

    def __init__(
        self,
        view: ClusterView,
        member: TransferMember,
        members: MemberAdministration,
        *,
        timeout_s: float = _TRANSFER_S,
    ) -> None:
        """`view` of the cluster that `member` is one of; `timeout_s`: for a transfer."""
        self._view, self._member, self._timeout_s = view, member, timeout_s
        self._members = members

    def members(self) -> ListMembersResponse:
        """See ClusterPort."""
        return self._members.members()

    async def change_members(
        self, add: Mapping[NodeId, str], remove: Collection[NodeId], expected_generation: int | None
    ) -> int:
        """See ClusterPort."""
        return await self._members.change(add, remove, expected_generation)

    def status(self) -> GetStatusResponse:
        """See ClusterPort."""
        return self._view.status()

    async def transfer_master(self, shard: ShardId, to: NodeId) -> tuple[NodeId, Epoch]:
        """See ClusterPort."""
        check_shard(shard)
        self._member.check()
        epoch = Epoch(self.status().shards[0].epoch)
        me = self._member.replica.identity.node_id
        if to == me:
            return me, epoch
        self._check_successor(to, me)
        _log.info("mastership_transfer_requested", to=to)
        self._member.transfer_mastership(to)
        found = await self._wait_for_successor(me, epoch)
        if found is None:
            self._member.cancel_transfer()
            raise errors.FailedPrecondition(self._why_no_successor(to), node=to)
        return found

    async def _until_served(
        self, found: tuple[NodeId, Epoch], until_s: float
    ) -> tuple[NodeId, Epoch]:
        """The master that serves, and its epoch: the one of `found`, or a later one.

        At the end of the time, the one that is elected by then: that cannot be taken back.
        """
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            shard = self.status().shards[0]
            found = (NodeId(shard.master) or found[0], Epoch(shard.epoch))
            if self._view.is_serving(*found):
                return found
            await asyncio.sleep(_LOOK_S)
        _log.warning("mastership_transfer_slow", node=found[0])
        return found

    def _check_successor(self, to: NodeId, me: NodeId) -> None:
        """Raises FailedPrecondition where it is clear beforehand that no node can take over."""
        status = self.status()
        if to and all(one.node_id != to for one in status.nodes):
            raise errors.FailedPrecondition(f"there is no node {to}", node=to)
        in_sync = set(status.shards[0].in_sync)
        if to and to not in in_sync:
            raise errors.FailedPrecondition(f"node {to} is not in sync", node=to)
        if not in_sync - {me}:
            raise errors.FailedPrecondition("no other node is in sync", node=to)

    def _why_no_successor(self, to: NodeId) -> str:
        late = f"over within {self._timeout_s:g} s"
        if not to:
            return f"no other node took {late}"
        node = next(one for one in self.status().nodes if one.node_id == to)
        if not node.is_alive:
            return f"node {to} did not take {late}: it is not alive"
        if not node.is_ready:
            return f"node {to} did not take {late}: its log or its disk keeps it from leading"
        return f"node {to} did not take {late}"

    async def _wait_for_successor(self, me: NodeId, epoch: Epoch) -> tuple[NodeId, Epoch] | None:
        """The next master and its epoch; None: there is none in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_s
        while loop.time() < until_s:
            shard = self.status().shards[0]
            if shard.epoch > epoch and shard.master not in {"", me}:
                found = NodeId(shard.master), Epoch(shard.epoch)
                return await self._until_served(found, until_s)
            await asyncio.sleep(_LOOK_S)
        return None
