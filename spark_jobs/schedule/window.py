"""Sending frozen rows so that each is taken once, however often it is sent: the rules alone.

The frozen rows of a bucket are divided into *streams*: rows of one topic, all with instants or all
with delays, in the order of their times. A stream is one producer of the cluster. Its producer id
is a digest of the plan's nonce, the bucket, the topic and the kind of time; a row's number in its
stream is its producer sequence, from 0, dense. Rows are frozen, so a number means the same row for
ever, in every attempt of every task.

A node takes number n of a producer only if it follows the last one it took, and answers

    taken               new: the row is scheduled now
    taken, a duplicate  it is one of the producer's last 5 batches: scheduled before
    out of order, e     the next number that it would take is e: all below e are scheduled
    unknown producer    no number of it was ever taken, or it was forgotten after a day of silence

So the node itself knows how far a stream has come, exactly; there is nothing else to remember, and
two attempts that send at the same time only answer each other's questions. An attempt that is not
the first asks before it sends, with a number that no stream reaches (`PROBE_NUMBER`): such a batch
is always refused, and the refusal says e.

What a node refuses for good ends its stream: the numbers behind it would not follow. A batch is
halved until the refused row is alone. Of rows beyond the horizon nothing is lost by that, since a
stream is sorted by time. The rows left are reported, and may go with another job.

After any trouble all batches without an answer are sent again, in order, as they were.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.client.batch_builder import Draft
from hourwheel.client.inflight_batches import Published
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from hourwheel.transport.retry import is_undecided
from spark_jobs.schedule.rows import part_of

PROBE_NUMBER: Final = 1 << 62
"""A producer sequence that no stream reaches."""
WINDOW: Final = PRODUCER_BATCHES_REMEMBERED
"""Batches under way at one time."""
_OF_THE_STREAM: Final = (errors.NotFound, errors.InvalidTopic)
"""Refusals that each row of the stream would meet."""


class StreamKey(NamedTuple):
    """Which stream of a bucket."""

    topic: str
    is_delay: bool


class Outcome(StrEnum):
    """What became of rows."""

    SCHEDULED = "scheduled"
    """Taken now."""
    REPEATED = "repeated"
    """They had been taken before."""
    REFUSED = "refused"
    """A node refused them, or one before them in their stream."""
    IN_DOUBT = "in doubt"
    """It is unknown whether they were taken before; they were not sent."""


class RowRange(NamedTuple):
    """Rows [first, end) of a stream and what became of them."""

    topic: str
    is_delay: bool
    first: int
    end: int
    outcome: Outcome
    reason: str = ""
    detail: str = ""


@dataclass(slots=True, eq=False)
class Piece:
    """Rows that go as one batch."""

    key: StreamKey
    producer_id: int
    first: int
    draft: Draft
    is_in_flight: bool = False

    @property
    def end(self) -> int:
        """Number behind the last row."""
        return self.first + self.draft.count

    def cut(self, first: int, end: int) -> "Piece":
        """The part [first, end), in numbers of the stream."""
        part = part_of(self.draft, first - self.first, end - self.first)
        return Piece(self.key, self.producer_id, first, part)


class Resend(Exception):
    """A batch cannot be taken now: send all again over a fresh stream, after a pause."""

    def __init__(self, error: errors.HourwheelError) -> None:
        """`error`: what the node said."""
        super().__init__(error.message)
        self.error = error


def producer_id_of(nonce: str, bucket: str, key: StreamKey) -> int:
    """A stream's producer id: 64 bits, not 0; the same in every attempt."""
    text = "\0".join((nonce, bucket, key.topic, "delay" if key.is_delay else "instant"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") or 1


class Receipt(NamedTuple):
    """Rows [first, end) of a stream and where a node put them: what their message ids are made of.

    Row n has the sequence `base_sequence + n - first`; a delay counts from `store_ms`.
    """

    topic: str
    is_delay: bool
    first: int
    end: int
    shard: int
    epoch: int
    base_sequence: int
    store_ms: int


@dataclass
class Tally:
    """What became of a bucket's rows."""

    ranges: list[RowRange] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    """Of rows whose place an answer gave; others are known to be taken by their number alone."""
    _last: dict[StreamKey, int] = field(default_factory=dict)

    def add(self, row: RowRange) -> None:
        """Put down a range; one that goes on with the last one of its stream is joined to it."""
        if row.end == row.first:
            return
        at = self._last.get(StreamKey(row.topic, row.is_delay))
        last = None if at is None else self.ranges[at]
        if at is not None and last is not None and last.end == row.first:
            joined = last._replace(end=row.end)
            if joined == row._replace(first=last.first):
                self.ranges[at] = joined
                return
        self._last[StreamKey(row.topic, row.is_delay)] = len(self.ranges)
        self.ranges.append(row)

    def count(self, outcome: Outcome) -> int:
        """How many rows."""
        return sum(each.end - each.first for each in self.ranges if each.outcome is outcome)


class SendWindow:
    """See the top of this file. Batches go out; answers come in, in the order of sending."""

    def __init__(self, pieces: Iterator[Piece], tally: Tally) -> None:
        """`pieces`: all of a bucket, stream by stream, in the order of their numbers."""
        self._source = pieces
        self._tally = tally
        self._pending: deque[Piece] = deque()
        self._in_flight: deque[Piece] = deque()
        self._ended: dict[StreamKey, tuple[Outcome, str, str]] = {}
        self._starts: dict[StreamKey, int] = {}
        self._held: Piece | None = None
        self._is_draining = False

    @property
    def in_flight_count(self) -> int:
        """Batches that owe an answer."""
        return len(self._in_flight)

    def next_stream(self) -> Piece | None:
        """The first piece of the stream whose turn it is, if `begin_stream` has not begun it."""
        held = self._peek()
        return held if held is not None and held.key not in self._starts else None

    def begin_stream(self, key: StreamKey, start: int) -> None:
        """A stream begins; its rows below `start` are known to have been taken."""
        self._starts[key] = start

    def end_stream(self, key: StreamKey, outcome: Outcome, reason: str, detail: str) -> None:
        """Send no more of a stream; what is left of it has this outcome."""
        self._starts.setdefault(key, 0)
        self._ended[key] = outcome, reason, detail
        for piece in [each for each in self._pending if each.key == key]:
            self._pending.remove(piece)
            self._put(piece, outcome, reason, detail)

    def take_sendable(self) -> Piece | None:
        """The next batch to write to the stream that is open; None: wait for answers, or done."""
        if self._is_draining and not self._in_flight:
            self._is_draining = False
        if self._is_draining or len(self._in_flight) >= WINDOW:
            return None
        piece = next((each for each in self._pending if not each.is_in_flight), None)
        while piece is None and (held := self._peek()) is not None and held.key in self._starts:
            self._held = None
            piece = self._past_start(held)
            if piece is not None:
                self._pending.append(piece)
        if piece is not None:
            piece.is_in_flight = True
            self._in_flight.append(piece)
        return piece

    @property
    def is_done(self) -> bool:
        """Whether each row has its outcome."""
        return not self._pending and not self._in_flight and self._peek() is None

    def on_broken(self) -> None:
        """The stream is over: nothing in flight will be answered."""
        self._in_flight.clear()
        self._is_draining = False
        for piece in self._pending:
            piece.is_in_flight = False

    def on_published(self, published: Published) -> None:
        """The oldest batch in flight was taken."""
        piece = self._answered()
        if piece in self._pending:
            self._pending.remove(piece)
            outcome = Outcome.REPEATED if published.is_duplicate else Outcome.SCHEDULED
            self._put(piece, outcome)
            self._tally.receipts.append(
                Receipt(
                    *piece.key,
                    piece.first,
                    piece.end,
                    published.shard,
                    published.epoch,
                    published.base_sequence,
                    published.store_ms,
                )
            )

    def on_refused(self, error: errors.HourwheelError) -> None:
        """The oldest batch in flight was not taken.

        Raises:
            Resend: it may be later.
            DataLoss: the node has forgotten rows that it had taken.
        """
        piece = self._answered()
        if piece not in self._pending:
            return
        if isinstance(error, errors.OutOfOrderSequence):
            self._on_out_of_order(piece, int(error.params.get("expected_sequence", "0")))
        elif isinstance(error, errors.UnknownProducer):
            self._on_gap(piece, 0)
        elif error.retriable or is_undecided(error):
            raise Resend(error)
        else:
            self._on_refused_for_good(piece, error)

    # --- rules ----------------------------------------------------------------------------------

    def _peek(self) -> Piece | None:
        if self._held is None:
            self._held = next(self._source, None)
        return self._held

    def _past_start(self, piece: Piece) -> Piece | None:
        """What of a piece is to be sent."""
        if piece.key in self._ended:
            self._put(piece, *self._ended[piece.key])
            return None
        start = min(self._starts[piece.key], piece.end)
        if start <= piece.first:
            return piece
        self._put(piece.cut(piece.first, start), Outcome.REPEATED)
        return piece.cut(start, piece.end) if start < piece.end else None

    def _answered(self) -> Piece:
        if not self._in_flight:
            raise errors.Internal("the node answered a batch that was not sent")
        piece = self._in_flight.popleft()
        piece.is_in_flight = False
        return piece

    def _on_out_of_order(self, piece: Piece, expected: int) -> None:
        if expected >= piece.end:
            self._pending.remove(piece)
            self._put(piece, Outcome.REPEATED)
        elif expected > piece.first:
            self._put(piece.cut(piece.first, expected), Outcome.REPEATED)
            self._replace(piece, [piece.cut(expected, piece.end)])
        else:
            self._on_gap(piece, expected)

    def _on_gap(self, piece: Piece, expected: int) -> None:
        """The node waits for a number before the piece's."""
        ahead = next(each for each in self._pending if each.key == piece.key)
        if ahead is not piece:
            self._is_draining = True  # a consequence of what was answered to the one ahead of it
            return
        raise errors.DataLoss(
            f"the node expects row {expected} of a stream that it had taken {piece.first} rows of:"
            " it lost them, or forgot the producer",
            topic=piece.key.topic,
            expected=expected,
            first=piece.first,
        )

    def _on_refused_for_good(self, piece: Piece, error: errors.HourwheelError) -> None:
        count = piece.draft.count
        if count > 1 and not isinstance(error, _OF_THE_STREAM):
            middle = piece.first + count // 2
            self._replace(piece, [piece.cut(piece.first, middle), piece.cut(middle, piece.end)])
            return
        if isinstance(error, (*_OF_THE_STREAM, errors.BeyondHorizon)):
            self.end_stream(piece.key, Outcome.REFUSED, error.reason, error.message)
            return
        self._pending.remove(piece)
        self._put(piece, Outcome.REFUSED, error.reason, error.message)
        behind = f"not sent: it lies behind row {piece.first} of its stream, which was refused"
        self.end_stream(piece.key, Outcome.REFUSED, error.reason, behind)

    def _replace(self, piece: Piece, parts: list[Piece]) -> None:
        """Others go instead; those in flight behind it will be refused, and go again."""
        self._is_draining = True
        at = self._pending.index(piece)
        self._pending.remove(piece)
        for ordinal, part in enumerate(parts):
            self._pending.insert(at + ordinal, part)

    def _put(self, piece: Piece, outcome: Outcome, reason: str = "", detail: str = "") -> None:
        topic, is_delay = piece.key
        self._tally.add(RowRange(topic, is_delay, piece.first, piece.end, outcome, reason, detail))
