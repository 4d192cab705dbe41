"""Topics and groups that are changed: by compare-and-set, kept, and what a pause does."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.types import DISPATCH_TOPIC
from node.contracts.broker import CatalogUpdate, GroupSettings
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

SAME = GroupSettings()


async def test_topic_is_changed_by_compare_and_set_and_stays_so(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        made = await within(world.engine.create_topic("orders", 3))
        described = CatalogUpdate("of the shop", expected_version=made.version)
        changed = await within(world.engine.update_topic("orders", described))
        assert (changed.description, changed.is_paused, changed.queue_count) == (
            "of the shop",
            False,
            3,
        )
        assert changed.version > made.version
        with pytest.raises(errors.FailedPrecondition) as caught:
            await within(world.engine.update_topic("orders", described))
        assert caught.value.params["version"] == str(changed.version)
        paused = await within(world.engine.update_topic("orders", CatalogUpdate(is_paused=True)))
        assert paused.description == "of the shop"
        spread = CatalogUpdate(dispatch_tolerance_ms=500)
        assert (await within(world.engine.update_topic("orders", spread))).is_paused
        paused = await within(world.engine.update_topic("orders", CatalogUpdate()))
        assert paused.dispatch_tolerance_ms == 500
        await world.restart()
        (found,) = world.topics()
        assert (found, found.version) == (paused, paused.version)
        with pytest.raises(errors.UnknownTopic):
            await within(world.engine.update_topic("bills", CatalogUpdate("none")))


async def test_topic_that_is_made_again_has_another_version(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        made = await within(world.engine.create_topic("orders", 1))
        await within(world.engine.delete_topic("orders"))
        await world.publish(world.now_ms)
        with pytest.raises(errors.FailedPrecondition):
            await within(
                world.engine.update_topic(
                    "orders", CatalogUpdate("old", expected_version=made.version)
                )
            )


async def test_paused_topic_refuses_and_delivers(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await within(world.engine.update_topic("orders", CatalogUpdate(is_paused=True)))
        for refused in (world.publish(world.now_ms), world.publish_single(world.now_ms)):
            with pytest.raises(errors.TopicPaused):
                await refused
        assert await world.receive() is not None
        await within(world.engine.update_topic("orders", CatalogUpdate(is_paused=False)))
        assert (await world.publish(world.now_ms)).count == 1


async def test_clusters_own_topic_is_not_changed(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await world.receive()
        with pytest.raises(errors.InvalidTopic):
            await within(world.engine.update_topic("%DLQ%billing", CatalogUpdate("no")))


async def test_group_keeps_what_is_not_given(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(attempts_max=3, retry_delay_ms=5_000)
        made = await within(world.engine.put_group("billing", settings))
        update = CatalogUpdate("of the office", expected_version=made.version)
        changed = await within(
            world.engine.update_group("billing", update, GroupSettings(retry_delay_ms=900_000))
        )
        assert (changed.attempts_max, changed.description) == (3, "of the office")
        assert (changed.retry_delay_ms, changed.retry_delay_ms_max) == (900_000, 900_000)
        with pytest.raises(errors.FailedPrecondition):
            await within(world.engine.update_group("billing", update, SAME))
        await within(world.engine.update_group("billing", CatalogUpdate(is_paused=True), SAME))
        put = await within(world.engine.put_group("billing", GroupSettings(attempts_max=5)))
        assert (put.attempts_max, put.description, put.is_paused) == (5, "of the office", True)
        await world.restart()
        assert (world.group(), world.group().version) == (put, put.version)
        with pytest.raises(errors.UnknownGroup):
            await within(world.engine.update_group("none", CatalogUpdate("x"), SAME))


async def test_retry_policy_stays_until_it_is_given_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        steps = GroupSettings(retry_delays_ms=(10, 20), retry_jitter_percent=30)
        made = await within(world.engine.put_group("billing", steps))
        assert (made.retry_delays_ms, made.retry_jitter_percent) == ((10, 20), 30)
        put = await within(world.engine.put_group("billing", GroupSettings(attempts_max=5)))
        kept = await within(world.engine.update_group("billing", CatalogUpdate("x"), SAME))
        for group in (put, kept):
            assert (group.retry_delays_ms, group.retry_jitter_percent) == ((10, 20), 30)
        doubling = GroupSettings(retry_delays_ms=(), retry_jitter_percent=0)
        changed = await within(world.engine.update_group("billing", CatalogUpdate(), doubling))
        assert (changed.retry_delays_ms, changed.retry_jitter_percent) == ((), 0)
        await within(world.engine.update_group("billing", CatalogUpdate(), steps))
        await world.restart()
        assert (world.group().retry_delays_ms, world.group().retry_jitter_percent) == ((10, 20), 30)


async def test_limits_of_a_group_stay_until_they_are_given_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        both = GroupSettings(in_flight_max=5, per_second_max=6)
        await within(world.engine.put_group("billing", both))
        await within(world.engine.put_group("billing", GroupSettings(attempts_max=5)))
        one = GroupSettings(per_second_max=0)
        await within(world.engine.update_group("billing", CatalogUpdate(), one))
        await world.restart()
        assert (world.group().in_flight_max, world.group().per_second_max) == (5, 0)


async def test_retries_come_by_the_steps_of_the_group(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(retry_delays_ms=(40, 7_000))
        await within(world.engine.put_group("billing", settings))
        await world.publish(world.now_ms)
        for step_ms in (40, 7_000, 7_000):
            delivery = await world.leased()
            await world.nack(world.select(delivery))
            world.advance(step_ms - 1)
            assert await world.receive() is None
            world.advance(1)


async def test_paused_group_gets_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms, world.now_ms)
        first = await world.receive(count=1)
        assert first is not None
        await within(world.engine.update_group("billing", CatalogUpdate(is_paused=True), SAME))
        assert await world.receive() is None
        poll = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await world.publish(world.now_ms)
        await let_others_run()
        assert not poll.done()
        await world.ack(world.select(first))
        assert await world.receive(group="others") is not None
        await within(world.engine.update_group("billing", CatalogUpdate(is_paused=False), SAME))
        delivery = await within(poll)
        assert delivery is not None
        assert len(delivery.units) == 2


async def test_group_is_resumed_whose_caller_has_gone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await within(world.engine.put_group("billing", SAME))
        await within(world.engine.update_group("billing", CatalogUpdate(is_paused=True), SAME))
        poll = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await let_others_run()
        end = world.engine.shard.log.end_offset
        resume = CatalogUpdate(is_paused=False)
        gone = asyncio.ensure_future(world.engine.update_group("billing", resume, SAME))
        await until(lambda: world.engine.shard.log.end_offset > end)
        gone.cancel()
        assert await within(poll) is not None


async def test_change_whose_caller_has_gone_counts_for_the_next(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        made = await within(world.engine.create_topic("orders", 1))
        update = CatalogUpdate("first", expected_version=made.version)
        end = world.engine.shard.log.end_offset
        gone = asyncio.ensure_future(world.engine.update_topic("orders", update))
        await until(lambda: world.engine.shard.log.end_offset > end)
        gone.cancel()
        late = CatalogUpdate("second", expected_version=made.version)
        with pytest.raises(errors.FailedPrecondition):
            await within(world.engine.update_topic("orders", late))
        assert world.topics()[0].description == "first"


async def test_paused_dispatch_keeps_what_is_due_until_it_is_resumed(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        paused, resumed = CatalogUpdate(is_paused=True), CatalogUpdate(is_paused=False)
        assert (await within(world.engine.update_topic(DISPATCH_TOPIC, paused))).is_paused
        await world.publish(world.now_ms + 100)
        await world.publish(world.now_ms)
        assert await world.receive() is not None, "what is due when it is published never waits"
        world.advance(5_000)
        await let_others_run()
        await world.restart()
        await let_others_run()
        assert world.engine.status().pending_count == 1
        await within(world.engine.update_topic(DISPATCH_TOPIC, resumed))
        await until(lambda: world.engine.status().pending_count == 0)
