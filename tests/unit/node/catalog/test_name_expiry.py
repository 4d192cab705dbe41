"""Rounds that delete what nobody uses: topics and groups that were used with one another."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from node.broker.engine import EngineConfig
from node.catalog import name_expiry, unused_names
from node.catalog.changes import DefaultsConfig
from node.contracts.broker import GroupSettings
from node.contracts.transactions import PreparedPart, Preparing
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from tests.support.engine_world import EngineWorld, let_others_run, within

IDLE_MS = 1_000_000
RETENTION_MS = 4 * IDLE_MS
DEFAULTS = DefaultsConfig(group_idle_ms=IDLE_MS, topic_idle_ms=IDLE_MS)
SHARD = ShardConfig(retention=RetentionConfig(retention_ms=RETENTION_MS))


def configured(root: Path, defaults: DefaultsConfig = DEFAULTS) -> EngineWorld:
    return EngineWorld(root, EngineConfig(defaults=defaults), SHARD)


def names(world: EngineWorld) -> list[str]:
    return [one.name for one in (*world.topics(include_internal=True), *world.groups())]


async def rounds(world: EngineWorld, count: int = 1) -> None:
    """So many whole rounds, behind one that is under way or at rest."""
    await world.look_for_unused()
    for _ in range(count):
        world.advance(IDLE_MS)
        await world.look_for_unused()


async def test_topic_and_group_that_were_used_go_when_all_of_it_is_past_retention(
    tmp_path: Path,
) -> None:
    """Though nothing was trimmed: a queue loses whole chunks only."""
    async with configured(tmp_path) as world:
        await world.publish(*[world.now_ms] * 3)
        assert await world.ack(world.select(await world.leased(), 0, 2)) == [1]
        await rounds(world, RETENTION_MS // IDLE_MS)
        assert "orders" in names(world)
        assert "billing" in names(world)
        await rounds(world, 4)
        assert names(world) == []
        assert (world.engine.stats.topics_expired, world.engine.stats.groups_expired) == (1, 1)


async def test_topic_stays_while_a_retry_of_a_message_of_it_is_pending(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        delay_ms = 4 * RETENTION_MS
        assert await world.nack(world.select(await world.leased()), delay_ms=delay_ms) == [1]
        await rounds(world, 12)
        assert "orders" in names(world)
        world.advance(delay_ms)
        assert len((await world.leased()).units) == 1


@pytest.mark.parametrize("kept_by", ["asked for", "in use", "lease", "publish"])
async def test_topic_stays_while_a_group_or_a_producer_uses_it(
    tmp_path: Path, kept_by: str
) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.ack(world.select(await world.leased())) == [1]
        if kept_by == "asked for":
            await within(world.engine.put_group("billing", GroupSettings()))
        elif kept_by == "lease":
            await world.publish(world.now_ms)
            await world.leased(invisible_ms=40 * IDLE_MS)
        for _ in range(4):
            if kept_by == "in use":
                assert await world.receive() is None
            elif kept_by == "publish":
                await world.publish(world.now_ms + 1)
            await rounds(world, 1 if kept_by in {"in use", "publish"} else 3)
        assert "orders" in names(world)


async def test_receiving_during_the_deletion_of_its_topic_waits_for_that(tmp_path: Path) -> None:
    """Else it would wait at a topic that is no more, and not be told."""
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms)
        assert await world.ack(world.select(await world.leased())) == [1]
        former = world.engine.shard.views.catalog.get_topic("orders").topic_id
        expiring = asyncio.ensure_future(
            world.service.catalog_service.expire_topic(former, lambda _: True)
        )
        await asyncio.sleep(0)
        assert world.engine.shard.views.catalog.find_topic("orders") is not None, "in flight"
        receiving = asyncio.ensure_future(world.receive(wait_ms=600_000))
        assert await within(expiring)
        with pytest.raises(errors.UnknownTopic):
            await within(receiving)


@pytest.mark.parametrize(
    ("defaults", "left"),
    [
        (replace(DEFAULTS, group_idle_ms=0), ["%DLQ%billing", "billing"]),
        (replace(DEFAULTS, topic_idle_ms=0), ["empty"]),
        (replace(DEFAULTS, group_idle_ms=0, topic_idle_ms=0), []),
    ],
    ids=["no group", "no topic", "nothing"],
)
async def test_nothing_is_deleted_of_what_is_off(
    tmp_path: Path, defaults: DefaultsConfig, left: list[str]
) -> None:
    async with configured(tmp_path, defaults) as world:
        due_ms = world.now_ms + 100 * IDLE_MS
        done = await world.publish(due_ms, topic="empty")
        one = (done.shard, done.epoch, done.base_sequence, due_ms)
        assert (await within(world.engine.cancel(np.array([one], ID_DTYPE)))).tolist() == [1]
        await world.publish(due_ms)
        assert await world.receive() is None
        all_of_it = names(world)
        await rounds(world, 3)
        if not left:
            assert names(world) == all_of_it
        else:
            assert set(left) <= set(names(world)) < set(all_of_it)


async def test_latest_due_time_of_each_topic_says_until_when_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that of another one which is pending for longer."""
    async with configured(tmp_path) as world:
        soon_ms, late_ms = world.now_ms + 3 * IDLE_MS, world.now_ms + 50 * IDLE_MS
        done = await world.publish(soon_ms)
        await world.publish(late_ms, topic="late")
        await rounds(world)
        one = (done.shard, done.epoch, done.base_sequence, soon_ms)
        assert (await within(world.engine.cancel(np.array([one], ID_DTYPE)))).tolist() == [1]
        await rounds(world, 3)
        assert names(world) == ["late"]
        scans: list[object] = []
        scan = name_expiry.RangeScan
        monkeypatch.setattr(
            name_expiry, "RangeScan", lambda *args: scans.append(args) or scan(*args)
        )
        await rounds(world, 3)
        assert scans == [], "the wheel is not read in vain"


async def test_bug_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 10 * IDLE_MS)
        assert await world.receive() is None

        async def fail(*_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(world.service.catalog_service, "expire_group", fail)
        for _ in range(20):
            world.service.expiry.look(world.now_ms)
            await let_others_run()
            world.advance(IDLE_MS)
        assert isinstance(await world.failed(), errors.Internal)


async def test_topic_stays_while_an_open_transaction_may_publish_to_it(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        port, made = world.engine.transactions, []
        for number in (1, 2):
            part = PreparedPart("orders", [world.now_ms], [b"paid"], [b""], [0], [0])
            token = number.to_bytes(16, "big")
            age_ms = 3 * RETENTION_MS
            preparing = Preparing("tills", [part], [], token, age_ms, 1, age_ms)
            made.append((await within(port.prepare(preparing))).transaction_id)
        await rounds(world, 10)
        assert "orders" in names(world)
        for of in made:
            await within(port.end_transaction(of, (), is_commit=False))
        await rounds(world, 6)
        assert "orders" not in names(world)


async def test_many_topics_are_looked_through_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unused_names, "QUEUES_AT_ONCE", 1)
    async with configured(tmp_path) as world:
        for number in range(5):
            await world.publish(world.now_ms + 1, topic=f"orders-{number}")
        world.advance(RETENTION_MS)
        await rounds(world, 8)
        assert names(world) == []
        assert world.engine.stats.topics_expired == 5
