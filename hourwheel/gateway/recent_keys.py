"""Which request an idempotency key stood for lately, as far as this gateway has seen it.

That a call happens once is the nodes' business, whichever gateway it comes by. They compare bodies
and metadata of messages as long as the first ones are in their log; this compares all that a
request says, due times, too, of the calls that one gateway has seen last. Pure.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from hourwheel.gateway.problems import KeyReused

RECENT_MAX: Final = 16_384
_DIGEST_BYTES: Final = 16


class RecentKeys:
    """The last ones."""

    def __init__(self, count_max: int = RECENT_MAX) -> None:
        """None yet; `count_max`: older ones are forgotten."""
        self._count_max = count_max
        self._digests: OrderedDict[Hashable, bytes] = OrderedDict()

    def check(self, key: Hashable, body: bytes) -> bool:
        """Whether it was not known before. Raises KeyReused: it stood for another body."""
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        is_new = key not in self._digests
        known = self._digests.setdefault(key, digest)
        if known != digest:
            raise KeyReused("the idempotency key stood for another request before")
        self._digests.move_to_end(key)
        if len(self._digests) > self._count_max:
            self._digests.popitem(last=False)
        return is_new

    def forget(self, key: Hashable) -> None:
        """What it stood for has certainly not happened."""
        self._digests.pop(key, None)
