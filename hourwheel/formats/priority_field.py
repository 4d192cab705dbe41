"""A message's priority in its metadata: behind the expiry, or first where there is none.

    0x40 | u8: 1 to 9

It is protobuf's own encoding of `MessageMeta.priority` (uint32), where that is not 0. As with the
expiry (`formats.expiry_field`) readers need not walk through the other fields.
"""

from typing import Final

from hourwheel import errors
from hourwheel.formats.expiry_field import EXPIRES_BYTES, EXPIRES_KEY
from hourwheel.priorities import NO_PRIORITY, PRIORITY_MAX

PRIORITY_KEY: Final = 0x40
"""First byte of the field. Of no other: at these two places nothing else begins with it."""
PRIORITY_BYTES: Final = 2


def check_priority(priority: object) -> int:
    """The priority, if it is one. Raises InvalidArgument."""
    if type(priority) is not int or not NO_PRIORITY <= priority <= PRIORITY_MAX:
        raise errors.InvalidArgument(
            f"a priority is a whole number from {NO_PRIORITY} to {PRIORITY_MAX}, not {priority!r}",
            field="priority",
        )
    return priority


def pack_priority(priority: int) -> bytes:
    """The field; nothing for priority 0. Raises InvalidArgument."""
    return bytes((PRIORITY_KEY, priority)) if check_priority(priority) else b""


def priority_field(raw: bytes | memoryview) -> int:
    """`MessageMeta.priority` of an encoded meta; 0 without one."""
    at = EXPIRES_BYTES if len(raw) >= EXPIRES_BYTES and raw[0] == EXPIRES_KEY else 0
    if len(raw) < at + PRIORITY_BYTES or raw[at] != PRIORITY_KEY:
        return NO_PRIORITY
    return raw[at + 1]
