"""Which messages are rejected: the requests of producers, checked again by the log alone.

A PUBLISH batch, or in a merged batch the neighbours of one producer, is a request; the commit of a
transaction is none. Apply rejects it
where it is a duplicate, out of order, or of an unknown producer; `storage.views.producer_state` has
the rules. Almost all requests follow on the one before, so what travels is shortened: of a
chain of requests the first and the last ones, as many as decide about what comes next, and one row
for all between them.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import Flag, Kind
from hourwheel.internal.v1 import state_pb2
from hourwheel.types import QUEUE_BITS, Epoch, SequenceNumber
from spark_jobs.logs.block_table import BlockTable
from storage.views.producer_state import Duplicate, ProducerStates

REQUEST: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("store_ms", "<i8"),
        ("producer", "<u8"),
        ("first", "<u8"),
        ("sequence", "<u8"),
        ("count", "<u8"),
        ("epoch", "<u4"),
        ("topic_id", "<u4"),
        ("requests", "<u4"),
    ]
)
"""A request, or `requests` of them that follow on one another, in the producer's numbers (`first`,
`count`) and the shard's (`sequence`, of the first)."""
_KEPT: Final = 8
"""Of a chain's beginning and end; more than a producer is remembered by."""
FIRSTS: Final = _KEPT
"""So many requests of a producer are single rows at its beginning, whatever is shortened."""
_PUBLISH: Final = int(Kind.PUBLISH)
_WIDE: Final = int(Flag.PER_MESSAGE_PRODUCER)
_OCCURRENCES: Final = int(Flag.OCCURRENCES)

Array = NDArray[Any]


def requests_of(table: BlockTable) -> Array:
    """REQUEST[n]: the requests with a producer of a piece of a log, in its order."""
    owners = table.select(_PUBLISH)
    owners = owners[(table.headers["flags"][owners] & int(Flag.TRANSACTION)) == 0]
    headers = table.headers[owners]
    is_wide = (headers["flags"] & _WIDE) != 0
    plain = headers[~is_wide & (headers["producer_id"] != 0)]
    found = np.zeros(len(plain), REQUEST)
    if len(plain):
        found["topic_id"] = _first_topics(table, owners[~is_wide & (headers["producer_id"] != 0)])
    for name, source in _PLAIN.items():
        found[name] = plain[source]
    found["requests"] = 1
    if not is_wide.any():
        return found
    both = np.concatenate((found, _wide_requests(table)))
    return both[np.lexsort((both["sequence"], both["offset"]))]


_PLAIN: Final = {
    "offset": "offset",
    "store_ms": "store_ms",
    "producer": "producer_id",
    "first": "producer_sequence",
    "sequence": "base_sequence",
    "count": "count",
    "epoch": "epoch",
}


