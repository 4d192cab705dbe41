"""What a publish is answered, against a list of all that each producer ever published.

A request is answered with one base sequence, so it counts as a whole, is a duplicate as a whole, or
is refused: also where it came merged with others. Half of it known is refused, and changes nothing.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from node.shard.deduplication import Mask, Published, PublishResults
from storage.views.producer_state import ProducerStates
from tests.support.court import DELETED, EPOCH, STORE_MS, TOPIC, Court

FIRST_SEQUENCE = 100


class Request(NamedTuple):
    """A publish of one client."""

    producer: int
    first: int
    count: int
    topic: int


TOPICS = st.sampled_from([TOPIC] * 9 + [DELETED])
ANONYMOUS = st.builds(Request, st.just(0), st.just(0), st.just(1), TOPICS)
BEHIND = st.sampled_from([0] * 8 + [-1]) | st.integers(1, 16)
NUMBERED = st.builds(Request, st.integers(1, 3), BEHIND, st.integers(1, 4), TOPICS)
"""`first` is how far it lies behind the producer's next number, until it is played."""
ARRIVALS = st.lists(
    ANONYMOUS | NUMBERED, min_size=1, max_size=4, unique_by=lambda one: one.producer
)
"""Requests that arrive together. No two are of one producer: nobody merges those."""


@dataclass
class Producer:
    """Everything of one producer, message by message."""

    next_number: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    """Of all its messages that were ever accepted, by its own numbers."""
    remembered: deque[set[int]] = field(
        default_factory=lambda: deque(maxlen=PRODUCER_BATCHES_REMEMBERED)
    )
    """The numbers in its latest requests."""


class Model:
    """What each message becomes, found by looking at all that came before."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.next_sequence = FIRST_SEQUENCE

    def place(self, request: Request) -> Request:
        """With the number that it has as it arrives."""
        producer = self.producers.get(request.producer, Producer())
        return request._replace(first=max(0, producer.next_number - request.first))

    def answer(self, request: Request) -> int | type[errors.HourwheelError]:
        """The sequence of its first message, or why it is refused. Remembers what is accepted."""
        base, self.next_sequence = self.next_sequence, self.next_sequence + request.count
        if request.topic == DELETED:
            return errors.UnknownTopic
        if not request.producer:
            return base
        numbers = set(range(request.first, request.first + request.count))
        producer = self.producers.get(request.producer, Producer())
        if request.first == producer.next_number:
            producer.sequences |= {n: base + n - request.first for n in numbers}
            producer.next_number += request.count
            producer.remembered.append(numbers)
            self.producers[request.producer] = producer
            return base
        if request.producer not in self.producers:
            return errors.UnknownProducer
        if any(numbers <= batch for batch in producer.remembered):
            return producer.sequences[request.first]
        return errors.OutOfOrderSequence


def publish(court: Court, one: Request) -> tuple[PublishResults, Mask | None]:
    return court.publish(one.count, one.producer, one.first, topic=one.topic)


def publish_merged(court: Court, requests: list[Request]) -> tuple[PublishResults, Mask | None]:
    messages = [(one, n) for one in requests for n in range(one.count)]
    return court.merged(
        [one.producer for one, _ in messages],
        [one.first + n for one, n in messages],
        [one.topic for one, _ in messages],
    )


def check(
    requests: list[Request], model: Model, results: PublishResults, mask: Mask | None
) -> None:
    """What was answered is what the model says, request by request."""
    accepted, at = [], 0
    for one in requests:
        own = model.next_sequence
        expected = model.answer(one)
        result = results.pop(at)
        if isinstance(expected, int):
            is_duplicate = expected != own
            assert result == Published(EPOCH, expected, one.count, STORE_MS, is_duplicate)
        else:
            assert type(result) is expected
        accepted += [expected == own] * one.count
        at += one.count
    assert results == {}
    assert (mask is None) == all(accepted)
    assert mask is None or mask.tolist() == accepted


@given(st.lists(ARRIVALS, max_size=25))
def test_requests_count_once_and_whole_when_they_come_alone(arrivals: list[list[Request]]) -> None:
    court, model = Court(), Model()
    for request in (one for requests in arrivals for one in requests):
        placed = model.place(request)
        check([placed], model, *publish(court, placed))
        court.producers = ProducerStates(court.producers.state())


@given(st.lists(ARRIVALS, max_size=25))
def test_requests_count_once_and_whole_when_merged(arrivals: list[list[Request]]) -> None:
    court, model = Court(), Model()
    for requests in arrivals:
        placed = [model.place(one) for one in requests]
        check(placed, model, *publish_merged(court, placed))
        court.producers = ProducerStates(court.producers.state())
