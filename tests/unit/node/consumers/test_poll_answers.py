"""Answers that got lost and are asked for again: the same lease, as long as it is whole."""

import asyncio
from typing import Any

import pytest

from node.consumers.polls import ANSWERS_MAX, KEPT_MS_MAX, Answers
from node.consumers.waiters import Interest, Waiter
from node.contracts.broker import Delivery, ReceiveParams
from node.contracts.ending import Attempt
from storage.queues.consume_queues import all_freed
from tests.support.stepped_engine import LEAD_MS, SteppedEngine

ORDERS = Interest(1, 1)
FIRST, SECOND = Attempt(7, 1), Attempt(7, 2)
INVISIBLE_MS = 10_000
GRACE_MS = 5_000


def taken(stepped: SteppedEngine, attempt: Attempt | None = FIRST, **asked: Any) -> Delivery | None:
    """The answer to a poll that does not wait."""
    asked = {"invisible_ms": INVISIBLE_MS} | asked
    return stepped.call(stepped.receive(attempt=attempt, **asked))


def got(stepped: SteppedEngine, attempt: Attempt | None = FIRST, **asked: Any) -> Delivery:
    """The same, where there is something."""
    delivery = taken(stepped, attempt, **asked)
    assert delivery is not None
    return delivery


def waiting(stepped: SteppedEngine, attempt: Attempt = FIRST) -> "asyncio.Task[Delivery | None]":
    """A long poll that waits."""
    work = stepped.receive(wait_ms=60_000, invisible_ms=INVISIBLE_MS, attempt=attempt)
    poll = stepped.begin(work)
    stepped.settle()
    assert not poll.done()
    return poll


def gone_as_its_answer_came(stepped: SteppedEngine) -> None:
    """A long poll that got a message, and whose caller went away before it could be told."""
    poll = waiting(stepped)
    stepped.call(stepped.publish(LEAD_MS - 5))
    stepped.settle()
    stepped.now_ms += LEAD_MS
    stepped.service.receive_service.turn(all_freed(()), stepped.now_ms)
    assert stepped.mastership.receiver.leases.count == 1
    poll.cancel()
    stepped.settle()
    assert poll.cancelled()


def identity(delivery: Delivery) -> tuple[Any, ...]:
    """What its receipts say, and what it brings."""
    return (
        *(delivery.epoch, delivery.group_id, delivery.topic_queue, delivery.lease_id),
        *(delivery.first_position, len(delivery.units), delivery.units.tobytes(), delivery.blobs),
    )


@pytest.mark.parametrize("wanted", [None, "a"])
def test_same_attempt_gets_the_same_lease_for_its_whole_time(wanted: str | None) -> None:
    with SteppedEngine() as stepped:
        for tag in "abab":
            stepped.call(stepped.publish(0, tag=tag))
        first = got(stepped, wanted=wanted)
        stepped.call(stepped.publish(0))
        stepped.advance(1_000)
        again = got(stepped, wanted=wanted)
        assert identity(again) == identity(first)
        assert again.invisible_until_ms == first.invisible_until_ms + 1_000
        assert again.units["attempt"].max() == 1
        assert stepped.mastership.receiver.leases.count == 1
        stepped.advance(INVISIBLE_MS - 500)  # beyond the first answer's time
        assert stepped.call(stepped.resolve(again, "billing", is_ack=True)) == [1]
        assert len(got(stepped, SECOND, wanted=wanted).units) == 1, "the number says it arrived"


def test_without_an_id_each_call_is_a_new_one() -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        got(stepped, None)
        assert taken(stepped, None) is None


def test_nothing_is_repeated_of_which_a_part_is_resolved_or_whose_time_is_over() -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        first = got(stepped)
        assert stepped.call(stepped.resolve(first, "billing", is_ack=True)) == [1]
        assert taken(stepped) is None
        stepped.call(stepped.publish(0))
        got(stepped, SECOND)
        stepped.advance(INVISIBLE_MS)
        stepped.advance(1_000)  # the delay before the second attempt
        assert got(stepped, SECOND).units["attempt"].tolist() == [2]


def test_same_attempt_replaces_the_one_that_waits() -> None:
    with SteppedEngine() as stepped:
        lost = waiting(stepped)
        again = waiting(stepped)
        assert lost.done()
        assert lost.result() is None
        stepped.call(stepped.publish(0))
        stepped.settle()
        assert again.done()
        assert again.result() is not None


