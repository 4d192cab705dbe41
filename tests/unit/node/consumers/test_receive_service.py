"""Long polls, leases and their ends, acknowledgements of all kinds of receipts."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hourwheel.formats.receipt import Receipt
from hourwheel.types import topic_of
from hourwheel.v1.consumer_pb2 import ReceiptOutcome
from node.consumers.receive_service import SCAN_MS
from node.contracts.broker import GroupSettings, Selection
from node.delivery.filter_scan import LONG_WORK
from storage.queues.consume_queues import all_freed
from tests.support.engine_world import (
    LEAD_MS,
    LONG_TEXT,
    SEARCHES,
    EngineWorld,
    let_others_run,
    within,
)
from tests.support.eventually import until
from tests.support.searches import counting_searches
from tests.support.small_sizes import small_sizes

OK = int(ReceiptOutcome.RECEIPT_OUTCOME_OK)
STALE = int(ReceiptOutcome.RECEIPT_OUTCOME_STALE)
INVALID = int(ReceiptOutcome.RECEIPT_OUTCOME_INVALID)
RETRY_MS = 1_000
"""The default delay before the second attempt."""


async def waiting(world: EngineWorld, count: int = 1) -> "asyncio.Future[Any]":
    """A long poll that waits."""
    poll = asyncio.ensure_future(world.receive(wait_ms=600_000))
    await until(lambda: world.service.receive_service.waiting_count == count)
    return poll


async def released(world: EngineWorld, count: int) -> None:
    """So many messages stand in queues, visible or not."""
    await until(lambda: world.engine.status().released_count == count)


def queue_is_retry(world: EngineWorld, delivery: Any) -> bool:
    topic = world.engine.shard.views.catalog.find_topic_by_id(topic_of(delivery.topic_queue))
    return topic is not None and topic.internal


# --- long polls


async def test_group_goes_on_that_came_after_the_queue_was_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor of its window stays below the queue's start."""
    for module in ("delivery.leases", "shard.apply"):
        monkeypatch.setattr(f"node.{module}.WINDOW_POSITIONS", 4)
    with small_sizes(8):
        async with EngineWorld(tmp_path) as world:
            await world.publish(*[world.now_ms] * 8)
            await world.publish(*[world.now_ms + 1] * 20)
            world.advance(1)
            await released(world, 28)
            shard = world.engine.shard
            world.mastership.trim(world.now_ms, world.now_ms)
            world.engine.group_commit.wake()
            first = await world.leased()
            assert first.first_position == 8
            poll = asyncio.ensure_future(world.leased())
            await until(lambda: world.service.receive_service.waiting_count == 1)
            assert await world.ack(world.select(first)) == [OK]
            assert (await within(poll)).first_position == 12, "woken by the acknowledgement"
            assert shard.views.acks.get(first.group_id, first.topic_queue).floor == 0


async def test_long_poll_is_woken_at_the_due_time_although_the_dispatch_was_earlier(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        poll = await waiting(world)
        world.advance(5_000 - LEAD_MS)
        await released(world, 1)
        world.advance(LEAD_MS - 1)
        await let_others_run()
        assert not poll.done()
        world.advance(1)
        delivery = await poll
        assert delivery.receive_ms == delivery.due_ms[0] == world.now_ms
        assert world.service.receive_service.waiting_count == 0
        assert world.engine.stats.early_deliveries == 0


async def test_long_poll_is_woken_when_a_message_is_due_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 1_000_000)
        poll = await waiting(world)
        await world.publish(world.now_ms)
        assert (await poll).units["sequence"].tolist() == [1]


async def test_long_polls_are_served_in_their_order(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 1_000_000)
        first, second = await waiting(world), await waiting(world, 2)
        await world.publish(world.now_ms)
        assert (await first).units["sequence"].tolist() == [1]
        assert not second.done()
        await world.publish(world.now_ms)
        assert (await second).units["sequence"].tolist() == [2]


