"""Groups that receiving made and nobody uses: deleted; all others stay."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from node.broker.engine import EngineConfig
from node.catalog import unused_names
from node.catalog.changes import DefaultsConfig
from node.catalog.unused_names import SUBSCRIPTIONS_MAX
from node.contracts.broker import GroupSettings
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until
from tests.support.small_sizes import small_sizes

IDLE_MS = 1_000_000
RETENTION_MS = 4 * IDLE_MS
DEFAULTS = DefaultsConfig(group_idle_ms=IDLE_MS, attempts_max=1)
SHARD = ShardConfig(retention=RetentionConfig(retention_ms=RETENTION_MS))


def configured(root: Path, defaults: DefaultsConfig = DEFAULTS) -> EngineWorld:
    return EngineWorld(root, EngineConfig(defaults=defaults), SHARD)


def names(world: EngineWorld) -> list[str]:
    return [group.name for group in world.groups()]


async def rounds(world: EngineWorld) -> None:
    """One round that is under way or at rest, and a whole one behind it."""
    await world.look_for_unused()
    world.advance(IDLE_MS)
    await world.look_for_unused()


async def test_group_is_deleted_when_receiving_made_it_and_nobody_used_it(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS - 1)
        await world.look_for_unused()
        assert names(world) == ["billing"]
        await rounds(world)
        assert names(world) == []
        left = [topic.name for topic in world.topics(include_internal=True)]
        assert left == ["orders"], "its own topics have gone, those of others stay"
        assert world.engine.stats.groups_expired == 1


async def test_group_with_dead_letters_stays_when_their_topic_is_all_there_is(
    tmp_path: Path,
) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.nack(world.select(await world.leased())) == [1]
        await within(world.engine.delete_topic("orders"))
        world.advance(2 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"]


async def test_group_with_everything_before_it_gets_it_all_when_made_again(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 2 * IDLE_MS)
        assert await world.receive() is None
        await rounds(world)
        assert names(world) == []
        world.advance(IDLE_MS)
        again = await world.leased()
        assert len(again.units) == 1
        assert await world.ack(world.select(again)) == [1]
        world.advance(10 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"], "of what it has resolved it would get a second time"


@pytest.mark.parametrize("kept_by", ["put", "put later", "subscription", "filter"])
async def test_group_that_somebody_asked_for_stays(tmp_path: Path, kept_by: str) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        if kept_by == "put":
            await within(world.engine.put_group("billing", GroupSettings()))
        elif kept_by == "put later":
            assert await world.receive() is None
            await within(world.engine.put_group("billing", GroupSettings()))
        elif kept_by == "subscription":
            assert await world.receive() is None
            everything = FilterExpression.everything()
            await within(world.engine.put_subscription("billing", "orders", everything))
        else:
            assert await world.receive(wanted="eu") is None
        world.advance(2 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"]


async def test_group_stays_while_somebody_waits(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        waiting = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await until(lambda: world.service.receive_service.waiting_count == 1)
        world.advance(2 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await world.look_for_unused()
        assert names(world) == ["billing"], "it was in use until now"
        await rounds(world)
        assert names(world) == []


async def test_group_stays_while_it_holds_a_lease(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        held = await world.leased(invisible_ms=5 * IDLE_MS)
        world.advance(2 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"]
        assert await world.ack(world.select(held)) == [1]


async def test_group_stays_when_somebody_else_reads_its_dead_letters(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        await within(world.engine.put_group("undertaker", GroupSettings()))
        assert await world.receive(topic="%DLQ%billing", group="undertaker") is None
        await rounds(world)
        await rounds(world)
        assert names(world) == ["billing", "undertaker"]


async def test_use_between_two_looks_keeps_the_group(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        await world.look_for_unused()
        world.advance(IDLE_MS)
        world.service.expiry.look(world.now_ms)
        assert await world.receive() is None
        await world.look_for_unused()
        assert names(world) == ["billing"]


async def test_receiving_during_the_deletion_makes_the_group_anew(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 2 * IDLE_MS)
        assert await world.receive() is None
        former = world.engine.shard.views.catalog.get_group("billing").group_id
        expiring = asyncio.ensure_future(
            world.service.catalog_service.expire_group(former, lambda _: True)
        )
        await asyncio.sleep(0)
        assert world.engine.shard.views.catalog.find_group("billing") is not None, "in flight"
        waiting = asyncio.ensure_future(world.receive(wait_ms=600_000))
        assert await within(expiring)
        await until(lambda: world.service.receive_service.waiting_count == 1)
        world.advance(2 * IDLE_MS)
        found = await within(waiting)
        assert found is not None
        assert found.group_id != former
        assert await world.ack(world.select(found)) == [1]


@pytest.mark.parametrize(
    "defaults",
    [replace(DEFAULTS, group_idle_ms=0), replace(DEFAULTS, groups_auto_create=False)],
    ids=["never", "would not be made again"],
)
async def test_nothing_is_deleted_when_it_is_off(tmp_path: Path, defaults: DefaultsConfig) -> None:
    made_by = replace(defaults, groups_auto_create=True)
    async with configured(tmp_path, made_by) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
    async with configured(tmp_path, defaults) as world:
        world.advance(2 * IDLE_MS)
        await rounds(world)
        assert names(world) == ["billing"]


async def test_new_master_counts_from_its_own_beginning(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS - 1)
        await world.restart()
        world.advance(IDLE_MS - 1)
        await world.look_for_unused()
        assert names(world) == ["billing"]
        await rounds(world)
        assert names(world) == [], "that receiving made it is known after a restart"


async def test_many_groups_are_walked_in_slices(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        for number in range(70):
            await within(world.engine.put_group(f"asked-{number:03}", GroupSettings()))
        assert await world.receive(group="zebra") is None
        await rounds(world)
        assert len(names(world)) == 70
        assert "zebra" not in names(world)


async def test_group_that_receives_from_many_topics_is_left_alone(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        for number in range(SUBSCRIPTIONS_MAX + 1):
            topic = f"topic-{number}"
            await world.publish(world.now_ms + 10 * IDLE_MS, topic=topic)
            assert await world.receive(topic=topic) is None
            if number == SUBSCRIPTIONS_MAX - 1:
                assert await world.receive(group="few", topic=topic) is None
        await rounds(world)
        assert names(world) == ["billing"]


async def test_no_room_is_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None

        async def refuse(*_: object) -> bool:
            raise errors.DiskFull("no room")

        with monkeypatch.context() as patch:
            patch.setattr(world.service.catalog_service, "expire_group", refuse)
            await rounds(world)
        assert names(world) == ["billing"]
        await rounds(world)
        assert names(world) == []


# -- groups that have resolved something ----------------------------------------------------------


@pytest.fixture
def _short_queues() -> Iterator[None]:
    """A queue loses its entries four at a time."""
    with small_sizes(entries=4):
        yield


async def trimmed(world: EngineWorld, *outcomes: str) -> None:
    """Four messages were received, and came to these ends; then retention has let go of them."""
    await world.publish(*[world.now_ms] * 4)
    held = await world.leased()
    for ordinal, outcome in enumerate(outcomes):
        if outcome == "ack":
            assert await world.ack(world.select(held, ordinal, 1)) == [1]
        else:
            delay_ms = 5 * IDLE_MS if outcome == "later" else 1
            assert await world.nack(world.select(held, ordinal, 1), delay_ms=delay_ms) == [1]
    world.advance(1)
    await world.trim()
    assert world.engine.shard.views.queues.bounds(held.topic_queue) == (4, 4)


@pytest.mark.usefixtures("_short_queues")
async def test_group_that_resolved_something_goes_when_that_is_gone(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await trimmed(world, "ack", "ack", "ack", "ack")
        await world.publish(world.now_ms)
        await rounds(world)
        await rounds(world)
        assert names(world) == []
        assert len((await world.leased()).units) == 1, "it is made again, and gets what there is"


@pytest.mark.usefixtures("_short_queues")
async def test_group_stays_when_something_that_it_resolved_is_still_there(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await trimmed(world, "ack", "ack", "ack", "ack")
        await world.publish(*[world.now_ms] * 2)
        assert await world.ack(world.select(await world.leased(count=2), 1)) == [1]
        for _ in range(4):
            await rounds(world)
        assert names(world) == ["billing"]


@pytest.mark.usefixtures("_short_queues")
async def test_group_stays_while_a_retry_is_pending(tmp_path: Path) -> None:
    async with configured(tmp_path, replace(DEFAULTS, attempts_max=9)) as world:
        await trimmed(world, "ack", "later", "ack", "ack")
        await world.restart()  # it is in a file of the wheel now
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["billing"]
        world.advance(2 * IDLE_MS)
        assert await world.ack(world.select(await world.leased())) == [1], "it was not lost"
        await rounds(world)
        await rounds(world)
        assert names(world) == []


@pytest.mark.usefixtures("_short_queues")
@pytest.mark.parametrize("outcome", ["retry", "dead"])
async def test_group_stays_while_a_retry_or_dead_letter_is_retained(
    tmp_path: Path, outcome: str
) -> None:
    defaults = replace(DEFAULTS, attempts_max=9 if outcome == "retry" else 1)
    async with configured(tmp_path, defaults) as world:
        await trimmed(world, "ack", "soon", "ack", "ack")
        for _ in range(RETENTION_MS // IDLE_MS - 1):
            await rounds(world)
        assert names(world) == ["billing"]
        for _ in range(5):
            await rounds(world)
        assert names(world) == [], "it is older than retention, though not trimmed"
        left = [topic.name for topic in world.topics(include_internal=True)]
        assert left == ["orders"]


@pytest.mark.usefixtures("_short_queues")
async def test_group_stays_when_somebody_else_reads_its_retries(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await trimmed(world, "ack", "ack", "ack", "ack")
        await within(world.engine.put_group("reader", GroupSettings()))
        retries = "%RETRY%billing|orders"
        assert retries in [topic.name for topic in world.topics(include_internal=True)]
        assert await world.receive(topic=retries, group="reader") is None
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["billing", "reader"]


async def test_group_of_many_queues_that_it_resolved_something_in_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_names, "WINDOWS_MAX", 3)
    async with configured(tmp_path) as world:
        await within(world.engine.create_topic("orders", 8))
        await world.publish(*[world.now_ms + 10 * IDLE_MS] * 8)
        assert await world.receive() is None
        for queue in world.mastership.receiver.queues_of(1, 1):
            world.engine.shard.views.acks.get(1, int(queue))
        await rounds(world)
        assert names(world) == ["billing"]
