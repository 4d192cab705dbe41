"""What groups may hold, by hand: what is planted is found, and nothing else."""

from chaos.actors.order_checks import check_limits, check_order
from chaos.history import Delivery, Entry, Finish, History, Stored, Verb
from hourwheel.formats.message_id import MessageId

GROUP, TOPIC = "ledger", "orders"
INVISIBLE_MS = 1_000


def life() -> tuple[History, Stored]:
    """Three messages of key a in the queue, in the order of their serials 1, 2, 3; 4 is of b."""
    history = History(groups={GROUP: (TOPIC, 3)}, ordered={GROUP})
    history.keys = {1: "a", 2: "a", 3: "a", 4: "b"}
    queued = [Entry(TOPIC, sequence, 1) for sequence in (101, 104, 102, 103)]
    return history, Stored(queued=[*queued, Entry(f"%RETRY%{GROUP}", 101, 2)])


def deliver(history: History, serial: int, at_ms: int, *, epoch: int = 1, attempt: int = 1) -> None:
    message_id = MessageId(0, 1, 100 + serial, 0)
    history.deliveries.append(
        Delivery(
            *(GROUP, TOPIC, serial, message_id, attempt, epoch),
            *(at_ms, at_ms + 0.5, INVISIBLE_MS),
        )
    )


def finish(history: History, serial: int, at_ms: float, verb: Verb = "ack") -> None:
    history.finishes.append(Finish(GROUP, serial, 1, verb, True, at_ms, at_ms + 1))


def test_nothing_is_found_when_each_comes_in_its_turn() -> None:
    history, stored = life()
    deliver(history, 1, 10)
    deliver(history, 4, 10)
    deliver(history, 1, 500, epoch=2)
    finish(history, 1, 20.0)  # the former master's: nobody knows whether it holds
    finish(history, 1, 510.0)
    deliver(history, 2, 511, epoch=2)
    deliver(history, 2, 2_000, epoch=2, attempt=2)  # dead or skipped: it is never acknowledged
    deliver(history, 3, 2_900, epoch=2)
    assert not list(check_order(history, stored))


def test_order_is_broken_when_an_earlier_one_comes_later() -> None:
    history, stored = life()
    deliver(history, 2, 10)
    finish(history, 2, 11.0)
    deliver(history, 1, 12)
    ((name, text),) = check_order(history, stored)
    assert name == "order"
    assert "'a' of ledger" in text
    history.ordered.clear()
    assert not list(check_order(history, stored))


def test_order_is_broken_when_the_earlier_one_comes_again_after_another_master() -> None:
    history, stored = life()
    deliver(history, 1, 10)
    deliver(history, 2, 20, epoch=2)
    deliver(history, 1, 15, epoch=3)
    assert [name for name, _ in check_order(history, stored)] == ["order"]


def test_order_is_broken_when_the_next_comes_before_the_acknowledgement() -> None:
    history, stored = life()
    deliver(history, 1, 10)
    deliver(history, 2, 20)
    finish(history, 1, 30.0)
    assert [name for name, _ in check_order(history, stored)] == ["order"]
    assert not list(check_order(history, stored, clock_ms=10.0))


def test_order_holds_when_the_next_comes_after_the_last_lease_though_before_a_late_answer() -> None:
    for at_ms, found in ((3_000 + INVISIBLE_MS, []), (2_999 + INVISIBLE_MS, ["order"])):
        history, stored = life()
        for attempt in (1, 2, 3):
            deliver(history, 1, attempt * 1_000, attempt=attempt)
        deliver(history, 2, at_ms)
        finish(history, 1, 4_200.0)  # refused: it is dead
        assert [name for name, _ in check_order(history, stored)] == found


def test_order_holds_when_the_next_comes_in_the_millisecond_of_the_acknowledgement() -> None:
    history, stored = life()
    deliver(history, 1, 10)
    finish(history, 1, 20.9)
    deliver(history, 2, 20)
    assert not list(check_order(history, stored))
    deliver(history, 3, 19)
    assert [name for name, _ in check_order(history, stored)] == ["order"]


def test_order_is_broken_when_the_log_says_so() -> None:
    history, stored = life()
    stored.overtaken.append((102, 101))
    assert [name for name, _ in check_order(history, stored)] == ["order"]


def test_limits_hold_when_leases_end_before_others_begin() -> None:
    history, _ = life()
    history.limits = {GROUP: (2, 0)}
    deliver(history, 1, 10)
    deliver(history, 2, 20)
    finish(history, 1, 30.9, "nack")
    deliver(history, 3, 30)  # in the same millisecond
    deliver(history, 4, 20 + INVISIBLE_MS)
    assert not list(check_limits(history))
    deliver(history, 1, 40, epoch=2)
    assert not list(check_limits(history))
    deliver(history, 5, 35)
    assert [name for name, _ in check_limits(history)] == ["in flight"]


def takeover(*ends: tuple[float, float, bool]) -> History:
    """Both masters hand out message 1, the second one at 500 and nothing of it comes back to it.

    `ends`: when message 1 was acknowledged, by the receipt of the first one, when that was
    answered, and whether it was confirmed. At 600 the group gets another message, of one at most.
    """
    history, _ = life()
    history.limits = {GROUP: (1, 0)}
    deliver(history, 1, 10)
    deliver(history, 1, 500, epoch=2)
    deliver(history, 2, 600, epoch=2)
    history.finishes += [Finish(GROUP, 1, 1, "ack", is_ok, *times) for *times, is_ok in ends]
    return history


def test_limits_hold_when_the_receipt_of_a_former_master_ends_a_lease() -> None:
    assert not list(check_limits(takeover((20.0, 540.0, True))))
    assert not list(check_limits(takeover((20.0, 30.0, False)))), "it may come later"


def test_limits_are_broken_when_nothing_has_ended_the_new_master_s_lease() -> None:
    for ends in ((), ((20.0, 30.0, True),), ((601.0, 602.0, True),)):
        assert [name for name, _ in check_limits(takeover(*ends))] == ["in flight"], ends


def test_pace_is_too_fast_when_a_second_has_more_than_its_messages_and_the_burst() -> None:
    history, _ = life()
    history.limits = {GROUP: (0, 20)}
    for number in range(23):
        deliver(history, 10 + number, 40 * number)
    assert not list(check_limits(history))
    deliver(history, 50, 900)
    assert [name for name, _ in check_limits(history)] == ["too fast"]
