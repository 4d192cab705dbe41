"""The publish window against a model of a node, over a network that loses and delays what it can.

What must hold, whatever happens: what settled as published is in the node's log exactly once,
where it was said to be; what failed with anything but `Timeout` is not in it; nothing is in it
twice; what was published of one topic lies in the order in which it was submitted; and in the end
all is settled.
"""

import random
from collections import Counter, deque
from itertools import groupby
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns
from hourwheel.client.inflight_batches import InflightBatches, Part, Published
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.limits import PRODUCER_BATCHES_REMEMBERED
from hourwheel.transport.retry import Backoff, Failure
from hourwheel.v1.broker_pb2 import PublishStreamRequest

DEADLINE_MS = 400.0
TOPICS = "abcd"


class Sent(NamedTuple):
    """What was submitted for one topic at a time: `count` messages that say `number`."""

    number: int
    topic: str
    count: int


def build(sent: list[Sent], producer_id: int, first_sequence: int) -> bytes:
    bodies = [b"%d," % one.number for one in sent for _ in range(one.count)]
    draft = batch_builder.draft_columns(Columns(bodies=bodies))
    return batch_builder.build(draft, producer_id, first_sequence)


def take_apart(sent: list[Sent], producer_id: int, first_sequence: int) -> list[Part[list[Sent]]]:
    parts = []
    for one in sent:
        raw = build([one], producer_id, first_sequence)
        parts.append(Part(one.topic, raw, one.count, [one]))
        first_sequence += one.count
    return parts


class ModelNode:
    """Idempotence as a node does it, with refusals at random."""

    def __init__(self, rng: random.Random, *, may_forget: bool) -> None:
        self.rng = rng
        self.may_forget = may_forget
        self.log: list[int] = []
        """The number of each message."""
        self.is_old = False
        """It knows of one topic a batch only."""
        self.refused: set[str] = set()
        self.next_sequence: dict[int, int] = {}
        self.known: dict[int, deque[tuple[int, int, int]]] = {}

    def handle(self, request: PublishStreamRequest) -> Published | errors.HourwheelError:
        batch = RecordBatch(request.record_batch)
        batch.verify()
        header = batch.header
        topics = [request.topic] if self.is_old or request.topic else list(request.topics)
        is_refused = any(not topic or topic in self.refused for topic in topics)
        if is_refused or self.rng.random() < 0.1:
            refusals = [errors.Overloaded(), errors.InvalidTopic(), errors.DiskFull()]
            return errors.InvalidTopic() if is_refused else self.rng.choice(refusals)
        try:
            base = self._check(header.producer_id, header.producer_sequence, header.count)
        except errors.FailedPrecondition as error:
            return error
        if base is not None:
            return Published(1, 1, base, 0, is_duplicate=True)
        if self.rng.random() < 0.05:
            return self.rng.choice([errors.Overloaded(), errors.BeyondHorizon()])
        base = len(self.log)
        self.log += map(int, bytes(batch.blobs).split(b",")[:-1])
        self.next_sequence[header.producer_id] = header.producer_sequence + header.count
        known = self.known.setdefault(header.producer_id, deque(maxlen=5))
        known.append((header.producer_sequence, header.count, base))
        if self.rng.random() < 0.05:
            return errors.Timeout("taken, but not known to be durable")
        return Published(1, 1, base, 0, is_duplicate=False)

    def forget(self) -> None:
        self.next_sequence.clear()
        self.known.clear()

    def _check(self, producer_id: int, first: int, count: int) -> int | None:
        if producer_id not in self.next_sequence:
            if first:
                raise errors.UnknownProducer
            return None
        for known_first, known_count, base in self.known[producer_id]:
            if known_first <= first and first + count <= known_first + known_count:
                return base + first - known_first
        if first != self.next_sequence[producer_id]:
            raise errors.OutOfOrderSequence
        return None


