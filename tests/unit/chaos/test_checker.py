"""The checker finds what is planted in a good history, and nothing in one that is good."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest

from chaos.checker import Bounds, check, describe
from chaos.history import (
    Accepted,
    Cancel,
    Delivery,
    Entry,
    Finish,
    History,
    Kept,
    Reset,
    Sent,
    Stored,
    Unique,
    Verb,
    body_of,
    serial_of,
)
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import CancelOutcome, DedupOutcome

START_MS: Final = 1_800_000_000_000
TOPIC, GROUP, OTHER = "orders", "workers", "auditors"
ATTEMPTS_MAX: Final = 3
INVISIBLE_MS: Final = 1_000
MESSAGES: Final = 60


@dataclass
class Life:
    """A history that keeps all promises, and what the directory would hold."""

    history: History
    stored: Stored

    def names(self) -> set[str]:
        return {name for name, _ in check(self.history, self.stored, Bounds(lead_ms=20))}


Plant: TypeAlias = Callable[[Life], None]


def good_life(seed: int) -> Life:
    """Messages that are delivered at once, late, again, never, or are cancelled."""
    chooser = random.Random(seed)
    groups = {GROUP: (TOPIC, ATTEMPTS_MAX), OTHER: (TOPIC, ATTEMPTS_MAX)}
    life = Life(History(groups=groups), Stored())
    for sequence in range(MESSAGES):
        serial = life.history.next_serial()
        due_ms = START_MS + chooser.randrange(5_000)
        message_id = MessageId(0, 1 + sequence // 20, sequence, due_ms)
        life.history.sent[serial] = Sent(TOPIC, due_ms)
        life.stored.messages[sequence] = Kept(serial, message_id.epoch, due_ms)
        if sequence % 7 != 6:  # of every seventh the answer was lost
            life.history.accepted[serial] = Accepted(message_id, START_MS)
        fate = sequence % 5
        if fate == 0:
            life.stored.pending.append(Entry(TOPIC, sequence, 1))
            continue
        if fate == 1 and serial in life.history.accepted:
            life.stored.cancelled.add(sequence)
            life.history.cancels.append(Cancel(serial, CancelOutcome.CANCELLED, START_MS))
            continue
        life.stored.queued.append(Entry(TOPIC, sequence, 1))
        for group in groups:
            deliver(life, chooser, group, serial, message_id)
        if fate == 2 and serial in life.history.accepted:
            late = Cancel(serial, CancelOutcome.ALREADY_RELEASED, due_ms - 15)
            life.history.cancels.append(late)
    lost = life.history.next_serial()  # never arrived, or refused: both are fine
    life.history.sent[lost] = Sent(TOPIC, START_MS)
    life.history.refused.add(lost)
    return life


def deliver(
    life: Life, chooser: random.Random, group: str, serial: int, message_id: MessageId
) -> None:
    """All deliveries of one message to one group."""
    retries, now_ms, epoch, attempt = f"%RETRY%{group}|{TOPIC}", message_id.due_ms + 2, 5, 1
    while True:
        life.history.deliveries.append(
            Delivery(
                *(group, TOPIC, serial, message_id, attempt, epoch),
                *(now_ms, now_ms + 0.5, INVISIBLE_MS),
            )
        )
        what = chooser.choice(("ack", "ack", "nack", "forget", "restart"))
        if what == "restart":
            epoch, now_ms = epoch + 1, now_ms + 30
            continue
        if what != "forget":
            delay_ms = 100 if what == "nack" else 0
            verb: Verb = "nack" if what == "nack" else "ack"
            times = (now_ms + 5.0, now_ms + 7.0)
            life.history.finishes.append(
                Finish(group, serial, attempt, verb, True, *times, delay_ms)
            )
        if what == "ack":
            return
        if attempt == ATTEMPTS_MAX:
            life.stored.queued.append(Entry(f"%DLQ%{group}", message_id.sequence, attempt))
            return
        attempt += 1
        now_ms += 110 if what == "nack" else INVISIBLE_MS + 100
        life.stored.queued.append(Entry(retries, message_id.sequence, attempt))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_found_when_the_history_is_good(seed: int) -> None:
    life = good_life(seed)
    violations = check(life.history, life.stored, Bounds(lead_ms=20))
    assert violations == [], describe(violations)


# -- what is planted ------------------------------------------------------------------------------


def a_delivery(life: Life, matches: Callable[[Delivery], bool] = lambda _: True) -> int:
    return next(n for n, one in enumerate(life.history.deliveries) if matches(one))


def change_delivery(life: Life, at: int, **changes: object) -> None:
    life.history.deliveries[at] = life.history.deliveries[at]._replace(**changes)  # type: ignore[arg-type]


def the_acked(life: Life) -> Finish:
    return next(one for one in life.history.finishes if one.verb == "ack")


def sequence_of(life: Life, serial: int) -> int:
    return next(n for n, kept in life.stored.messages.items() if kept.serial == serial)


def lose_a_message(life: Life) -> None:
    serial = next(iter(life.history.accepted))
    del life.stored.messages[sequence_of(life, serial)]


def give_another_id(life: Life) -> None:
    kept = life.stored.messages[0]
    life.stored.messages[0] = kept._replace(due_ms=kept.due_ms + 1)


def give_a_sequence_to_another(life: Life) -> None:
    messages = life.stored.messages
    messages[1], messages[2] = messages[2], messages[1]


def store_twice(life: Life) -> None:
    life.stored.messages[999] = life.stored.messages[3]
    life.stored.pending.append(Entry(TOPIC, 999, 1))


def store_what_was_refused(life: Life) -> None:
    refused = next(iter(life.history.refused))
    life.stored.messages[999] = Kept(refused, 1, START_MS)
    life.stored.pending.append(Entry(TOPIC, 999, 1))


def forget_a_pending_one(life: Life) -> None:
    life.stored.pending.pop()


def release_and_keep(life: Life) -> None:
    life.stored.pending.append(next(one for one in life.stored.queued if one.topic == TOPIC))


def queue_twice(life: Life) -> None:
    life.stored.queued.append(next(one for one in life.stored.queued if one.topic == TOPIC))


def queue_a_retry_twice(life: Life) -> None:
    life.stored.queued.append(next(one for one in life.stored.queued if one.attempt == 2))


def queue_elsewhere(life: Life) -> None:
    life.stored.queued[0] = life.stored.queued[0]._replace(topic="others")


def store_too_soon(life: Life) -> None:
    kept = life.stored.messages[6]  # one whose answer was lost: nobody was told its due time
    life.stored.messages[6] = kept._replace(due_ms=kept.due_ms - 5)


def deliver_too_soon(life: Life) -> None:
    change_delivery(life, 0, seen_ms=life.history.deliveries[0].message_id.due_ms - 0.5)


def deliver_a_stranger(life: Life) -> None:
    change_delivery(life, 0, serial=100_000)


def deliver_garbage(life: Life) -> None:
    change_delivery(life, 0, serial=None)


def deliver_to_another_topic(life: Life) -> None:
    change_delivery(life, 0, topic="others")


def deliver_under_another_id(life: Life) -> None:
    one = life.history.deliveries[0]
    change_delivery(life, 0, message_id=one.message_id._replace(sequence=777))


def never_deliver(life: Life) -> None:
    acked = the_acked(life)
    history = life.history
    history.deliveries = [
        one for one in history.deliveries if (one.group, one.serial) != (acked.group, acked.serial)
    ]
    history.finishes = [
        one for one in history.finishes if (one.group, one.serial) != (acked.group, acked.serial)
    ]


def deliver_what_was_cancelled(life: Life) -> None:
    cancelled = next(one for one in life.history.cancels if one.outcome is CancelOutcome.CANCELLED)
    message_id = life.history.accepted[cancelled.serial].message_id
    late = life.history.deliveries[0].seen_ms + 60_000
    life.history.deliveries.append(
        life.history.deliveries[0]._replace(
            serial=cancelled.serial, message_id=message_id, seen_ms=late
        )
    )


def cancel_in_words_only(life: Life) -> None:
    cancelled = next(iter(life.stored.cancelled))
    life.stored.cancelled.discard(cancelled)
    life.stored.queued.append(Entry(TOPIC, cancelled, 1))


def cancel_unasked(life: Life) -> None:
    entry = life.stored.pending.pop()
    life.stored.cancelled.add(entry.sequence)


def say_released_when_it_waits(life: Life) -> None:
    entry = next(one for one in life.stored.pending if one.sequence % 7 != 6)
    serial = life.stored.messages[entry.sequence].serial
    assert serial is not None
    life.history.cancels.append(Cancel(serial, CancelOutcome.ALREADY_RELEASED, START_MS + 10_000))


def say_released_too_soon(life: Life) -> None:
    at = next(
        n
        for n, one in enumerate(life.history.cancels)
        if one.outcome is CancelOutcome.ALREADY_RELEASED
    )
    one = life.history.cancels[at]
    life.history.cancels[at] = one._replace(answered_ms=one.answered_ms - 50)


def not_know_a_message(life: Life) -> None:
    serial = next(iter(life.history.accepted))
    life.history.cancels.append(Cancel(serial, CancelOutcome.UNKNOWN, START_MS))


def say_past_when_it_waits(life: Life) -> None:
    entry = next(one for one in life.stored.pending if one.sequence % 7 != 6)
    serial = life.stored.messages[entry.sequence].serial
    assert serial is not None
    life.history.cancels.append(Cancel(serial, CancelOutcome.EXPIRED, START_MS + 10_000))


def repeat_an_attempt(life: Life) -> None:
    at = a_delivery(life, lambda one: one.attempt == 2)
    change_delivery(life, at, attempt=1)
    before = next(
        one
        for one in life.history.deliveries
        if one.serial == life.history.deliveries[at].serial and one.attempt == 1
    )
    change_delivery(life, at, epoch=before.epoch)


def exceed_the_attempts(life: Life) -> None:
    change_delivery(life, 0, attempt=ATTEMPTS_MAX + 1)


def deliver_again_for_no_reason(life: Life) -> None:
    acked = the_acked(life)
    at = a_delivery(
        life, lambda one: (one.group, one.serial, one.attempt) == (*acked[:2], acked.attempt)
    )
    one = life.history.deliveries[at]
    life.history.deliveries.append(
        one._replace(receive_ms=one.receive_ms + 1, attempt=one.attempt + 1)
    )


def deliver_after_ack(life: Life) -> None:
    acked = the_acked(life)
    at = a_delivery(life, lambda one: (one.group, one.serial) == acked[:2])
    one = life.history.deliveries[at]
    again_ms = int(acked.answered_ms) + 5
    life.history.deliveries.append(
        one._replace(receive_ms=again_ms, seen_ms=again_ms + 0.5, epoch=99, attempt=3)
    )


def acknowledge_twice(life: Life) -> None:
    life.history.finishes.append(the_acked(life))


def forget_a_nack(life: Life) -> None:
    acked = the_acked(life)
    at = life.history.finishes.index(acked)
    life.history.finishes[at] = acked._replace(verb="nack")


def come_back_before_the_delay(life: Life) -> None:
    at = next(n for n, one in enumerate(life.history.finishes) if one.verb == "nack")
    if life.history.finishes[at].attempt == ATTEMPTS_MAX:
        raise AssertionError("choose another seed")
    life.history.finishes[at] = life.history.finishes[at]._replace(delay_ms=10_000)


def finish_what_never_came(life: Life) -> None:
    life.history.finishes.append(the_acked(life)._replace(serial=1))


def answer_uniquely(life: Life, outcome: DedupOutcome, *, is_in_log: bool) -> None:
    """A message that had a pending one's dedup key, and its producer's answer."""
    (first, one), (second, two) = list(life.history.accepted.items())[:2]
    life.history.uniques.append(Unique(first, "a", DedupOutcome.PUBLISHED, None))
    if outcome is not DedupOutcome.REPLACED:
        second = life.history.next_serial()
        life.history.sent[second] = Sent(TOPIC, START_MS)
        life.history.refused.add(second)
    life.history.uniques.append(Unique(second, "a", outcome, one.message_id))
    if is_in_log:
        sequence = two.message_id.sequence if outcome is DedupOutcome.REPLACED else 9_999
        life.stored.deduped[sequence] = int(outcome), one.message_id.sequence


def say_replaced_and_do_not(life: Life) -> None:
    answer_uniquely(life, DedupOutcome.REPLACED, is_in_log=False)


def say_kept_and_do_not(life: Life) -> None:
    answer_uniquely(life, DedupOutcome.KEPT, is_in_log=False)


def keep_one_of_another_key(life: Life) -> None:
    answer_uniquely(life, DedupOutcome.KEPT, is_in_log=True)
    life.history.uniques[0] = life.history.uniques[0]._replace(name="b")


def deliver_what_was_replaced(life: Life) -> None:
    sequence = life.history.deliveries[0].message_id.sequence
    life.stored.deduped[9_999] = int(DedupOutcome.REPLACED), sequence


@pytest.mark.parametrize("outcome", [DedupOutcome.REJECTED, DedupOutcome.KEPT])
def test_nothing_is_found_when_a_dedup_key_was_taken(outcome: DedupOutcome) -> None:
    life = good_life(2)
    answer_uniquely(life, outcome, is_in_log=True)
    assert life.names() == set()


PLANTS: Final[dict[Plant, str]] = {
    lose_a_message: "lost",
    give_another_id: "lost",
    give_a_sequence_to_another: "lost",
    store_twice: "published twice",
    store_what_was_refused: "phantom",
    say_replaced_and_do_not: "dedup key",
    say_kept_and_do_not: "dedup key",
    keep_one_of_another_key: "dedup key",
    deliver_what_was_replaced: "dedup key",
    forget_a_pending_one: "misplaced",
    release_and_keep: "misplaced",
    queue_twice: "queued twice",
    queue_a_retry_twice: "queued twice",
    queue_elsewhere: "queued twice",
    store_too_soon: "early",
    deliver_too_soon: "early",
    come_back_before_the_delay: "early",
    deliver_a_stranger: "phantom",
    deliver_garbage: "phantom",
    deliver_to_another_topic: "phantom",
    finish_what_never_came: "phantom",
    deliver_under_another_id: "published twice",
    never_deliver: "not delivered",
    deliver_what_was_cancelled: "cancel",
    cancel_in_words_only: "cancel",
    cancel_unasked: "cancel",
    say_released_when_it_waits: "cancel",
    say_released_too_soon: "cancel",
    not_know_a_message: "cancel",
    say_past_when_it_waits: "cancel",
    repeat_an_attempt: "attempt",
    exceed_the_attempts: "attempt",
    deliver_again_for_no_reason: "uncaused delivery",
    deliver_after_ack: "delivered after ack",
    acknowledge_twice: "acknowledged twice",
    forget_a_nack: "not given back",
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: str(plant.__name__))
def test_violation_is_found_when_it_is_planted(plant: Plant) -> None:
    life = good_life(3)
    plant(life)
    assert PLANTS[plant] in life.names()


def test_clocks_may_differ_when_the_bounds_say_so() -> None:
    life = good_life(1)
    deliver_too_soon(life)
    assert life.names() == {"early"}
    assert check(life.history, life.stored, Bounds(lead_ms=20, clock_ms=1.0)) == []


def test_violations_are_counted_when_they_are_told() -> None:
    life = good_life(1)
    life.stored.messages.clear()
    text = describe(check(life.history, life.stored))
    assert text.splitlines()[0] == f"lost: {len(life.history.accepted)}"
    assert len([line for line in text.splitlines() if line.startswith("    ")]) <= 20


@pytest.mark.parametrize("plant", [repeat_an_attempt, deliver_again_for_no_reason])
def test_reset_that_found_no_room_has_ended_leases(plant: Plant) -> None:
    life = good_life(3)
    plant(life)
    found = life.names()
    assert PLANTS[plant] in found
    for group in {one.group for one in life.history.deliveries}:
        life.history.unwritten_resets.append(Reset(group, None, 0, 1e15))
    assert PLANTS[plant] not in life.names()
    life.history.unwritten_resets = [
        one._replace(answered_ms=0.0) for one in life.history.unwritten_resets
    ]
    assert life.names() == found


def test_reset_that_was_confirmed_excuses_only_what_comes_meanwhile() -> None:
    life = good_life(3)
    deliver_again_for_no_reason(life)
    found, one = life.names(), life.history.deliveries[-1]
    resets = [
        Reset(one.group, None, one.receive_ms + by, one.receive_ms + by + 5) for by in (-9, 9)
    ]
    life.history.resets = resets
    assert life.names() == found
    life.history.resets = [Reset(one.group, None, one.receive_ms - 1, one.receive_ms + 1)]
    assert "uncaused delivery" not in life.names()


@pytest.mark.parametrize("plant", [never_deliver, forget_a_nack])
def test_what_blocked_its_key_may_be_skipped_when_somebody_asked_for_that(plant: Plant) -> None:
    life = good_life(3)
    acked = the_acked(life)
    plant(life)
    skipped = (acked.group, sequence_of(life, acked.serial))
    life.stored.skipped.add(skipped)
    assert life.names() == {PLANTS[plant]}
    life.history.skips.add(skipped)
    assert life.names() == set()
    life.stored.skipped.clear()
    assert life.names() == {PLANTS[plant]}


@pytest.mark.parametrize("serial", [0, 1, 508, 123_456])
def test_serial_is_read_back_when_the_body_is_whole(serial: int) -> None:
    body = body_of(serial)
    assert serial_of(body) == serial
    assert serial_of(body[:-1]) is None or len(body) == 8
    assert serial_of(b"\x01" + body[1:]) is None


def test_transactions_have_one_outcome_each() -> None:
    life = good_life(7)
    stored = [one.serial for one in life.stored.messages.values() if one.serial is not None]
    (lost,) = life.history.refused
    life.history.deals = [tuple(stored[:3]), (lost,)]
    assert life.names() == set()
    life.history.deals.append((stored[4], lost))
    assert life.names() == {"half a transaction"}
    life.history.contradictions.append("committed and rolled back")
    assert life.names() == {"half a transaction", "two outcomes"}
