"""Dedup keys: the sender's own name of which one message may be pending at a time.

What lies in the log is a hash: XXH3 (128 bits, seed 0) of the key's UTF-8 bytes. The topic's
number stands beside it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from hourwheel import errors, limits
from hourwheel.outcomes import IfPending

DIGEST_BYTES: Final = 16
_BY_NUMBER: Final = {int(one): one for one in IfPending}


class DedupKey(NamedTuple):
    """A message's dedup key, as a record batch has it."""

    digest: bytes
    """16 bytes: the hash."""
    if_pending: int
    """`IfPending`; 0: there is no key."""


class DedupColumns(NamedTuple):
    """The dedup keys of n messages."""

    high: NDArray[np.uint64]
    """First half of each key's hash."""
    low: NDArray[np.uint64]
    if_pending: NDArray[np.uint8]
    """`IfPending` of each; 0: it has no key."""


NO_DEDUP_KEY: Final = DedupKey(bytes(DIGEST_BYTES), 0)


def make_dedup_key(key: str, if_pending: int) -> DedupKey:
    """Check a key and hash it; an empty one is none.

    Raises:
        InvalidArgument: no text, longer than `limits.KEY_BYTES_MAX`, or no `IfPending`; or the
            latter without a key.
    """
    try:
        raw = key.encode()
    except (UnicodeEncodeError, AttributeError):
        raise errors.InvalidArgument(f"a dedup key is not a Unicode text: {key!r}") from None
    if not raw:
        if if_pending:
            raise errors.InvalidArgument("if_pending has no meaning without a dedup_key")
        return NO_DEDUP_KEY
    if len(raw) > limits.KEY_BYTES_MAX:
        raise errors.InvalidArgument(
            f"a dedup key has 1 to {limits.KEY_BYTES_MAX} bytes",
            bytes=len(raw),
            bytes_max=limits.KEY_BYTES_MAX,
        )
    if if_pending not in _BY_NUMBER:
        raise errors.InvalidArgument("a dedup_key needs if_pending: reject, keep or replace")
    return DedupKey(xxh3_128_digest(raw), int(if_pending))


def pack_dedup_keys(keys: Sequence[DedupKey]) -> bytes:
    """The columns of n keys, one behind the other, with zeros to a multiple of 8 bytes."""
    digests, actions = zip(*keys, strict=True)
    halves = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
    columns = [halves[:, at].astype("<u8").tobytes() for at in (0, 1)]
    raw = b"".join((*columns, bytes(actions)))
    return raw + bytes(-len(raw) % 8)
