"""When a message expires: the first field of its metadata, so that readers find it without a walk.

    0x39 | i64: an instant, or negative: minus milliseconds after the message was stored

It is protobuf's own encoding of `MessageMeta.expires_ms` (sfixed64).
"""

from struct import Struct
from typing import Final

_EXPIRES: Final = Struct("<Bq")
EXPIRES_KEY: Final = 0x39
"""First byte of each meta that says when its message expires, and of no other. The next eight bytes
are its value."""
EXPIRES_BYTES: Final = _EXPIRES.size


def pack_expires(expires_ms: int) -> bytes:
    """The field."""
    return _EXPIRES.pack(EXPIRES_KEY, expires_ms)


def expiry_of(expires_ms: int, store_ms: int) -> int:
    """The instant in epoch milliseconds that `MessageMeta.expires_ms` means; 0: never.

    `store_ms`: when the message was accepted.
    """
    return expires_ms if expires_ms >= 0 else store_ms - expires_ms


def expires_field(raw: bytes | memoryview) -> int:
    """`MessageMeta.expires_ms` of an encoded meta; 0 without one."""
    if len(raw) < EXPIRES_BYTES or raw[0] != EXPIRES_KEY:
        return 0
    expires_ms: int = _EXPIRES.unpack_from(raw)[1]
    return expires_ms
