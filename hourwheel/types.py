"""Names for the numbers and ids that must never be mixed up (the glossary is docs/GLOSSARY.md).

Each is an `int` at run time; a node's id is a `str`. `Key` is the one order that everything
scheduled is kept in.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, NewType, TypeVar, cast

Offset = NewType("Offset", int)
"""A byte address in the commit log of one shard; it only grows, across segments."""
SequenceNumber = NewType("SequenceNumber", int)
"""The dense number of a published message in its shard, from 0."""
Position = NewType("Position", int)
"""The ordinal of an entry in one consume queue, from 0."""
Epoch = NewType("Epoch", int)
"""The number of a mastership; it only grows."""
NodeId = NewType("NodeId", str)
"""The name of a node in its cluster, as its configuration has it; never given to another node."""
ShardId = NewType("ShardId", int)
TopicId = NewType("TopicId", int)
GroupId = NewType("GroupId", int)
TopicQueue = NewType("TopicQueue", int)
"""`topic_id << 8 | queue`: which consume queue an entry belongs to."""

_Number = TypeVar("_Number", bound=int)

QUEUE_BITS: Final = 8
QUEUE_COUNT_MAX: Final = 1 << QUEUE_BITS
TOPIC_ID_MAX: Final = (1 << (32 - QUEUE_BITS)) - 1
DISPATCH_TOPIC: Final = "%DISPATCH%"
"""One of the cluster's own, with nothing in it: while it is paused, pending messages wait."""
SEQUENCE_MAX: Final = SequenceNumber((1 << 63) - 1)
FIRST_SEQUENCE: Final = SequenceNumber(0)
FIRST_OFFSET: Final = Offset(0)
"""Where each log begins, as long as nothing of it is deleted."""
FIRST_POSITION: Final = Position(0)
"""Of the first entry that a queue ever had."""
DUE_MS_MAX: Final = (1 << 53) - 1
"""No instant beyond this is ever stored: exact in every language, far past any horizon."""
NO_NODE: Final = NodeId("")
"""Where a node could be named and none is: no master known, no leader, a node without a name."""
NO_EPOCH: Final = Epoch(0)
"""Before the first mastership, and where none is known."""
NO_TOPIC: Final = TopicId(0)
"""Where a topic could be named and none is; the number of no topic."""
NO_GROUP: Final = GroupId(0)
"""The same of groups."""
FIRST_SHARD: Final = ShardId(0)
"""The only one of a cluster with one shard."""


class Key(NamedTuple):
    """The order of everything scheduled: (due time, sequence). The cursor is a Key.

    Plain numbers: most keys are bounds between messages, at any instant, and of no message.
    """

    due_ms: int
    sequence: int


KEY_MIN: Final = Key(-1, 0)
"""Below every message."""


def numbers_from(first: _Number, count: int) -> Sequence[_Number]:
    """So many that follow on one another, as the sequences of a batch; costs nothing a message."""
    return cast("Sequence[_Number]", range(first, first + count))


def topic_queue(topic_id: TopicId, queue: int) -> TopicQueue:
    """Join a topic's number and one of its queues into the number that entries carry."""
    return TopicQueue(topic_id << QUEUE_BITS | queue)


def topic_of(value: int) -> TopicId:
    """The topic's number of a `TopicQueue`."""
    return TopicId(value >> QUEUE_BITS)


def queue_of(value: int) -> int:
    """The queue's ordinal of a `TopicQueue`."""
    return value & (QUEUE_COUNT_MAX - 1)
