"""Long polls: who is served, in which order, and who waits on."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from node.consumers.waiters import Interest, Look, Waiter, Waiters
from node.contracts.broker import ReceiveParams
from node.delivery.dead_letter_selection import CallFilter
from node.delivery.deliveries import Delivery
from node.delivery.message_lease import Lease
from node.shard.group_queue import GroupQueue
from storage.queues.consume_queues import Touched
from storage.views.unit import NO_UNITS
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until

ORDERS, BILLS, OTHERS = Interest(1, 1), Interest(1, 2), Interest(2, 1)


class Shop:
    """Has so many deliveries for each interest."""

    def __init__(self) -> None:
        self.stock: dict[Interest, int] = {}
        self.asked: list[tuple[Interest, Waiter]] = []
        self.postponed: list[Interest] = []
        self.is_busy = False
        self.gates: dict[int, int] = {}
        self.looked_at: list[int] = []
        self.waiters = Waiters(self.serve, self.postpone, self.look)

    def look(self, queue: int, now_ms: int) -> Look:
        self.looked_at.append(queue)
        gate_ms = self.gates.get(queue)
        return Look(0, None if gate_ms is None or gate_ms <= now_ms else gate_ms)

    def serve(self, interest: Interest, waiter: Waiter, _now_ms: int) -> Delivery | None:
        self.asked.append((interest, waiter))
        left = self.stock.get(interest, 0)
        self.stock[interest] = max(0, left - 1)
        lease = Lease(left, GroupQueue(interest.group_id, 0), 0, 0, [])
        return Delivery(lease, "orders", NO_UNITS, b"", 0) if left else None

    def postpone(self, interest: Interest) -> bool:
        if self.is_busy:
            self.postponed.append(interest)
        return self.is_busy

    def wait(self, interest: Interest, queues: list[int]) -> Waiter:
        future: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future, ReceiveParams("billing", "orders", 10, 1_000), invisible_ms=500)
        self.waiters.add(interest, queues, waiter, 0)
        return waiter


async def test_first_come_is_served_first() -> None:
    shop = Shop()
    first, second, third = (shop.wait(ORDERS, [256, 257]) for _ in range(3))
    shop.stock[ORDERS] = 2
    shop.waiters.turn({257}, 0)
    answers = [first.future.result(), second.future.result()]
    assert [answer.lease.lease_id for answer in answers if answer] == [2, 1]
    assert not third.future.done()
    assert len(shop.waiters) == 1
    assert [waiter for _, waiter in shop.asked] == [first, second, third]


async def test_only_those_wake_that_the_queue_serves() -> None:
    shop = Shop()
    shop.stock = {ORDERS: 9, BILLS: 9, OTHERS: 9}
    orders, bills, others = (
        shop.wait(ORDERS, [768, 256]),
        shop.wait(BILLS, [1024, 512]),
        shop.wait(OTHERS, [1280, 256]),
    )
    shop.waiters.turn({999}, 0)
    assert shop.asked == []
    shop.waiters.turn({256}, 0)
    assert [one.future.done() for one in (orders, bills, others)] == [True, False, True]
    assert sorted(shop.waiters.waited_queues()) == [512, 1024]
    shop.waiters.turn({1, 2, 3, 512}, 0)
    assert bills.future.done(), "also when more queues woke than are waited for"
    assert shop.waiters.waited_queues() == []


async def test_an_interest_is_asked_once_when_several_of_its_queues_wake() -> None:
    shop = Shop()
    shop.wait(ORDERS, [256, 257, 258])
    shop.waiters.turn({256, 257}, 0)
    assert len(shop.asked) == 1
    assert len(shop.waiters) == 1


async def test_nothing_is_leased_for_those_that_went_away() -> None:
    shop = Shop()
    gone, answered, waiting = (shop.wait(ORDERS, [256]) for _ in range(3))
    gone.future.cancel()
    answered.future.set_result(None)
    shop.stock[ORDERS] = 5
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked] == [waiting]
    assert shop.stock[ORDERS] == 4
    assert len(shop.waiters) == 0


async def test_discard_takes_one_and_leaves_those_beside_it() -> None:
    shop = Shop()
    first, second = shop.wait(ORDERS, [256]), shop.wait(ORDERS, [256])
    shop.waiters.discard(ORDERS, first)
    shop.waiters.discard(ORDERS, first)
    assert len(shop.waiters) == 1
    shop.stock[ORDERS] = 1
    shop.waiters.turn({256}, 0)
    assert second.future.done()
    assert not first.future.done()


async def test_queues_are_forgotten_with_the_last_that_waits_for_them() -> None:
    shop = Shop()
    orders, others = shop.wait(ORDERS, [256, 768]), shop.wait(OTHERS, [256, 1280])
    shop.waiters.discard(ORDERS, orders)
    assert sorted(shop.waiters.waited_queues()) == [256, 1280]
    shop.waiters.discard(OTHERS, others)
    assert shop.waiters.waited_queues() == []
    shop.waiters.discard(OTHERS, others)


async def test_queues_are_taken_up_anew_when_an_interest_comes_back() -> None:
    shop = Shop()
    shop.waiters.discard(ORDERS, shop.wait(ORDERS, [256]))
    waiter = shop.wait(ORDERS, [256, 257])
    shop.stock[ORDERS] = 1
    shop.waiters.turn({257}, 0)
    assert waiter.future.done()


async def test_a_turn_serves_those_for_whom_something_opens_and_nobody_else() -> None:
    shop = Shop()
    shop.gates = {256: 50, 512: 70}
    shop.stock = {ORDERS: 1, BILLS: 1}
    orders, bills = shop.wait(ORDERS, [256]), shop.wait(BILLS, [512])
    assert shop.waiters.next_wakeup_ms() == 50
    shop.waiters.turn((), 49)
    assert shop.asked == []
    shop.waiters.turn((), 50)
    assert [orders.future.done(), bills.future.done()] == [True, False]
    assert shop.waiters.next_wakeup_ms() == 70


async def test_alarm_goes_with_the_last_that_waits() -> None:
    shop = Shop()
    shop.gates = {256: 50}
    shop.waiters.discard(ORDERS, shop.wait(ORDERS, [256]))
    assert shop.waiters.next_wakeup_ms() is None
    shop.wait(ORDERS, [256])
    shop.waiters.close()
    assert shop.waiters.next_wakeup_ms() is None


async def test_close_answers_everyone_with_nothing() -> None:
    shop = Shop()
    orders, bills, gone = (
        shop.wait(ORDERS, [256]),
        shop.wait(BILLS, [512]),
        shop.wait(BILLS, [512]),
    )
    gone.future.cancel()
    shop.stock[ORDERS] = 1
    shop.waiters.close()
    assert orders.future.result() is bills.future.result() is None
    assert len(shop.waiters) == 0
    assert shop.waiters.waited_queues() == []
    shop.waiters.turn({256, 512}, 0)
    shop.waiters.discard(ORDERS, orders)
    assert shop.asked == []


async def test_those_who_select_for_themselves_do_not_hold_up_one_another() -> None:
    shop = Shop()
    waiters = [shop.wait(ORDERS, [256]) for _ in range(4)]
    for waiter in waiters[:2]:
        waiter.call_filter = CallFilter(FilterExpression.tags("a"))
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked] == waiters[:3], (
        "the fourth wants what the third does"
    )
    shop.asked.clear()
    shop.waiters.wake_interest(ORDERS, 0)
    assert [waiter for _, waiter in shop.asked] == waiters[:3], "they wait on in their order"
    assert len(shop.waiters) == 4


async def test_of_many_who_select_some_have_their_turn_later() -> None:
    """Thousands may select on one topic of dead letters: each is asked, but not in one turn."""
    shop = Shop()
    waiters = [shop.wait(ORDERS, [256]) for _ in range(6)]
    for waiter in waiters:
        waiter.call_filter = CallFilter(FilterExpression.tags("a"))
    answers = iter([False, False, True, True, True])
    shop.waiters = Waiters(shop.serve, lambda _: next(answers, True), shop.look)
    for waiter in waiters:
        shop.waiters.add(ORDERS, [256], waiter, 0)
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked] == waiters[:2]
    shop.waiters.wake_interest(ORDERS, 0)
    assert [waiter for _, waiter in shop.asked] == waiters[:3]
    for _ in range(3):
        shop.waiters.wake_interest(ORDERS, 0)
    assert [waiter for _, waiter in shop.asked] == waiters, "all were asked, each once"
    shop.asked.clear()
    answers = iter([False] * 9)
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked] == waiters, "they wait on in their order"


async def test_those_who_select_are_all_asked_again_when_something_new_comes() -> None:
    shop = Shop()
    waiters = [shop.wait(ORDERS, [256]) for _ in range(3)]
    for waiter in waiters:
        waiter.call_filter = CallFilter(FilterExpression.tags("a"))
    answers = iter([False, True, True, False, False, False])
    shop.waiters = Waiters(shop.serve, lambda _: next(answers), shop.look)
    for waiter in waiters:
        shop.waiters.add(ORDERS, [256], waiter, 0)
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked] == waiters[:1]
    shop.waiters.turn({256}, 0)  # postponed as a whole: begun anew by the next turn
    shop.waiters.wake_interest(ORDERS, 0)
    asked = [waiter for _, waiter in shop.asked[1:]]
    assert len(asked) == 3
    assert all(waiter in asked for waiter in waiters)


async def test_one_who_selects_has_one_slice_a_turn_and_then_the_others() -> None:
    """Each slice takes a while: all of them in one turn would hold up the loop."""
    shop = Shop()
    waiters = [shop.wait(ORDERS, [256]) for _ in range(3)]
    for waiter in waiters:
        waiter.call_filter, waiter.is_unfinished = CallFilter(FilterExpression.tags("a")), True
    for _ in range(4):
        shop.waiters.wake_interest(ORDERS, 0)
    assert [waiter for _, waiter in shop.asked] == [*waiters, waiters[0]]
    waiters[1].is_unfinished = False
    shop.waiters.wake_interest(ORDERS, 0)
    assert [waiter for _, waiter in shop.asked[4:]] == waiters[1:]
    assert len(shop.waiters) == 3


async def test_those_whose_turn_is_later_wait_on() -> None:
    shop = Shop()
    shop.stock = {ORDERS: 1, OTHERS: 1}
    waiters = shop.wait(ORDERS, [256]), shop.wait(OTHERS, [256])
    shop.is_busy = True
    shop.waiters.turn({256}, 0)
    assert (sorted(shop.postponed), shop.asked) == ([ORDERS, OTHERS], [])
    for interest in shop.postponed:
        shop.waiters.wake_interest(interest, 0)
    assert all(waiter.future.done() for waiter in waiters)


async def test_nobody_wakes_when_nobody_waits() -> None:
    shop = Shop()
    shop.waiters.wake_interest(ORDERS, 0)
    assert shop.asked == []
    assert not shop.waiters.is_waiting(ORDERS)
    shop.wait(ORDERS, [256])
    assert shop.waiters.is_waiting(ORDERS)


async def test_groups_with_filters_are_served_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice for each of many groups in one turn would hold up the loop."""
    monkeypatch.setattr("node.consumers.polls.SLICE_WORK", 300)
    async with EngineWorld(tmp_path) as world:
        receive_service, count = world.service.receive_service, 9
        polls = [
            asyncio.ensure_future(world.receive(group=f"g{at}", wait_ms=600_000, wanted="!x"))
            for at in range(count)
        ]
        await until(lambda: receive_service.waiting_count == count)
        read, turn = list[int](), receive_service.turn

        def watched(touched: Touched, now_ms: int) -> bool:
            is_appended = turn(touched, now_ms)
            if touched.are_some:
                read.append(world.engine.stats.filter_read)
            return is_appended

        monkeypatch.setattr(receive_service, "turn", watched)
        await world.publish_tagged("a")
        for delivery in await within(asyncio.gather(*polls)):
            assert delivery is not None
            assert delivery.units["sequence"].tolist() == [0]
        assert read[0] < count == world.engine.stats.filter_read, "not all of them at once"


