"""Messages with priorities, through a real engine: which comes first, and who hears of it."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import EventKind, ReceiptOutcome
from hourwheel.priorities import priority_queue
from hourwheel.types import queue_of
from node.contracts.broker import GroupSettings, IncomingMessages
from node.shard.views import PRIORITY_LEVEL
from storage.views.catalog_items import START_NOW_MS
from tests.support.engine_world import EngineWorld, let_others_run, within

SECOND_MS = 1_000


async def publish(
    world: EngineWorld, *priorities: int, delay_ms: int = 0, topic: str = "orders", key: str = ""
) -> int:
    """Messages of these priorities; the first one's sequence."""
    metas = [encode(MessageMeta(priority=one, ordering_key=key)) for one in priorities]
    raw = build_publish(
        [world.now_ms + delay_ms] * len(metas),
        [b"body"] * len(metas),
        metas=[meta.raw for meta in metas],
        key_hashes=[meta.key_hash for meta in metas],
    )
    return (await within(world.engine.publish_batch(topic, RecordBatch(raw)))).base_sequence


async def order(world: EngineWorld) -> list[int]:
    """Sequences in the order in which they come, all acknowledged."""
    found = []
    while (delivery := await world.receive()) is not None:
        found += delivery.units["sequence"].tolist()
        assert await world.ack(world.select(delivery)) == [ReceiptOutcome.OK]
    return found


async def wait(world: EngineWorld, by_ms: int) -> None:
    """Time passes, and what follows from it is in the log."""
    world.advance(by_ms)
    for _ in range(3):
        await let_others_run()
        await within(world.engine.group_commit.drain())


async def test_group_holds_no_more_than_it_may_of_all_priorities_together(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(in_flight_max=4)))
        await world.receive()
        await publish(world, 0, 5, 9, 0, 9, 1)
        first, second = await world.receive(), await world.receive()
        third = await world.receive()
        counts = [0 if one is None else len(one.units) for one in (first, second, third)]
        assert counts == [2, 1, 1]
        assert await world.receive() is None
        assert second is not None
        await world.ack(world.select(second))
        last = await world.receive()
        assert last is not None
        assert last.units["sequence"].tolist() == [0]
        assert await world.receive() is None


async def test_highest_priority_comes_first_and_each_in_order(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, 0, 5, 9, 0, 9, 1)
        assert await order(world) == [2, 4, 1, 5, 0, 3]
        assert world.group().lags[0].unresolved_count == 0


async def test_priority_makes_nothing_early(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, 9, delay_ms=SECOND_MS)
        await publish(world, 0)
        assert await order(world) == [1]
        await wait(world, SECOND_MS)
        assert await order(world) == [0]


