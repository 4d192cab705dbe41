"""The receiver's input and output: the limits of a receive, and what it delivers."""

from typing import NamedTuple

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.types import Position
from node.delivery.message_lease import Lease
from node.shard.group_queue import GroupQueue
from storage.views.unit import Row, Units


class Delivery(NamedTuple):
    """Leased messages of one queue, with their bytes."""

    lease: Lease
    topic: str
    """Topic that they were published to."""
    units: Units
    """Structured array[n] of UNIT, in queue order; their places are the node's own business."""
    blobs: bytes
    """Meta and body of each message, one behind the other."""
    receive_ms: int
    to_check: FilterExpression | None = None
    """Some of them may not match this: the client has to check."""
    first_ordinal: int = 0
    """Of the first one, in the lease."""
    is_repeated: bool = False
    """They were delivered before, by this lease."""
    rows: list[Row] | None = None
    """The units as numbers of Python; None: they are many."""

    @property
    def invisible_until_ms(self) -> int:
        """When the lease ends."""
        return self.lease.until_ms


class Corrupt(NamedTuple):
    """A message in a queue whose bytes, as they lie here, are not what was published."""

    group_queue: GroupQueue
    position: Position
    unit: Units
    """Array[1] of UNIT."""
    error: errors.DataLoss


class ReceiveLimits(NamedTuple):
    """How much a Receive may lease, for how long, and its reading of the clock."""

    count_max: int
    bytes_max: int
    invisible_ms: int
    now_ms: int
