"""What a group's consumers may hold and get in a second: enforced, woken in time, shared fairly.

Random lives: tests/property/test_group_limits_model.py.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.filter_language.text import FilterExpression
from node.consumers.group_limits import GroupLimits, Rate
from node.consumers.waiters import Interest
from node.contracts.broker import CatalogUpdate, Delivery, GroupSettings, Selection
from node.contracts.ending import Ending
from node.delivery.leases import Leases
from storage.views.catalog_items import Group
from tests.support.receipts import receipt_of
from tests.support.stepped_engine import SteppedEngine

WAIT_MS = 60_000
INVISIBLE_MS = 10_000
Poll = asyncio.Task[Delivery | None]


def limit(stepped: SteppedEngine, in_flight_max: int = 0, per_second_max: int = 0) -> None:
    """Set the limits of group "billing"."""
    wanted = GroupSettings(in_flight_max=in_flight_max, per_second_max=per_second_max)
    if stepped.engine.shard.views.catalog.find_group("billing") is None:
        stepped.call(stepped.engine.put_group("billing", wanted))
    else:
        stepped.call(stepped.engine.update_group("billing", CatalogUpdate(), wanted))
    stepped.settle()


def poll(
    stepped: SteppedEngine, count: int = 32, wait_ms: int = WAIT_MS, topic: str = "orders"
) -> Poll:
    """A poll of the group, begun."""
    begun = stepped.begin(
        stepped.receive(count=count, wait_ms=wait_ms, invisible_ms=INVISIBLE_MS, topic=topic)
    )
    stepped.settle()
    return begun


def got(one: Poll) -> int | None:
    """How many it got; None: it waits."""
    if not one.done():
        return None
    delivery = one.result()
    return 0 if delivery is None else len(delivery.units)


def delivered(one: Poll) -> Delivery:
    """Its answer."""
    found = one.result()
    assert found is not None
    return found


def end(
    stepped: SteppedEngine, delivery: Delivery, first: int, count: int, *, is_ack: bool
) -> None:
    """Acknowledge some messages of an answer, or give them back in an hour."""
    receipt = receipt_of(stepped.engine, delivery)
    delay_ms = None if is_ack else 3_600_000
    resolving = stepped.engine.resolve(
        "billing", [Selection(receipt, first, count)], Ending(is_ack, delay_ms)
    )
    stepped.begin(resolving)
    stepped.settle()


@pytest.mark.parametrize("is_ack", [True, False])
def test_group_holds_no_more_and_goes_on_as_soon_as_it_holds_less(*, is_ack: bool) -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=5)
        stepped.call(stepped.publish(*[0] * 20))
        first, second, third = (poll(stepped) for _ in range(3))
        assert [got(one) for one in (first, second, third)] == [5, None, None]
        end(stepped, delivered(first), 1, 2, is_ack=is_ack)
        assert [got(second), got(third)] == [2, None], "the one that has waited longest"
        end(stepped, delivered(first), 1, 2, is_ack=is_ack)
        assert got(third) is None, "the same again frees nothing"
        end(stepped, delivered(first), 0, 5, is_ack=is_ack)
        assert got(third) == 3


def test_poll_is_not_held_back_where_there_is_nothing() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=5)
        stepped.call(stepped.publish(*[0] * 5))
        assert got(poll(stepped)) == 5
        assert got(poll(stepped)) is None
        assert stepped.engine.stats.limited_polls == 0
        stepped.call(stepped.publish(0))
        stepped.settle()
        assert stepped.engine.stats.limited_polls == 1


@pytest.mark.parametrize("is_ack", [True, False])
def test_group_goes_on_when_receipts_of_the_former_master_come(*, is_ack: bool) -> None:
    """They name leases by the former master's ids; how much it holds is counted all the same."""
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=6)
        stepped.call(stepped.publish(*[0] * 20))
        before = [poll(stepped, count=2) for _ in range(3)]
        assert [got(one) for one in before] == [2, 2, 2]
        stepped.transfer()
        waiting = [poll(stepped) for _ in range(3)]
        assert [got(one) for one in waiting] == [None] * 3
        end(stepped, delivered(before[1]), 1, 1, is_ack=is_ack)
        assert [got(one) for one in waiting] == [1, None, None]
        end(stepped, delivered(before[1]), 0, 2, is_ack=is_ack)
        assert [got(one) for one in waiting] == [1, 1, None]
        end(stepped, delivered(before[0]), 0, 2, is_ack=is_ack)
        assert [got(one) for one in waiting] == [1, 1, 2]


