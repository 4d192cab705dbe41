"""Finds the topics of messages that a call names by id.

A message's topic is with its unit while it is in the wheel, and with its PUBLISH while the log has
that. The log tells it by the batch's head alone, which has a checksum of its own.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import HEADER_BYTES, Header, Kind, header_crc
from hourwheel.types import QUEUE_BITS, SequenceNumber
from node.shard.named_messages import look_up, rows_of
from node.shard.shard import Shard
from storage.log.header_walk import walk_headers

NO_TOPIC: Final = -1
WHEEL_ROWS: Final = 256
"""Messages that are looked for in the wheel at one time."""
_UNREADABLE: Final = (
    *(errors.CorruptLog, errors.InvalidBatch, errors.DiskFailed),
    FileNotFoundError,
)
"""What a place of the log raises that is damaged, or has gone."""


def find_publish_header(shard: Shard, sequence: SequenceNumber) -> Iterator[Header | None]:
    """Looks for the batch that published a message: after each step its header, or None: not yet.

    It ends without one where the log does not have it any more.

    Raises:
        CorruptLog: there is damage before it.
    """
    log, views = shard.log, shard.views
    for header in walk_headers(log, log.find_offset(sequence), views.applied_offset):
        if header.base_sequence > sequence:
            return
        is_it = header.kind == Kind.PUBLISH and sequence < header.base_sequence + header.count
        yield header if is_it else None
        if is_it:
            return


class TopicSearch:
    """Looks for the topics of n messages that are named by id; a topic never changes.

    What does not exist is looked for in both places, as what is there may be.

    Invariant: `topic_ids` has no topic of an id that no message has.
    """

    def __init__(self, shard: Shard, ids: NDArray[Any]) -> None:
        """Nothing is found yet. `ids`: array[n] of ID_DTYPE."""
        self._shard = shard
        self._rows = rows_of(ids, shard.shard_id)
        self.topic_ids = np.full(len(ids), NO_TOPIC, np.int64)

    def in_wheel(self) -> Iterator[None]:
        """Look there, some at a time.

        Raises:
            CorruptFile: a run is damaged.
        """
        for first in range(0, len(self._rows), WHEEL_ROWS):
            views, rows = self._shard.views, self._rows[first : first + WHEEL_ROWS]
            named = look_up(views, rows)
            attempts = np.where(named.are_moved, 0, 1).astype(np.uint16)
            here, units = views.wheel.find_everywhere(
                named.current_due_ms, named.sequences, attempts
            )
            topics = units["topic_queue"].astype(np.int64) >> QUEUE_BITS
            self.topic_ids[first + here] = np.where(named.exist[here], topics, NO_TOPIC)
            yield

    def in_log(self, rest: NDArray[np.int64]) -> Iterator[None]:
        """Look there for some of them, found or not, header by header."""
        rest = rest[np.argsort(self._rows["sequence"][rest], kind="stable")]
        ascending = self._rows["sequence"][rest]
        given = int(np.searchsorted(ascending, np.uint64(self._shard.views.next_sequence)))
        at = 0
        while at < given:
            end = int(np.searchsorted(ascending, ascending[at], "right"))
            try:
                for header in find_publish_header(self._shard, SequenceNumber(int(ascending[at]))):
                    if header is not None:
                        last = np.uint64(header.base_sequence + header.count - 1)
                        end = int(np.searchsorted(ascending, last, "right"))
                        self._take(header, rest[at:end])
                    yield
            except _UNREADABLE:
                pass  # as if it were not there: to be refused is the safe side
            at = end

    def _take(self, header: Header, ordinals: NDArray[np.int64]) -> None:
        """The topics of messages that one batch published. Raises InvalidBatch, CorruptLog."""
        size = HEADER_BYTES + header.stamped_bytes
        head = self._shard.log.read(header.offset, size)
        if header_crc(head) != header.header_crc:
            raise errors.InvalidBatch("record batch header fails its CRC32C")
        of_each = np.frombuffer(head, "<u4", header.count, HEADER_BYTES + 8 * header.count)
        rows = self._rows[ordinals]
        topics = of_each[rows["sequence"] - np.uint64(header.base_sequence)] >> QUEUE_BITS
        exist = look_up(self._shard.views, rows).exist
        self.topic_ids[ordinals[exist]] = topics[exist]
