"""The cluster's members, for administrators."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import CHANGE_MEMBERS, LIST_MEMBERS
from hourwheel.v1 import members_pb2

NO_NODES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Member:
    """A node that votes and has a copy."""

    node_id: str
    control_address: str
    """host:port of its control process."""
    is_alive: bool
    """The node that answered hears of it."""
    has_replica: bool
    """It has a copy, be it in sync or not."""
    is_in_sync: bool
    """It has all that is acknowledged."""


@dataclass(frozen=True, slots=True)
class Members:
    """All of them, as one node knows them."""

    generation: int
    """Counts changes of the members."""
    members: tuple[Member, ...]
    """By id."""
    former_node_ids: tuple[str, ...]
    """Ids that are not used again."""
    is_changing: bool
    """Copies still follow the last change: the next one has to wait."""
    cluster_id: str
    """As each node's `cluster.id` has it."""


async def list_members(channel: Channel) -> Members:
    """See `AsyncAdmin.members`."""
    answer = await channel.call(LIST_MEMBERS, members_pb2.ListMembersRequest())
    return Members(
        answer.generation,
        tuple(
            Member(
                one.node_id,
                one.control_address,
                one.is_alive,
                one.has_replica,
                one.is_in_sync,
            )
            for one in answer.members
        ),
        tuple(answer.former_node_ids),
        answer.is_changing,
        answer.cluster_id,
    )


async def change_members(
    channel: Channel,
    add: Mapping[str, str],
    remove: Iterable[str],
    expected_generation: int | None,
) -> int:
    """See `AsyncAdmin.change_members`."""
    request = members_pb2.ChangeMembersRequest(
        add=[
            members_pb2.NewMember(node_id=node_id, control_address=address)
            for node_id, address in add.items()
        ],
        remove_node_ids=remove,
        expected_generation=expected_generation,
    )
    return (await channel.call(CHANGE_MEMBERS, request)).generation
