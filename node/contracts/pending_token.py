"""Page tokens of listings and bulk changes: how far one has come, opaque to clients.

    byte  size  little-endian
       0     1  version, 1
       1     1  purpose: 1 a listing, 2 a cancel, 3 a listing by key, 4 a move
       2     8  binding: BLAKE2b of purpose, topic, its number, and what is asked for
      10     8  due_ms       i64   everything up to this key is done
      18     8  sequence     u64
      26     8  end_sequence u64   messages from this one on are left alone
      34     8  seal: BLAKE2b of the bytes before

Both hashes are keyed by the cluster's id, so that a token of another cluster, or one put together
by guessing, is refused. It is no secret, and need not be: a forged token lists from another key.
A position is a key, and no place in a file or on a node: it holds after merges, restarts and
changes of master.
"""

from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.types import DUE_MS_MAX, SEQUENCE_MAX, Key, SequenceNumber, TopicId

VERSION: Final = 1
_BODY: Final = Struct("<BB8sqQQ")
_HASH_BYTES: Final = 8
TOKEN_BYTES: Final = 42
assert _BODY.size + _HASH_BYTES == TOKEN_BYTES


class Purpose(IntEnum):
    """What a token goes on with."""

    LIST = 1
    CANCEL = 2
    LIST_BY_KEY = 3
    RESCHEDULE = 4


@dataclass(frozen=True, slots=True)
class PendingQuery:
    """Which pending messages are asked for."""

    topic: str
    filter: FilterExpression
    """As it was sent; whatever it says, the node checks each message exactly."""
    from_ms: int = 0
    """Due at or after this instant."""
    to_ms: int = 0
    """Due before this instant; 0: no bound."""
    key_prefix: str = ""
    """What one of their keys begins with; empty: any messages. Then the filter is everything."""
    new_due_ms: int = 0
    """Where they are to be moved; 0: nowhere."""

    @property
    def after(self) -> Key:
        """The last key below the range."""
        return Key(self.from_ms - 1, SEQUENCE_MAX)

    @property
    def to(self) -> Key:
        """The last key of the range."""
        return Key(self.to_ms - 1 if self.to_ms else DUE_MS_MAX, SEQUENCE_MAX)

    def facts(self) -> tuple[object, ...]:
        """What a token is bound to. Raises InvalidFilter."""
        expression = self.filter.canonical()
        facts = str(expression.kind), expression.text, self.from_ms, self.to_ms
        more = self.key_prefix, self.new_due_ms
        return (*facts, *more) if any(more) else facts  # as nodes that know of neither have it


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Which messages that have a key are asked for."""

    topic: str
    key: bytes
    pending_only: bool = False
    from_ms: int = 0
    """Due at or after this instant, as the answer has it: a moved one where it was moved to."""
    to_ms: int = 0
    """Due before this instant; 0: no bound."""

    def facts(self) -> tuple[object, ...]:
        """What a token is bound to."""
        facts, bounds = (self.key, self.pending_only), (self.from_ms, self.to_ms)
        return (*facts, *bounds) if any(bounds) else facts  # as nodes that know of none have it


class Reached(NamedTuple):
    """How far a listing or a cancel has come."""

    after: Key
    """Everything up to this key is done."""
    end_sequence: SequenceNumber = SEQUENCE_MAX
    """Messages from this one on are left alone."""


class TokenMaker:
    """Makes and reads the tokens of one listing or cancel."""

    def __init__(
        self, cluster_id: bytes, purpose: Purpose, topic_id: TopicId, query: PendingQuery | KeyQuery
    ) -> None:
        """`topic_id`: a topic that was deleted and made again is another one.

        Raises:
            InvalidFilter: the filter cannot be understood.
        """
        text = repr((purpose.value, topic_id, query.topic, *query.facts()))
        self._key, self._purpose = cluster_id, purpose
        self._binding = self._hash(text.encode())

    def _hash(self, raw: bytes) -> bytes:
        return blake2b(raw, digest_size=_HASH_BYTES, key=self._key).digest()

    def pack(self, position: Reached) -> bytes:
        """The token of a position."""
        body = _BODY.pack(
            VERSION, self._purpose, self._binding, *position.after, position.end_sequence
        )
        return body + self._hash(body)

    def unpack(self, token: bytes) -> Reached:
        """The position of a token that `pack` made, for the same question.

        Raises:
            InvalidArgument: anything else.
        """
        if token[:1] not in (b"", bytes([VERSION])):
            raise _invalid(f"a page token of version {token[0]}, which this node does not know")
        body, seal = token[: _BODY.size], token[_BODY.size :]
        if len(token) != TOKEN_BYTES or seal != self._hash(body):
            raise _invalid("this is no page token of this cluster")
        _, _, binding, due_ms, sequence, end_sequence = _BODY.unpack(body)
        if binding != self._binding:
            raise _invalid("the page token is of another method, topic, filter or range")
        return Reached(Key(due_ms, sequence), SequenceNumber(end_sequence))


def _invalid(message: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(message, field="page_token")
