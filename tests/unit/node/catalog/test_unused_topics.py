"""Topics that publishing made and nobody uses: deleted; all others stay."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from node.broker.engine import EngineConfig
from node.catalog import name_expiry
from node.catalog.changes import DefaultsConfig
from node.contracts.broker import PublishedBatchResult
from node.contracts.transactions import PreparedPart, Preparing
from tests.support.engine_world import EngineWorld, let_others_run, within
from timewheel.range_scan import RangeScan

IDLE_MS = 1_000_000
HORIZON_MS = EngineConfig().horizon_ms
DEFAULTS = DefaultsConfig(topic_idle_ms=IDLE_MS)


def configured(root: Path, defaults: DefaultsConfig = DEFAULTS) -> EngineWorld:
    return EngineWorld(root, EngineConfig(defaults=defaults))


def names(world: EngineWorld) -> list[str]:
    return [topic.name for topic in world.topics()]


async def rounds(world: EngineWorld) -> None:
    """One round that is under way or at rest, and a whole one behind it."""
    await world.look_for_unused()
    world.advance(IDLE_MS)
    await world.look_for_unused()


async def cancel(world: EngineWorld, published: PublishedBatchResult, due_ms: int) -> None:
    one = (published.shard, published.epoch, published.base_sequence, due_ms)
    assert (await within(world.engine.cancel(np.array([one], ID_DTYPE)))).tolist() == [1]


async def empty_topic(world: EngineWorld, name: str = "orders") -> None:
    """A topic that publishing has made; its only message was taken back."""
    due_ms = world.now_ms + 100 * IDLE_MS
    await cancel(world, await world.publish(due_ms, topic=name), due_ms)


async def test_topic_is_deleted_when_publishing_made_it_and_nobody_used_it(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        world.advance(IDLE_MS - 1)
        await world.look_for_unused()
        assert names(world) == ["orders"]
        world.advance(IDLE_MS)  # the round before has to rest
        await world.look_for_unused()
        assert names(world) == []
        assert world.engine.stats.topics_expired == 1


async def test_topic_that_is_made_again_takes_messages(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        world.advance(IDLE_MS)
        await rounds(world)
        assert names(world) == []
        await world.publish(world.now_ms)
        assert len((await world.leased()).units) == 1


@pytest.mark.parametrize("due_in_ms", [0, 50 * IDLE_MS])
async def test_topic_with_a_message_stays(tmp_path: Path, due_in_ms: int) -> None:
    """One that a group which is made later could get, now or when it is due."""
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + due_in_ms)
        world.advance(IDLE_MS)
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["orders"]
        world.advance(due_in_ms)
        assert len((await world.leased()).units) == 1


async def test_topic_with_a_message_on_disk_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_expiry, "UNITS_AT_ONCE", 8)
    async with configured(tmp_path) as world:
        await world.publish(world.now_ms + 50 * IDLE_MS)
        await empty_topic(world, "empty")
        await world.publish(*[world.now_ms + 60 * IDLE_MS + n for n in range(500)], topic="many")
        await world.restart()
        await rounds(world)
        await world.look_for_unused(100)
        assert names(world) == ["many", "orders"]


async def test_topic_with_a_message_that_is_pending_is_looked_for_again_when_that_was_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with configured(tmp_path) as world:
        due_ms = world.now_ms + 10 * IDLE_MS
        published = await world.publish(due_ms)
        await rounds(world)
        await cancel(world, published, due_ms)
        scans: list[object] = []
        scan = name_expiry.RangeScan
        monkeypatch.setattr(
            name_expiry, "RangeScan", lambda *args: scans.append(args) or scan(*args)
        )
        for _ in range(5):
            await rounds(world)
        assert (names(world), scans) == (["orders"], []), "the wheel is not read in vain"
        world.advance(10 * IDLE_MS)
        await rounds(world)
        assert (names(world), len(scans)) == ([], 1)


async def test_topic_of_an_open_transaction_stays_until_that_is_decided(tmp_path: Path) -> None:
    """Its messages are in no wheel yet: a commit would find no topic for them."""
    async with configured(tmp_path) as world:
        part = PreparedPart("orders", [world.now_ms + 5_000], (b"x",), (b"",), (0,), (0,))
        preparing = Preparing("tills", (part,), (), bytes(16), 60_000, 2, 100 * IDLE_MS)
        prepared = await within(world.engine.transactions.prepare(preparing))
        world.advance(IDLE_MS)
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["orders"]
        of = prepared.transaction_id
        await within(world.engine.transactions.end_transaction(of, (), is_commit=False))
        for _ in range(3):
            await rounds(world)
        assert names(world) == []


async def test_topic_to_which_a_recurrence_publishes_stays(tmp_path: Path) -> None:
    """Also where the next occurrence is beyond the horizon, and so not in the wheel."""
    async with configured(tmp_path) as world:
        start_ms = world.now_ms + HORIZON_MS + 100 * IDLE_MS
        config = RecurrenceConfig(topic="orders", every_ms=10_000, start_ms=start_ms)
        await within(world.engine.recurring.put(config, "report", None))
        await empty_topic(world, "orders2")
        world.advance(IDLE_MS)
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["orders"]
        await within(world.engine.recurring.delete("orders", "report"))
        for _ in range(3):
            await rounds(world)
        assert names(world) == []


@pytest.mark.parametrize("kept_by", ["made", "asked for later", "subscription", "group"])
async def test_topic_that_somebody_asked_for_or_receives_from_stays(
    tmp_path: Path, kept_by: str
) -> None:
    async with configured(tmp_path) as world:
        if kept_by == "made":
            await within(world.engine.create_topic("orders", 1))
        await empty_topic(world)
        if kept_by == "asked for later":
            await within(world.engine.create_topic("orders", 0))
        elif kept_by == "subscription":
            everything = FilterExpression.everything()
            await within(world.engine.put_subscription("billing", "orders", everything))
        elif kept_by == "group":
            assert await world.receive() is None
        world.advance(IDLE_MS)
        for _ in range(3):
            await rounds(world)
        assert names(world) == ["orders"]


async def test_topic_that_a_subscription_made_is_asked_for(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        everything = FilterExpression.everything()
        await within(world.engine.put_subscription("billing", "orders", everything))
        await within(world.engine.delete_group("billing"))
        world.advance(IDLE_MS)
        await rounds(world)
        assert names(world) == ["orders"]


async def test_publishing_during_a_round_keeps_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its message lies behind what the round has read, and the round takes long."""
    scans: list[RangeScan] = []

    def begin_scan(*args: Any) -> RangeScan:
        scans.append(RangeScan(*args))
        return scans[-1]

    monkeypatch.setattr(name_expiry, "UNITS_AT_ONCE", 8)
    monkeypatch.setattr(name_expiry, "RangeScan", begin_scan)
    async with configured(tmp_path) as world:
        far_ms = world.now_ms + 60 * IDLE_MS
        await empty_topic(world)
        await empty_topic(world, "empty")
        await world.publish(*[far_ms + n * 1_000_000 for n in range(500)], topic="many")
        await world.look_for_unused()
        world.advance(IDLE_MS)
        while not scans or scans[0].after.due_ms < far_ms:
            await world.look_for_unused(1)
        assert not scans[0].is_done, "the round is not over"
        assert names(world) == ["empty", "many", "orders"]
        await world.publish(far_ms - IDLE_MS)
        world.advance(2 * IDLE_MS)
        while not scans[0].is_done:
            await world.look_for_unused(1)
        await world.look_for_unused()
        assert names(world) == ["many", "orders"]


