"""Topics with a retention of their own, through an engine: what is changed, kept, told and not."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from node.contracts.broker import CatalogUpdate, NewTopic
from node.contracts.pending_page import printable
from node.contracts.pending_token import KeyQuery
from node.shard.recovery import ShardConfig
from node.shard.views import RETENTION_LEVEL
from storage.log.commit_log import LogConfig
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until
from tests.support.small_sizes import small_sizes
from tests.unit.node.broker.keys.test_service import publish

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FINE = ShardConfig(log=LogConfig(index_interval_bytes=64))
"""Its index knows of each record when it was stored."""


async def retain(world: EngineWorld, retention_ms: int, topic: str = "orders") -> int:
    """Returns what it is now."""
    update = CatalogUpdate(retention_ms=retention_ms)
    return (await within(world.engine.update_topic(topic, update))).retention_ms


def id_of(world: EngineWorld, sequence: int, due_ms: int) -> MessageId:
    return MessageId(0, world.mastership.epoch, sequence, due_ms)


async def listed(world: EngineWorld, key: str) -> list[int]:
    query = KeyQuery("orders", key.encode(), pending_only=False)
    page = await within(world.engine.list_by_key(query, b"", count_max=100))
    return [message_id.parse(one).sequence for part in page.parts for one in printable(part.ids)]


async def has_history(world: EngineWorld, of: MessageId) -> bool:
    return bool((await within(world.engine.history(of, "", b""))).events)


async def released(world: EngineWorld, due_ms: int) -> None:
    world.advance(max(0, due_ms + 1 - world.now_ms))
    await until(lambda: world.engine.shard.views.cursor.key.due_ms >= due_ms)


async def test_retention_is_kept_and_taken_back_and_is_the_topics_alone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        default_ms = world.engine.gauges().log_retention_ms
        for topic in ("orders", "bills"):
            await world.publish(world.now_ms, topic=topic)
        assert await retain(world, 30 * DAY_MS) == 30 * DAY_MS
        await within(world.engine.update_topic("orders", CatalogUpdate("of the shop")))
        await world.restart()
        assert [one.retention_ms for one in world.topics()] == [0, 30 * DAY_MS]
        assert world.engine.gauges().log_retention_ms == 30 * DAY_MS
        assert await retain(world, HOUR_MS) == HOUR_MS
        assert world.engine.gauges().log_retention_ms == default_ms, "never less than that"
        assert await retain(world, 0) == 0


async def test_topic_is_made_with_a_retention_or_not_at_all(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        wanted = NewTopic(retention_ms=30 * DAY_MS)
        made = await within(world.engine.create_topic("orders", 1, wanted))
        assert made.retention_ms == 30 * DAY_MS
        again = [
            await within(world.engine.create_topic("orders", 1, one)) for one in (wanted, None)
        ]
        assert [one.version for one in again] == [made.version] * 2, "as it is asked for already"
        with pytest.raises(errors.AlreadyExists) as caught:
            await within(world.engine.create_topic("orders", 1, NewTopic(retention_ms=0)))
        assert caught.value.params["retention_ms"] == str(30 * DAY_MS)
        await world.restart()
        assert world.engine.topic("orders").retention_ms == 30 * DAY_MS
        world.engine.shard.views.feature_level = RETENTION_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await within(world.engine.create_topic("bills", 1, wanted))
        with pytest.raises(errors.UnknownTopic):
            world.engine.topic("bills")
        assert not (await within(world.engine.create_topic("bills", 1))).retention_ms


async def test_retention_that_nodes_do_not_know_or_that_is_too_short_is_refused(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        views = world.engine.shard.views
        views.feature_level = RETENTION_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await retain(world, HOUR_MS)
        assert await retain(world, 0) == 0
        views.feature_level = RETENTION_LEVEL
        spread = CatalogUpdate(dispatch_tolerance_ms=600_000)
        await within(world.engine.update_topic("orders", spread))
        with pytest.raises(errors.InvalidArgument, match="dispatch_tolerance_ms"):
            await retain(world, 600_000)
        assert await retain(world, 600_001) == 600_001
        await world.leased()
        with pytest.raises(errors.InvalidTopic):
            await retain(world, HOUR_MS, "%DLQ%billing")


async def test_past_messages_are_shown_of_for_as_long_as_their_topic_says(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path, shard=FINE) as world:
        begun_ms = world.now_ms
        await publish(world, ["a"], 1_000)
        await publish(world, ["a"], 1_000, "bills")
        await publish(world, ["a"], 2 * HOUR_MS)
        await publish(world, ["a"], 90 * DAY_MS)
        ids = [
            id_of(world, at, begun_ms + delay_ms)
            for at, delay_ms in enumerate((1_000, 1_000, 2 * HOUR_MS, 90 * DAY_MS))
        ]
        await retain(world, HOUR_MS)

        async def told() -> list[bool]:
            found = [await within(world.engine.is_shown(one)) for one in ids]
            assert [await has_history(world, one) for one in ids] == found
            mine = [at for at, is_shown in enumerate(found) if is_shown and at != 1]
            assert await listed(world, "a") == mine[::-1]
            return found

        await released(world, begun_ms + 1_000)
        assert await told() == [True] * 4
        await released(world, begun_ms + 2 * HOUR_MS)
        await publish(world, ["b"], -5, "bills")
        assert await told() == [False, True, True, True], "it counts from the due time"
        world.advance(2 * HOUR_MS)
        await publish(world, ["b"], -5, "bills")
        assert await told() == [False, True, False, True], "what is pending is told of"
        await retain(world, 0)
        assert await told() == [True] * 4, "it was there all the time"


async def test_message_that_was_due_long_before_it_came_counts_from_then(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path, shard=FINE) as world:
        await publish(world, ["a"], -90 * DAY_MS)
        await retain(world, HOUR_MS)
        of = id_of(world, 0, world.now_ms - 90 * DAY_MS)
        assert await has_history(world, of)
        assert await within(world.engine.is_shown(of))
        world.advance(2 * HOUR_MS)
        await publish(world, ["b"], -5)
        assert not await has_history(world, of)
        assert not await within(world.engine.is_shown(of))


async def test_queue_is_trimmed_by_its_topics_retention(tmp_path: Path) -> None:
    """What nobody has received is there for as long, and no longer than a file of it is full."""
    with small_sizes(16):
        await check_trims(tmp_path)


async def check_trims(root: Path) -> None:
    async with EngineWorld(root) as world:
        for topic in ("orders", "bills", "mails"):
            await world.publish(*[world.now_ms] * 20, topic=topic)
        await retain(world, 10 * DAY_MS, "orders")
        await retain(world, HOUR_MS, "bills")

        async def left(*, after_ms: int) -> list[int]:
            world.advance(after_ms)
            world.service.look(world.now_ms)
            await world.publish(world.now_ms, topic="last")
            views = world.engine.shard.views
            topics = [views.catalog.get_topic(one) for one in ("orders", "bills", "mails")]
            bounds = [views.queues.bounds(one.topic_id << 8) for one in topics]
            return [end - start for start, end in bounds]

        assert await left(after_ms=HOUR_MS // 2) == [20, 20, 20]
        assert await left(after_ms=HOUR_MS) == [20, 4, 20]
        assert await left(after_ms=4 * DAY_MS) == [20, 4, 4]
        delivery = await world.leased(topic="orders")
        assert delivery.first_position == 0
        assert await left(after_ms=10 * DAY_MS) == [4, 4, 4]
