"""What a consumer gives back that it has not begun with comes again as if it had never had it."""

from pathlib import Path

import pytest

from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import ReceiptOutcome
from node.contracts.broker import Delivery, GroupSettings, Selection
from node.contracts.ending import Ending
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, within
from tests.support.stepped_engine import SteppedEngine

OK, STALE = ReceiptOutcome.OK, ReceiptOutcome.STALE
NOT_BEGUN = Ending(retry_delay_ms=0, is_unbegun=True)


async def give_back(world: EngineWorld, *selections: Selection) -> list[ReceiptOutcome]:
    """Nobody has begun with these."""
    return await within(world.engine.resolve("billing", list(selections), NOT_BEGUN))


def seen(delivery: Delivery) -> list[tuple[int, int]]:
    """(sequence, attempt) of each message."""
    columns = delivery.units["sequence"].tolist(), delivery.units["attempt"].tolist()
    return list(zip(*columns, strict=True))


async def test_it_comes_again_at_once_with_the_same_attempt(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 4)
        first = await world.leased(count=4)
        end_offset = world.engine.shard.log.end_offset
        assert await give_back(world, world.select(first, 1, 2)) == [OK]
        again = await world.leased(count=4)
        assert seen(again) == [(1, 1), (2, 1)]
        assert world.engine.shard.log.end_offset == end_offset, "the log has nothing to say of it"
        assert await world.ack(world.select(first, 0, 1), world.select(first, 3, 1)) == [OK, OK]
        assert await world.ack(world.select(again)) == [OK]
        assert world.group().lags[0].unresolved_count == 0


async def test_so_does_one_that_had_failed_before(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.nack(world.select(await world.leased()), delay_ms=0) == [OK]
        for _ in range(5):
            delivery = await world.leased()
            assert seen(delivery) == [(0, 2)]
            assert await give_back(world, world.select(delivery)) == [OK]


async def test_who_gives_back_twice_takes_nothing_from_who_has_it_now(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 2)
        first = await world.leased()
        assert await give_back(world, world.select(first), world.select(first)) == [OK, STALE]
        again = await world.leased()
        assert seen(again) == [(0, 1), (1, 1)]
        assert await give_back(world, world.select(first)) == [STALE]
        assert await world.receive() is None
        assert await world.ack(world.select(again)) == [OK]


async def test_what_is_acknowledged_does_not_come_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        first = await world.leased()
        assert await world.ack(world.select(first, 1, 1)) == [OK]
        assert await give_back(world, world.select(first)) == [STALE], "it is not all of it"
        assert seen(await world.leased()) == [(0, 1)]
        assert seen(await world.leased()) == [(2, 1)]
        assert await world.receive() is None


async def test_what_a_filter_picked_comes_again_alone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 4)
        first = await world.leased(wanted="a")
        assert await give_back(world, world.select(first, 1, 2)) == [OK]
        again = await world.leased()
        assert seen(again) == [(2, 1), (4, 1)]
        assert await world.ack(world.select(again)) == [OK]
        assert await world.ack(world.select(first, 0, 1), world.select(first, 3, 1)) == [OK, OK]
        world.advance(60_000)
        await within(world.engine.group_commit.drain())
        assert world.mastership.receiver.leases.count == 0
        assert await world.receive() is None


@pytest.mark.parametrize("order", [GroupOrder.BLOCK, GroupOrder.DEAD_LETTER])
async def test_it_keeps_its_place_in_an_ordered_group(tmp_path: Path, order: GroupOrder) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(attempts_max=1, order=order)
        await within(world.engine.put_group("billing", settings))
        meta = encode(MessageMeta(ordering_key="order-17"))
        await within(
            world.engine.publish_batch(
                "orders",
                RecordBatch(
                    build_publish(
                        [world.now_ms] * 2,
                        [b"first", b"second"],
                        metas=[meta.raw] * 2,
                        key_hashes=[meta.key_hash] * 2,
                    )
                ),
            )
        )
        for _ in range(3):
            delivery = await world.leased()
            assert seen(delivery) == [(0, 1)], "its only attempt is not used up"
            assert await give_back(world, world.select(delivery)) == [OK]
        assert await world.ack(world.select(await world.leased())) == [OK]
        assert seen(await world.leased()) == [(1, 1)]


async def test_it_leaves_its_place_among_those_in_flight(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(in_flight_max=2)))
        await world.publish(*[world.now_ms] * 4)
        first = await world.leased(count=2)
        assert await world.receive() is None
        assert await give_back(world, world.select(first, 0, 1)) == [OK]
        assert seen(await world.leased()) == [(0, 1)], "and no more than one"
        assert await world.receive() is None


@pytest.mark.parametrize("wanted", [None, "a"])
def test_receipts_of_a_former_master_give_back_what_it_has_handed_over(
    wanted: str | None,
) -> None:
    with SteppedEngine() as stepped:
        for tag in ("a", "x", "a"):
            stepped.call(stepped.publish(0, tag=tag))
        stepped.settle()
        delivery = stepped.call(stepped.receive(wanted=wanted))
        assert delivery is not None
        stepped.transfer()
        assert stepped.call(stepped.receive(wanted=wanted)) is None, "it is leased still"
        given = stepped.resolve(delivery, "billing", is_ack=False, is_unbegun=True)
        assert stepped.call(given) == [OK]
        stepped.settle()
        again = stepped.call(stepped.receive(wanted=wanted))
        assert again is not None
        assert seen(again) == seen(delivery)
        given = stepped.resolve(delivery, "billing", is_ack=False, is_unbegun=True)
        assert stepped.call(given) == [STALE]
        assert stepped.call(stepped.resolve(again, "billing", is_ack=True)) == [OK]