class Simulation:
    """A window, a node, and a network that breaks."""

    def __init__(self, seed: int, *, is_calm: bool = False) -> None:
        self.rng = random.Random(seed)
        ids = iter(range(1, 1_000_000))
        self.node = ModelNode(self.rng, may_forget=False)
        self.window: InflightBatches[list[Sent]] = InflightBatches(
            make_producer_id=lambda: next(ids),
            take_apart=take_apart,
            backoff=Backoff(ms_min=1.0, ms_max=8.0),
            random=self.rng.random,
            answer_timeout_ms=100.0,
        )
        self.now_ms = 0.0
        self.requests: deque[PublishStreamRequest] = deque()
        self.answers: deque[Published | errors.HourwheelError] = deque()
        self.late: list[deque[PublishStreamRequest]] = []
        """Of each stream that broke, what still lies somewhere on the way."""
        self.submitted: list[Sent] = []
        self.settled: dict[int, Published | errors.HourwheelError] = {}
        """By number; `base_sequence` is that of its own messages."""

    def submit(self) -> None:
        topics = self.rng.sample(TOPICS, self.rng.choice([1, 1, 1, 2, 4]))
        sent = [
            Sent(len(self.submitted) + at, topic, self.rng.randint(1, 3))
            for at, topic in enumerate(topics)
        ]
        raw = build(sent, *self.window.next_position())
        counts = tuple((one.topic, one.count) for one in sent)
        self.window.submit(counts, raw, sent, deadline_ms=self.now_ms + DEADLINE_MS)
        self.submitted += sent

    def step(self) -> None:
        self.now_ms += self.rng.random() * 4
        self.window.expire(self.now_ms)
        choice = self.rng.random()
        if choice < 0.3 and self.window.has_room:
            self.submit()
        elif choice < 0.55 and self.requests:
            self.answers.append(self.node.handle(self.requests.popleft()))
        elif choice < 0.8 and self.answers:
            self.answer()
        elif choice < 0.83:
            self.break_stream()
        elif choice < 0.86:
            self.node.refused = set(self.rng.sample(TOPICS, self.rng.choice([0, 0, 1])))
        elif choice < 0.88:
            self.break_stream()
            self.node.is_old = not self.node.is_old
        elif choice < 0.93 and self.late:
            self.arrive_late()
        self.send()
        if self.window.is_overdue(self.now_ms):
            self.break_stream()
        self.collect()

    def send(self) -> None:
        sendable = self.window.take_sendable(self.now_ms)
        self.requests.extend(batch.request() for batch in sendable)
        assert len(self.requests) + len(self.answers) <= PRODUCER_BATCHES_REMEMBERED

    def answer(self) -> None:
        answer = self.answers.popleft()
        if isinstance(answer, Published):
            self.window.on_published(answer)
        else:
            self.window.on_refused(self.now_ms, answer)

    def break_stream(self) -> None:
        # What is under way may still reach the node, in order, now or much later, or be lost from
        # some point on.
        while self.requests and self.rng.random() < 0.7:
            self.node.handle(self.requests.popleft())
        if self.requests and self.rng.random() < 0.5:
            self.late.append(self.requests.copy())
        self.requests.clear()
        self.answers.clear()
        self.window.on_broken(self.now_ms, Failure(errors.Unavailable(), is_definite=False))

    def arrive_late(self) -> None:
        stream = self.rng.choice(self.late)
        self.node.handle(stream.popleft())
        if not stream:
            self.late.remove(stream)

    def collect(self) -> None:
        for batch, outcome in self.window.take_settled():
            at = 0
            for one in batch.token:
                assert one.number not in self.settled
                self.settled[one.number] = outcome
                if isinstance(outcome, Published):
                    base = outcome.base_sequence + at
                    self.settled[one.number] = outcome._replace(base_sequence=base)
                at += one.count

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        while not self.window.is_idle:
            wakeup_ms = self.window.find_next_wakeup_ms()
            assert wakeup_ms is not None
            if not self.requests and not self.answers:
                self.now_ms = max(self.now_ms, wakeup_ms)
            self.window.expire(self.now_ms)
            self.send()
            while self.requests:
                self.answers.append(self.node.handle(self.requests.popleft()))
            while self.answers:
                self.answer()
            self.collect()
        while self.late:
            self.arrive_late()
        self.collect()

    def check(self) -> None:
        """Nothing is in the log in part, twice, or out of its topic's order."""
        log = self.node.log
        taken = [number for number, _ in groupby(log)]
        times = Counter(log)
        assert len(taken) == len(set(taken))
        for one in self.submitted:
            assert times[one.number] in (0, one.count)
        for topic in TOPICS:
            own = [
                number
                for number in taken
                if self.submitted[number].topic == topic
                # A copy of one that was given up may arrive whenever it likes.
                and isinstance(self.settled[number], Published)
            ]
            assert own == sorted(own)


@given(st.integers(0, 2**32))
@settings(max_examples=400)
def test_window_when_everything_goes_wrong(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(150)
    assert sorted(simulation.settled) == list(range(len(simulation.submitted)))
    simulation.check()
    times = Counter(simulation.node.log)
    for number, outcome in simulation.settled.items():
        if isinstance(outcome, Published):
            base, count = outcome.base_sequence, simulation.submitted[number].count
            assert simulation.node.log[base : base + count] == [number] * count
        elif not isinstance(outcome, errors.Timeout):
            assert number not in times, (number, outcome)


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_window_when_the_node_forgets_producers(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(4):
        simulation.run(20)
        simulation.node.forget()  # nothing is under way, as after a long idle time
    simulation.check()
    published = {n for n, outcome in simulation.settled.items() if isinstance(outcome, Published)}
    assert published <= set(simulation.node.log)


def test_renumber_when_compared_with_a_fresh_build() -> None:
    draft = batch_builder.draft_columns(Columns(bodies=[b"a", b"b"], due_ms=np.arange(2)))
    renumbered = batch_builder.renumber(batch_builder.build(draft, 1, 2), 3, 4)
    assert renumbered == batch_builder.build(draft, 3, 4)
