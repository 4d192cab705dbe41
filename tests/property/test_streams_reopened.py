"""Receive streams whose sessions break and whose masters change, against what polls promise.

Clients of one group read by streams. Answers wait to be written, are on their way, are read, or get
lost with their session; streams are opened again, given up, and opened again at the next master,
which has the leases of the one before where that stepped down in order, and none where it died.

Whatever happens: a message has one holder at a time, is handed out once for each of its attempts,
and no attempt is counted of which nothing was sent; no more comes than there are credits; and what
nobody has acknowledged comes again.
"""

import asyncio
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hourwheel.errors import HourwheelError
from hourwheel.outcomes import ReceiptOutcome
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Delivery, GroupSettings
from node.contracts.receive_stream import ReceiveStream
from storage.views.catalog_items import GroupOrder
from tests.support.stepped_engine import SteppedEngine

GROUP = "billing"
INVISIBLE_MS = 8_000
"""Longer than what was never sent is held for who opens its stream again."""
RETRY_MS = 100
CREDITS_MAX = 1_000

_index = st.integers(0, 1 << 16)
_credits = st.sampled_from([0, 1, 2, 3, 10, CREDITS_MAX])


@dataclass
class Answer:
    """One that was put."""

    delivery: Delivery
    is_sent: bool = False
    is_over: bool = False
    """Its lease was, before it was sent."""

    @property
    def attempts(self) -> list[tuple[int, int]]:
        """(sequence, attempt) of each message."""
        units = self.delivery.units
        return list(zip(units["sequence"].tolist(), units["attempt"].tolist(), strict=True))


@dataclass(eq=False)
class Client:
    """One reader, and its present stream."""

    number: int
    received_count: int = 0
    granted_count: int = 0
    """So many may have been put, by its credits."""
    answers: deque[Answer] = field(default_factory=deque)
    """Not read, in this session."""
    stream: ReceiveStream | None = None
    task: "asyncio.Task[None] | None" = None

    @property
    def is_open(self) -> bool:
        """Whether it gets anything more."""
        return self.task is not None and not self.task.done()


