"""What is promised of groups that begin anew is held against what their consumers saw."""

from collections.abc import Callable
from typing import Final

import pytest

from chaos.actors.reset_checks import check_resets
from chaos.checker import check
from chaos.history import (
    Accepted,
    Begun,
    Delivery,
    Entry,
    Finish,
    History,
    Kept,
    Reset,
    Sent,
    Stored,
    Verb,
)
from hourwheel.formats.message_id import MessageId

DUE_MS: Final = 1_800_000_000_000
EPOCH: Final = 3
MESSAGES: Final = 4
QUEUE: Final = 7 << 8
RESET_MS: Final = DUE_MS + 1_000
FIRST: Final = 1
"""Where the group begins anew: with the second message."""
LAST_BEFORE: Final = 9
"""The last lease of before the reset."""


def delivery(sequence: int, lease_id: int, receive_ms: int, attempt: int = 1) -> Delivery:
    """A message as it comes to the group."""
    message_id = MessageId(0, EPOCH, sequence, DUE_MS)
    who = "again", "orders", sequence + 1, message_id
    return Delivery(*who, attempt, EPOCH, receive_ms, receive_ms + 0.5, 500, lease_id)


def finish(one: Delivery, verb: Verb, delay_ms: int = 0) -> Finish:
    """How the group ends it, right then."""
    what = one.group, one.serial or 0, one.attempt, verb, True
    return Finish(*what, one.seen_ms, one.seen_ms + 1, delay_ms, one.epoch, one.lease_id)


def a_run() -> tuple[History, Stored]:
    """All came and were acknowledged, but for one that was given back; then a reset; all again."""
    history, stored = History(groups={"again": ("orders", 64)}), Stored()
    for sequence in range(MESSAGES):
        serial = history.next_serial()
        history.sent[serial] = Sent("orders", DUE_MS)
        history.accepted[serial] = Accepted(MessageId(0, EPOCH, sequence, DUE_MS), DUE_MS)
        stored.messages[sequence] = Kept(serial, EPOCH, DUE_MS)
        stored.queued.append(Entry("orders", sequence, 1))
        stored.places[sequence] = QUEUE, sequence
        before = delivery(sequence, LAST_BEFORE - sequence, DUE_MS + 10)
        after = delivery(sequence, LAST_BEFORE + 1 + sequence, RESET_MS + 10)
        history.deliveries += [before] + [after] * (sequence >= FIRST)
        history.finishes.append(finish(before, "nack" if sequence == 2 else "ack"))
        history.finishes += [finish(after, "ack")] * (sequence >= FIRST)
    history.resets.append(Reset("again", (FIRST,), RESET_MS - 5, RESET_MS + 5))
    begun = Begun({QUEUE: FIRST, QUEUE + 250: 0}, (EPOCH, LAST_BEFORE), RESET_MS)
    stored.begun["again"] = [begun]
    return history, stored


def names(history: History, stored: Stored) -> set[str]:
    return {name for name, _ in check_resets(history, stored)}


def test_nothing_is_found_when_all_comes_again_from_where_the_group_began() -> None:
    history, stored = a_run()
    assert check(history, stored) == []


def test_message_is_found_that_comes_again_without_a_reset() -> None:
    history, stored = a_run()
    stored.begun.clear()
    history.resets.clear()
    found = {one.name for one in check(history, stored)}
    assert {"attempt", "acknowledged twice", "delivered after ack", "not given back"} <= found


def test_each_life_has_its_own_ends() -> None:
    """What was given back before the reset comes again once, as if for the first time."""
    history, stored = a_run()
    last = history.deliveries[-1]
    history.deliveries.append(last._replace(receive_ms=last.receive_ms + 1, lease_id=99))
    found = {one.name for one in check(history, stored)}
    assert {"attempt", "uncaused delivery"} <= found


def test_what_is_given_back_after_the_last_reset_is_to_come() -> None:
    history, stored = a_run()
    history.finishes[-1] = history.finishes[-1]._replace(verb="nack")
    assert {one.name for one in check(history, stored)} == {"not given back"}


def lose_one(history: History, _: Stored) -> None:
    history.deliveries.pop()


def come_before(history: History, _: Stored) -> None:
    history.deliveries.append(delivery(FIRST - 1, LAST_BEFORE + 20, RESET_MS + 20))


def keep_a_lease(history: History, _: Stored) -> None:
    history.deliveries.append(delivery(2, LAST_BEFORE, RESET_MS + 20))


def count_an_old_receipt(history: History, _: Stored) -> None:
    late = finish(history.deliveries[0], "ack")
    history.finishes.append(late._replace(requested_ms=RESET_MS + 6.0))


def forget_the_record(_: History, stored: Stored) -> None:
    stored.begun.clear()


def begin_elsewhere(_: History, stored: Stored) -> None:
    (begun,) = stored.begun["again"]
    stored.begun["again"] = [begun._replace(positions={QUEUE: FIRST - 1})]


def begin_at_another_time(_: History, stored: Stored) -> None:
    (begun,) = stored.begun["again"]
    stored.begun["again"] = [begun._replace(store_ms=RESET_MS + 90)]


def reset_unasked(history: History, _: Stored) -> None:
    history.resets.clear()


PLANTED: Final[dict[str, tuple[Callable[[History, Stored], None], str]]] = {
    "one does not come again": (lose_one, "not again"),
    "one of before comes": (come_before, "before its beginning"),
    "a lease of before brings one": (keep_a_lease, "void receipt"),
    "a receipt of before counts": (count_an_old_receipt, "void receipt"),
    "it is not in the log": (forget_the_record, "reset"),
    "it begins elsewhere": (begin_elsewhere, "reset"),
    "it was at another time": (begin_at_another_time, "reset"),
    "nobody asked for it": (reset_unasked, "reset"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_fault_is_found(what: str) -> None:
    history, stored = a_run()
    plant, name = PLANTED[what]
    plant(history, stored)
    assert name in names(history, stored)


def test_nothing_is_missed_that_had_not_come_when_the_history_was_cut_off() -> None:
    history, stored = a_run()
    lose_one(history, stored)
    assert names(history, stored) == {"not again"}
    history.is_cut_off = True
    assert names(history, stored) == set()


def test_reset_of_which_nobody_knows_may_be_in_the_log_or_not() -> None:
    history, stored = a_run()
    history.resets[0] = history.resets[0]._replace(positions=None)
    assert names(history, stored) == set()
    history.resets.append(Reset("again", None, RESET_MS + 30, RESET_MS + 40))
    assert names(history, stored) == set()


def test_message_need_not_come_when_the_group_began_behind_it_at_last() -> None:
    history, stored = a_run()
    end = Begun({QUEUE: MESSAGES}, (EPOCH, 50), RESET_MS + 500)
    stored.begun["again"].append(end)
    history.resets.append(Reset("again", (MESSAGES,), RESET_MS + 495, RESET_MS + 505))
    history.deliveries.pop()
    history.finishes.pop()
    assert check(history, stored) == []
