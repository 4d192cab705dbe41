"""Changes of the cluster's members by an administrator: checked first, refused where they harm.

The control state decides whether a change is allowed, where the command is applied
(replication/control_state/member_commands.py). This module checks what the state cannot know: which
nodes live, and whether a new node is there at all.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.types import NodeId
from hourwheel.v1.members_pb2 import ListMembersResponse, Member
from node.cluster.view import Control
from node.config.checks import NODE_ID, split_address
from node.telemetry import logs
from replication.control_state.commands import make_command
from replication.control_state.membership import ADDRESS_CHARS_MAX, Members, members_data
from replication.control_state.state import ControlState
from replication.raft.admission import words_needed
from replication.raft.security import is_loopback

_CHANGE_S: Final = 20.0
_LOOK_S: Final = 0.02
_REQUEST_ID_BYTES: Final = 16
_COUNT_MAX: Final = 16
_log = logs.get(__name__)

Propose = Callable[[wire.ControlCommand], Awaitable[wire.ControlResult]]
Prove = Callable[[NodeId, str, int], Awaitable[None]]


class MemberAdministration:
    """See the top of this file. On one event loop."""

    def __init__(
        self,
        me: NodeId,
        control: Control,
        propose: Propose,
        *,
        monotonic_ms: Callable[[], float],
        silent_ms: float,
        prove: Prove,
        change_s: float = _CHANGE_S,
    ) -> None:
        """Of node `me`.

        Args:
            me: its id.
            control: knows the state, and who is heard of.
            propose: has a command applied by the control plane.
            monotonic_ms: the node's clock.
            silent_ms: a node of which nothing is heard for so long does not count as alive.
            prove: has the process at an address prove that it is a node's control process, of
                this cluster; see `node.cluster.control_probe`.
            change_s: how long a change may take.
        """
        self._me, self._control, self._propose = me, control, propose
        self._monotonic_ms, self._silent_ms = monotonic_ms, silent_ms
        self._prove, self._change_s = prove, change_s

    def members(self) -> ListMembersResponse:
        """See ClusterPort."""
        state = self._known()
        membership = state.membership
        replicas, in_sync = _nodes_of(state)
        return ListMembersResponse(
            generation=membership.generation,
            members=[
                Member(
                    node_id=one,
                    control_address=address,
                    is_alive=self._is_alive(one),
                    has_replica=one in replicas,
                    is_in_sync=one in in_sync,
                )
                for one, address in sorted(membership.members.items())
            ],
            former_node_ids=membership.former_node_ids,
            is_changing=membership.has_ended or replicas != frozenset(membership.members),
        )

    def _known(self) -> ControlState:
        state = self._control.state
        if not state.membership.members:
            raise errors.FailedPrecondition(
                "the cluster does not know its members yet: all nodes have to be up at once with"
                " this version"
            )
        return state

    def _is_alive(self, node: NodeId) -> bool:
        heard_ms = self._control.heard_ms.get(node, float("-inf"))
        return node == self._me or self._monotonic_ms() - heard_ms < self._silent_ms

    async def change(
        self, add: Mapping[NodeId, str], remove: Collection[NodeId], expected_generation: int | None
    ) -> int:
        """See ClusterPort.change_members."""
        _check(add, remove)
        state = self._known()
        generation = state.membership.generation
        if expected_generation not in {None, generation}:
            raise errors.FailedPrecondition(
                f"generation {generation} is in force: somebody else has changed the members",
                generation=generation,
            )
        check_reach(state.membership.members, add)
        members = _next_members(state, add, remove)
        await self._check_majority(state, members, add)
        await self._stop(generation, members)
        await self._until_begun(generation)
        _log.warning("members_changed", generation=generation + 1, members=sorted(members))
        return generation + 1

    async def _check_majority(
        self, state: ControlState, members: Members, add: Mapping[NodeId, str]
    ) -> None:
        for node, address in add.items():
            await self._check_new(node, address, state.membership.generation)
        living = [node for node in members if node in add or self._is_alive(node)]
        if 2 * len(living) <= len(members):
            raise errors.FailedPrecondition(
                f"it would lose the majority: of {len(members)} members only {len(living)} are"
                " alive",
                alive=len(living),
            )
        # Each new voter is admitted by others, new ones as well (replication/raft/admission.py).
        needed = words_needed(len(members))
        if add and len(living) - 1 < needed:
            raise errors.FailedPrecondition(
                f"node {min(add)} could not take part: {needed} others have to admit it, and only"
                f" {len(living) - 1} are alive",
                alive=len(living) - 1,
            )
        # Who leaves ends with the change, and the lists follow only where there is a lease by them.
        for shard in state.shards.values():
            staying = [node for node in shard.replicas if node in living]
            if shard.replicas and 2 * len(staying) <= len(shard.replicas):
                raise errors.FailedPrecondition(
                    f"shard {shard.shard} would lose its majority: of {len(shard.replicas)}"
                    f" replicas only {len(staying)} stay and are alive",
                    shard=shard.shard,
                    alive=len(staying),
                )

    async def _check_new(self, node: NodeId, address: str, generation: int) -> None:
        try:
            await self._prove(node, address, generation)
        except errors.Unavailable as error:
            raise errors.FailedPrecondition(
                f"{error.message}: start node {node} first, with cluster.join", node=node
            ) from error
        except errors.PeerRefused as error:
            raise errors.FailedPrecondition(
                f"{error.message}. It does not prove that it is the control process of node {node},"
                f" of this cluster: look at the address, and at that node's id, its cluster.id,"
                f" its certificates or secret, and whether its cluster.nodes names {self._me}",
                address=address,
            ) from error

    async def _stop(self, generation: int, members: Members) -> None:
        command = wire.ChangeMembersCommand(
            expected_generation=generation, members=members_data(members)
        )
        request_id = os.urandom(_REQUEST_ID_BYTES)
        result = await self._propose(make_command(request_id, change_members=command))
        if result.outcome != wire.CONTROL_OUTCOME_OK:
            raise errors.FailedPrecondition(f"the members stay as they are: {result.reason}")

    async def _until_begun(self, generation: int) -> None:
        """Wait for the next one: it is certain to begin."""
        try:
            async with asyncio.timeout(self._change_s):
                while self._control.state.membership.generation <= generation:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise errors.Timeout(
                "the change is agreed upon, and has not begun yet: see the members"
            ) from error


def _nodes_of(state: ControlState) -> tuple[frozenset[NodeId], frozenset[NodeId]]:
    """Who has a replica of any shard, and who is in sync in all of them."""
    shards = state.shards.values()
    replicas = frozenset[NodeId]().union(*(shard.replicas for shard in shards))
    in_sync = replicas.intersection(*(shard.isr_node_ids for shard in shards))
    return replicas, in_sync


def check_reach(current: Members, add: Mapping[NodeId, str]) -> None:
    """Members that share a secret are on loopback, or their control processes do not start.

    Raises FailedPrecondition.
    """
    if all(map(is_loopback, current.values())):
        for address in add.values():
            if not is_loopback(address):
                raise errors.FailedPrecondition(
                    f"the members are reached on this machine only, and {address} is not on it"
                )


def _check(add: Mapping[NodeId, str], remove: Collection[NodeId]) -> None:
    """Raises InvalidArgument."""
    if not add and not remove:
        raise errors.InvalidArgument("name a node to add or one to remove", field="add")
    if len(add) + len(remove) > _COUNT_MAX:
        raise errors.InvalidArgument(f"at most {_COUNT_MAX} at a time", field="add")
    for node, address in add.items():
        if not NODE_ID.fullmatch(node):
            raise errors.InvalidArgument(f"{node!r} is no id of a node", field="add")
        try:
            port = split_address("control_address", address)[1]
        except errors.ConfigError as error:
            raise errors.InvalidArgument(error.message, field="add") from error
        if not port or len(address) > ADDRESS_CHARS_MAX:
            raise errors.InvalidArgument(f"{address!r}: others cannot connect to it", field="add")


def _next_members(
    state: ControlState, add: Mapping[NodeId, str], remove: Collection[NodeId]
) -> Members:
    """Raises FailedPrecondition."""
    current = state.membership.members
    for node in remove:
        if node not in current:
            raise errors.FailedPrecondition(f"node {node} is not a member", node=node)
        if any(shard.master and shard.master.node_id == node for shard in state.shards.values()):
            raise errors.FailedPrecondition(
                f"node {node} is the master: transfer mastership first", node=node
            )
    for node in add:
        if node in current:
            raise errors.FailedPrecondition(f"node {node} is a member already", node=node)
    members = {one: address for one, address in current.items() if one not in remove}
    return {**members, **add}
