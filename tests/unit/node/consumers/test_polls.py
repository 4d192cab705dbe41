"""Turns: one reading of the clock decides who is served and when the next turn has to be.

All of these end a whole wait late where a turn reads the clock twice, or where the alarm of one who
waits is lost to another. Random lives: tests/property/test_waiting_model.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hourwheel import errors
from node.consumers.polls import FIRST_MESSAGES_MAX
from node.contracts.answer_budget import HeldAnswer
from node.contracts.broker import Delivery
from node.contracts.ending import Attempt
from storage.log.commit_log import LogWrite
from storage.queues.consume_queues import Touched
from tests.support.stepped_engine import LEAD_MS, SteppedEngine

WAIT_MS = 60_000
SIZE_BYTES = 4
"""Of a message: its body, and its tag in its metadata."""
Poll = asyncio.Task[Delivery | None]


def waiting(stepped: SteppedEngine, topic: str = "orders", group: str = "billing") -> Poll:
    """A long poll that waits."""
    poll = stepped.begin(stepped.receive(topic=topic, group=group, wait_ms=WAIT_MS))
    stepped.settle()
    assert not poll.done()
    return poll


def came(*polls: Poll) -> bool:
    """All of them brought something."""
    return all(poll.done() and poll.result() is not None for poll in polls)


@pytest.mark.parametrize("delay", range(1, 12))
@pytest.mark.parametrize("moves", [[0], [1], [2], [5], [0, 3], [1, 0, 4]])
def test_message_comes_when_time_passes_between_any_two_readings(
    moves: Sequence[int], delay: int
) -> None:
    with SteppedEngine(moves) as stepped:
        poll = waiting(stepped)
        stepped.call(stepped.publish(delay))
        for _ in range(delay):
            stepped.advance(1)
        assert came(poll)


def test_alarm_is_not_lost_to_another_that_begins_to_wait() -> None:
    """For another topic, where nothing is to come."""
    with SteppedEngine() as stepped:
        poll = waiting(stepped)
        stepped.call(stepped.publish(LEAD_MS - 5))
        waiting(stepped, topic="bills", group="audit").cancel()
        stepped.advance(LEAD_MS)
        assert came(poll)


def test_alarm_is_not_lost_when_another_group_sees_the_message_first() -> None:
    """Its Receive moves the queue's visible end, and then another topic's entries come."""
    with SteppedEngine() as stepped:
        poll, other = waiting(stepped), waiting(stepped, topic="bills")
        stepped.call(stepped.publish(LEAD_MS - 5))
        stepped.settle()
        stepped.now_ms += LEAD_MS  # and the alarm of that has not run yet
        queues = stepped.engine.shard.views.queues
        for number in queues.topic_queues():
            queues.get(number).visible_end(stepped.now_ms)
        stepped.call(stepped.publish(0, topic="bills"))
        stepped.settle()
        assert came(poll, other)


def test_lease_ends_in_time_though_nothing_else_happens() -> None:
    """It was given to a call that did not wait: no turn of the engine's own comes after it."""
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        assert stepped.call(stepped.receive(invisible_ms=10_000)) is not None
        stepped.settle()
        stepped.advance(10_000)
        assert stepped.engine.stats.lease_expirations == 1


def test_nobody_is_served_while_the_node_may_not_act_and_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SteppedEngine() as stepped:
        poll = waiting(stepped)
        shard = stepped.engine.shard
        finish_write = shard.finish_write

        def finish_and_lapse(write: LogWrite) -> None:
            finish_write(write)
            stepped.gate.is_lapsed = True

        monkeypatch.setattr(shard, "finish_write", finish_and_lapse)
        publishing = stepped.begin(stepped.publish(0))
        stepped.settle()
        monkeypatch.undo()
        assert isinstance(publishing.exception(), errors.Timeout)
        assert not poll.done()
        assert stepped.mastership.receiver.leases.count == 0
        stepped.gate.is_lapsed = False
        stepped.engine.resume()
        stepped.settle()
        assert came(poll)


def test_nothing_comes_early_where_a_node_leads_again_and_its_clock_is_behind() -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(LEAD_MS))
        stepped.settle()
        stepped.advance(LEAD_MS)
        assert stepped.call(stepped.receive()) is not None
        stepped.step_down()
        stepped.now_ms -= LEAD_MS  # and the lease is gone with the mastership
        stepped.become_master()
        stepped.settle()
        assert stepped.call(stepped.receive()) is None
        stepped.advance(LEAD_MS)
        assert stepped.call(stepped.receive()) is not None


def test_nobody_looks_on_while_the_node_may_not_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.consumers.polls.SLICE_WORK", 0)
    with SteppedEngine() as stepped:
        poll = waiting(stepped)
        turn = stepped.service.receive_service.turn

        def turn_and_lapse(touched: Touched, now_ms: int) -> bool:
            is_appended = turn(touched, now_ms)
            stepped.gate.is_lapsed = touched.are_some
            return is_appended

        monkeypatch.setattr(stepped.service.receive_service, "turn", turn_and_lapse)
        stepped.begin(stepped.publish(0))
        stepped.settle()
        assert not poll.done()
        monkeypatch.undo()
        stepped.gate.is_lapsed = False
        stepped.engine.resume()
        stepped.settle()
        assert came(poll)


def test_call_is_refused_that_comes_to_its_turn_when_the_node_may_not_act_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        subscribe = stepped.service.catalog_service.subscribe

        async def subscribe_and_lapse(*names: Any, **others: Any) -> Any:
            subscribed = await subscribe(*names, **others)
            stepped.gate.is_lapsed = True
            return subscribed

        monkeypatch.setattr(stepped.service.catalog_service, "subscribe", subscribe_and_lapse)
        with pytest.raises(errors.NotMaster):
            stepped.call(stepped.receive())
        assert stepped.mastership.receiver.leases.count == 0


