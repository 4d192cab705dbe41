"""How a generation of voters begins, on its way to a node that does not know of it. Pure.

In parts, one behind the other, with a SHA-256 of all of it in the last. Who joins or was behind
needs nothing else: the state says who the members are.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hourwheel.internal.v1 import raft_pb2 as pb
from hourwheel.types import NodeId
from replication.raft.codec import refuse
from replication.raft.snapshot import SNAPSHOT_BYTES_MAX

PART_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class FirstState:
    """What a node tells those of earlier generations.

    Attributes:
        state: encoded ControlState, the same on all nodes of the generation.
        member_ids: who gets it.
        farewell: encoded ControlState in which nothing stands but who has left.
        former_ids: who gets that: former members.
    """

    state: bytes
    member_ids: frozenset[NodeId]
    farewell: bytes = b""
    former_ids: frozenset[NodeId] = frozenset()

    @property
    def known_ids(self) -> frozenset[NodeId]:
        """Who may get anything."""
        return self.member_ids | self.former_ids

    def parts(self, generation: int, peer_id: NodeId) -> Iterator[pb.GenerationPart]:
        """All that a peer gets, in order."""
        shown = self.state if peer_id in self.member_ids else self.farewell
        digest = hashlib.sha256(shown).digest()
        for at in range(0, len(shown), PART_BYTES):
            is_last = at + PART_BYTES >= len(shown)
            yield pb.GenerationPart(
                generation=generation,
                data=shown[at : at + PART_BYTES],
                digest=digest if is_last else b"",
            )


class Incoming:
    """Parts as they come."""

    def __init__(self, generation: int) -> None:
        """Of the generation that the peer has said it is of."""
        self._generation = generation
        self._state = bytearray()

    def take(self, part: pb.GenerationPart) -> bytes | None:
        """The whole state, when this is its last part.

        Raises:
            InvalidBatch: it is not what it says it is.
        """
        if part.generation != self._generation or not part.data:
            raise refuse("a part of another generation")
        if len(self._state) + len(part.data) > SNAPSHOT_BYTES_MAX:
            raise refuse("a state that is too long")
        self._state += part.data
        if not part.digest:
            return None
        if hashlib.sha256(self._state).digest() != part.digest:
            raise refuse("a state that is not the one of its digest")
        return bytes(self._state)
