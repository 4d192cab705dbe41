"""The window against a node that keeps the same table of producers as a real one."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client.batch_builder import Draft
from hourwheel.client.inflight_batches import Published
from spark_jobs.schedule.window import (
    PROBE_NUMBER,
    WINDOW,
    Outcome,
    Piece,
    Resend,
    RowRange,
    SendWindow,
    StreamKey,
    Tally,
    producer_id_of,
)
from storage.views.producer_state import Duplicate, ProducerStates

A: Final = StreamKey("a", is_delay=False)
B: Final = StreamKey("b", is_delay=True)


def draft_of(key: StreamKey, first: int, end: int) -> Draft:
    bodies = [f"{key.topic}-{number}".encode() for number in range(first, end)]
    times = np.arange(first, end, dtype=np.int64)
    return Draft(bodies, times, key.is_delay, None, sum(map(len, bodies)), 10)


def pieces(streams: dict[StreamKey, int], size: int = 10) -> Iterator[Piece]:
    for key, count in streams.items():
        for first in range(0, count, size):
            end = min(first + size, count)
            yield Piece(key, producer_id_of("nonce", "b", key), first, draft_of(key, first, end))


class Broker:
    """What a node does with batches: judged in the order in which they arrive."""

    def __init__(self, horizon: int = 1 << 60) -> None:
        self.producers = ProducerStates()
        self.taken: list[bytes] = []
        self.horizon = horizon
        self.refused_topics: set[str] = set()
        self.large: set[bytes] = set()

    def answer(self, piece: Piece) -> Published | errors.HourwheelError:
        if int(piece.draft.times_ms.max()) >= self.horizon:
            return errors.BeyondHorizon()
        if piece.key.topic in self.refused_topics:
            return errors.UnknownTopic()
        if self.large & set(piece.draft.bodies):
            return errors.MessageTooLarge()
        count = piece.draft.count
        try:
            found = self.producers.check(piece.producer_id, piece.first, count)
        except (errors.OutOfOrderSequence, errors.UnknownProducer) as error:
            return error
        if isinstance(found, Duplicate):
            return Published(0, 1, found.base_sequence, found.store_ms, True)
        base = len(self.taken)
        self.producers.record(piece.producer_id, piece.first, count, base, 5, 1)
        self.taken += piece.draft.bodies
        return Published(0, 1, base, 5, False)

    def next_number(self, key: StreamKey) -> int | None:
        """What an attempt learns by asking with a number that no stream reaches."""
        try:
            self.producers.check(producer_id_of("nonce", "b", key), PROBE_NUMBER, 1)
        except errors.UnknownProducer:
            return None
        except errors.OutOfOrderSequence as error:
            return int(error.params["expected_sequence"])
        raise AssertionError


class Attempt:
    """One sender: batches are answered whenever the test lets them be."""

    def __init__(
        self,
        broker: Broker,
        streams: dict[StreamKey, int],
        *,
        is_resumed: bool = False,
        size: int = 10,
    ) -> None:
        self.broker, self.is_resumed = broker, is_resumed
        self.tally = Tally()
        self.window = SendWindow(pieces(streams, size), self.tally)

    def write(self) -> list[Piece]:
        """Fill the window; gives what was sent."""
        sent = []
        while True:
            piece = self.window.take_sendable()
            if piece is not None:
                sent.append(piece.cut(piece.first, piece.end))
                continue
            begun = self.window.next_stream()
            if begun is None or (self.is_resumed and self.window.in_flight_count):
                return sent
            start = self.broker.next_number(begun.key) if self.is_resumed else 0
            self.window.begin_stream(begun.key, start or 0)

    def hear(self, answer: Published | errors.HourwheelError) -> None:
        if isinstance(answer, Published):
            self.window.on_published(answer)
            return
        try:
            self.window.on_refused(answer)
        except Resend:
            self.window.on_broken()

    def run(self) -> Tally:
        while not self.window.is_done:
            for piece in self.write():
                self.hear(self.broker.answer(piece))
        return self.tally


def outcome_of(tally: Tally, key: StreamKey) -> list[tuple[int, int, Outcome]]:
    return [(r.first, r.end, r.outcome) for r in tally.ranges if r[:2] == tuple(key)]


def test_all_rows_go_once_and_in_order() -> None:
    broker = Broker()
    tally = Attempt(broker, {A: 35, B: 7}).run()
    assert broker.taken == [
        *(f"a-{n}".encode() for n in range(35)),
        *(f"b-{n}".encode() for n in range(7)),
    ]
    assert tally.ranges == [
        RowRange("a", False, 0, 35, Outcome.SCHEDULED),
        RowRange("b", True, 0, 7, Outcome.SCHEDULED),
    ]
    assert [(r.topic, r.first, r.end, r.base_sequence) for r in tally.receipts] == [
        ("a", 0, 10, 0),
        ("a", 10, 20, 10),
        ("a", 20, 30, 20),
        ("a", 30, 35, 30),
        ("b", 0, 7, 35),
    ]


def test_no_more_than_the_window_is_under_way() -> None:
    assert len(Attempt(Broker(), {A: 1_000}).write()) == WINDOW


def test_a_second_attempt_goes_on_where_the_first_one_ended() -> None:
    broker = Broker()
    first = Attempt(broker, {A: 100, B: 20})
    for piece in first.write()[:3]:
        broker.answer(piece)  # and the attempt dies without an answer
    tally = Attempt(broker, {A: 100, B: 20}, is_resumed=True, size=7).run()
    assert outcome_of(tally, A) == [(0, 30, Outcome.REPEATED), (30, 100, Outcome.SCHEDULED)]
    assert outcome_of(tally, B) == [(0, 20, Outcome.SCHEDULED)]
    assert max(Counter(broker.taken).values()) == 1
    again = Attempt(broker, {A: 100, B: 20}, is_resumed=True).run()
    assert again.count(Outcome.SCHEDULED) == 0
    assert again.count(Outcome.REPEATED) == 120


def test_rows_beyond_the_horizon_end_their_stream_only() -> None:
    broker = Broker(horizon=33)
    tally = Attempt(broker, {A: 100, B: 20}).run()
    assert outcome_of(tally, A) == [(0, 33, Outcome.SCHEDULED), (33, 100, Outcome.REFUSED)]
    assert outcome_of(tally, B) == [(0, 20, Outcome.SCHEDULED)]
    assert {r.reason for r in tally.ranges} == {"", "BEYOND_HORIZON"}
    broker.horizon = 80
    later = Attempt(broker, {A: 100, B: 20}, is_resumed=True).run()
    assert outcome_of(later, A) == [
        (0, 33, Outcome.REPEATED),
        (33, 80, Outcome.SCHEDULED),
        (80, 100, Outcome.REFUSED),
    ]


def test_a_topic_that_is_refused_is_not_asked_for_row_by_row() -> None:
    broker = Broker()
    broker.refused_topics = {"a"}
    attempt = Attempt(broker, {A: 100, B: 20})
    tally = attempt.run()
    assert outcome_of(tally, A) == [(0, 100, Outcome.REFUSED)]
    assert outcome_of(tally, B) == [(0, 20, Outcome.SCHEDULED)]


def test_a_row_that_a_node_refuses_is_named_and_ends_its_stream() -> None:
    broker = Broker()
    broker.large = {b"a-17"}
    tally = Attempt(broker, {A: 40, B: 2}).run()
    assert outcome_of(tally, A) == [
        (0, 17, Outcome.SCHEDULED),
        (17, 18, Outcome.REFUSED),
        (18, 40, Outcome.REFUSED),
    ]
    details = [r.detail for r in tally.ranges if r.outcome is Outcome.REFUSED]
    assert "behind row 17" in details[1]
    assert "behind" not in details[0]


def test_a_node_that_has_lost_rows_is_not_sent_them_silently() -> None:
    broker = Broker()
    attempt = Attempt(broker, {A: 100})
    for piece in attempt.write():
        attempt.hear(broker.answer(piece))
    broker.producers = ProducerStates()
    with pytest.raises(errors.DataLoss, match="expects row 0"):
        attempt.run()


def test_what_may_work_later_is_sent_again() -> None:
    broker = Broker()
    attempt = Attempt(broker, {A: 30})
    attempt.write()
    with pytest.raises(Resend):
        attempt.window.on_refused(errors.Overloaded())
    attempt.window.on_broken()
    assert outcome_of(attempt.run(), A) == [(0, 30, Outcome.SCHEDULED)]


def test_an_answer_too_many_is_a_fault() -> None:
    with pytest.raises(errors.Internal):
        SendWindow(iter(()), Tally()).on_refused(errors.Overloaded())


def test_producer_ids_are_fixed_and_differ() -> None:
    ids = {
        producer_id_of(nonce, bucket, key)
        for nonce in ("n", "m")
        for bucket in ("b", "c")
        for key in (A, B, StreamKey("a", is_delay=True))
    }
    assert len(ids) == 12
    assert producer_id_of("n", "b", A) == 16_251_941_058_398_390_708


@given(seed=st.integers(0, 1 << 32), sizes=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_no_interleaving_of_attempts_loses_or_doubles_a_row(
    seed: int, sizes: tuple[int, int]
) -> None:
    """Attempts start, send, lose their connections and die; zombies of theirs arrive late."""
    rng = random.Random(seed)
    streams = {A: sizes[0], B: sizes[1]}
    broker = Broker()
    attempts = [Attempt(broker, streams)]
    wires: list[list[Piece]] = [[]]
    for _ in range(rng.randrange(60)):
        at = rng.randrange(len(attempts))
        attempt, wire = attempts[at], wires[at]
        match rng.randrange(6):
            case 0 | 1:
                wire += attempt.write()
            case 2 | 3:
                if wire:
                    attempt.hear(broker.answer(wire.pop(0)))
            case 4:  # the connection is cut: what was on it arrives all the same, or a part of it
                for piece in wire[: rng.randrange(len(wire) + 1)]:
                    broker.answer(piece)
                wire.clear()
                attempt.window.on_broken()
            case 5:
                size = rng.choice((1, 7, 10))
                attempts.append(Attempt(broker, streams, is_resumed=True, size=size))
                wires.append([])
    tally = Attempt(broker, streams, is_resumed=True).run()
    expected = [f"{key.topic}-{n}".encode() for key, count in streams.items() for n in range(count)]
    assert sorted(broker.taken) == sorted(expected)
    assert tally.count(Outcome.SCHEDULED) + tally.count(Outcome.REPEATED) == sum(sizes)