async def test_long_poll_ends_with_nothing_when_its_time_is_over(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        assert await world.receive(wait_ms=1) is None
        assert world.service.receive_service.waiting_count == 0


async def test_long_poll_is_woken_when_acknowledgements_make_room_in_a_full_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("delivery.leases", "shard.apply"):
        monkeypatch.setattr(f"node.{module}.WINDOW_POSITIONS", 2)
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 4)
        held = await world.leased()
        assert len(held.units) == 2
        poll = await waiting(world)
        assert await world.ack(world.select(held, 1, 1)) == [OK]
        await let_others_run()
        assert not poll.done(), "the first one still holds the window where it is"
        assert await world.ack(world.select(held, 0, 1)) == [OK]
        assert (await poll).units["sequence"].tolist() == [2, 3]


async def test_lease_is_given_back_when_the_caller_goes_as_its_answer_comes(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        poll = await waiting(world)
        world.advance(5_000 - LEAD_MS)
        await released(world, 1)
        world.now_ms += LEAD_MS
        world.service.receive_service.turn(all_freed(()), world.now_ms)
        leases = world.mastership.receiver.leases
        assert leases.count == 1
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        await until(lambda: leases.count == 0)
        assert world.engine.stats.lease_expirations == 0
        again = await world.leased()
        assert again.units["attempt"].tolist() == [1]


async def test_nothing_is_leased_when_the_caller_went_before(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 1_000_000)
        poll = await waiting(world)
        poll.cancel()
        await asyncio.wait([poll])
        assert world.service.receive_service.waiting_count == 0
        await world.publish(world.now_ms)
        assert world.mastership.receiver.leases.count == 0
        assert (await world.leased()).units["attempt"].tolist() == [1]


# --- ends of leases


async def test_message_comes_again_with_its_attempt_counted_when_its_lease_ends(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms
        await world.publish(due_ms)
        first = await world.leased(invisible_ms=10_000)
        assert first.invisible_until_ms == world.now_ms + 10_000
        world.advance(9_999)
        await let_others_run()
        assert world.engine.stats.lease_expirations == 0
        world.advance(1)
        await until(lambda: world.engine.status().pending_count == 1)
        assert await world.receive() is None
        assert await world.ack(world.select(first)) == [STALE]
        world.advance(RETRY_MS)
        second = await world.leased()
        assert second.units["attempt"].tolist() == [2]
        assert second.due_ms.tolist() == [due_ms], "the one that was asked for"
        assert queue_is_retry(world, second)
        assert await world.ack(world.select(second)) == [OK]


async def test_only_what_is_unresolved_comes_again_when_a_lease_ends(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 4)
        delivery = await world.leased(invisible_ms=10_000)
        assert await world.ack(world.select(delivery, 1, 2)) == [OK]
        world.advance(10_000)
        await until(lambda: world.engine.status().pending_count == 2)
        world.advance(RETRY_MS)
        assert (await world.leased()).units["sequence"].tolist() == [0, 3]


async def test_message_becomes_a_dead_letter_when_its_attempts_are_used_up(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(attempts_max=2)))
        await world.publish(world.now_ms)
        for _ in range(2):
            delivery = await world.leased()
            assert await world.nack(world.select(delivery), delay_ms=0) == [OK]
        assert await world.receive() is None
        letter = await world.leased(topic="%DLQ%billing")
        assert letter.units["sequence"].tolist() == [0]
        assert letter.topic == "orders"


async def test_change_moves_the_end_of_a_part_only(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        delivery = await world.leased(invisible_ms=10_000)
        part = world.select(delivery, 1, 1)
        outcomes, until_ms = world.engine.change_invisible("billing", [part], 60_000)
        assert (outcomes, until_ms) == ([OK], world.now_ms + 60_000)
        world.advance(10_000)
        await until(lambda: world.engine.status().pending_count == 2)
        world.advance(RETRY_MS)
        again = await world.leased()
        assert again.units["sequence"].tolist() == [0, 2]
        for first, count, outcome in ((0, 1, STALE), (2, 1, STALE), (0, 3, OK)):
            over = world.select(delivery, first, count)
            assert world.engine.change_invisible("billing", [over], 60_000)[0] == [outcome]
        assert await world.ack(part) == [OK]
        assert await world.ack(world.select(again)) == [OK]
        world.advance(100_000)
        await let_others_run()
        assert await world.receive() is None


async def test_change_gives_back_at_once_when_the_time_is_none(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        delivery = await world.leased()
        assert world.engine.change_invisible("billing", [world.select(delivery)], 0)[0] == [OK]
        await until(lambda: world.engine.status().pending_count == 1)
        assert world.engine.change_invisible("billing", [world.select(delivery)], 0)[0] == [STALE]


# --- receipts

Forge = Callable[[Receipt], Receipt]
FOREIGN: dict[str, Forge] = {
    "cluster": lambda one: replace(one, cluster=one.cluster + 1),
    "group": lambda one: replace(one, group_id=one.group_id + 1),
    "epoch to come": lambda one: replace(one, epoch=one.epoch + 1),
    "queue of nobody": lambda one: replace(one, topic_queue=77 << 8),
    "positions never delivered": lambda one: replace(one, first_position=5),
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_selection_is_invalid_when_it_is_foreign(tmp_path: Path, what: str) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 2)
        delivery = await world.leased()
        good = world.select(delivery)
        bad = replace(good, receipt=FOREIGN[what](good.receipt))
        assert world.engine.change_invisible("billing", [bad], 1)[0] == [INVALID]
        assert await world.nack(bad) == [INVALID]
        assert await world.ack(bad, good) == [INVALID, OK]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 3), (2, 1)])
