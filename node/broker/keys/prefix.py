"""Pending messages chosen by what a key of theirs begins with, in the place of a filter.

The key index has hashes of keys, and does not know their order: each message's metadata is read.
"""

import numpy as np
from numpy.typing import NDArray

from storage.views.key_rows import keys_in

_MESSAGE_WORK = 128
_BYTES_WORK = 8
"""What reading a message's keys costs, as `BlockFilter.check_work` has it: some 5 us, and a unit
more for each 8 bytes. The largest metadata is far from too much for one step."""


class KeyPrefix:
    """Is a `node.shard.pending_scan.Filter`."""

    needs_metas = True

    def __init__(self, prefix: str) -> None:
        """`prefix`: not empty."""
        self._prefix = prefix.encode()

    def check_work(self, meta_lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n]: what `exact` costs for metas of so many bytes."""
        work: NDArray[np.int64] = meta_lengths // _BYTES_WORK + _MESSAGE_WORK
        return work

    def maybe(self, genes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """bool[n]: any may: genes say nothing of keys."""
        return np.ones(len(genes), np.bool_)

    def exact(
        self, metas: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """bool[n]: which of the n encoded metas in `metas` have such a key."""
        view = memoryview(metas)
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        found = [self._has(bytes(view[at : at + size])) for at, size in spans]
        return np.array(found, np.bool_)

    def begin_check(self, raw: bytes) -> "_Whole":
        """The same for one message by itself."""
        return _Whole(is_match=self._has(raw))

    def _has(self, meta: bytes) -> bool:
        return any(key.startswith(self._prefix) for key in keys_in(meta))


class _Whole:
    """A check that has been made. Is a `node.shard.pending_scan.Check`."""

    def __init__(self, *, is_match: bool) -> None:
        self._is_match = is_match

    def step(self, _work: int) -> bool:
        """The answer."""
        return self._is_match
