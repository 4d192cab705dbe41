"""Damage in the files of an engine that runs, and peers that have what it lost."""

from collections.abc import Sequence
from pathlib import Path

from node.shard.message_lookup import Wanted
from tests.support.engine_world import EngineWorld


class Flip:
    """A bit of a body that is flipped in a file, and can be flipped back."""

    def __init__(self, root: Path, body: bytes, pattern: str = "shard-0/log/*.log") -> None:
        """Flip a bit in the first place where `body` is found."""
        places = ((path, path.read_bytes().find(body)) for path in sorted(root.glob(pattern)))
        self.path, self.at = next(one for one in places if one[1] >= 0)
        self.flip()

    def flip(self) -> None:
        """And back."""
        with self.path.open("r+b") as file:
            file.seek(self.at)
            (byte,) = file.read(1)
            file.seek(self.at)
            file.write(bytes((byte ^ 1,)))

    def is_there(self, body: bytes) -> bool:
        """Whether the file has the body as it was."""
        return self.path.read_bytes()[self.at : self.at + len(body)] == body


class FakePeers:
    """Other replicas: they have `blobs` by sequence, and a log whose bytes are `log`."""

    def __init__(self) -> None:
        self.blobs: dict[int, bytes] = {}
        self.log: dict[int, bytes] = {}
        """Whole segments as they were, by start offset."""
        self.asked: list[list[int]] = []
        """Sequences of each call."""

    def remember(self, world: EngineWorld) -> None:
        """The log as it is now is what the others have."""
        shard = world.engine.shard
        start, end = shard.log.start_offset, shard.log.flushed_end_offset
        self.log[start] = shard.log.read(start, end - start)

    async def fetch_messages(self, wanted: Sequence[Wanted]) -> dict[int, bytes]:
        self.asked.append([one.sequence for one in wanted])
        found = {ordinal: self.blobs.get(one.sequence) for ordinal, one in enumerate(wanted)}
        return {
            ordinal: raw
            for ordinal, raw in found.items()
            if raw is not None and wanted[ordinal].is_right(raw)
        }

    async def fetch_log(self, offset: int, bytes_max: int, is_right: object) -> bytes | None:
        assert bytes_max
        assert callable(is_right)
        for start, raw in self.log.items():
            if start <= offset < start + len(raw):
                size = int.from_bytes(raw[offset - start + 8 : offset - start + 12], "little")
                piece = raw[offset - start : offset - start + size]
                return piece if is_right(piece) else None
        return None


def join_peers(world: EngineWorld) -> FakePeers:
    """Give an engine peers."""
    peers = FakePeers()
    world.engine.damage.files.peers = peers  # type: ignore[assignment]
    return peers