async def test_selection_is_invalid_when_it_reaches_beyond_what_was_delivered(
    tmp_path: Path, first: int, count: int
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 2)
        delivery = await world.leased()
        bad = Selection(world.select(delivery).receipt, first, count)
        assert await world.ack(bad) == [INVALID]
        assert await world.ack(world.select(delivery)) == [OK]


async def test_selection_is_stale_when_it_was_resolved_before(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        delivery = await world.leased()
        one, whole = world.select(delivery, 1, 1), world.select(delivery)
        assert await world.ack(one, one) == [OK, STALE]
        assert await world.ack(whole) == [STALE], "not all of it was still to be done"
        assert await world.nack(whole, delay_ms=0) == [STALE]
        assert world.engine.stats.acknowledged == 3
        assert world.mastership.receiver.leases.next_end_ms() is not None
        assert world.engine.status().pending_count == 0


async def test_lease_ends_when_all_of_it_is_acknowledged_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        delivery = await world.leased()
        assert await world.ack(world.select(delivery)) == [OK]
        assert world.mastership.receiver.leases.count == 0


async def test_receipt_of_the_reign_before_acknowledges_but_changes_no_lease(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        selection = world.select(await world.leased())
        await world.restart()
        assert world.engine.change_invisible("billing", [selection], 1)[0] == [STALE]
        assert await world.ack(selection) == [OK]
        assert await world.receive() is None


async def test_change_is_invalid_when_the_lease_is_of_other_positions(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 2)
        first, second = await world.leased(count=1), await world.leased(count=1)
        selection = world.select(second)
        bad = replace(selection, receipt=replace(selection.receipt, lease_id=first.lease_id))
        assert world.engine.change_invisible("billing", [bad], 1)[0] == [INVALID]


# --- damage


async def test_damaged_message_is_withheld_and_the_queue_goes_on(tmp_path: Path) -> None:
    """What becomes of it: test_damage_control.py."""
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        segment = tmp_path / world.engine.shard.log.segments()[0].path
        raw = bytearray(segment.read_bytes())
        at = raw.index(b"%d" % world.now_ms)
        at = raw.index(b"%d" % world.now_ms, at + 1)  # the second body
        raw[at] ^= 1
        segment.write_bytes(raw)
        found = [await world.leased(), await world.leased()]
        assert [one.units["sequence"].tolist() for one in found] == [[0], [2]]
        assert await world.ack(*map(world.select, found)) == [OK, OK]
        assert world.engine.shard.views.acks.get(1, 1 << 8).floor == 1
        assert world.engine.shard.views.counters.dead_lettered == 0
        lag = world.engine.group("billing", 0, 9).lags[0]
        assert (lag.unresolved_count, lag.leased_count, lag.damaged_count) == (1, 0, 1)


# --- filters (more of them: test_receive.py)


@pytest.mark.parametrize("wait_ms", [0, 600_000])
async def test_loop_is_held_up_by_one_slice_a_turn_however_many_look_through_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_ms: int
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        for _ in range(6):
            await world.publish_tagged(*["x"] * 1_000)
        await world.publish_tagged("a")
        groups = [f"group-{number}" for number in range(5)]
        for group in groups:
            await world.put_subscription("a", group=group)
        receiver, turn = world.mastership.receiver, 0
        slices: Counter[int] = Counter()
        receive = receiver.receive

        def counted(*args: Any, **kwargs: Any) -> Any:
            slices[turn] += 1
            return receive(*args, **kwargs)

        monkeypatch.setattr(receiver, "receive", counted)
        polls = [
            asyncio.ensure_future(world.receive(group=group, wait_ms=wait_ms)) for group in groups
        ]
        while not all(poll.done() for poll in polls):
            await asyncio.sleep(0)
            turn += 1
        found = [await poll for poll in polls]
        assert [one.units["sequence"].tolist() for one in found if one] == [[6_000]] * 5
        first = min(slices)
        assert len(slices) > 50
        assert max(count for at, count in slices.items() if at > first) <= 2, (
            "and one by a new call"
        )


@pytest.mark.parametrize("wait_ms", [0, 600_000])
async def test_costly_filter_is_checked_in_short_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_ms: int
) -> None:
    """A hundred and ten searches of 31 KB: one message costs more than a turn may."""
    most = 0
    async with EngineWorld(tmp_path) as world:
        await world.publish_texts(*[LONG_TEXT] * 4, LONG_TEXT[:-10] + "xyz7", LONG_TEXT)
        receiver = world.mastership.receiver
        receive = receiver.receive

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal most
            receiver.work = 0
            with counting_searches() as searched:
                found = receive(*args, **kwargs)
            most = max(most, searched.bytes)
            return found

        monkeypatch.setattr(receiver, "receive", counted)
        delivery = await world.receive(wanted=SEARCHES, count=1, wait_ms=wait_ms)
        assert delivery is not None
        assert delivery.units["sequence"].tolist() == [4]
        assert await world.receive() is None, "the last does not match either"
    assert 0 < most <= 8 * LONG_WORK + len(LONG_TEXT)
    assert most < 110 * len(LONG_TEXT) / 3


async def test_call_that_does_not_wait_is_answered_in_time_and_the_next_goes_on_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        for _ in range(6):
            await world.publish_tagged(*["x"] * 1_000)
        await world.publish_tagged("a")
        await world.put_subscription("a")
        receiver, slices = world.mastership.receiver, 0
        receive = receiver.receive

        def slow(*args: Any, **kwargs: Any) -> Any:
            nonlocal slices
            slices += 1
            world.now_ms += 100  # the machine is slow: each slice takes so long
            return receive(*args, **kwargs)

        monkeypatch.setattr(receiver, "receive", slow)
        empty = 0
        while (delivery := await world.receive()) is None:
            assert slices <= SCAN_MS / 100 + 1, "not all there is"
            slices, empty = 0, empty + 1
            assert empty < 100
        assert delivery.units["sequence"].tolist() == [6_000]
        assert empty >= 2
