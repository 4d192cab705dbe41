"""A cache whose bound is in bytes: what was used least recently goes first."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Keeps values up to so many bytes. For several threads at once.

    Invariant: `used_bytes` is the sum of what the entries were said to weigh, at most `bytes_max`.
    """

    def __init__(self, bytes_max: int) -> None:
        """Nothing yet."""
        self.bytes_max = bytes_max
        self._lock = Lock()
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used_bytes = 0

    def find(self, key: K) -> V | None:
        """The value, which counts as used now; or None."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def keep(self, key: K, value: V, size_bytes: int) -> None:
        """Keep a value of so many bytes, key included; not if it alone is more than may be."""
        with self._lock:
            former = self._kept.pop(key, None)
            if former is not None:
                self._used_bytes -= former[1]
            if size_bytes > self.bytes_max:
                return
            self._kept[key] = value, size_bytes
            self._used_bytes += size_bytes
            while self._used_bytes > self.bytes_max:
                _, (_, freed_bytes) = self._kept.popitem(last=False)
                self._used_bytes -= freed_bytes

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """What is kept weighs."""
        return self._used_bytes

    def __len__(self) -> int:
        """Values kept."""
        return len(self._kept)