class ReopenedMachine(RuleBasedStateMachine):
    """See the top of this file."""

    @initialize(
        moves=st.lists(st.integers(0, 3), min_size=1, max_size=4),
        order=st.sampled_from([GroupOrder.NONE, GroupOrder.BLOCK]),
        wanted=st.sampled_from([None, "a"]),
        messages_max=st.sampled_from([1, 4, 32]),
    )
    def begin(
        self, moves: list[int], order: GroupOrder, wanted: str | None, messages_max: int
    ) -> None:
        """Two clients, and nothing there."""
        self.stack = ExitStack()
        self.stepped = self.stack.enter_context(SteppedEngine(moves))
        self.wanted, self.messages_max = wanted, messages_max
        settings_of = GroupSettings(
            order=order, attempts_max=100, retry_delay_ms=RETRY_MS, retry_delays_ms=(RETRY_MS,)
        )
        self.stepped.call(self.stepped.engine.put_group(GROUP, settings_of))
        self.clients = [Client(1), Client(2)]
        self.next_number = 3
        self.open_tags: dict[int, str] = {}
        """Sequence -> tag of what is not acknowledged."""
        self.held_until_ms: dict[int, int] = {}
        """Sequence -> until when it is its reader's."""
        self.held: list[Answer] = []
        self.handed_out: set[tuple[int, int]] = set()
        """(sequence, attempt) that somebody has read since a master died last."""
        self.sent: Counter[int] = Counter()
        """Sequence -> how often it was sent, or waited for that until its lease was over."""
        for client in self.clients:
            self._open(client, 2)

    def teardown(self) -> None:
        """All that is not acknowledged comes, to somebody who waits long enough."""
        if not hasattr(self, "stack"):
            return
        with self.stack:
            for client in self.clients:
                self._break(client)
            last = Client(self.next_number)
            self._open(last, CREDITS_MAX)
            for _ in range(3 * INVISIBLE_MS // RETRY_MS):
                self.stepped.advance(5 * RETRY_MS)
                self._read_all(last)
                for answer in self.held:
                    self._ack(answer)
                self.held.clear()
                if not self._left():
                    break
            assert not self._left(), "nothing is lost"
            self._break(last)

    def _left(self) -> set[int]:
        """What the group wants and has not acknowledged."""
        return {one for one, tag in self.open_tags.items() if self.wanted in {None, tag}}

    def _open(self, client: Client, credits_count: int) -> None:
        stream = ReceiveStream(client.number, self.stepped.engine.answers, owner="someone")
        stream.begin(client.received_count, credits_count)
        client.granted_count = client.received_count + credits_count
        answers = client.answers = deque[Answer]()

        def send(delivery: Delivery, held: HeldAnswer) -> None:
            held.end()
            answers.append(Answer(delivery))

        self._look_how_it_ended(client)
        client.stream = stream
        client.task = self.stepped.begin(
            self.stepped.receive_stream(
                *(stream, send),
                group=GROUP,
                count=self.messages_max,
                invisible_ms=INVISIBLE_MS,
                wanted=self.wanted,
            )
        )
        self.stepped.settle()

    def _break(self, client: Client, *, is_given_up: bool = False) -> None:
        """The node sends nothing more of it."""
        if client.stream is not None and client.task is not None:
            client.stream.cut(is_given_up=is_given_up)
            client.task.cancel()
            self.stepped.settle()
            self._look_how_it_ended(client)

    def _look_how_it_ended(self, client: Client) -> None:
        task = client.task
        if task is not None and task.done() and not task.cancelled():
            assert task.exception() is None or isinstance(task.exception(), HourwheelError)

    def _send(self, client: Client, count: int) -> None:
        """The node writes the oldest answers that are not written."""
        for answer in [one for one in client.answers if not one.is_sent][:count]:
            answer.is_sent = True
            self.sent.update(sequence for sequence, _ in answer.attempts)
            if client.stream is not None:
                client.stream.note_sent()

    def _leave_to_session(self, client: Client) -> None:
        """The stream ends while its session goes on: what was put may still be sent there."""
        stream = client.stream
        if stream is not None and not stream.is_cut:
            self._send(client, len(client.answers))

    def _read_all(self, client: Client) -> None:
        self._send(client, len(client.answers))
        while client.answers:
            self._read_one(client)
        if client.is_open and client.stream is not None:
            client.granted_count = client.received_count + CREDITS_MAX
            client.stream.grant(client.received_count, CREDITS_MAX)
            self.stepped.settle()

    def _read_one(self, client: Client) -> None:
        answer = client.answers.popleft()
        client.received_count += len(answer.delivery.units)
        now_ms = self.stepped.now_ms
        for sequence, attempt in answer.attempts:
            assert sequence in self.open_tags, "it was acknowledged"
            assert (sequence, attempt) not in self.handed_out, "of each attempt once"
            assert attempt <= self.sent[sequence], "what nobody was sent is no attempt"
            assert self.held_until_ms.get(sequence, 0) <= now_ms, "it has a holder"
            self.handed_out.add((sequence, attempt))
            self.held_until_ms[sequence] = answer.delivery.invisible_until_ms
        self.held.append(answer)

    # -- what happens -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 8), tag=st.sampled_from("aab"), delay_ms=st.integers(0, 30))
    def publish(self, count: int, tag: str, delay_ms: int) -> None:
        """Some messages."""
        done = self.stepped.call(self.stepped.publish(*[delay_ms] * count, tag=tag))
        sequences = range(done.base_sequence, done.base_sequence + done.count)
        self.open_tags |= dict.fromkeys(sequences, tag)
        self.stepped.settle()

    @rule(by_ms=st.one_of(st.integers(1, 200), st.sampled_from([5_000, INVISIBLE_MS])))
    def advance(self, by_ms: int) -> None:
        """Time passes; what waits to be written meanwhile is on its way, so its attempt counts."""
        self.stepped.advance(by_ms)
        for client in self.clients:
            for answer in client.answers:
                is_over = answer.delivery.invisible_until_ms <= self.stepped.now_ms
                if is_over and not answer.is_sent and not answer.is_over:
                    answer.is_over = True
                    self.sent.update(sequence for sequence, _ in answer.attempts)

    @rule(index=_index, count=st.integers(1, 4))
    def send(self, index: int, count: int) -> None:
        """Answers leave the node."""
        self._send(self.clients[index % len(self.clients)], count)

    @rule(index=_index)
    def read(self, index: int) -> None:
        """A client reads an answer that was sent."""
        client = self.clients[index % len(self.clients)]
        if client.answers and client.answers[0].is_sent:
            self._read_one(client)

    @rule(index=_index, credits_count=_credits)
    def grant(self, index: int, credits_count: int) -> None:
        """A client says what it has got, and what it wants."""
        client = self.clients[index % len(self.clients)]
        if client.is_open and client.stream is not None:
            granted_count = client.received_count + credits_count
            client.granted_count = max(client.stream.sent_count, granted_count)
            client.stream.grant(client.received_count, credits_count)
            self.stepped.settle()

    @rule(index=_index)
    @precondition(lambda self: self.held)
    def ack(self, index: int) -> None:
        """A client has done with what it holds, if it still does."""
        self._ack(self.held.pop(index % len(self.held)))

    def _ack(self, answer: Answer) -> None:
        until_ms, now_ms = answer.delivery.invisible_until_ms, self.stepped.now_ms
        if until_ms <= now_ms:
            return
        outcomes = self.stepped.call(self.stepped.resolve(answer.delivery, GROUP, is_ack=True))
        if self.stepped.now_ms < until_ms:
            assert outcomes == [ReceiptOutcome.OK]
        if outcomes == [ReceiptOutcome.OK]:
            for sequence, _ in answer.attempts:
                del self.open_tags[sequence]

    @rule(index=_index, credits_count=_credits, breaks_first=st.booleans())
    def open_again(self, index: int, credits_count: int, breaks_first: bool) -> None:
        """A session broke; the node may not know before its client opens the stream again."""
        client = self.clients[index % len(self.clients)]
        former = client.task
        if breaks_first:
            self._break(client)
        else:
            self._leave_to_session(client)
        self._open(client, credits_count)
        if not breaks_first and former is not None:
            assert former.done()

    @rule(index=_index)
    def break_session(self, index: int) -> None:
        """What was not read is lost."""
        client = self.clients[index % len(self.clients)]
        self._break(client)
        client.answers.clear()

    @rule(index=_index, credits_count=_credits)
    def give_up(self, index: int, credits_count: int) -> None:
        """A client ends its stream, reads what was sent, and opens another one."""
        client = self.clients[index % len(self.clients)]
        self._break(client, is_given_up=True)
        while client.answers and client.answers[0].is_sent:
            self._read_one(client)
        client.number, client.received_count = self.next_number, 0
        self.next_number += 1
        self._open(client, credits_count)

    @rule()
    def transfer(self) -> None:
        """The master steps down in order; what it has put may still be read, or get lost."""
        for client in self.clients:
            self._leave_to_session(client)
        self.stepped.transfer()
        assert not any(client.is_open for client in self.clients)

    @rule()
    def crash(self) -> None:
        """The master dies, and its leases with it: what clients hold comes to others, too."""
        self.stepped.step_down()
        self.stepped.settle()
        self.stepped.become_master()
        self.stepped.settle()
        for client in self.clients:
            client.answers.clear()
        self.held.clear()
        self.held_until_ms.clear()
        self.handed_out.clear()

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def credits_hold(self) -> None:
        """No more was put than there were credits."""
        for client in getattr(self, "clients", ()):
            if client.stream is not None:
                assert client.stream.sent_count <= client.granted_count


TestStreamsReopened = ReopenedMachine.TestCase
TestStreamsReopened.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