def _first_topics(table: BlockTable, owners: Array) -> Array:
    """Topic of the first message of each batch: a batch without producer columns has one topic."""
    headers = table.headers[owners]
    at = table.at[owners] + 96 + 8 * headers["count"].astype(np.int64)
    words = np.frombuffer(table.raw, "<u4", len(table.raw) // 4)
    topics: Array = words[at // 4] >> QUEUE_BITS
    return topics


def _wide_requests(table: BlockTable) -> Array:
    messages = table.messages
    wide = np.flatnonzero((messages.of_batch("flags") & (_WIDE | _OCCURRENCES)) == _WIDE)
    producer = messages.column("producer_id")[wide]
    batch = messages.batch[wide]
    if not len(wide):
        return np.zeros(0, REQUEST)
    is_new = np.ones(len(wide), np.bool_)
    is_new[1:] = (producer[1:] != producer[:-1]) | (batch[1:] != batch[:-1])
    starts = np.flatnonzero(is_new)
    counts = np.diff(starts, append=len(wide))
    keep = producer[starts] != 0
    starts, counts = starts[keep], counts[keep]
    found = np.zeros(len(starts), REQUEST)
    chosen = wide[starts]
    found["producer"], found["count"], found["requests"] = producer[starts], counts, 1
    for name, source in {
        "offset": "offset",
        "store_ms": "store_ms",
        "first": "producer_sequence",
        "sequence": "sequence",
        "epoch": "epoch",
        "topic_id": "topic_id",
    }.items():
        found[name] = messages.column(source)[chosen]
    return found


class RejectedRanges(NamedTuple):
    """Sequences that are no messages: [starts[i], ends[i]), ascending."""

    starts: Array
    """uint64[n]."""
    ends: Array
    is_certain: bool
    """False: some requests came in a way that the shortened rows cannot tell about."""

    def with_others(self, sequences: list[int]) -> "RejectedRanges":
        """These, and single ones that are not among them."""
        if not sequences:
            return self
        more = np.array(sequences, np.uint64)
        starts = np.concatenate((self.starts, more))
        ends = np.concatenate((self.ends, more + np.uint64(1)))
        order = np.argsort(starts, kind="stable")
        return RejectedRanges(starts[order], ends[order], self.is_certain)

    def contains(self, sequences: Array) -> Array:
        """bool[n]: which of these are rejected."""
        if not len(self.starts):
            return np.zeros(len(sequences), np.bool_)
        at = np.searchsorted(self.starts, sequences, "right") - 1
        inside = sequences < self.ends[np.maximum(at, 0)]
        found: Array = inside & (at >= 0)
        return found

    def joined(self, more: Sequence[tuple[int, int]]) -> "RejectedRanges":
        """These and other ranges [first, end)."""
        if not more:
            return self
        rest = np.array(more, np.uint64)
        starts = np.concatenate((self.starts, rest[:, 0]))
        order = np.argsort(starts)
        return RejectedRanges(
            starts[order], np.concatenate((self.ends, rest[:, 1]))[order], self.is_certain
        )


class Request:
    """Rules about requests; a namespace."""

    @staticmethod
    def shortened(requests: Array, breaks: Array) -> Array:
        """The same requests with the middles of chains in one row each.

        Args:
            requests: REQUEST[n] in the order of the log.
            breaks: uint64[m] ascending: offsets of records behind which a producer may be forgotten
                or its topic gone: no chain goes over them.
        """
        if len(requests) <= 2 * _KEPT:
            return requests
        order = np.lexsort((requests["sequence"], requests["producer"]))
        rows = requests[order]
        span = np.searchsorted(breaks, rows["offset"])
        goes_on = (
            (rows["producer"][1:] == rows["producer"][:-1])
            & (rows["first"][1:] == rows["first"][:-1] + rows["count"][:-1])
            & (rows["topic_id"][1:] == rows["topic_id"][:-1])
            & (span[1:] == span[:-1])
        )
        starts = np.flatnonzero(np.concatenate(([True], ~goes_on)))
        counts = np.diff(starts, append=len(rows))
        inside = np.arange(len(rows)) - np.repeat(starts, counts)
        to_end = np.repeat(counts, counts) - inside
        middle = (inside >= _KEPT) & (to_end > _KEPT)
        first_of_middle = middle & (inside == _KEPT)
        kept = rows[~middle | first_of_middle]
        lengths = np.repeat(counts, counts)[~middle | first_of_middle] - 2 * _KEPT
        is_middle = first_of_middle[~middle | first_of_middle]
        sums = np.concatenate(([0], np.cumsum(rows["count"].astype(np.int64))))
        at = np.flatnonzero(first_of_middle)
        kept["requests"][is_middle] = lengths[is_middle]
        kept["count"][is_middle] = sums[at + lengths[is_middle]] - sums[at]
        found: Array = kept[np.argsort(kept["sequence"], kind="stable")]
        return found

    @staticmethod
    def find_rejected(
        requests: Array,
        expires: Array,
        deleted: dict[int, int],
        *,
        is_whole: bool,
        rejected_before: Collection[int] = (),
    ) -> RejectedRanges:
        """Which sequences are rejected.

        Args:
            requests: all of a log, shortened or not, in its order.
            expires: EXPIRE[m]: the EXPIRE records, in order.
            deleted: topic id -> offset of the record that deleted it.
            is_whole: the log begins at 0; else it is unknown what producers had sent before, and a
                producer's first request counts as its next.
            rejected_before: first sequences of requests that are rejected, as long as nothing is
                known of their producers: `trimmed_requests.rejected_firsts`.
        """
        return Request._followed(requests, expires, deleted, is_whole, rejected_before)[0]

    @staticmethod
    def remembered(
        requests: Array, expires: Array, deleted: dict[int, int]
    ) -> list[state_pb2.ProducerState]:
        """What producers are remembered by behind these requests of a log that begins at 0.

        As `find_rejected`; behind the last of the expiries, too.
        """
        states = Request._followed(requests, expires, deleted, is_whole=True, rejected_before=())[1]
        last = int(requests["offset"][-1]) if len(requests) else -1
        for offset, idle_before_ms in expires.tolist():
            if offset > last:
                states.expire(idle_before_ms)
        return states.state()

    @staticmethod
    def _followed(
        requests: Array,
        expires: Array,
        deleted: dict[int, int],
        is_whole: bool,  # noqa: FBT001
        rejected_before: Collection[int],
    ) -> tuple[RejectedRanges, ProducerStates]:
        states, known = ProducerStates(), set[int]()
        starts: list[int] = []
        ends: list[int] = []
        is_certain, expiring = True, iter([*expires.tolist(), (1 << 63, 0)])
        expire_at, idle_before_ms = next(expiring)
        for row in requests.tolist():
            offset, store_ms, producer, first, sequence, count, epoch, topic_id, number = row
            while expire_at < offset:
                states.expire(idle_before_ms)
                expire_at, idle_before_ms = next(expiring)
            is_new = False
            is_reported = producer not in known and sequence in rejected_before
            if offset < deleted.get(topic_id, 1 << 63) and not is_reported:
                if not is_whole and producer not in known and first:
                    states = _adopt(states, producer, first, sequence, store_ms, epoch)
                known.add(producer)
                is_new = _is_new(states, producer, first, count)
                if is_new:
                    states.record(producer, first, count, sequence, store_ms, epoch)
            if not is_new:
                is_certain &= number == 1
                starts.append(sequence)
                ends.append(sequence + count)
        rejected = RejectedRanges(
            np.array(starts, np.uint64), np.array(ends, np.uint64), is_certain
        )
        return rejected, states


def _is_new(states: ProducerStates, producer: int, first: int, count: int) -> bool:
    try:
        return not isinstance(states.check(producer, first, count), Duplicate)
    except (errors.OutOfOrderSequence, errors.UnknownProducer):
        return False


def _adopt(
    states: ProducerStates, producer: int, first: int, sequence: int, store_ms: int, epoch: Epoch
) -> ProducerStates:
    """Make a producer known up to `first`, as it was before the log begins."""
    try:
        states.check(producer, 0, first)
        states.record(producer, 0, first, SequenceNumber(max(0, sequence - first)), store_ms, epoch)
    except errors.HourwheelError:
        pass
    return states
