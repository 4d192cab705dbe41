"""The publish window against a model of a node, over a network that loses whatever it can.

What must hold, whatever happens: a batch that settled as published is in the node's log exactly
once; one that failed with anything but `Timeout` is not in it; no batch is in it twice; and in the
end every batch is settled.
"""

import random
from collections import Counter, deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns
from hourwheel.client.inflight_batches import Batch, Published, PublishWindow
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.transport.retry import Backoff, Failure

DEADLINE_MS = 400.0


class ModelNode:
    """Idempotence as a node does it, with refusals at random."""

    def __init__(self, rng: random.Random, *, may_forget: bool) -> None:
        self.rng = rng
        self.may_forget = may_forget
        self.log: list[int] = []
        self.next_sequence: dict[int, int] = {}
        self.known: dict[int, deque[tuple[int, int, int]]] = {}

    def handle(self, raw: bytes) -> Published | errors.HourwheelError:
        batch = RecordBatch(raw)
        batch.verify()
        header = batch.header
        number = int(bytes(batch.blobs).split(b",")[0])
        if self.rng.random() < 0.1:
            return self.rng.choice([errors.Overloaded(), errors.InvalidTopic(), errors.DiskFull()])
        try:
            base = self._check(header.producer_id, header.producer_sequence, header.count)
        except errors.FailedPrecondition as error:
            return error
        if base is not None:
            return Published(1, 1, base, 0, is_duplicate=True)
        if self.rng.random() < 0.05:
            return self.rng.choice([errors.Overloaded(), errors.BeyondHorizon()])
        base = len(self.log)
        self.log.append(number)
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
            if (known_first, known_count) == (first, count):
                return base
        if first != self.next_sequence[producer_id]:
            raise errors.OutOfOrderSequence
        return None


class Simulation:
    """A window, a node, and a network that breaks."""

    def __init__(self, seed: int, *, is_calm: bool = False) -> None:
        self.rng = random.Random(seed)
        ids = iter(range(1, 1_000_000))
        self.node = ModelNode(self.rng, may_forget=False)
        self.window: PublishWindow[int] = PublishWindow(
            make_producer_id=lambda: next(ids),
            backoff=Backoff(ms_min=1.0, ms_max=8.0),
            random=self.rng.random,
            answer_timeout_ms=100.0,
        )
        self.now_ms = 0.0
        self.requests: deque[bytes] = deque()
        self.answers: deque[Published | errors.HourwheelError] = deque()
        self.submitted = 0
        self.settled: dict[int, Published | errors.HourwheelError] = {}

    def submit(self) -> None:
        count = self.rng.randint(1, 3)
        bodies = [b"%d," % self.submitted] * count
        draft = batch_builder.draft_columns(Columns(bodies=bodies))
        raw = batch_builder.build(draft, *self.window.next_position())
        self.window.submit("t", raw, count, self.submitted, deadline_ms=self.now_ms + DEADLINE_MS)
        self.submitted += 1

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
        self.send()
        if self.window.is_overdue(self.now_ms):
            self.break_stream()
        self.collect()

    def send(self) -> None:
        sendable: list[Batch[int]] = self.window.take_sendable(self.now_ms)
        self.requests.extend(batch.raw for batch in sendable)

    def answer(self) -> None:
        answer = self.answers.popleft()
        if isinstance(answer, Published):
            self.window.on_published(answer)
        else:
            self.window.on_refused(self.now_ms, answer)

    def break_stream(self) -> None:
        # What is under way may still reach the node, in order, or be lost from some point on.
        while self.requests and self.rng.random() < 0.7:
            self.node.handle(self.requests.popleft())
        self.requests.clear()
        self.answers.clear()
        self.window.on_broken(self.now_ms, Failure(errors.Unavailable(), is_definite=False))

    def collect(self) -> None:
        for batch, outcome in self.window.take_settled():
            assert batch.token not in self.settled
            self.settled[batch.token] = outcome

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
        self.collect()


@given(st.integers(0, 2**32))
@settings(max_examples=400)
def test_window_when_everything_goes_wrong(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(150)
    assert sorted(simulation.settled) == list(range(simulation.submitted))
    times = Counter(simulation.node.log)
    assert max(times.values(), default=0) <= 1
    for number, outcome in simulation.settled.items():
        if isinstance(outcome, Published):
            assert simulation.node.log[outcome.base_sequence] == number
        elif not isinstance(outcome, errors.Timeout):
            assert number not in times, (number, outcome)


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_window_when_the_node_forgets_producers(seed: int) -> None:
    simulation = Simulation(seed)
    for _ in range(4):
        simulation.run(20)
        simulation.node.forget()  # nothing is under way, as after a long idle time
    assert max(Counter(simulation.node.log).values(), default=0) <= 1
    published = {n for n, outcome in simulation.settled.items() if isinstance(outcome, Published)}
    assert published <= set(simulation.node.log)


def test_renumber_when_compared_with_a_fresh_build() -> None:
    draft = batch_builder.draft_columns(Columns(bodies=[b"a", b"b"], due_ms=np.arange(2)))
    renumbered = batch_builder.renumber(batch_builder.build(draft, 1, 2), 3, 4)
    assert renumbered == batch_builder.build(draft, 3, 4)
