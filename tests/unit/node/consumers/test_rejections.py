"""Messages that a consumer rejects: dead letters at once, with what it said."""

from pathlib import Path

import pytest

from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import DeadLetterReason, ReceiptOutcome
from node.consumers.rejections import Rejections
from node.contracts.broker import GroupSettings, Selection
from node.contracts.dead_letters import DeadLetterMessage, DeadLetterQuery
from node.contracts.ending import Ending
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, within


async def reject(world: EngineWorld, chosen: Selection, reason: str) -> list[ReceiptOutcome]:
    return await within(world.engine.resolve("billing", [chosen], Ending(rejection=reason)))


async def dead(world: EngineWorld) -> list[DeadLetterMessage]:
    query = DeadLetterQuery("billing")
    page = await within(
        world.engine.list_dead_letters(query, b"", count_max=100, with_bodies=False)
    )
    return page.messages


@pytest.mark.parametrize("wanted", ["", "a"])
async def test_a_rejected_message_is_a_dead_letter_with_its_reason(
    tmp_path: Path, wanted: str
) -> None:
    """Also where a filter has picked it among others."""
    async with EngineWorld(tmp_path) as world:
        await world.engine.put_group("billing", GroupSettings(attempts_max=16))
        await world.publish_tagged("a", "b", "a", "b", "a")
        delivery = await world.leased(wanted=wanted or None)
        sequences = delivery.units["sequence"].tolist()
        assert await reject(world, world.select(delivery, 1, 2), "no such order") == [
            ReceiptOutcome.OK
        ]
        found = await dead(world)
        assert [one.message_id.sequence for one in found] == sequences[1:3]
        for one in found:
            assert (one.attempts, one.reason) == (1, DeadLetterReason.UNKNOWN)
            assert one.rejected_because == "no such order"
        assert await reject(world, world.select(delivery, 1, 2), "again") == [ReceiptOutcome.STALE]
        assert (await dead(world))[0].rejected_because == "no such order"
        assert await world.ack(world.select(delivery, 0, 1)) == [ReceiptOutcome.OK]

        page = await within(world.engine.redrive(DeadLetterQuery("billing"), b""))
        assert (page.redriven_count, await dead(world)) == (2, [])
        again = await world.leased()
        await reject(world, world.select(again), "")
        assert [one.rejected_because for one in await dead(world)] == ["", ""]


async def publish(world: EngineWorld, *keys: str) -> None:
    metas = [encode(MessageMeta(ordering_key=key)) for key in keys]
    raw = build_publish(
        [world.now_ms] * len(keys),
        [key.encode() for key in keys],
        metas=[meta.raw for meta in metas],
        key_hashes=[meta.key_hash for meta in metas],
    )
    await within(world.engine.publish_batch("orders", RecordBatch(raw)))


@pytest.mark.parametrize("order", [GroupOrder.BLOCK, GroupOrder.DEAD_LETTER])
async def test_of_an_ordered_group_it_ends_as_after_the_last_attempt(
    tmp_path: Path, order: GroupOrder
) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(attempts_max=16, retry_delay_ms=500, order=order)
        await world.engine.put_group("billing", settings)
        await publish(world, "k", "k")
        first = await world.leased()
        assert await reject(world, world.select(first), "bad") == [ReceiptOutcome.OK]
        if order is GroupOrder.BLOCK:
            world.advance(100 * 86_400_000)
            assert await world.receive() is None
            (lag,) = world.group().lags
            assert (lag.blocked_count, await dead(world)) == (1, [])
        else:
            (letter,) = await dead(world)
            assert (letter.attempts, letter.rejected_because) == (1, "bad")
            assert (await world.leased()).units["sequence"].tolist() == [1]


def test_the_latest_reasons_are_remembered() -> None:
    known = Rejections(count_max=3)
    known.note(1, [1, 2, 3], "old")
    known.note(1, [1, 4], "new")
    assert [known.find(1, one) for one in (1, 2, 3, 4)] == ["new", "", "old", "new"]
    assert known.find(2, 1) == ""
    known.forget(1, [1, 9])
    assert known.find(1, 1) == ""
