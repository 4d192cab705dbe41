"""The producer's half of exactly-once publishing: numbers, the window, and what to send again.

Pure: batches, answers, failures and times go in; batches to send and settled batches come out.

Each message of a producer has a number; a batch carries its producer's id and its first message's
number. A node takes a batch only if its number follows the last one it took, and knows the last 5
batches again. So a producer may have up to 5 batches without an answer, and after a broken stream
sends all of them again with the numbers they had: each is then either taken or recognised. The log
holds the numbers, so that another node that becomes the master knows them as well.

    queued --- sent ---> in flight --- published ---------> settled
       ^                    |--------- refused for good --> settled, leaving a hole in the numbers
       |--------------------|--------- refused for now
       |--------------------|--------- stream broken: now unsure, it may have been taken
       |--------------------'--------- of many topics, refused for good: goes again apart

After a refusal every batch behind it in flight is refused as out of order. Nothing new is sent
until all answers are there (draining); then the rest goes again, in order. A batch refused for good
leaves a hole: those behind it, all known not to have been taken, get new numbers. Is it certain
that the refused batch was not taken by an earlier try, they follow the last number taken; else they
start at 0 under a new producer id. While there are unsure batches, nothing behind them is sent and
all keep their numbers: a node that takes others in between forgets them.

An unsure batch never gets other numbers: a copy of it may still be on its way, and neither would be
recognised by the other. Behind a hole it fails with `Timeout`. Only where the node has forgotten
the producer does it go again: then a late copy is refused.

A batch of many topics that is refused for good takes its place in the queue as one batch for each
topic, so that each has an outcome of its own. The messages keep their numbers: a node recognises a
part of what it has taken before.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from hourwheel import errors
from hourwheel.client.batch_builder import renumber
from hourwheel.client.message_ids import NONE_DEDUPED, Deduped
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import (
    Backoff,
    Failure,
    Pace,
    is_undecided,
    least_wait_ms,
    may_retry,
)
from hourwheel.v1.broker_pb2 import PublishStreamRequest

Token = TypeVar("Token")
Topics: TypeAlias = tuple[tuple[str, int], ...]
"""Topics of a batch, and how many of its messages, from the first on, are for each."""


@dataclass(frozen=True, slots=True)
class Part(Generic[Token]):
    """What of a batch is for one topic, as a batch of its own."""

    topic: str
    raw: bytes
    count: int
    token: Token


TakeApart: TypeAlias = Callable[[Token, int, int], list[Part[Token]]]
"""(token of a batch, its producer id, number of its first message) -> its parts, numbered on."""


class Published(NamedTuple):
    """A node's answer to a batch that it has taken, now or before."""

    shard: int
    epoch: int
    base_sequence: int
    store_ms: int
    is_duplicate: bool
    deduped: Deduped = NONE_DEDUPED
    """Of messages whose dedup key a pending one had."""


@dataclass(slots=True, eq=False)
class Batch(Generic[Token]):
    """A batch on its way."""

    topics: Topics
    raw: bytes
    count: int
    token: Token
    producer_id: int
    first_sequence: int
    deadline_ms: float
    is_in_flight: bool = False
    """It was written to the stream that is open, and has no answer yet."""
    is_unsure: bool = False
    """An earlier try has no answer and never will: it may have been taken."""
    sent_ms: float = 0.0
    refusal: errors.HourwheelError | None = None
    """Why it was not taken the last time it was answered."""

    @property
    def sole_topic(self) -> str | None:
        """The topic of all its messages; None: it has several."""
        return self.topics[0][0] if len(self.topics) == 1 else None

    def request(self) -> PublishStreamRequest:
        """What is sent."""
        if len(self.topics) == 1:
            return PublishStreamRequest(topic=self.topics[0][0], record_batch=self.raw)
        topics, counts = zip(*self.topics, strict=True)
        return PublishStreamRequest(record_batch=self.raw, topics=topics, counts=counts)


class Settled(NamedTuple, Generic[Token]):
    """A batch that is done with."""

    batch: Batch[Token]
    outcome: Published | errors.HourwheelError


