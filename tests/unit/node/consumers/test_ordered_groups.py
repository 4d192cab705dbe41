"""Ordered groups on a real engine: what one consumer has, the others of its key wait for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import topic_queue
from node.catalog.positions import held_ids
from node.contracts.broker import Delivery, GroupSettings
from node.contracts.dead_letters import DeadLetterQuery
from node.contracts.ending import Ending
from node.contracts.group_positions import UnblockAction, Unblocking
from node.delivery import ordered
from node.shard.views import ORDER_LEVEL
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until


async def make(world: EngineWorld, order: GroupOrder, attempts_max: int = 2) -> None:
    """An ordered group."""
    settings = GroupSettings(attempts_max=attempts_max, retry_delay_ms=500, order=order)
    await within(world.engine.put_group("billing", settings))


async def publish(world: EngineWorld, *keys: str) -> None:
    """A message for each key, due at once; its body says which one it is."""
    metas = [encode(MessageMeta(ordering_key=key)) for key in keys]
    bodies = [b"%s%d" % (key.encode(), number) for number, key in enumerate(keys)]
    raw = build_publish(
        [world.now_ms] * len(keys),
        bodies,
        metas=[meta.raw for meta in metas],
        key_hashes=[meta.key_hash for meta in metas],
    )
    await within(world.engine.publish_batch("orders", RecordBatch(raw)))


async def drained(world: EngineWorld) -> None:
    """All that was proposed is applied, and was answered."""
    await within(world.engine.group_commit.drain())
    await let_others_run()


def failures(world: EngineWorld) -> list[int]:
    """How often each message failed that keeps its place, by the log."""
    views = world.engine.shard.views
    number = topic_queue(views.catalog.get_topic("orders").topic_id, 0)
    held = views.acks.get(views.catalog.get_group("billing").group_id, number).held
    return [one.failure_count for _, one in sorted(held.items())]


def first_id(world: EngineWorld) -> MessageId:
    """Of the first message."""
    number = topic_queue(world.engine.shard.views.catalog.get_topic("orders").topic_id, 0)
    return held_ids(world.engine.shard, number, [0])[0]


def bodies(delivery: Delivery | None) -> list[str]:
    """Of what was delivered."""
    found, at = list[str](), 0
    for unit in delivery.units if delivery is not None else ():
        at += int(unit["meta_len"])
        found.append(delivery.blobs[at : at + int(unit["body_len"])].decode())  # type: ignore[union-attr]
        at += int(unit["body_len"])
    return found


async def test_next_of_a_key_comes_to_whoever_waits_when_the_first_is_acknowledged(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await publish(world, "a", "a", "b", "")
        first = await world.leased()
        assert bodies(first) == ["a0", "b2", "3"]
        waiting = world.leased()
        assert await world.ack(world.select(first, 0, 1)) == [ReceiptOutcome.OK]
        assert bodies(await waiting) == ["a1"]


async def test_a_message_given_back_alone_is_fenced_and_comes_again_by_itself(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "b", "a")
        first = await world.leased()
        one = world.select(first, 0, 1)
        assert await world.nack(one) == [ReceiptOutcome.OK]
        assert await world.ack(one) == [ReceiptOutcome.STALE], "its lease holds it no more"
        assert await world.receive() is None
        waiting = world.leased()
        world.advance(499)
        await let_others_run()
        world.advance(1)
        again = await waiting
        assert (bodies(again), again.units["attempt"].tolist()) == (["a0"], [2])
        assert await world.ack(world.select(first, 1, 1)) == [ReceiptOutcome.OK], "the other lasts"


async def test_a_failure_counts_once_when_the_lease_ends_while_the_nack_is_on_its_way(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a")
        first = await world.leased(invisible_ms=1_000)
        async with world.engine.group_commit.turn:  # nothing is written meanwhile
            nack = asyncio.ensure_future(world.nack(world.select(first), delay_ms=0))
            await let_others_run()
            world.advance(1_000)
            await let_others_run()
            assert await world.receive() is None
        assert await nack == [ReceiptOutcome.OK]
        again = await world.leased()
        await drained(world)
        assert again.units["attempt"].tolist() == [2]
        assert await world.ack(world.select(again)) == [ReceiptOutcome.OK]


async def test_a_failure_counts_once_when_the_end_of_a_lease_is_long_on_its_way(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a")
        await world.leased(invisible_ms=1_000)
        async with world.engine.group_commit.turn:
            world.advance(1_000)
            await until(lambda: world.engine.stats.lease_expirations == 1)
            for _ in range(4):
                world.advance(1_000)
                await let_others_run()
        await drained(world)
        again = await world.leased()
        assert again.units["attempt"].tolist() == [2]
        assert await world.ack(world.select(again)) == [ReceiptOutcome.OK]


async def test_a_failure_counts_once_when_the_nack_comes_twice(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a")
        first = await world.leased()
        one = world.select(first)
        async with world.engine.group_commit.turn:
            nacks = [asyncio.ensure_future(world.nack(one, one, delay_ms=0)) for _ in range(2)]
            await let_others_run()
            late = asyncio.ensure_future(world.ack(one))
            await let_others_run()
        ok, stale = ReceiptOutcome.OK, ReceiptOutcome.STALE
        assert [await nack for nack in nacks] == [[ok, stale], [stale, stale]]
        assert await late == [stale]
        again = await world.leased()
        assert again.units["attempt"].tolist() == [2]


async def test_a_lease_lasts_when_there_was_no_room_for_what_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "b", "c")
        first = await world.leased(invisible_ms=2_000)
        mastership = world.mastership
        resolve = mastership.resolve

        def full(rows: Any, now_ms: int, token: Any) -> None:
            token.answer(None, errors.DiskFull("no room"))

        monkeypatch.setattr(mastership, "resolve", full)
        with pytest.raises(errors.DiskFull):
            await world.nack(world.select(first), delay_ms=0)
        monkeypatch.setattr(mastership, "resolve", resolve)
        assert await world.nack(world.select(first, 0, 1)) == [ReceiptOutcome.OK]
        assert await world.ack(world.select(first, 1, 1)) == [ReceiptOutcome.OK]
        world.advance(2_000)
        await until(lambda: failures(world) == [1, 1])
        world.advance(500)
        again = await world.leased()
        assert bodies(again) == ["a0", "c2"]
        assert again.units["attempt"].tolist() == [2, 2]


async def test_a_nack_that_the_node_may_not_take_now_changes_nothing(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a")
        first = await world.leased()
        world.monotonic_ms = float("inf")  # no mastership lasts for so long
        with pytest.raises(errors.NotMaster):
            await within(
                world.service.resolve("billing", [world.select(first)], Ending(retry_delay_ms=0))
            )
        world.monotonic_ms = 0.0
        assert await world.ack(world.select(first)) == [ReceiptOutcome.OK]


@pytest.mark.parametrize("turns", [1, 100], ids=["while it is read", "with records on their way"])
async def test_a_failure_counts_once_when_who_gave_back_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr("node.consumers.ack_service.SELECTIONS_AT_ONCE", 1)
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "b")
        first = await world.leased(invisible_ms=1_000)
        chosen = world.select(first, 0, 1), world.select(first, 1, 1)
        async with world.engine.group_commit.turn:
            nack = asyncio.ensure_future(world.nack(*chosen, delay_ms=0))
            for _ in range(turns):
                await asyncio.sleep(0)
            nack.cancel()
            await let_others_run()
            world.advance(1_000)
            await let_others_run()
        await until(lambda: len(failures(world)) == 2)
        await drained(world)
        world.advance(500)
        again = await world.leased()
        assert again.units["attempt"].tolist() == [2, 2]
        assert await world.ack(world.select(again)) == [ReceiptOutcome.OK]


@pytest.mark.parametrize("is_nack", [True, False])
async def test_what_was_given_back_comes_again_when_lines_are_begun_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_nack: bool
) -> None:
    """More has changed than is noted: so the turn that finds it given back begins the lines."""
    monkeypatch.setattr("storage.queues.ack_state.CHANGES_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "b", "c")
        first = await world.leased(invisible_ms=1_000)
        waiting = asyncio.ensure_future(world.leased())
        await until(lambda: world.service.receive_service.waiting_count == 1)
        if is_nack:
            assert await world.nack(world.select(first)) == [ReceiptOutcome.OK]
        else:
            world.advance(1_000)
            await until(lambda: failures(world) == [1, 1, 1])
        await drained(world)
        world.advance(500)
        assert bodies(await waiting) == ["a0", "b1", "c2"]


async def test_leases_of_a_former_mastership_are_over(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await publish(world, "a", "a")
        former = await world.leased()
        await world.restart()
        again = await world.leased()
        assert bodies(former) == bodies(again) == ["a0"]
        assert await world.ack(world.select(former)) == [ReceiptOutcome.STALE]


async def test_a_blocked_key_waits_for_an_operator(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=1)
        await publish(world, "a", "a", "b")
        first = await world.leased()
        await world.nack(world.select(first, 0, 1))
        await world.restart()
        world.advance(1_000_000)
        assert bodies(await world.leased()) == ["b2"]
        (lag,) = world.group().lags
        assert lag.blocked_count == len(lag.blocked_ids) == 1
        for action, following in (
            (UnblockAction.RETRY, ["a0"]),
            (UnblockAction.DEAD_LETTER, ["a1"]),
        ):
            wanted = Unblocking(lag.blocked_ids, action)
            assert await within(world.engine.unblock("billing", "orders", wanted)) == 1
            next_one = await world.leased()
            assert bodies(next_one) == following
            await world.nack(world.select(next_one))
        page = await within(
            world.engine.list_dead_letters(
                DeadLetterQuery("billing"), b"", count_max=9, with_bodies=True
            )
        )
        assert [(one.body, one.attempts) for one in page.messages] == [(b"a0", 1)]


@pytest.mark.parametrize("is_known", [True, False], ids=["lines known", "after a takeover"])
@pytest.mark.parametrize("action", UnblockAction)
async def test_nobody_gets_what_an_operator_decides_while_that_is_on_its_way(
    tmp_path: Path, action: UnblockAction, is_known: bool
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "b", "a")
        first = await world.leased()
        await world.nack(world.select(first, 0, 1))
        await world.ack(world.select(first, 1, 1))
        if not is_known:
            await world.restart()
        wanted = Unblocking((first_id(world),), action)
        async with world.engine.group_commit.turn:  # nothing is written meanwhile
            unblocked = asyncio.ensure_future(world.engine.unblock("billing", "orders", wanted))
            await let_others_run()
            again = asyncio.ensure_future(world.engine.unblock("billing", "orders", wanted))
            world.advance(500)  # it would come again by itself now
            await let_others_run()
            assert await world.receive() is None
        assert (await within(unblocked), await within(again)) == (1, 0)
        await drained(world)
        next_one = await world.leased()
        assert bodies(next_one) == (["a0"] if action == UnblockAction.RETRY else ["a2"])
        assert await world.receive() is None
        assert await world.ack(world.select(next_one)) == [ReceiptOutcome.OK]


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "caller gone"])
async def test_what_an_operator_decides_comes_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK, attempts_max=9)
        await publish(world, "a", "a")
        first = await world.leased()
        await world.nack(world.select(first))
        wanted = Unblocking((first_id(world),), UnblockAction.RETRY)
        if is_refused:

            def full(rows: Any, now_ms: int, token: Any) -> None:
                token.answer(None, errors.DiskFull("no room"))

            with monkeypatch.context() as patched:
                patched.setattr(world.mastership, "resolve", full)
                with pytest.raises(errors.DiskFull):
                    await within(world.engine.unblock("billing", "orders", wanted))
            assert await world.receive() is None
            world.advance(500)
        else:
            async with world.engine.group_commit.turn:
                call = asyncio.ensure_future(world.engine.unblock("billing", "orders", wanted))
                await let_others_run()
                call.cancel()
                world.advance(500)
                await let_others_run()
                assert await world.receive() is None, "it is still on its way"
        await drained(world)
        assert bodies(await world.leased()) == ["a0"]
        assert await world.receive() is None


async def test_a_dead_letter_that_comes_again_waits_for_its_key(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.DEAD_LETTER)
        await publish(world, "a", "a")
        for _ in range(2):
            await world.nack(world.select(await world.leased()), delay_ms=0)
        second = await world.leased()
        assert bodies(second) == ["a1"]
        letters = await within(
            world.engine.list_dead_letters(
                DeadLetterQuery("billing"), b"", count_max=9, with_bodies=False
            )
        )
        assert [one.attempts for one in letters.messages] == [2]
        assert (await within(world.engine.redrive(DeadLetterQuery("billing"), b""))).redriven_count
        assert await world.receive() is None, "the second one is leased"
        await world.ack(world.select(second))
        assert bodies(await world.leased()) == ["a0"]


async def test_a_key_of_which_a_dead_letter_is_leased_again_holds_up_no_other(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.DEAD_LETTER, attempts_max=1)
        await publish(world, *["a"] * 1_100, "b")  # further away than one look
        await world.nack(world.select(await world.leased(count=1)), delay_ms=0)
        assert (await within(world.engine.redrive(DeadLetterQuery("billing"), b""))).redriven_count
        assert bodies(await world.leased(count=1)) == ["a0"], "the dead letter"
        assert bodies(await world.receive(count=1)) == ["b1100"]
        assert await world.receive(count=1) is None


async def test_whether_a_group_is_ordered_is_settled_before_it_reads(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        ordered_one = GroupSettings(order=GroupOrder.BLOCK)
        with pytest.raises(errors.FailedPrecondition, match="reads a topic already"):
            await within(world.engine.put_group("billing", ordered_one))
        await within(world.engine.put_group("other", ordered_one))
        await world.receive(group="other")
        changed = GroupSettings(order=GroupOrder.DEAD_LETTER)
        assert (await within(world.engine.put_group("other", changed))).order == changed.order
        with pytest.raises(errors.InvalidArgument, match="cluster's own topics"):
            await world.receive(group="other", topic="%DLQ%billing")
        wanted = Unblocking((), UnblockAction.SKIP)
        with pytest.raises(errors.FailedPrecondition, match="not ordered"):
            await within(world.engine.unblock("billing", "orders", wanted))
        world.engine.shard.views.feature_level = ORDER_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await within(world.engine.put_group("third", ordered_one))


async def test_a_group_looks_ahead_so_far_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "LOOK_AHEAD", 3)
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await publish(world, "a", "a", "a", "b", "c")
        first = await world.leased()
        assert bodies(first) == ["a0"]
        assert await world.receive() is None
        await world.ack(world.select(first))
        assert sorted(bodies(await world.leased())) == ["a1", "b3"]


def flip(world: EngineWorld, root: Path, text: bytes) -> None:
    """Change a bit of what is there once in the log; a second time puts it right."""
    segment = root / world.engine.shard.log.segments()[0].path
    raw = bytearray(segment.read_bytes())
    raw[raw.index(text) + len(text)] ^= 1
    segment.write_bytes(raw)


async def test_damage_holds_up_what_stands_behind_it_until_it_can_be_read(tmp_path: Path) -> None:
    """Nobody can tell which key it has."""
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await publish(world, "a", "damaged", "c")
        flip(world, tmp_path, b"damage")
        assert bodies(await world.leased()) == ["a0"]
        assert await world.receive() is None
        lag = world.engine.group("billing", 0, 9).lags[0]
        assert (lag.unresolved_count, lag.leased_count, lag.damaged_count) == (3, 1, 1)
        flip(world, tmp_path, b"damage")
        await world.restart()
        assert bodies(await world.leased()) == ["a0", "damaged1", "c2"]


async def test_damage_of_what_was_looked_at_before_holds_up_its_key_alone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await publish(world, "a", "damaged", "damaged", "c")
        assert bodies(await world.leased(count=1)) == ["a0"]
        raw = (tmp_path / world.engine.shard.log.segments()[0].path).read_bytes()
        flip(world, tmp_path, raw[raw.index(b"damaged1") :][:7])
        assert bodies(await world.leased()) == ["c3"]
        assert await world.receive() is None


async def test_what_a_group_does_not_want_holds_up_no_key(tmp_path: Path) -> None:
    """Also where the log does not say yet that it was filtered, and the filter changes."""
    async with EngineWorld(tmp_path) as world:
        await make(world, GroupOrder.BLOCK)
        await world.publish(world.now_ms - 1)
        await world.put_subscription("x")
        metas = [encode(MessageMeta((tag,), ordering_key="a")) for tag in "xyxzx"]
        raw = build_publish(
            [world.now_ms] * 5,
            [b"%d" % number for number in range(5)],
            metas=[meta.raw for meta in metas],
            key_hashes=[meta.key_hash for meta in metas],
        )
        await within(world.engine.publish_batch("orders", RecordBatch(raw)))
        first = await world.leased()
        assert bodies(first) == ["0"]
        await world.put_subscription("x || z")
        waiting = world.leased()
        assert await world.ack(world.select(first)) == [ReceiptOutcome.OK]
        second = await waiting
        assert bodies(second) == ["2"], "what was filtered before is so for good"
        assert await world.ack(world.select(second)) == [ReceiptOutcome.OK]
        third = await world.leased()
        assert bodies(third) == ["4"], "as is what was looked at beyond it"