async def test_publish_that_waits_while_the_topic_is_found_keeps_it(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        topic = world.engine.shard.views.catalog.get_topic("orders")
        world.advance(IDLE_MS)
        with world.service.expiry.publishing(topic, lambda: world.now_ms):
            await rounds(world)
            assert names(world) == ["orders"]
        await world.look_for_unused()
        assert names(world) == ["orders"], "it was in use until now"
        await rounds(world)
        assert names(world) == []


@pytest.mark.parametrize("way", ["batch", "single"])
async def test_publishing_during_the_deletion_makes_the_topic_anew(
    tmp_path: Path, way: str
) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        former = world.engine.shard.views.catalog.get_topic("orders").topic_id
        expiring = asyncio.ensure_future(
            world.service.catalog_service.expire_topic(former, lambda _: True)
        )
        await asyncio.sleep(0)
        assert world.engine.shard.views.catalog.find_topic("orders") is not None, "in flight"
        publish: Any = world.publish if way == "batch" else world.publish_single
        publishing = [asyncio.ensure_future(publish(world.now_ms + n)) for n in range(5)]
        assert await within(expiring)
        await within(asyncio.gather(*publishing))
        assert world.engine.shard.views.catalog.get_topic("orders").topic_id != former
        world.advance(10)
        found = await world.leased()
        assert found.units["due_ms"].tolist() == [world.now_ms - 10 + n for n in range(5)]
        assert np.diff(found.units["sequence"].astype(np.int64)).tolist() == [1] * 4, "in order"


@pytest.mark.parametrize(
    "defaults",
    [replace(DEFAULTS, topic_idle_ms=0), replace(DEFAULTS, topics_auto_create=False)],
    ids=["never", "would not be made again"],
)
async def test_nothing_is_deleted_when_it_is_off(tmp_path: Path, defaults: DefaultsConfig) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        await empty_topic(world, "other")
    async with configured(tmp_path, defaults) as world:
        for _ in range(30):
            world.advance(IDLE_MS)
            world.service.expiry.look(world.now_ms)
            await let_others_run()
        assert names(world) == ["orders", "other"]


async def test_new_master_counts_from_its_own_beginning(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        world.advance(IDLE_MS - 1)
        await world.restart()
        world.advance(IDLE_MS - 1)
        await world.look_for_unused()
        assert names(world) == ["orders"]
        await rounds(world)
        assert names(world) == [], "that publishing made it is known after a restart"


async def test_many_topics_are_walked_in_slices(tmp_path: Path) -> None:
    async with configured(tmp_path) as world:
        for number in range(70):
            await within(world.engine.create_topic(f"asked-{number:03}", 1))
        await empty_topic(world, "zebra")
        world.advance(IDLE_MS)
        await rounds(world)
        assert len(names(world)) == 70
        assert "zebra" not in names(world)


async def test_no_room_is_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        world.advance(IDLE_MS)

        async def refuse(*_: object) -> bool:
            raise errors.DiskFull("no room")

        with monkeypatch.context() as patch:
            patch.setattr(world.service.catalog_service, "expire_topic", refuse)
            await world.look_for_unused()
        assert names(world) == ["orders"]
        await rounds(world)
        assert names(world) == []


async def test_bug_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with configured(tmp_path) as world:
        await empty_topic(world)
        world.advance(IDLE_MS)

        async def fail(*_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(world.service.catalog_service, "expire_topic", fail)
        for _ in range(20):
            world.service.expiry.look(world.now_ms)
            await let_others_run()
            world.advance(IDLE_MS)
        assert isinstance(await world.failed(), errors.Internal)
