"""Names of the groups of a broadcast's members: "%BROADCAST%<group>|<member>".

    each member gets every message <- it is a group of its own, with a window of its own

No ordinary group is called so, since '%' is in no name that a client may choose. By name the groups
of members stand together, and those of one broadcast next to each other. A member's own name has no
'|', so that a group's name has one reading.
"""

import re
from typing import Final, NamedTuple

from hourwheel.errors import InvalidGroup
from hourwheel.limits import NAME_BYTES_MAX

MEMBER_PREFIX: Final = "%BROADCAST%"
SEPARATOR: Final = "|"
_GROUP: Final = re.compile(r"[A-Za-z0-9_.|-]+")
_MEMBER: Final = re.compile(r"[A-Za-z0-9_.-]+")


class Membership(NamedTuple):
    """A member of a broadcast."""

    group: str
    """The broadcast."""
    member: str


def member_group_name(group: str, member: str) -> str:
    """The name of a member's own group.

    Raises:
        InvalidGroup: one of the names is empty, has a character that is not allowed, or both
            together are too long.
    """
    name = f"{MEMBER_PREFIX}{group}{SEPARATOR}{member}"
    if not _GROUP.fullmatch(group) or not _MEMBER.fullmatch(member) or len(name) > NAME_BYTES_MAX:
        room = NAME_BYTES_MAX - len(MEMBER_PREFIX) - len(SEPARATOR)
        raise InvalidGroup(
            "a broadcast's name is of letters, digits, '_', '.', '|' or '-', its member's of the"
            f" same without '|', and both together have at most {room}, not"
            f" {group[:200]!r} and {member[:200]!r}"
        )
    return name


def is_member_group(name: str) -> bool:
    """Whether a group of this name is a member's."""
    return name.startswith(MEMBER_PREFIX)


def membership_of(name: str) -> Membership:
    """Of which broadcast a group is which member. Raises InvalidGroup: of none."""
    group, _, member = name.removeprefix(MEMBER_PREFIX).rpartition(SEPARATOR)
    if not is_member_group(name) or member_group_name(group, member) != name:
        raise InvalidGroup(f"{name[:200]!r} is no member of a broadcast")
    return Membership(group, member)