def test_poll_that_comes_late_leases_nothing() -> None:
    """It was sent before the last one, and nobody reads its answer."""
    with SteppedEngine() as stepped:
        assert taken(stepped, SECOND) is None
        stepped.call(stepped.publish(0))
        assert taken(stepped, FIRST, wait_ms=60_000) is None
        assert len(got(stepped, SECOND).units) == 1


def test_message_is_kept_a_while_for_who_went_away_as_its_answer_came() -> None:
    with SteppedEngine() as stepped:
        gone_as_its_answer_came(stepped)
        stepped.advance(GRACE_MS - 1)
        again = got(stepped)
        assert again.units["attempt"].tolist() == [1]
        stepped.advance(GRACE_MS)
        assert stepped.call(stepped.resolve(again, "billing", is_ack=True)) == [1]


def test_message_comes_to_others_when_who_went_away_does_not_come_back() -> None:
    """Nobody has seen it: that was no attempt."""
    with SteppedEngine() as stepped:
        gone_as_its_answer_came(stepped)
        stepped.advance(GRACE_MS)
        assert got(stepped, None).units["attempt"].tolist() == [1]


@pytest.mark.parametrize("wanted", [None, "a"])
def test_same_attempt_gets_the_same_messages_from_the_next_master(wanted: str | None) -> None:
    """Its answer got lost as the master stood still, say, before it stepped down."""
    with SteppedEngine() as stepped:
        for tag in "abab":
            stepped.call(stepped.publish(0, tag=tag))
        first = got(stepped, wanted=wanted)
        stepped.transfer()
        stepped.transfer()
        assert taken(stepped, None, wanted=wanted) is None
        again = got(stepped, wanted=wanted)
        assert identity(again)[1:3] == identity(first)[1:3]
        assert identity(again)[4:] == identity(first)[4:]
        assert stepped.mastership.receiver.leases.count == 1
        assert stepped.call(stepped.resolve(again, "billing", is_ack=True)) == [1]


def test_next_master_repeats_nothing_that_arrived() -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        stepped.call(stepped.publish(0))
        got(stepped, count=1)
        first = got(stepped, SECOND, count=1)
        stepped.transfer()
        assert taken(stepped, FIRST) is None, "it is late"
        assert taken(stepped, Attempt(7, 3)) is None
        assert taken(stepped, SECOND) is None, "it is late now"
        assert stepped.call(stepped.resolve(first, "billing", is_ack=True)) == [1]


def test_next_master_repeats_nothing_of_which_a_part_is_resolved() -> None:
    with SteppedEngine() as stepped:
        stepped.call(stepped.publish(0))
        stepped.call(stepped.publish(0))
        first = got(stepped)
        part = first._replace(units=first.units[:1])
        assert stepped.call(stepped.resolve(part, "billing", is_ack=True)) == [1]
        stepped.transfer()
        assert taken(stepped) is None


async def test_as_many_are_kept_as_is_said_and_not_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ANSWERS_MAX < 1 << 15, "some megabytes"
    monkeypatch.setattr("node.consumers.polls.ANSWERS_MAX", 3)
    answers = Answers()
    future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
    waiter = Waiter(future, ReceiveParams("billing", "orders", 1, 1), 1)
    for poller_id in range(1, 6):
        assert answers.begin(ORDERS, Attempt(poller_id, 1), waiter, poller_id) is None
        answers.note(ORDERS, Attempt(poller_id, 1), poller_id)
    assert len(answers) == 3
    assert answers.begin(ORDERS, Attempt(1, 1), waiter, 6) is None
    known = answers.begin(ORDERS, Attempt(5, 1), waiter, 6)
    assert known is not None
    assert known.lease_id == 5
    answers.note(ORDERS, Attempt(5, 1), 5)
    assert answers.begin(ORDERS, Attempt(5, 1), waiter, 7 + KEPT_MS_MAX) is None, "too late"
    assert answers.begin(ORDERS, Attempt(9, 1), waiter, 9_000 + 3 * KEPT_MS_MAX) is None
    assert len(answers) == 1, "the others are forgotten"
    answers.clear()
    assert len(answers) == 0
