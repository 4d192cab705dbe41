"""Groups that receiving made and nobody uses: deleted; all others stay."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from node.broker.engine import EngineConfig
from node.catalog.service import DefaultsConfig
from node.contracts.broker import GroupSettings
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

IDLE_MS = 1_000_000
DEFAULTS = DefaultsConfig(group_idle_ms=IDLE_MS, attempts_max=1)


def configured(root: Path, defaults: DefaultsConfig = DEFAULTS) -> EngineWorld:
    return EngineWorld(root, EngineConfig(defaults=defaults))


def names(world: EngineWorld) -> list[str]:
    return [group.name for group in world.groups()]


async def look(world: EngineWorld, times: int = 8) -> None:
    """As housekeeping does once a second, so often that each group of a few has its turn."""
    for _ in range(times):
        world.engine.expiry.look(world.now_ms)
        await let_others_run()
        await within(world.publish(world.now_ms, topic="other"))  # behind it all is applied


async def test_group_is_deleted_when_receiving_made_it_and_nobody_used_it(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS - 1)
        await look(world)
        assert names(world) == ["billing"]
        world.advance(1)
        await look(world)
        assert names(world) == []
        left = [topic.name for topic in world.topics(include_internal=True)]
        assert left == ["orders", "other"], "its own topics have gone, those of others stay"
        assert world.engine.stats.groups_expired == 1


async def test_group_with_dead_letters_stays_when_their_topic_is_all_there_is(
    tmp_path: Path,
) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.nack(world.select(await world.leased())) == [1]
        await within(world.engine.delete_topic("orders"))
        world.advance(2 * IDLE_MS)
        await look(world)
        assert names(world) == ["billing"]


async def test_group_with_everything_before_it_gets_it_all_when_made_again(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 2 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS)
        await look(world)
        assert names(world) == []
        world.advance(IDLE_MS)
        again = await world.leased()
        assert len(again.units) == 1
        assert await world.ack(world.select(again)) == [1]
        world.advance(10 * IDLE_MS)
        await look(world)
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
        await look(world)
        assert names(world) == ["billing"]


async def test_group_stays_while_somebody_waits(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        waiting = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await until(lambda: world.engine.consuming.waiting_count == 1)
        world.advance(2 * IDLE_MS)
        await look(world)
        assert names(world) == ["billing"]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await look(world)
        assert names(world) == ["billing"], "it was in use until now"
        world.advance(IDLE_MS)
        await look(world)
        assert names(world) == []


async def test_group_stays_while_it_holds_a_lease(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        held = await world.leased(invisible_ms=5 * IDLE_MS)
        world.advance(2 * IDLE_MS)
        await look(world)
        assert names(world) == ["billing"]
        assert await world.ack(world.select(held)) == [1]


async def test_group_stays_when_somebody_else_reads_its_dead_letters(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        assert await world.receive(topic="%DLQ%billing", group="undertaker") is None
        world.advance(IDLE_MS)
        for _ in range(3):  # the reader is unused as well, and goes when its turn comes
            world.engine.expiry.look(world.now_ms)
            await let_others_run()
        assert "billing" in names(world)


async def test_use_between_two_looks_keeps_the_group(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS)
        world.engine.expiry.look(world.now_ms)
        assert await world.receive() is None
        await look(world)
        assert names(world) == ["billing"]


async def test_receiving_during_the_deletion_makes_the_group_anew(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 2 * IDLE_MS)
        assert await world.receive() is None
        former = world.engine.shard.views.catalog.get_group("billing").group_id
        expiring = asyncio.ensure_future(
            world.engine.configurator.expire_group(former, lambda _: True)
        )
        await asyncio.sleep(0)
        assert world.engine.shard.views.catalog.find_group("billing") is not None, "in flight"
        waiting = asyncio.ensure_future(world.receive(wait_ms=600_000))
        assert await within(expiring)
        await until(lambda: world.engine.consuming.waiting_count == 1)
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
        await look(world)
        assert names(world) == ["billing"]


async def test_new_master_counts_from_its_own_beginning(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS - 1)
        await world.restart()
        world.advance(IDLE_MS - 1)
        await look(world)
        assert names(world) == ["billing"]
        world.advance(1)
        await look(world)
        assert names(world) == [], "that receiving made it is known after a restart"


async def test_many_groups_are_walked_in_slices(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        for number in range(70):
            await within(world.engine.put_group(f"asked-{number:03}", GroupSettings()))
        assert await world.receive(group="zebra") is None
        world.advance(IDLE_MS)
        await look(world)
        assert len(names(world)) == 70
        assert "zebra" not in names(world)


async def test_no_room_is_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS)

        async def refuse(*_: object) -> bool:
            raise errors.DiskFull("no room")

        with monkeypatch.context() as patch:
            patch.setattr(world.engine.configurator, "expire_group", refuse)
            await look(world)
        assert names(world) == ["billing"]
        await look(world)
        assert names(world) == []


async def test_bug_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None
        world.advance(IDLE_MS)

        async def fail(*_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(world.engine.configurator, "expire_group", fail)
        world.engine.expiry.look(world.now_ms)
        world.engine.expiry.look(world.now_ms)
        assert isinstance(await world.failed(), errors.Internal)
