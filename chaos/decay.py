"""Bits that flip in the files of a node that runs: what a disk does over years, in a moment.

Only what is durable and meant to stay: in the log below the end of what was written when it was
looked at, in the other files anywhere behind the header. Flipping back is undoing: but only a bit
that is still as it was left, in a file that is still the same; what a node has repaired, replaced
or removed is its own business.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHARD: Final = "shard-0"
KINDS: Final = {
    "log": "log/*.log",
    "delay log": "wheel/*.dlog",
    "run": "wheel/*.run",
    "queue": "queues/*/*.cq",
    "sequences": "sequences/*.seq",
    "tombstones": "tombstones/*.tomb",
    "keys": "keys/*.keys",
}
"""Kind of file -> where such files lie in a shard's folder."""
_HEADER_BYTES: Final = 64
_RECENT_BYTES: Final = 64 << 10
_TRIES: Final = 20


@dataclass(frozen=True)
class Flip:
    """One bit of one file."""

    path: Path
    inode: int
    position: int
    mask: int
    byte: int
    """As it is since."""


class Decay:
    """Flips bits, and knows which."""

    def __init__(self, chooser: random.Random) -> None:
        """Nothing is flipped."""
        self._chooser = chooser
        self.flips: list[Flip] = []

    def flip(self, data: Path, kind: str, count: int = 1) -> list[Flip]:
        """Flip up to `count` bits in files of a kind; fewer where there are none.

        Half of them lie in what was written last, which is read soon; the others anywhere. Bytes
        that are zero are left alone: files have holes, and room for what is to come.

        Args:
            data: a node's directory.
            kind: a key of `KINDS`.
            count: how many bits.
        """
        found: list[Flip] = []
        for _ in range(count * _TRIES):
            if len(found) == count:
                break
            found += self._flip_one(data, kind)
        self.flips += found
        return found

    def _flip_one(self, data: Path, kind: str) -> Iterator[Flip]:
        paths = sorted((data / SHARD).glob(KINDS[kind]))
        is_recent = self._chooser.random() < 0.5
        if not paths:
            return
        path = paths[-1] if is_recent else self._chooser.choice(paths)
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            stat = os.fstat(handle)
            low = max(_HEADER_BYTES, stat.st_size - _RECENT_BYTES if is_recent else 0)
            if low >= stat.st_size:
                return
            position = self._chooser.randrange(low, stat.st_size)
            (byte,) = os.pread(handle, 1, position) or b"\0"
            if not byte:
                return
            mask = 1 << self._chooser.randrange(8)
            os.pwrite(handle, bytes((byte ^ mask,)), position)
        finally:
            os.close(handle)
        yield Flip(path, stat.st_ino, position, mask, byte ^ mask)

    def undo(self) -> int:
        """Flip back what is still as it was left; how many bits that were."""
        count = 0
        for one in self.flips:
            try:
                handle = os.open(one.path, os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                is_same = os.fstat(handle).st_ino == one.inode
                if is_same and os.pread(handle, 1, one.position) == bytes((one.byte,)):
                    os.pwrite(handle, bytes((one.byte ^ one.mask,)), one.position)
                    count += 1
            finally:
                os.close(handle)
        self.flips.clear()
        return count