# --- room for answers


class Reader:
    """A long poll, and what its client has not read yet."""

    def __init__(self, stepped: SteppedEngine, *, wait_ms: int = WAIT_MS, **asked: Any) -> None:
        self.held = HeldAnswer(stepped.engine.answers)
        work = stepped.receive(count=1, wait_ms=wait_ms, held=self.held, **asked)
        self.poll = stepped.begin(work)
        stepped.settle()


def test_polls_that_are_woken_at_once_wait_for_room_and_all_are_answered() -> None:
    """Three answers fit."""
    with SteppedEngine(answer_bytes=3 * SIZE_BYTES, answer_bytes_min=SIZE_BYTES) as stepped:
        readers = [
            Reader(stepped, group=group, topic=topic)
            for topic in ("orders", "bills")
            for group in ("billing", "audit")
            for _ in range(5)
        ]
        for topic in ("orders", "bills"):
            stepped.call(stepped.publish(*[0] * 5, topic=topic))
        stepped.settle()
        answered = list[Reader]()
        while readers:
            came_now = [one for one in readers if one.poll.done()]
            assert 1 <= len(came_now) <= 3
            assert stepped.engine.answers.held_bytes == SIZE_BYTES * len(came_now)
            readers = [one for one in readers if one not in came_now]
            answered += came_now
            for one in came_now:
                one.held.end()
            stepped.settle()
        assert came(*(one.poll for one in answered))
        assert len(answered) == 20


def test_newcomers_do_not_overtake_those_who_wait_for_room() -> None:
    with SteppedEngine(answer_bytes=SIZE_BYTES, answer_bytes_min=SIZE_BYTES) as stepped:
        stepped.call(stepped.publish(0, 0, 0))
        first, second = Reader(stepped), Reader(stepped, group="audit")
        assert [one.poll.done() for one in (first, second)] == [True, False]
        first.held.end()  # and those who wait have their turn soon
        late = stepped.begin(stepped.receive(group="late", wait_ms=WAIT_MS))
        stepped.settle()
        assert came(second.poll)
        assert not late.done()
        second.held.end()
        stepped.settle()
        assert came(late)


def test_who_does_not_wait_is_overloaded_when_there_is_no_room() -> None:
    with SteppedEngine(answer_bytes=SIZE_BYTES, answer_bytes_min=SIZE_BYTES) as stepped:
        stepped.call(stepped.publish(0, 0))
        first = Reader(stepped)
        with pytest.raises(errors.Overloaded, match="not read"):
            stepped.call(stepped.receive())
        first.held.end()
        assert stepped.call(stepped.receive()) is not None


def test_answer_that_got_lost_comes_again_when_there_is_room() -> None:
    with SteppedEngine(answer_bytes=SIZE_BYTES, answer_bytes_min=SIZE_BYTES) as stepped:
        stepped.call(stepped.publish(0, 0))
        attempt = Attempt(7, 1)
        lost, other = Reader(stepped, attempt=attempt), Reader(stepped, group="audit")
        again = Reader(stepped, attempt=attempt)
        once_more = Reader(stepped, attempt=attempt)
        assert again.poll.result() is None, "the same poll replaces it"
        lost.held.end()
        stepped.settle()
        other.held.end()
        stepped.settle()
        answers = lost.poll.result(), once_more.poll.result()
        assert answers[0] is not None
        assert answers[1] is not None
        assert answers[0].lease_id == answers[1].lease_id


def test_messages_count_with_what_each_takes_beside_its_bytes() -> None:
    """A repeated answer, too: it is held as often as it is given."""
    with SteppedEngine(answer_bytes=8_000, answer_bytes_min=SIZE_BYTES) as stepped:
        stepped.call(stepped.publish(*[0] * 32))
        asked: dict[str, Any] = {"attempt": Attempt(7, 1), "overhead_bytes": 400}
        for times in (1, 2):
            delivery = stepped.call(
                stepped.receive(held=HeldAnswer(stepped.engine.answers), **asked)
            )
            assert delivery is not None
            assert len(delivery.units) == 8_000 // 2 // 400
            held_bytes = stepped.engine.answers.held_bytes
            assert held_bytes == times * len(delivery.units) * (400 + SIZE_BYTES)
        with pytest.raises(errors.Overloaded, match="not read"):
            stepped.call(stepped.receive(**asked))


def test_nobody_who_waits_for_room_is_missed_when_mastership_lapses() -> None:
    with SteppedEngine(answer_bytes=SIZE_BYTES, answer_bytes_min=SIZE_BYTES) as stepped:
        stepped.call(stepped.publish(0, 0))
        first, second = Reader(stepped), Reader(stepped)
        stepped.gate.is_lapsed = True
        first.held.end()
        stepped.settle()
        assert not second.poll.done()
        stepped.gate.is_lapsed = False
        stepped.engine.resume()
        stepped.settle()
        assert came(second.poll)


def test_poll_that_waited_gets_the_first_of_many_and_the_next_one_all_others() -> None:
    with SteppedEngine() as stepped:
        work = stepped.receive(count=2 * FIRST_MESSAGES_MAX, wait_ms=WAIT_MS)
        poll = stepped.begin(work)
        stepped.settle()
        stepped.call(stepped.publish(*[LEAD_MS] * 2 * FIRST_MESSAGES_MAX))
        while not poll.done():
            stepped.advance(1)
        first = poll.result()
        assert first is not None
        assert len(first.units) == FIRST_MESSAGES_MAX
        stepped.advance(LEAD_MS)
        others = stepped.call(stepped.receive(count=2 * FIRST_MESSAGES_MAX))
        assert others is not None
        assert len(others.units) == FIRST_MESSAGES_MAX
