"""Nobody waits while something for them is visible, however the clock moves between two readings.

A real engine, whose clock moves at each reading, against a naive look at what it holds: the entries
of each queue up to the first one that is not visible, less what is resolved, less what was handed
out. After each step, once everything that is to happen without more time has happened, no long
poll may wait for a message that it could have.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hourwheel.errors import HourwheelError
from hourwheel.types import topic_of
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Delivery
from storage.views.unit import release_ms
from tests.support.stepped_engine import SteppedEngine

TOPICS = ("orders", "bills")
FILTERS = {"billing": None, "audit": None, "picky": "a"}
"""The groups, and what they want."""
WAIT_MS = 50_000
WINDOW = 65_536
INVISIBLE_MS = 300
ANSWER_BYTES_MIN = 16
"""More than a message has."""

_groups = st.sampled_from(sorted(FILTERS))
_topics = st.sampled_from(TOPICS)
_delays = st.one_of(st.integers(0, 30), st.integers(0, 400))
_moves = st.lists(st.integers(0, 6), min_size=1, max_size=6)
_index = st.integers(0, 1 << 16)
Entry = tuple[int, int, int]
"""(queue, sequence, attempt)"""


@dataclass
class Poll:
    """A long poll."""

    group: str
    topic: str
    task: "asyncio.Task[Delivery | None]"
    held: HeldAnswer


class WaitingMachine(RuleBasedStateMachine):
    """Random lives of a broker's consumers."""

    @initialize(
        moves=_moves,
        slice_work=st.sampled_from([300, 262_144]),
        scan=st.sampled_from([2, 65_536]),
        window=st.sampled_from([6, WINDOW]),
        answer_bytes=st.sampled_from([ANSWER_BYTES_MIN, 3 * ANSWER_BYTES_MIN, 1 << 20]),
    )
    def begin(
        self, moves: list[int], slice_work: int, scan: int, window: int, answer_bytes: int
    ) -> None:
        """Start, with sizes small enough to get to their ends."""
        self.stack = ExitStack()
        for name in ("consumers.polls", "delivery.filter_scan"):
            self.stack.enter_context(mock.patch(f"node.{name}.SLICE_WORK", slice_work))
        self.stack.enter_context(mock.patch("storage.queues.consume_queue._SCAN_ENTRIES_MAX", scan))
        for name in ("consumers.polls", "delivery.leases", "delivery.receiver", "shard.apply"):
            self.stack.enter_context(mock.patch(f"node.{name}.WINDOW_POSITIONS", window))
        self.stepped = self.stack.enter_context(
            SteppedEngine(moves, answer_bytes, ANSWER_BYTES_MIN)
        )
        self.window = window
        self.tags: dict[int, str] = {}
        self.polls: list[Poll] = []
        self.deliveries: list[tuple[str, Delivery]] = []
        self.unread: list[HeldAnswer] = []

    def teardown(self) -> None:
        """End."""
        if hasattr(self, "stack"):
            with self.stack:
                for poll in self.polls:
                    poll.task.cancel()

    # -- what happens -----------------------------------------------------------------------------

    @rule(
        delays=st.lists(_delays, min_size=1, max_size=4), topic=_topics, tag=st.sampled_from("ab")
    )
    def publish(self, delays: list[int], topic: str, tag: str) -> None:
        """Messages due soon."""
        if self.stepped.gate.is_lapsed:
            return
        done = self.stepped.call(self.stepped.publish(*sorted(delays), topic=topic, tag=tag))
        self.tags |= dict.fromkeys(range(done.base_sequence, done.base_sequence + done.count), tag)
        self.look()

    @rule(group=_groups, topic=_topics, count=st.sampled_from([1, 2, 32]))
    def wait(self, group: str, topic: str, count: int) -> None:
        """Another long poll."""
        self._poll(group, topic, count, WAIT_MS)

    def _poll(self, group: str, topic: str, count: int, wait_ms: int) -> None:
        held = HeldAnswer(self.stepped.engine.answers)
        work = self.stepped.receive(
            group=group,
            topic=topic,
            count=count,
            wait_ms=wait_ms,
            invisible_ms=INVISIBLE_MS,
            wanted=FILTERS[group],
            held=held,
        )
        self.polls.append(Poll(group, topic, self.stepped.begin(work), held))
        self.look()

    @rule()
    def wait_for_all(self) -> None:
        """Each group has a long poll for each topic."""
        waiting = {(poll.group, poll.topic) for poll in self.polls}
        for group, topic in product(FILTERS, TOPICS):
            if (group, topic) not in waiting:
                self.wait(group, topic, 2)

    @rule(steps=st.lists(st.tuples(_topics, st.integers(0, 30), st.integers(0, 12)), max_size=8))
    def trickle(self, steps: list[tuple[str, int, int]]) -> None:
        """Single messages, one after the other, to those who wait."""
        self.wait_for_all()
        for topic, delay, by_ms in steps:
            self.publish([delay], topic, "a")
            self.advance(by_ms)

    @rule(group=_groups, topic=_topics)
    def take(self, group: str, topic: str) -> None:
        """A call that does not wait: it may see what others wait for first."""
        self._poll(group, topic, 1, 0)

    @rule(index=_index)
    @precondition(lambda self: self.unread)
    def read(self, index: int) -> None:
        """A client has read its answer."""
        self.unread.pop(index % len(self.unread)).end()
        self.look()

    @rule()
    def read_all(self) -> None:
        """All of them have, and so those that get room by it."""
        while self.unread:
            self.read(0)

    @rule(by_ms=st.one_of(st.integers(1, 12), st.integers(1, 400)))
    def advance(self, by_ms: int) -> None:
        """Time passes."""
        self.stepped.advance(by_ms)
        self.look()

    @rule(index=_index, is_ack=st.booleans(), delay_ms=st.one_of(st.none(), st.integers(0, 40)))
    @precondition(lambda self: self.deliveries and not self.stepped.gate.is_lapsed)
    def resolve(self, index: int, is_ack: bool, delay_ms: int | None) -> None:
        """A consumer has done with messages, or gives them back."""
        group, delivery = self.deliveries.pop(index % len(self.deliveries))
        work = self.stepped.resolve(delivery, group, is_ack=is_ack, retry_delay_ms=delay_ms)
        self.stepped.call(work)
        self.look()

    @rule(index=_index)
    @precondition(lambda self: self.polls)
    def leave(self, index: int) -> None:
        """A caller goes away."""
        self.polls[index % len(self.polls)].task.cancel()
        self.look()

    @rule(topic=_topics, delay=_delays)
    def lapse(self, topic: str, delay: int) -> None:
        """The lease of mastership is over, maybe with a record on its way."""
        if self.stepped.gate.is_lapsed:
            return
        work = self.stepped.begin(self.stepped.publish(delay, topic=topic))
        for _ in range(3):
            self.stepped.call(asyncio.sleep(0))
        self.stepped.gate.is_lapsed = True
        self.stepped.settle()
        if work.done() and work.exception() is not None:
            assert isinstance(work.exception(), HourwheelError)
        self.look()

    @rule()
    @precondition(lambda self: self.stepped.gate.is_lapsed)
    def renew(self) -> None:
        """It is master again, in the same epoch."""
        self.stepped.gate.is_lapsed = False
        self.stepped.engine.resume()
        self.look()

    # -- what must hold ---------------------------------------------------------------------------

    def look(self) -> None:
        """Once all is quiet, nobody waits for what is there."""
        self.stepped.settle()
        self._hear()
        answers = self.stepped.engine.answers
        assert answers.held_bytes <= answers.bytes_max
        if self.stepped.gate.is_lapsed:
            return
        end_ms = self.stepped.mastership.receiver.leases.next_end_ms()
        assert end_ms is None or end_ms > self.stepped.now_ms, "a lease is over, and nobody looked"
        for poll in filter(self.may_have, self.polls if answers.has_room else ()):
            found = list(self._visible(poll.group, poll.topic))
            assert not found, f"{poll.group} waits for {poll.topic}, where {found} are visible"

    def may_have(self, poll: Poll) -> bool:
        """Whether nothing but the lack of messages keeps a poll from its answer."""
        return poll in self.polls

    def _hear(self) -> None:
        """Note the answers."""
        for poll in [one for one in self.polls if one.task.done()]:
            self.polls.remove(poll)
            if poll.task.cancelled() or poll.task.exception() or poll.task.result() is None:
                poll.held.end()
            else:
                self.unread.append(poll.held)
            if poll.task.cancelled():
                continue
            if poll.task.exception() is not None:
                assert isinstance(poll.task.exception(), HourwheelError)
                continue
            delivery = poll.task.result()
            if delivery is not None:
                self.deliveries.append((poll.group, delivery))

    def _visible(self, group: str, topic: str) -> Iterator[Entry]:
        """What a group could have of a topic now: entry by entry, from what files and log say."""
        shard = self.stepped.engine.shard
        catalog, views = shard.views.catalog, shard.views
        found = catalog.find_group(group), catalog.find_topic(topic)
        if found[0] is None or found[1] is None:
            return
        group_id, topic_id = found[0].group_id, found[1].topic_id
        receiver = self.stepped.mastership.receiver
        leases = receiver.leases
        for number in receiver.queues_of(group_id, topic_id):
            if FILTERS[group] and topic_of(number) == topic_id and self.window < WINDOW:
                continue  # a filter's window is another
            queue, window = views.queues.get(number), views.acks.get(group_id, number)
            floor = window.first_unresolved(queue.start_position)
            delivered = leases._progress.get((group_id, number))  # type: ignore[call-overload]
            position = int(queue.start_position)
            while position < queue.end_position:
                units = queue.read(position, 1)
                if int(release_ms(units)[0]) > self.stepped.now_ms:
                    break
                at, position = position, position + 1
                is_resolved = not list(window.unresolved(at, at + 1))
                is_out = delivered is not None and not list(
                    delivered.delivered.unresolved(at, at + 1)
                )
                sequence = int(units["sequence"][0])
                is_own = topic_of(number) == topic_id
                is_wanted = not (is_own and FILTERS[group]) or self.tags.get(sequence, "a") == "a"
                if not is_resolved and not is_out and is_wanted and at < floor + self.window:
                    yield number, sequence, int(units["attempt"][0])


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
