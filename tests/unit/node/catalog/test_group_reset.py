"""A group begins anew in a topic: what it gets then, and what of before is over."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import topic_queue
from node.catalog.positions import held_ids
from node.contracts.broker import CatalogUpdate, GroupSettings
from node.contracts.group_positions import ResetInfo, ResetTarget, UnblockAction, Unblocking
from node.shard.views import RESET_LEVEL
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.small_sizes import small_sizes

STEP_MS = 1_000
FIRST = ResetTarget(None)
NOW = ResetTarget(0)


async def reset(world: EngineWorld, target: ResetTarget, *, count_only: bool = False) -> ResetInfo:
    resetting = world.engine.reset_group("billing", "orders", target, count_only=count_only)
    return await within(resetting)


async def left(world: EngineWorld) -> list[tuple[int, int]]:
    """(sequence, attempt) of all that the group gets."""
    found: list[tuple[int, int]] = []
    while (delivery := await world.receive(count=9)) is not None:
        found += delivery.units[["sequence", "attempt"]].tolist()
    return sorted(found)


def firsts(*sequences: int) -> list[tuple[int, int]]:
    return [(one, 1) for one in sequences]


async def test_reset_to_an_instant_delivers_again_what_was_released_then_or_later(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        dues_ms = await world.publish_steps(5)
        done, kept = await world.receive(count=3), await world.receive(count=1)
        assert done is not None
        assert kept is not None
        assert await world.ack(world.select(done)) == [ReceiptOutcome.OK]
        counted = await reset(world, ResetTarget(dues_ms[1]), count_only=True)
        assert counted == ResetInfo(2, 0, 0, 4, [1])
        assert await left(world) == firsts(4), "counting changes nothing"
        assert await reset(world, ResetTarget(dues_ms[1])) == counted
        assert await world.ack(world.select(kept)) == [ReceiptOutcome.STALE]
        assert await world.ack(world.select(done)) == [ReceiptOutcome.STALE]
        assert await left(world) == firsts(1, 2, 3, 4)
        await world.restart()
        assert await left(world) == firsts(1, 2, 3, 4)
        assert await world.ack(world.select(kept)) == [ReceiptOutcome.STALE], "of an earlier epoch"


async def test_reset_forwards_skips_and_back_again_returns_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(3)
        assert await left(world) == firsts(0, 1, 2)
        assert await reset(world, NOW) == ResetInfo(0, 3, 0, 0, [3])
        assert await left(world) == []
        for _ in range(3):  # it repeats
            assert await reset(world, FIRST) == ResetInfo(3, 0, 0, 3, [0])
            delivery = await world.receive(count=9)
            assert delivery is not None
            assert await world.ack(world.select(delivery)) == [ReceiptOutcome.OK]
        assert await left(world) == []


async def test_reset_drops_retries_wherever_they_are(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(3)
        for delay_ms in (60_000, 0):
            delivery = await world.receive(count=1)
            assert delivery is not None
            assert await world.nack(world.select(delivery), delay_ms=delay_ms) == [
                ReceiptOutcome.OK
            ]
        world.advance(STEP_MS)
        await let_others_run()
        again = await reset(world, FIRST)
        assert (again.again_count, again.retries_dropped_count) == (2, 1)
        world.advance(120_000)
        await let_others_run()
        assert await left(world) == firsts(0, 1, 2), "no retry comes beside them"
        for _ in range(2):  # the leases end; the retries are due
            world.advance(600_000)
            await let_others_run()
            await within(world.engine.group_commit.drain())
        assert world.engine.shard.views.counters.discarded == 1, "the retry that was not due"
        assert await left(world) == [(0, 2), (1, 2), (2, 2)], "of the leases since: they ended"


async def test_receipts_of_retries_are_stale_behind_a_reset(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(1)
        delivery = await world.receive(count=1)
        assert delivery is not None
        await world.nack(world.select(delivery), delay_ms=0)
        world.advance(STEP_MS)
        await let_others_run()
        retry = await world.receive(count=1)
        assert retry is not None
        await reset(world, FIRST)
        assert await world.ack(world.select(retry)) == [ReceiptOutcome.STALE]
        assert await world.nack(world.select(delivery), delay_ms=0) == [ReceiptOutcome.STALE]
        fresh = await world.receive(count=1)
        assert fresh is not None
        await world.nack(world.select(fresh), delay_ms=0)
        world.advance(STEP_MS)
        await let_others_run()
        assert await left(world) == [(0, 2)], "retries come through the new topic"


async def test_polls_that_wait_get_what_comes_again_and_its_retries(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(1)
        delivery = await world.receive(count=1)
        assert delivery is not None
        await world.ack(world.select(delivery))
        poll = asyncio.create_task(world.receive(count=1, wait_ms=60_000))
        await let_others_run()
        assert not poll.done()
        await reset(world, FIRST)
        again = await within(poll)
        assert again is not None
        assert again.units["sequence"].tolist() == [0]
        second = asyncio.create_task(world.receive(count=1, wait_ms=60_000))
        await let_others_run()
        await world.nack(world.select(again), delay_ms=0)
        retry = await within(second)
        assert retry is not None
        assert retry.units["attempt"].tolist() == [2]


async def test_an_acknowledgement_on_its_way_is_about_what_was_before(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(2)
        delivery = await world.receive(count=2)
        assert delivery is not None
        acking = asyncio.create_task(world.ack(world.select(delivery)))
        await asyncio.sleep(0)
        resetting = asyncio.create_task(reset(world, FIRST))
        assert await within(acking) == [ReceiptOutcome.OK]
        assert (await within(resetting)).unresolved_count == 2
        assert await left(world) == firsts(0, 1)


async def test_reset_of_an_ordered_group_frees_its_keys(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(order=GroupOrder.BLOCK, attempts_max=1)
        await within(world.engine.put_group("billing", settings))
        await world.publish_steps(2)
        delivery = await world.receive(count=1)
        assert delivery is not None
        await world.nack(world.select(delivery), delay_ms=0)
        world.advance(STEP_MS)
        assert (await reset(world, FIRST)).again_count == 0
        assert await left(world) == firsts(0, 1), "as if it had never been given back"


async def test_what_an_operator_decides_of_a_key_meets_a_reset(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(order=GroupOrder.BLOCK, attempts_max=1)
        await within(world.engine.put_group("billing", settings))
        await world.publish_steps(2)
        delivery = await world.receive(count=1)
        assert delivery is not None
        await world.nack(world.select(delivery), delay_ms=0)
        number = topic_queue(world.engine.shard.views.catalog.get_topic("orders").topic_id, 0)
        wanted = Unblocking(tuple(held_ids(world.engine.shard, number, [0])), UnblockAction.SKIP)
        async with world.engine.group_commit.turn:  # nothing is written meanwhile
            unblocking = asyncio.ensure_future(world.engine.unblock("billing", "orders", wanted))
            await let_others_run()
            resetting = asyncio.ensure_future(reset(world, FIRST))
            await let_others_run()
            with pytest.raises(errors.Unavailable):
                await world.engine.unblock("billing", "orders", wanted)
            with pytest.raises(errors.Unavailable):
                await world.engine.skip("billing", "orders", 0, ())
            assert await world.receive() is None
        assert await within(unblocking) == 1, "it was decided before"
        assert (await within(resetting)).unresolved_count == 2
        assert await left(world) == firsts(0, 1)


async def test_reset_of_a_paused_group_shows_when_it_goes_on(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(2)
        assert await left(world) == firsts(0, 1)
        pause = CatalogUpdate(is_paused=True)
        await within(world.engine.update_group("billing", pause, GroupSettings()))
        await reset(world, FIRST)
        assert await left(world) == []
        go_on = CatalogUpdate(is_paused=False)
        await within(world.engine.update_group("billing", go_on, GroupSettings()))
        assert await left(world) == firsts(0, 1)


async def test_reset_below_what_is_retained_names_the_earliest(tmp_path: Path) -> None:
    with small_sizes(2):
        async with EngineWorld(tmp_path) as world:
            dues_ms = await world.publish_steps(5)
            assert await left(world) == firsts(0, 1, 2, 3, 4)
            await within(world.engine.update_topic("orders", CatalogUpdate(retention_ms=2_000)))
            await world.trim()
            for below in (ResetTarget(None, (1,)), ResetTarget(dues_ms[1])):
                with pytest.raises(errors.NotRetained) as raised:
                    await reset(world, below)
                assert raised.value.params["earliest_ms"] == str(dues_ms[2])
            assert await left(world) == []
            await reset(world, ResetTarget(dues_ms[2]))
            assert await left(world) == firsts(2, 3, 4)
            await reset(world, FIRST)
            assert await left(world) == firsts(2, 3, 4)


async def test_reset_is_refused_when_it_cannot_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_steps(1)
        await within(world.engine.put_group("billing", GroupSettings()))
        with pytest.raises(errors.FailedPrecondition, match="does not read"):
            await reset(world, FIRST)
        await left(world)
        with pytest.raises(errors.InvalidArgument, match="future"):
            await reset(world, ResetTarget(world.now_ms + 60_000))
        with pytest.raises(errors.InvalidArgument, match="behind the end"):
            await reset(world, ResetTarget(None, (2,)))
        with pytest.raises(errors.UnknownGroup):
            await within(world.engine.reset_group("nobody", "orders", FIRST, count_only=False))
        monkeypatch.setattr(world.engine.shard.views, "feature_level", RESET_LEVEL - 1)
        with pytest.raises(errors.FeatureLevelTooLow):
            await reset(world, FIRST)
