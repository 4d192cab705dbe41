"""What receipts of picked messages stand for: acknowledged, given back, prolonged, handed over."""

from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel.formats.record_batch import Kind, Outcome
from hourwheel.internal.v1.replication_pb2 import LeaseTable
from hourwheel.v1.consumer_pb2 import ReceiptOutcome
from node.contracts.broker import Delivery
from node.delivery.message_lease import SPARSE_ID
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow
from tests.support.broken_logs import batches_of
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until

OK = int(ReceiptOutcome.RECEIPT_OUTCOME_OK)
STALE = int(ReceiptOutcome.RECEIPT_OUTCOME_STALE)
INVALID = int(ReceiptOutcome.RECEIPT_OUTCOME_INVALID)
TEXTS = ("x", "a", "x", "x", "a", "a", "x")
"""Those that match stand at 1, 4 and 5."""


async def picked(world: EngineWorld) -> Delivery:
    await world.publish_tagged(*TEXTS)
    delivery = await world.leased(wanted="a")
    assert delivery.units["sequence"].tolist() == [1, 4, 5]
    assert delivery.lease_id & SPARSE_ID
    return delivery


def window(world: EngineWorld, delivery: Delivery) -> AckWindow:
    return world.engine.shard.views.acks.get(delivery.group_id, delivery.topic_queue)


async def test_acknowledging_all_of_them_is_one_range(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        assert await world.ack(world.select(delivery)) == [OK]
        assert window(world, delivery).floor == len(TEXTS)
        assert world.engine.stats.acknowledged == 3
        assert world.mastership.receiver.leases.count == 0
        assert await world.ack(world.select(delivery)) == [STALE]


async def test_log_says_of_each_message_whether_it_was_given_out_or_passed_over(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        await world.ack(world.select(delivery, 0, 2))
        await world.ack(world.select(delivery, 2, 1))
    said = {
        position: Outcome(outcome)
        for batch in batches_of(tmp_path)
        if batch.header.kind == Kind.RESOLVE
        for _, _, first, count, outcome, _ in batch.rows.tolist()
        for position in range(first, first + count)
    }
    assert [said[at] for at in range(len(TEXTS) - 1)] == [
        Outcome.ACK if text == "a" else Outcome.FILTERED for text in TEXTS[:-1]
    ]


async def test_acknowledging_one_finishes_what_was_passed_over_before_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        assert await world.ack(world.select(delivery, 1, 1)) == [OK]
        assert window(world, delivery).ranges() == [(2, 5)]
        assert await world.ack(world.select(delivery, 0, 1), world.select(delivery, 2, 1)) == [
            OK,
            OK,
        ]
        assert window(world, delivery).floor == len(TEXTS)
        assert await world.ack(world.select(delivery)) == [STALE]


async def test_giving_back_retries_messages_only(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        assert await world.nack(world.select(delivery, 0, 2), delay_ms=0) == [OK]
        again = await world.leased()
        assert again.units["sequence"].tolist() == [1, 4]
        assert again.units["attempt"].tolist() == [2, 2]
        assert window(world, delivery).floor == 5
        assert await world.nack(world.select(delivery), delay_ms=0) == [STALE]
        last = await world.leased()
        assert last.units["sequence"].tolist() == [5], "what was still to be done is given back"
        assert window(world, delivery).floor == len(TEXTS)


async def test_retries_are_not_filtered_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        await world.nack(world.select(delivery), delay_ms=0)
        await world.put_subscription("b")
        assert (await world.leased()).units["sequence"].tolist() == [1, 4, 5]


async def test_lease_that_ends_retries_its_messages_and_passes_over_the_rest(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        assert await world.ack(world.select(delivery, 1, 1)) == [OK]
        world.advance(30_000)
        await until(lambda: window(world, delivery).floor == len(TEXTS))
        world.advance(1_000)
        assert (await world.leased()).units["sequence"].tolist() == [1, 5]
        assert world.engine.status().pending_count == 0
        assert await world.ack(world.select(delivery, 0, 1)) == [STALE]


async def test_single_messages_are_held_longer(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        one = world.select(delivery, 1, 1)
        assert world.engine.change_invisible("billing", [one], 60_000)[0] == [OK]
        world.advance(30_000)
        await until(lambda: window(world, delivery).floor == 2)
        assert window(world, delivery).ranges() == [(5, 7)]
        assert await world.ack(one) == [OK]
        assert window(world, delivery).floor == len(TEXTS)


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 4), (3, 1)])
async def test_selection_is_invalid_when_there_are_not_so_many(
    tmp_path: Path, first: int, count: int
) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        assert await world.ack(world.select(delivery, first, count)) == [INVALID]


async def test_receipt_is_stale_after_a_restart_and_its_messages_come_again(
    tmp_path: Path,
) -> None:
    """Ordinals mean nothing without the lease: taken for positions they would lose messages."""
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        await world.restart()
        assert await world.ack(world.select(delivery)) == [STALE]
        assert world.engine.change_invisible("billing", [world.select(delivery)], 500)[0] == [STALE]
        again = await world.leased()
        assert again.units["sequence"].tolist() == [1, 4, 5]
        assert await world.ack(world.select(again)) == [OK]


async def test_receipts_of_neighbours_outlive_their_master(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a", "a")
        delivery = await world.leased(wanted="a")
        assert not delivery.lease_id & SPARSE_ID
        await world.restart()
        assert await world.ack(world.select(delivery)) == [OK]


async def test_receipts_hold_when_the_lease_was_handed_over(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        delivery = await picked(world)
        first, rest = world.select(delivery, 0, 1), world.select(delivery, 1, 2)
        for _ in range(2):  # by a master, and by its successor again
            receiver = world.mastership.receiver
            raw = receiver.table().SerializeToString()
            await world.restart()
            world.mastership.receiver.restore(LeaseTable.FromString(raw), world.now_ms)
            assert await world.receive() is None, "they are held"
        assert world.engine.change_invisible("billing", [rest], 90_000)[0] == [OK]
        assert await world.ack(first) == [OK]
        assert window(world, delivery).floor == 2
        world.advance(60_000)
        assert await world.nack(rest, delay_ms=0) == [OK]
        assert (await world.leased()).units["sequence"].tolist() == [4, 5]
        assert window(world, delivery).floor == len(TEXTS)


async def test_what_was_passed_over_is_handed_over_and_resolved_by_the_successor(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["x"] * 9)
        assert await world.receive(wanted="a") is None
        held = GroupQueue(1, 1 << 8)
        acks = world.engine.shard.views.acks
        assert acks.get(*held).floor == 0, "that is not in the log yet"
        table = world.mastership.receiver.table()
        await world.restart()
        world.mastership.receiver.restore(table, world.now_ms)
        world.advance(1_000)
        await until(lambda: world.engine.shard.views.acks.get(*held).floor == 9)


async def test_receipt_put_together_does_not_end_another_lease(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a", "a")
        first, second = await world.leased(count=1), await world.leased(count=1)
        selection = world.select(second)
        bad = replace(selection, receipt=replace(selection.receipt, lease_id=first.lease_id))
        assert await world.ack(bad) == [INVALID]
        assert world.mastership.receiver.leases.count == 2
        assert await world.ack(world.select(first), selection) == [OK, OK]
        assert window(world, first).floor == 2
