"""Receive streams in the same lives as long polls: no message waits while there are credits for it.

As `test_waiting_model`, with streams among those who wait. Their messages are those that a loop of
polls would get: each once for its attempt, in the order of its queue, and no more than credits.
"""

import asyncio
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from hourwheel.errors import HourwheelError
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Delivery
from node.contracts.receive_stream import ReceiveStream
from tests.property.test_waiting_model import FILTERS, INVISIBLE_MS, TOPICS, WaitingMachine

_index = st.integers(0, 1 << 16)
_credits = st.sampled_from([0, 1, 2, 5, 100])


@dataclass(eq=False)
class Pushed:
    """A stream, and what came of it."""

    group: str
    topic: str
    number: int
    count: int
    """Messages of an answer."""
    stream: ReceiveStream = field(init=False)
    task: "asyncio.Task[None]" = field(init=False)
    answers: list[tuple[Delivery, HeldAnswer]] = field(default_factory=list)
    """Not read yet."""
    has_room: bool = True
    granted_count: int = 0
    """So many may have been sent, by the credits that it ever had."""


class StreamMachine(WaitingMachine):
    """See the top of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[Pushed] = []
        self.stream_count = 0

    def teardown(self) -> None:
        """End."""
        for one in self.streams:
            one.task.cancel()
        super().teardown()

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        group=st.sampled_from(sorted(FILTERS)),
        topic=st.sampled_from(TOPICS),
        credits_count=_credits,
        count=st.sampled_from([1, 3, 32]),
    )
    def open_stream(self, group: str, topic: str, credits_count: int, count: int) -> None:
        """Another stream."""
        self.stream_count += 1
        one = Pushed(group, topic, self.stream_count, count)
        one.granted_count = credits_count
        self._open(one, 0, credits_count)

    def _open(self, one: Pushed, received: int, credits_count: int) -> None:
        def send(delivery: Delivery, held: HeldAnswer) -> None:
            one.answers.append((delivery, held))
            stream.note_sent()

        stream = ReceiveStream(one.number, self.stepped.engine.answers, lambda: one.has_room)
        stream.begin(received, credits_count)
        one.stream = stream
        work = self.stepped.receive_stream(
            *(stream, send),
            group=one.group,
            topic=one.topic,
            count=one.count,
            wanted=FILTERS[one.group],
            invisible_ms=INVISIBLE_MS,
        )
        one.task = self.stepped.begin(work)
        self.streams.append(one)
        self.look()

    @rule(index=_index, credits_count=_credits)
    @precondition(lambda self: self.streams)
    def grant(self, index: int, credits_count: int) -> None:
        """A client says what it has got, and what it wants."""
        one = self.streams[index % len(self.streams)]
        arrived = one.stream.sent_count
        one.granted_count = max(one.granted_count, arrived + credits_count)
        one.stream.grant(arrived, credits_count)
        self.look()

    @rule(index=_index)
    @precondition(lambda self: self.streams)
    def jam(self, index: int) -> None:
        """A connection takes no more, or more again."""
        one = self.streams[index % len(self.streams)]
        one.has_room = not one.has_room
        if one.has_room:
            one.stream.look()
        self.look()

    @rule(index=_index)
    @precondition(lambda self: any(one.answers for one in self.streams))
    def read_stream(self, index: int) -> None:
        """A client has read an answer of a stream."""
        some = [one for one in self.streams if one.answers]
        one = some[index % len(some)]
        delivery, held = one.answers.pop(0)
        held.end()
        self.deliveries.append((one.group, delivery))
        self.look()

    @rule(index=_index, is_given_up=st.booleans())
    @precondition(lambda self: self.streams)
    def end_stream(self, index: int, is_given_up: bool) -> None:
        """A client gives a stream up, or its session breaks."""
        one = self.streams[index % len(self.streams)]
        one.stream.cut(is_given_up=is_given_up)
        one.task.cancel()
        self.look()

    @rule(index=_index, credits_count=_credits)
    @precondition(lambda self: self.streams)
    def open_again(self, index: int, credits_count: int) -> None:
        """A session broke, and its client opens the stream again: what was lost comes again."""
        one = self.streams[index % len(self.streams)]
        lost = sum(len(delivery.units) for delivery, _ in one.answers)
        received = one.stream.sent_count - lost
        again = Pushed(one.group, one.topic, one.number, one.count)
        again.granted_count = received + credits_count + lost
        self._open(again, received, credits_count)

    # -- what must hold ---------------------------------------------------------------------------

    def look(self) -> None:
        """Once all is quiet, no stream with credits waits for what is there."""
        self.stepped.settle()
        self._hear_streams()
        super().look()
        self._hear_streams()
        answers = self.stepped.engine.answers
        if self.stepped.gate.is_lapsed or not answers.has_room:
            return
        for one in self.streams:
            assert one.stream.sent_count <= max(one.granted_count, one.stream.received_count)
            if one.stream.is_ready:
                found = list(self._visible(one.group, one.topic))
                assert not found, f"{one.group} has credits for {one.topic}, and {found} are there"

    def _hear_streams(self) -> None:
        for one in [one for one in self.streams if one.task.done()]:
            self.streams.remove(one)
            if not one.task.cancelled() and one.task.exception() is not None:
                assert isinstance(one.task.exception(), HourwheelError)
            for _, held in one.answers:
                held.end()


TestStreamWaiting = StreamMachine.TestCase
TestStreamWaiting.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