def test_group_goes_on_when_its_leases_are_over() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=2)
        stepped.call(stepped.publish(*[0] * 3))
        assert got(poll(stepped)) == 2
        waiting = poll(stepped)
        stepped.advance(INVISIBLE_MS - 1)
        assert got(waiting) is None
        stepped.advance(1)
        assert got(waiting) == 1


def test_what_was_resolved_after_its_part_had_ended_is_counted_once() -> None:
    """An acknowledgement that comes as its lease ends frees nothing of what others hold."""
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=4)
        stepped.call(stepped.publish(*[0] * 9))
        held = delivered(poll(stepped))
        leases = stepped.mastership.receiver.leases
        lease = leases.get(held.lease_id)
        assert lease is not None
        leases.change(lease, lease.first, lease.first + 1, stepped.now_ms + 50)
        stepped.service.rearm()
        stepped.advance(50)  # the first one is to be delivered again
        assert got(poll(stepped, wait_ms=0)) == 1
        end(stepped, held, 0, 2, is_ack=True)
        assert got(poll(stepped, wait_ms=0)) == 1
        assert got(poll(stepped, wait_ms=0)) == 0


def test_rate_goes_for_all_consumers_together_and_wakes_those_who_wait() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, per_second_max=2)
        stepped.call(stepped.publish(*[0] * 10))
        first, second = poll(stepped), poll(stepped)
        assert [got(first), got(second)] == [None, None], "a new bucket is empty"
        stepped.advance(499)
        assert got(first) is None
        stepped.advance(1)
        assert [got(first), got(second)] == [1, None]
        stepped.advance(499)
        assert got(second) is None
        stepped.advance(1)
        assert got(second) == 1


def test_nothing_happens_while_a_group_waits_for_its_limits() -> None:
    """No turn is planned but the one in which the rate lets something through."""
    with SteppedEngine() as stepped:
        limit(stepped, per_second_max=1)
        stepped.call(stepped.publish(0))
        poll(stepped)
        service = stepped.service.receive_service
        assert service.next_wakeup_ms() == stepped.now_ms + 1_000
        limit(stepped, in_flight_max=1)
        waiting = poll(stepped)
        stepped.call(stepped.publish(0))
        stepped.settle()
        end_ms = stepped.mastership.receiver.leases.next_end_ms()
        assert (got(waiting), service.next_wakeup_ms()) == (None, end_ms)


def test_change_of_limits_holds_at_once_for_those_who_wait() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=1)
        stepped.call(stepped.publish(*[0] * 10))
        assert got(poll(stepped)) == 1
        waiting = [poll(stepped, count=2) for _ in range(4)]
        limit(stepped, in_flight_max=4)
        assert [got(one) for one in waiting] == [2, 1, None, None]
        stepped.call(stepped.engine.put_group("billing", GroupSettings(in_flight_max=0)))
        stepped.settle()
        assert [got(one) for one in waiting] == [2, 1, 2, 2]