async def test_poll_that_waits_hears_of_the_first_message_of_a_priority(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        polling = asyncio.create_task(world.receive(wait_ms=30 * SECOND_MS))
        await let_others_run()
        await publish(world, 7)
        delivery = await within(polling)
        assert delivery is not None
        assert queue_of(int(delivery.units["topic_queue"][0])) == 253


async def test_poll_that_waits_hears_of_a_priority_when_it_is_due(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        polling = asyncio.create_task(world.receive(wait_ms=30 * SECOND_MS))
        await let_others_run()
        await publish(world, 7, delay_ms=SECOND_MS)
        await wait(world, SECOND_MS - 1)
        assert not polling.done()
        await wait(world, 1)
        delivery = await within(polling)
        assert delivery is not None
        assert delivery.units["sequence"].tolist() == [0]


async def test_retry_keeps_the_priority_and_a_poll_hears_of_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(attempts_max=5, retry_delay_ms=SECOND_MS)
        await within(world.engine.put_group("billing", settings))
        await world.receive()
        await publish(world, 3)
        found = await world.leased()
        assert await world.nack(world.select(found)) == [ReceiptOutcome.OK]
        polling = asyncio.create_task(world.receive(wait_ms=30 * SECOND_MS))
        await let_others_run()
        await wait(world, SECOND_MS)
        delivery = await within(polling)
        assert delivery is not None
        catalog = world.engine.shard.views.catalog
        group = catalog.get_group("billing")
        one = catalog.find_subscription(group.group_id, catalog.get_topic("orders").topic_id)
        assert one is not None
        assert delivery.units["topic_queue"].tolist() == [priority_queue(one.retry_topic_id, 3)]
        assert delivery.units["attempt"].tolist() == [2]


async def test_history_says_the_priority(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, 0, 6)
        for sequence, priority in ((0, 0), (1, 6)):
            one = MessageId(0, world.mastership.epoch, sequence, world.now_ms)
            page = await within(world.engine.history(one, "orders", b""))
            assert [event.kind for event in page.events] == [
                EventKind.PUBLISHED,
                EventKind.RELEASED,
            ]
            assert page.events[0].priority == priority


async def test_order_within_a_key_wins(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, 0, 9, key="a")
        await publish(world, 1)
        assert await order(world) == [2, 0, 1]


async def test_messages_of_small_calls_have_priorities(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        metas = [
            encode(MessageMeta(priority=priority, ordering_key=key))
            for priority, key in ((0, ""), (2, ""), (8, "k"))
        ]
        incoming = IncomingMessages(
            "orders",
            [world.now_ms] * 3,
            [b"one", b"two", b"three"],
            [meta.raw for meta in metas],
            [0, 0, 0],
            [meta.key_hash for meta in metas],
        )
        await within(world.engine.publish_messages(incoming))
        assert await order(world) == [1, 0, 2]


async def test_successor_delivers_by_priority(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, 0, 4, 9, 4)
        await world.restart()
        assert await order(world) == [2, 1, 3, 0]


async def test_group_that_begins_now_skips_what_stands_in_queues_of_priorities(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, 0, 5)
        settings = GroupSettings(start_ms=START_NOW_MS)
        await within(world.engine.put_group("billing", settings))
        await wait(world, SECOND_MS)
        assert await world.receive() is None
        await publish(world, 5)
        assert await order(world) == [2]


async def test_group_goes_on_behind_positions_of_queues_of_priorities(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 2))
        await world.receive()
        await publish(world, *[0] * 4, *[5] * 3, 9)
        await world.nack(world.select(await world.leased()), delay_ms=0)  # not the topic's any more
        with pytest.raises(errors.InvalidArgument, match="2 queues, and 1 positions"):
            await within(world.engine.skip("billing", "orders", 0, [1]))
        own = await within(world.engine.skip("billing", "orders", 0, [1, 0]))
        assert (own.skipped_count, own.positions) == (1, [1, 0])
        of_all = await within(world.engine.skip("billing", "orders", 0, [2, 1, 1, 3]))
        assert (of_all.skipped_count, of_all.positions) == (5, [2, 1, 1, 3])
        await wait(world, SECOND_MS)
        behind = await within(world.engine.skip("billing", "orders", 0, ()))
        assert (behind.skipped_count, behind.positions) == (2, [2, 2, 1, 3])
        assert await order(world) == []


async def test_topic_goes_with_its_queues_of_priorities(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, 0, 5, 9)
        await within(world.engine.delete_topic("orders"))
        views = world.engine.shard.views
        assert not [one for one in views.queues.all() if one.topic_queue >> 8 == 1]
        assert await publish(world, 5) == 3
        assert await order(world) == [3]


async def test_topic_with_very_many_queues_has_no_priorities(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("wide", 248))
        await publish(world, 0, topic="wide")
        with pytest.raises(errors.FailedPrecondition, match="have no priorities"):
            await publish(world, 1, topic="wide")
        with pytest.raises(errors.FailedPrecondition):
            await within(
                world.engine.publish_messages(
                    IncomingMessages(
                        "wide",
                        [world.now_ms],
                        [b""],
                        [encode(MessageMeta(priority=1)).raw],
                        [0],
                        [0],
                    )
                )
            )


async def test_priority_needs_its_feature_level(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        world.engine.shard.views.feature_level = PRIORITY_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await publish(world, 1)
        await publish(world, 0)