class _Hole(IntEnum):
    """What is wrong with the numbers of the batches that are queued."""

    NONE = 0
    CERTAIN = 1
    """A batch in between is known not to have been taken."""
    UNCERTAIN = 2
    """It is unknown whether one in between was taken."""


class InflightBatches(Generic[Token]):
    """See the top of this file. One for each producer; all times by one monotonic clock."""

    def __init__(
        self,
        *,
        make_producer_id: Callable[[], int] | None,
        take_apart: TakeApart[Token],
        backoff: Backoff,
        random: Callable[[], float],
        answer_timeout_ms: float,
    ) -> None:
        """Begin.

        Args:
            make_producer_id: gives random numbers in [1, 2**64); None to publish without
                idempotence: then what may have been taken is never sent again.
            take_apart: makes a batch for each topic of one.
            backoff: waits after refusals and broken streams.
            random: gives fractions in [0, 1).
            answer_timeout_ms: a stream that leaves a batch without an answer for so long is broken.
        """
        self._make_producer_id = make_producer_id
        self._take_apart = take_apart
        self._pace = Pace(backoff, random)
        self._answer_timeout_ms = answer_timeout_ms
        self._queue: deque[Batch[Token]] = deque()
        self._in_flight: deque[Batch[Token]] = deque()
        self._settled: list[Settled[Token]] = []
        self._producer_id = 0
        """0: none yet, or none at all. Made when it is first needed: a process that forks before
        must not give one id to two children, whose messages would be taken for each other's."""
        self._next_sequence = 0
        self._taken_end = 0
        self._is_draining = False
        self._hole = _Hole.NONE
        self._resume_ms = 0.0

    # --- what the shell asks --------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether another batch may be submitted."""
        return len(self._queue) < PRODUCER_BATCHES_REMEMBERED

    @property
    def is_idle(self) -> bool:
        """Whether every batch is settled."""
        return not self._queue

    @property
    def oldest_sent_ms(self) -> float | None:
        """When the oldest batch without an answer was sent; None: there is none in flight."""
        return self._in_flight[0].sent_ms if self._in_flight else None

    @property
    def oldest_topic(self) -> str | None:
        """Topic of the oldest batch without an answer; None: there is none, or it has several."""
        return self._in_flight[0].sole_topic if self._in_flight else None

    def next_position(self) -> tuple[int, int]:
        """(producer id, number of the first message) that the next batch is to be built with."""
        self._mend()
        if not self._producer_id and self._make_producer_id is not None:
            self._producer_id = self._make_producer_id()
        return self._producer_id, self._next_sequence

    def submit(self, topics: Topics, raw: bytes, token: Token, *, deadline_ms: float) -> None:
        """Queue a batch that was built with `next_position`; there must be room.

        Args:
            topics: what its messages are for.
            raw: the record batch.
            token: comes back when it is settled.
            deadline_ms: when to give up.
        """
        errors.invariant(self.has_room, "the publish window is full")
        count = sum(of_topic for _, of_topic in topics)
        self._queue.append(
            Batch(
                topics=topics,
                raw=raw,
                count=count,
                token=token,
                producer_id=self._producer_id,
                first_sequence=self._next_sequence,
                deadline_ms=deadline_ms,
            )
        )
        if self._make_producer_id is not None:
            self._next_sequence += count

    def take_sendable(self, now_ms: float) -> list[Batch[Token]]:
        """The batches to write to the open stream now, in this order."""
        if now_ms < self._resume_ms:
            return []
        if self._is_draining:
            if self._in_flight:
                return []
            self._is_draining = False
        self._mend()
        unsure = [ordinal for ordinal, batch in enumerate(self._queue) if batch.is_unsure]
        may_go = unsure[-1] + 1 if unsure else len(self._queue)
        sendable = []
        # What was taken apart may be more batches than a node remembers: the rest waits.
        for batch in islice(self._queue, min(may_go, PRODUCER_BATCHES_REMEMBERED)):
            if batch.is_in_flight:
                continue
            batch.is_in_flight = True
            batch.sent_ms = now_ms
            sendable.append(batch)
        self._in_flight.extend(sendable)
        return sendable

    def take_settled(self) -> list[Settled[Token]]:
        """The batches settled since the last call."""
        settled, self._settled = self._settled, []
        return settled

    def find_next_wakeup_ms(self, *, can_send: bool = True) -> float | None:
        """When something happens by itself: a deadline, an answer overdue, a wait that is over.

        With `can_send` False waits do not count: there is no connection to send over.
        """
        wakeups = [batch.deadline_ms for batch in self._queue]
        if self._in_flight:
            wakeups.append(self._in_flight[0].sent_ms + self._answer_timeout_ms)
        elif self._queue and can_send:
            wakeups.append(self._resume_ms)
        return min(wakeups, default=None)

    def is_overdue(self, now_ms: float) -> bool:
        """Whether the open stream owes an answer for too long: treat it as broken."""
        return bool(
            self._in_flight and now_ms - self._in_flight[0].sent_ms >= self._answer_timeout_ms
        )

    # --- what happens ---------------------------------------------------------------------------

    def on_published(self, published: Published) -> None:
        """The oldest batch in flight was taken."""
        batch = self._answered()
        self._pace.on_success()
        if batch.producer_id == self._producer_id:
            self._taken_end = max(self._taken_end, batch.first_sequence + batch.count)
        self._settle(batch, published)

    def on_refused(
        self, now_ms: float, error: errors.HourwheelError, move: Move | None = Move.STAY
    ) -> None:
        """The oldest batch in flight was not taken.

        `move`: where to try next; None: no matter, there is a wait under way for another reason.
        """
        batch = self._answered()
        if batch not in self._queue:
            return  # it was given up while it was on its way
        batch.refusal = error
        was_unsure = batch.is_unsure
        batch.is_unsure |= is_undecided(error)
        if self._make_producer_id is not None and isinstance(
            error, errors.OutOfOrderSequence | errors.UnknownProducer
        ):
            self._on_out_of_order(now_ms, batch, error)
        elif may_retry(
            Failure(error, not is_undecided(error)),
            is_repeatable=self._make_producer_id is not None,
        ):
            self._is_draining = True
            self._wait(now_ms, move, error)
        elif len(batch.topics) > 1 and not is_undecided(error):
            self._separate(batch)
        else:
            self._fail(batch, _unknown(error) if was_unsure else error)

    def on_broken(self, now_ms: float, failure: Failure, move: Move | None = Move.STAY) -> None:
        """The stream is over; the batches in flight have no answer and never will.

        `move`: as for `on_refused`.
        """
        if not self._queue:
            self._in_flight.clear()
            return
        given_up = []
        too_large = self._find_too_large(failure.error)
        is_definite = failure.is_definite
        for batch in self._in_flight:
            batch.is_in_flight = False
            if batch is too_large:
                is_definite = True  # nor did those behind it get through
                continue
            batch.is_unsure |= not is_definite
            if self._make_producer_id is None and batch.is_unsure and batch in self._queue:
                given_up.append(batch)
        self._in_flight.clear()
        self._is_draining = False
        self._wait(now_ms, move, failure.error)
        for batch in given_up:
            self._fail(batch, _unknown(failure.error))
        if too_large is not None and len(too_large.topics) > 1:
            self._separate(too_large)
        elif too_large is not None:
            error = failure.error
            self._fail(too_large, _unknown(error) if too_large.is_unsure else error)
        elif not failure.error.retriable and not is_undecided(failure.error):
            self.give_up(failure.error)

    def _find_too_large(self, error: errors.HourwheelError) -> Batch[Token] | None:
        """The batch in flight that gRPC refused as too large, where it says so of one: not taken.

        It names the size of the request.
        """
        named = error.params.get("bytes", "") if isinstance(error, errors.MessageTooLarge) else ""
        if not named.isdecimal():
            return None
        size_bytes = int(named)
        for batch in self._in_flight:
            if batch.request().ByteSize() == size_bytes and batch in self._queue:
                return batch
        return None

    def expire(self, now_ms: float, *, unsent: str = "no connection") -> None:
        """Give up the batches whose deadline is over; `unsent`: why some were never sent."""
        for batch in [batch for batch in self._queue if batch.deadline_ms <= now_ms]:
            if batch.is_in_flight or batch.is_unsure:
                error: errors.HourwheelError = errors.Timeout(
                    "no answer in time: the batch may or may not be published"
                )
            else:
                error = batch.refusal or errors.Unavailable(unsent)
            self._fail(batch, error)

    def give_up(self, error: errors.HourwheelError) -> None:
        """Settle everything with `error`, or with `Timeout` where the outcome is unknown."""
        for batch in list(self._queue):
            is_unknown = batch.is_in_flight or batch.is_unsure
            self._fail(batch, _unknown(error) if is_unknown else error)

    # --- rules ----------------------------------------------------------------------------------

    def _answered(self) -> Batch[Token]:
        if not self._in_flight:
            raise errors.Internal("the node answered a batch that was not sent")
        batch = self._in_flight.popleft()
        batch.is_in_flight = False
        return batch

    def _on_out_of_order(
        self, now_ms: float, batch: Batch[Token], error: errors.HourwheelError
    ) -> None:
        """Tell a consequence of an earlier refusal from a producer that the node has forgotten."""
        if isinstance(error, errors.UnknownProducer) and self._taken_end > 0:
            # Taken, the batch would have kept the producer known (`limits.PRODUCER_IDLE_MS_MIN`);
            # and of one that is not known no copy under the old numbers is ever taken.
            batch.is_unsure = False
            self._hole = _Hole.UNCERTAIN  # what we took for the last number taken is wrong
            self._is_draining = True
        elif batch.is_unsure:
            # No try that has arrived was taken. Another may still be under way, and would be taken
            # as soon as what was missing before it is there: so it is never given other numbers.
            if self._hole or not self._is_draining:
                self._fail(batch, _unknown(error))
        elif not (self._is_draining or self._hole):
            # Nothing was refused before it: the node has lost what it had taken, or took up a later
            # batch first. This one it did not take, and nothing of it is under way.
            self._hole = _Hole.UNCERTAIN
            self._is_draining = True
            self._wait(now_ms, Move.STAY, error)

    def _separate(self, batch: Batch[Token]) -> None:
        """Put a batch for each of its topics into its place, under the numbers that they have."""
        at, first_sequence = self._queue.index(batch), batch.first_sequence
        parts = self._take_apart(batch.token, batch.producer_id, first_sequence)
        del self._queue[at]
        for ordinal, part in enumerate(parts):
            topics = ((part.topic, part.count),)
            one = replace(
                batch,
                topics=topics,
                raw=part.raw,
                count=part.count,
                token=part.token,
                first_sequence=first_sequence,
            )
            self._queue.insert(at + ordinal, one)
            if batch.producer_id:
                first_sequence += part.count
        self._is_draining = True

    def _settle(self, batch: Batch[Token], outcome: Published | errors.HourwheelError) -> None:
        if batch in self._queue:
            self._queue.remove(batch)
            self._settled.append(Settled(batch, outcome))

    def _fail(self, batch: Batch[Token], error: errors.HourwheelError) -> None:
        if self._make_producer_id is not None:
            is_certain = not (batch.is_in_flight or batch.is_unsure)
            self._hole = max(self._hole, _Hole.CERTAIN if is_certain else _Hole.UNCERTAIN)
            self._is_draining = True
        self._settle(batch, error)

    def _wait(self, now_ms: float, move: Move | None, error: errors.HourwheelError) -> None:
        if move is not None:
            self._resume_ms = now_ms + self._pace.on_failure(move, least_wait_ms(error))

    def _mend(self) -> None:
        """Close the hole as soon as it is known of every batch left that it was not taken."""
        if not self._hole or self._in_flight or any(batch.is_unsure for batch in self._queue):
            return
        if self._hole is _Hole.UNCERTAIN and self._make_producer_id is not None:
            self._producer_id = self._make_producer_id()
            self._taken_end = 0
        self._hole = _Hole.NONE
        self._next_sequence = self._taken_end
        for batch in self._queue:
            batch.producer_id, batch.first_sequence = self._producer_id, self._next_sequence
            batch.raw = renumber(batch.raw, self._producer_id, self._next_sequence)
            self._next_sequence += batch.count


def _unknown(error: errors.HourwheelError) -> errors.HourwheelError:
    return errors.Timeout(f"the batch may or may not be published: {error.message}")