def test_topics_of_a_group_share_its_limits_in_turn() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, per_second_max=10)
        for topic in ("orders", "bills"):
            stepped.call(stepped.publish(*[0] * 10, topic=topic))
        orders = [poll(stepped) for _ in range(3)]
        bills = [poll(stepped, topic="bills") for _ in range(3)]
        seen = []
        for _ in range(6):
            stepped.advance(100)
            seen.append((sum(one.done() for one in orders), sum(one.done() for one in bills)))
        assert seen == [(1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]


@pytest.mark.parametrize("is_filter", [False, True])
def test_change_of_a_group_or_a_filter_lets_nobody_lose_the_place_in_the_line(
    *, is_filter: bool
) -> None:
    with SteppedEngine() as stepped:
        engine = stepped.engine
        limit(stepped, in_flight_max=1)
        for topic in ("orders", "bills"):
            stepped.call(stepped.publish(*[0] * 3, topic=topic))
        # The one who loses the place is not to be woken by what happens in a queue of its own.
        held = delivered(poll(stepped, topic="orders" if is_filter else "bills"))
        waiting = [poll(stepped, topic=topic) for topic in ("orders", "bills")]
        if is_filter:
            stepped.call(engine.put_subscription("billing", "orders", FilterExpression.tags("a")))
        else:
            stepped.call(engine.put_group("billing", GroupSettings(in_flight_max=1)))
        stepped.settle()
        assert [got(one) for one in waiting] == [None, None]
        end(stepped, held, 0, 1, is_ack=True)
        (served,) = (one for one in waiting if one.done())
        end(stepped, delivered(served), 0, 1, is_ack=True)
        assert [got(one) for one in waiting] == [1, 1]


def test_new_poll_goes_behind_those_that_wait_and_a_line_of_the_dead_holds_up_nobody() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=1)
        stepped.call(stepped.publish(*[0] * 3))
        held = delivered(poll(stepped))
        waiting = poll(stepped)
        gone = poll(stepped, topic="bills")
        waiting.cancel()
        gone.cancel()
        stepped.settle()
        end(stepped, held, 0, 1, is_ack=True)
        assert got(poll(stepped, wait_ms=0)) == 1
        assert stepped.engine.stats.limited_polls > 0


def test_new_master_knows_of_no_lease_and_begins_with_an_empty_bucket() -> None:
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=2, per_second_max=2)
        stepped.call(stepped.publish(*[0] * 10))
        first = poll(stepped)
        stepped.advance(1_000)
        assert got(first) == 1
        stepped.step_down()
        stepped.become_master()
        stepped.settle()
        after = [poll(stepped) for _ in range(3)]
        assert [got(one) for one in after] == [None] * 3
        stepped.advance(500)
        stepped.advance(500)
        stepped.advance(500)
        assert [got(one) for one in after] == [1, 1, None], "two are held"


def test_receipt_of_a_former_master_ends_what_the_new_one_holds_and_no_more() -> None:
    """Nothing else comes of those that it ends, though their second copies are never finished."""
    with SteppedEngine() as stepped:
        limit(stepped, in_flight_max=4)
        stepped.call(stepped.publish(*[0] * 12))
        former = poll(stepped)
        stepped.step_down()
        stepped.become_master()
        stepped.settle()
        again, waiting = poll(stepped), poll(stepped)
        assert [got(one) for one in (former, again, waiting)] == [4, 4, None]
        end(stepped, delivered(former), 0, 2, is_ack=True)
        assert got(waiting) is None, "the new lease was not looked at yet"
        end(stepped, delivered(again), 2, 1, is_ack=True)
        assert got(waiting) == 3, "one is held"
        stepped.advance(INVISIBLE_MS - 1)
        assert got(poll(stepped)) is None


@given(
    rate=st.sampled_from([1, 3, 10, 49, 50, 777, 1_000_000]),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 1_000_000)), max_size=30),
)
def test_rate_lets_through_so_many_in_any_time_and_says_when(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    bucket, now_ms, taken = Rate(rate, 0), 0, list[tuple[int, int]]()
    for passed_ms, wanted in steps:
        now_ms += passed_ms
        there = bucket.count(now_ms)
        assert bool(there) == (bucket.ready_ms() <= now_ms)
        count = min(there, wanted)
        bucket.take(count)
        taken.append((now_ms, count))
        ready_ms = bucket.ready_ms()
        assert ready_ms <= now_ms or not bucket.count(ready_ms - 1)
        assert bucket.count(ready_ms), "a turn at that time finds something"
        now_ms = max(now_ms, ready_ms)
        total = 0
        for at_ms, each in reversed(taken):
            total += each
            assert total * 1_000 <= bucket.burst * 1_000 + rate * (taken[-1][0] - at_ms)
    assert bucket.burst == max(1, rate // 10)


def test_line_ends_with_the_group() -> None:
    group = Group(7, "g", 1, 1, 1, 1, 0, in_flight_max=1)  # type: ignore[arg-type]
    groups = {7: group}
    limits = GroupLimits(Leases(), groups.get, lambda _: True)
    interest = Interest(7, 1)  # type: ignore[arg-type]
    limits.join(interest, 0)
    groups.clear()
    assert list(limits.granted(7)) == [interest]
    limits.join(interest, 0)
    assert (list(limits.granted(7)), limits.next_wakeup_ms()) == ([], None)
