"""What lies on a simulated disk: files and folders, as seen and as durable."""

from collections.abc import Callable
from random import Random
from typing import Final

from hourwheel import errors

SECTOR_BYTES: Final = 512
"""What a disk writes at once or not at all; a torn write may end inside one all the same."""
BLOCK_BYTES: Final = 4096
"""What room is counted in."""


class Inode:
    """A file's bytes.

    Attributes:
        data: what programs see.
        durable: what is on the medium.
        blocks: numbers of the blocks that take room; others are holes.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.blocks: set[int] = set()
        self._dirty: list[tuple[int, int]] = []
        self._is_mapped = False

    def write(self, raw: bytes, position: int) -> None:
        end = position + len(raw)
        if end > len(self.data):
            self.truncate(end)
        self.data[position:end] = raw
        self._dirty.append((position, end))
        self.blocks.update(range(position // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < len(self.data):
            self._dirty.append((size_bytes, len(self.data)))
            del self.data[size_bytes:]
            last = -(-size_bytes // BLOCK_BYTES)
            self.blocks = {block for block in self.blocks if block < last}
        else:
            self.data += bytes(size_bytes - len(self.data))

    def map(self) -> memoryview:
        self._is_mapped = True
        return memoryview(self.data)

    def unmap(self) -> None:
        """Whoever had it mapped is gone: views that are left show it no more."""
        if self._is_mapped:
            self.data = bytearray(self.data)

    def check_stores(self, path: str) -> None:
        """A real disk that is full would have killed the process with SIGBUS."""
        if self._is_mapped:
            for block in range(-(-len(self.data) // BLOCK_BYTES)):
                if block not in self.blocks:
                    part = self.data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                    errors.invariant(not any(part), "a store into a hole", file=path, block=block)

    def datasync(self) -> None:
        if self._is_mapped:
            self.durable[:] = self.data
        else:
            _resize(self.durable, len(self.data))
            for from_, to in self._dirty:
                self.durable[from_:to] = self.data[from_:to]
        self._dirty.clear()

    def flip_bit(self, position: int, bit: int) -> None:
        for raw in (self.data, self.durable):
            if position < len(raw):
                raw[position] ^= 1 << bit

    def crash(self, rng: Random) -> None:
        """Keep a random mix of what is durable and what is not; forget who had the file open."""
        size = self._size_after_crash(rng)
        kept = self.durable[:size]
        _resize(kept, size)
        seen = self.data[:size]
        _resize(seen, size)
        mix = rng.choice((_keep_nothing, _keep_all, _keep_prefix, _keep_sectors))
        dirty = [(0, size)] if self._is_mapped else self._dirty
        end = min(size, len(self.data))  # behind it a truncation was lost, and no byte with it
        for from_, to in dirty:
            mix(kept, seen, from_, min(to, end), rng)
        self.data = kept
        self.durable = bytearray(kept)
        self.blocks &= set(range(-(-size // BLOCK_BYTES)))
        self._dirty = []
        self._is_mapped = False

    def _size_after_crash(self, rng: Random) -> int:
        low, high = sorted((len(self.durable), len(self.data)))
        return rng.choice((len(self.durable), len(self.data), rng.randint(low, high)))


def _resize(raw: bytearray, size: int) -> None:
    del raw[size:]
    raw += bytes(size - len(raw))


def _keep_nothing(kept: bytearray, seen: bytearray, from_: int, to: int, rng: Random) -> None:
    """The write is lost; where it made the file longer, zeros are left."""


def _keep_all(kept: bytearray, seen: bytearray, from_: int, to: int, rng: Random) -> None:
    kept[from_:to] = seen[from_:to]


def _keep_prefix(kept: bytearray, seen: bytearray, from_: int, to: int, rng: Random) -> None:
    """The write is torn at any byte."""
    if from_ < to:
        end = rng.randint(from_, to)
        kept[from_:end] = seen[from_:end]


def _keep_sectors(kept: bytearray, seen: bytearray, from_: int, to: int, rng: Random) -> None:
    """Sectors are written in any order, each wholly, not at all or torn."""
    at = from_
    while at < to:
        end = min(to, at - at % SECTOR_BYTES + SECTOR_BYTES)
        mix = rng.choice((_keep_nothing, _keep_all, _keep_all, _keep_prefix))
        mix(kept, seen, at, end, rng)
        at = end


class Folder:
    """Names of files.

    Attributes:
        names: what programs see.
    """

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        self._pending: list[Callable[[dict[str, Inode]], None]] = []

    @property
    def durable_names(self) -> dict[str, Inode]:
        """What is there after a power cut, whatever else is."""
        return self._durable

    def _change(self, change: Callable[[dict[str, Inode]], None]) -> None:
        change(self.names)
        self._pending.append(change)

    def link(self, name: str, inode: Inode) -> None:
        self._change(lambda names: names.update({name: inode}))

    def remove(self, name: str) -> None:
        self._change(lambda names: _forget(names, name))

    def rename(self, old: str, new: str) -> None:
        inode = self.names[old]

        def change(names: dict[str, Inode]) -> None:
            names.pop(old, None)
            names[new] = inode

        self._change(change)

    def sync(self) -> None:
        self._durable = dict(self.names)
        self._pending.clear()

    def crash(self, rng: Random) -> None:
        """Keep a random part of the changes that were not synced: none, all, the first, any."""
        count = len(self._pending)
        kept = rng.choice(
            (
                range(0),
                range(count),
                range(rng.randint(0, count)),
                [index for index in range(count) if rng.random() < 0.5],
            )
        )
        for index in kept:
            self._pending[index](self._durable)
        self._pending.clear()
        self.names = dict(self._durable)


def _forget(names: dict[str, Inode], name: str) -> None:
    names.pop(name, None)
