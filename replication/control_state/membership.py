"""Who votes: the members of a cluster, and how one generation of them follows another. Pure.

    generation g     NOTE_MEMBERS .. any commands .. CHANGE_MEMBERS: the stop-sign
                     whatever comes behind it in g's log changes nothing
    generation g+1   begins with `next_state` of what the stop-sign left

The state that the stop-sign leaves is the same on each voter of g that applies it. So each of them
can begin g+1 by itself, and tell others: they need to agree on nothing more
(docs/decisions/0046-voters-change-by-generation.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId

MEMBER_COUNT_MAX: Final = 5
"""More would cost more for each command, and save from nothing that happens."""
FORMER_COUNT_MAX: Final = 1_024
"""Ids of nodes that have left are kept for ever."""
ADDRESS_CHARS_MAX: Final = 300

Members = Mapping[NodeId, str]
"""Node id -> host:port of its control process."""


def _nobody() -> Members:
    return MappingProxyType({})


@dataclass(frozen=True)
class Membership:
    """See the top of this file."""

    generation: int = 0
    """Counts changes of the voters."""
    members: Members = field(default_factory=_nobody)
    """Empty before rules 3: as configured."""
    former_node_ids: tuple[NodeId, ...] = ()
    """Who has left, sorted. Their ids are never used again."""
    next_members: Members = field(default_factory=_nobody)
    """Not empty: the generation has ended."""

    @property
    def has_ended(self) -> bool:
        """Nothing changes this state any more."""
        return bool(self.next_members)

    @property
    def leaving(self) -> frozenset[NodeId]:
        """Who is not among the next members."""
        return frozenset(self.members) - frozenset(self.next_members)

    def next(self) -> "Membership":
        """That of the next generation, which begins."""
        errors.invariant(self.has_ended, "a generation follows one that has ended")
        former = tuple(sorted({*self.former_node_ids, *self.leaving}))
        return Membership(self.generation + 1, self.next_members, former)

    def check(self) -> None:
        """Assert the invariants of all fields."""
        former = self.former_node_ids
        errors.invariant(former == tuple(sorted(set(former))), "former members are a sorted set")
        errors.invariant(
            not frozenset(former) & (frozenset(self.members) | frozenset(self.next_members)),
            "ids are never used again",
        )

    def why_not(  # noqa: PLR0911 - one for each reason
        self, members: Members, *, may_grow_from_one: bool
    ) -> str:
        """Why these cannot be the next members; empty: they can, as far as is known here.

        `may_grow_from_one`: several nodes may join one at once. They begin with its state as one
        more would, and no other could have anything to say.
        """
        added = frozenset(members) - frozenset(self.members)
        kept_count = len(members) - len(added)
        again = sorted(added & frozenset(self.former_node_ids))
        if again:
            return f"the id {again[0]!r} was used before"
        if len(members) > max(MEMBER_COUNT_MAX, len(self.members)):
            return f"more than {MEMBER_COUNT_MAX} members"
        if any(members[one] != self.members[one] for one in members if one not in added):
            return "a member's address does not change"
        addresses = list(members.values())
        if len(set(addresses)) != len(addresses):
            return "two members with one address"
        if len(self.former_node_ids) + len(self.members) > FORMER_COUNT_MAX:
            return "too many members have left"
        is_kept = kept_count == len(self.members)
        is_one_more = len(added) == 1 and is_kept
        is_from_one = len(self.members) == 1 and is_kept and may_grow_from_one
        if 2 * kept_count <= len(members) and not (is_one_more or is_from_one):
            return f"{len(added)} new members would outvote {kept_count} that stay"
        return ""


def members_of(data: Iterable[pb.MemberData]) -> Members | None:
    """The members that a command names; None: one is named twice, or has no address."""
    found: dict[NodeId, str] = {}
    for one in data:
        if one.node_id in found or not 0 < len(one.control_address) <= ADDRESS_CHARS_MAX:
            return None
        found[NodeId(one.node_id)] = one.control_address
    return MappingProxyType(dict(sorted(found.items())))


def members_data(members: Members) -> list[pb.MemberData]:
    """The same as messages, by id."""
    return [
        pb.MemberData(node_id=node_id, control_address=address)
        for node_id, address in sorted(members.items())
    ]


def membership_data(membership: Membership) -> pb.MembershipData | None:
    """As a message; None where nothing is known."""
    if membership == Membership():
        return None
    return pb.MembershipData(
        generation=membership.generation,
        members=members_data(membership.members),
        former_node_ids=membership.former_node_ids,
        next_members=members_data(membership.next_members),
    )


def membership_of(data: pb.MembershipData) -> Membership:
    """That of a message."""
    return Membership(
        generation=data.generation,
        members=_of(data.members),
        former_node_ids=tuple(NodeId(one) for one in data.former_node_ids),
        next_members=_of(data.next_members),
    )


def _of(data: Iterable[pb.MemberData]) -> Members:
    return MappingProxyType({NodeId(one.node_id): one.control_address for one in data})