async def test_those_that_are_refused_are_told_and_the_others_wait_on() -> None:
    shop = Shop()
    stays, goes, gone = (shop.wait(ORDERS, [256]) for _ in range(3))
    elsewhere = shop.wait(BILLS, [256])
    gone.future.cancel()
    mismatch = errors.SubscriptionMismatch("it wants something else")
    shop.waiters.refuse(ORDERS, lambda waiter: None if waiter is stays else mismatch)
    assert goes.future.exception() is mismatch
    assert [one.future.done() for one in (stays, elsewhere)] == [False, False]
    shop.waiters.refuse(OTHERS, lambda _: mismatch)
    shop.stock[ORDERS] = 1
    shop.waiters.turn({256}, 0)
    assert [waiter for _, waiter in shop.asked if waiter is not elsewhere] == [stays]


async def test_one_that_is_refused_when_served_keeps_nobody_waiting() -> None:
    shop = Shop()
    first, second = shop.wait(ORDERS, [256]), shop.wait(ORDERS, [256])
    serve = shop.serve
    mismatch = errors.SubscriptionMismatch("it wants something else")

    def picky(interest: Interest, waiter: Waiter, now_ms: int) -> Delivery | None:
        if waiter is first:
            raise mismatch
        return serve(interest, waiter, now_ms)

    shop.waiters = Waiters(picky, shop.postpone, shop.look)
    for waiter in (first, second):
        shop.waiters.add(ORDERS, [256], waiter, 0)
    shop.stock[ORDERS] = 1
    shop.waiters.turn({256}, 0)
    assert first.future.exception() is mismatch
    assert second.future.result() is not None


