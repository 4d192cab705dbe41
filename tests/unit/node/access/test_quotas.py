"""What a principal uses is counted, what is too much is refused, and memory stays bounded."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from node.access import quotas as module
from node.access.quotas import Limits, Quotas, Work, ranges_of
from node.telemetry.stats import QUOTAS

ALICE, BOB = "alice", "bob"
NOW_MS = 1_800_000_000_000


def quotas_of(exempt: frozenset[str] = frozenset(), **limits: Any) -> Quotas:
    """One for each principal by itself."""
    made = Quotas()
    made.replace({"*": Limits(**limits)}, exempt)
    return made


def wait_ms(call: Callable[[], object]) -> int:
    with pytest.raises(errors.QuotaExceeded) as caught:
        call()
    return caught.value.retry_after_ms


def test_each_limit_is_counted() -> None:
    assert [one.name for one in fields(Limits)] == list(QUOTAS)


def test_rate_lets_a_burst_through_then_says_when_to_come_back() -> None:
    quotas = quotas_of(messages_per_s=100)
    quotas.publish(ALICE, 100, 0, now_ms=0.0)
    wait = wait_ms(lambda: quotas.publish(ALICE, 1, 0, now_ms=0.0))
    assert 1 <= wait <= 11
    quotas.publish(ALICE, 50, 0, now_ms=float(wait))
    assert 450 <= wait_ms(lambda: quotas.publish(ALICE, 1, 0, now_ms=float(wait))) <= 520
    quotas.publish(BOB, 100, 0, now_ms=0.0)  # by itself
    quotas.publish(ALICE, 1, 0, now_ms=60_000.0)


def test_rate_lets_a_batch_go_that_is_larger_than_it_and_delays_what_follows() -> None:
    quotas = quotas_of(bytes_per_s=1_000)
    quotas.publish(ALICE, 1, 10_000, now_ms=0.0)
    assert 9_000 <= wait_ms(lambda: quotas.publish(ALICE, 1, 1, now_ms=0.0)) <= 9_002
    quotas.publish(ALICE, 1, 1, now_ms=9_001.0)


def test_what_is_refused_by_one_rate_takes_nothing_of_the_other() -> None:
    quotas = quotas_of(messages_per_s=1_000, bytes_per_s=10)
    quotas.publish(ALICE, 1, 20, now_ms=0.0)
    for _ in range(2_000):
        wait_ms(lambda: quotas.publish(ALICE, 1, 1, now_ms=0.0))
    quotas.replace({"*": Limits(messages_per_s=1_000)})
    quotas.publish(ALICE, 900, 1, now_ms=0.0)


def test_what_was_not_accepted_is_given_back_up_to_the_size_of_the_rate() -> None:
    quotas = quotas_of(messages_per_s=100)
    taken = quotas.publish(ALICE, 1_000, 0, now_ms=0.0)
    wait_ms(lambda: quotas.publish(ALICE, 1, 0, now_ms=0.0))
    quotas.give_rates_back(taken)
    taken = quotas.publish(ALICE, 100, 0, now_ms=0.0)
    quotas.publish(BOB, 1, 0, now_ms=60_000.0)
    wait_ms(lambda: quotas.publish(ALICE, 1, 0, now_ms=0.0))
    quotas.publish(ALICE, 100, 0, now_ms=60_000.0)
    quotas.give_rates_back(taken)
    quotas.publish(ALICE, 100, 0, now_ms=120_000.0)
    wait_ms(lambda: quotas.publish(ALICE, 1, 0, now_ms=120_000.0))


@pytest.mark.parametrize(
    ("limits", "call"),
    [
        ({"messages_per_s": 0}, lambda it: it.publish(ALICE, 1, 1, 0.0)),
        ({"bytes_per_s": 0}, lambda it: it.publish(ALICE, 1, 1, 0.0)),
        ({"pending_messages": 0}, lambda it: it.hold_pending(ALICE, {NOW_MS + 1: 1}, NOW_MS)),
        ({"calls_in_flight": 0}, lambda it: it.begin_call(ALICE)),
        ({"connections": 0}, lambda it: it.begin_on(ALICE, "ipv4:127.0.0.1:1")),
    ],
)
def test_quota_of_zero_says_that_waiting_does_not_help(
    limits: dict[str, int], call: Callable[[Quotas], object]
) -> None:
    quotas = quotas_of(**limits)
    with pytest.raises(errors.QuotaReached) as caught:
        call(quotas)
    assert caught.value.params == {"quota": next(iter(limits)), "quota_value": "0"}
    assert not caught.value.retriable


def test_own_quota_counts_and_not_that_of_everybody_and_administrators_have_none() -> None:
    quotas = Quotas()
    assert not quotas.is_on
    quotas.replace({"*": Limits(messages_per_s=0), ALICE: Limits()}, frozenset({"root"}))
    assert quotas.is_on
    quotas.publish(ALICE, 1_000_000, 0, 0.0)
    quotas.publish("root", 1_000_000, 0, 0.0)
    with pytest.raises(errors.QuotaReached):
        quotas.publish(BOB, 1, 0, 0.0)
    quotas.replace({ALICE: Limits()})
    assert not quotas.is_on


def test_calls_and_connections_are_counted_until_they_end() -> None:
    quotas = quotas_of(calls_in_flight=2, connections=1)
    quotas.begin_call(ALICE)
    quotas.begin_call(ALICE)
    assert wait_ms(lambda: quotas.begin_call(ALICE)) > 0
    quotas.begin_call(BOB)
    for work in (Work.POLL, Work.STREAM):
        quotas.begin_call(ALICE, work)
        quotas.begin_call(ALICE, work)
        assert wait_ms(lambda work=work: quotas.begin_call(ALICE, work)) > 0
    quotas.end_call(ALICE)
    quotas.begin_call(ALICE)
    quotas.begin_on(ALICE, "one")
    quotas.begin_on(ALICE, "one")
    assert wait_ms(lambda: quotas.begin_on(ALICE, "two")) > 0
    quotas.end_on(ALICE, "one")
    assert wait_ms(lambda: quotas.begin_on(ALICE, "two")) > 0
    quotas.end_on(ALICE, "one")
    quotas.begin_on(ALICE, "two")


def test_pending_messages_count_until_they_are_due_or_were_not_accepted() -> None:
    quotas = quotas_of(pending_messages=10)

    def hold(count: int, delay_ms: int, now_ms: int = NOW_MS) -> dict[int, int]:
        ranges = ranges_of(np.full(count, now_ms + delay_ms, np.int64), now_ms)
        quotas.hold_pending(ALICE, ranges, now_ms)
        return ranges

    assert hold(100, 0) == {}  # due at once
    with pytest.raises(errors.QuotaReached):  # never, together
        hold(11, 5_000)
    held = hold(10, 5_000)
    assert 5_000 <= wait_ms(lambda: hold(1, 1_000)) <= 6_100
    quotas.give_pending_back(ALICE, held)
    hold(9, 3_600_000)
    hold(1, 1_000)
    assert wait_ms(lambda: hold(1, 1_000)) <= 2_100
    hold(1, 1_000, NOW_MS + 2_100)
    assert wait_ms(lambda: hold(2, 1_000, NOW_MS + 10_000)) <= module.COME_BACK_MS_MAX + 1


def test_pending_messages_that_are_moved_count_until_their_new_instants() -> None:
    quotas = quotas_of(pending_messages=3)

    def ranges(count: int, delay_ms: int, now_ms: int) -> dict[int, int]:
        return ranges_of(np.full(count, now_ms + delay_ms, np.int64), now_ms)

    def move(count: int, delay_ms: int, now_ms: int = NOW_MS) -> None:
        quotas.check_moving(ALICE, now_ms)
        quotas.note_moved(ALICE, ranges(count, delay_ms, now_ms), now_ms)

    def left(now_ms: int) -> int:
        """How many may be published."""
        for count in (3, 2, 1):
            with suppress(errors.QuotaExceeded):
                held = ranges(count, 5_000, now_ms)
                quotas.hold_pending(ALICE, held, now_ms)
                quotas.give_pending_back(ALICE, held)
                return count
        return 0

    quotas.hold_pending(ALICE, ranges(2, 5_000, NOW_MS), NOW_MS)
    for _ in range(4):
        move(2, 86_400_000)  # its own, again and again: as many as before
    assert left(NOW_MS + 60_000) == 1
    move(1, 1_000)  # earlier than all that it has: one more, until then
    assert (left(NOW_MS), left(NOW_MS + 60_000)) == (0, 1)
    move(3, 90_000_000, NOW_MS + 60_000)
    assert left(NOW_MS + 80_000_000) == 0
    move(2, 99_000_000, NOW_MS + 95_000_000)  # nobody knew of them before
    move(2, 99_900_000, NOW_MS + 95_000_000)
    assert left(NOW_MS + 95_000_000) == 1
    move(4, 99_990_000, NOW_MS + 95_000_000)  # how many, the call did not know
    with pytest.raises(errors.QuotaExceeded):
        move(1, 99_990_000, NOW_MS + 95_000_000)


def test_pending_messages_are_not_moved_with_a_quota_of_zero_and_by_others_freely() -> None:
    quotas = quotas_of(frozenset({BOB}), pending_messages=0)
    with pytest.raises(errors.QuotaReached):
        quotas.check_moving(ALICE, NOW_MS)
    quotas.check_moving(BOB, NOW_MS)


def test_memory_of_principals_and_of_ranges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRINCIPALS_MAX", 4)
    quotas = quotas_of(messages_per_s=1)
    for number in range(100):
        quotas.publish(f"p{number}", 1, 0, now_ms=0.0)
    assert wait_ms(lambda: quotas.publish("p99", 1, 0, now_ms=0.0)) > 0
    quotas.publish("p0", 1, 0, now_ms=0.0)  # forgotten

    monkeypatch.setattr(module, "RANGES_MAX", 8)
    held = module.PendingCount()
    for day in range(100):
        held.add({NOW_MS + day * 86_400_000: 1})
    assert held.count == 100
    held.pass_to(NOW_MS + 7 * 86_400_000 - 1)
    assert held.count == 93