async def test_who_was_served_takes_up_the_same_place_when_it_waits_again() -> None:
    shop = Shop()
    shop.wait(ORDERS, [256, 257])
    shop.stock[ORDERS] = 1
    shop.waiters.turn({256}, 0)
    shop.looked_at.clear()
    again = shop.wait(ORDERS, [256, 257])
    assert shop.looked_at == []
    shop.stock[ORDERS] = 1
    shop.waiters.turn({257}, 0)
    assert again.future.done()


async def test_who_was_served_is_forgotten_when_something_comes_and_nobody_waits() -> None:
    shop = Shop()
    shop.wait(ORDERS, [256])
    shop.stock[ORDERS] = 2
    shop.waiters.turn({256}, 0)
    assert not shop.waiters.is_waiting(ORDERS)
    shop.asked.clear()
    shop.waiters.turn({256}, 0)
    assert shop.asked == []
    shop.looked_at.clear()
    shop.wait(ORDERS, [256])
    assert shop.looked_at == [256]


async def test_who_was_served_waits_for_other_queues_when_there_are_more() -> None:
    shop = Shop()
    shop.wait(ORDERS, [256])
    shop.stock[ORDERS] = 1
    shop.waiters.turn({256}, 0)
    again = shop.wait(ORDERS, [256, 257])
    shop.stock[ORDERS] = 1
    shop.waiters.turn({257}, 0)
    assert again.future.done()


async def test_so_many_that_were_served_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.consumers.waiters.SERVED_MAX", 1)
    shop = Shop()
    shop.stock = {ORDERS: 1, BILLS: 1}
    for interest, queue in ((ORDERS, 256), (BILLS, 512)):
        shop.wait(interest, [queue])
        shop.waiters.turn({queue}, 0)
    shop.looked_at.clear()
    shop.wait(BILLS, [512])
    shop.wait(ORDERS, [256])
    assert shop.looked_at == [256]
