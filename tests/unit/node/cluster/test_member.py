"""Three members in one process: real disks and streams, a fake control plane, time by hand."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.receipt import Receipt
from node.broker.engine import Engine
from node.contracts.broker import Delivery, Selection
from node.contracts.ending import ACKED, Ending
from node.replica.effects import Role
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until
from tests.support.member_world import LEASE_MS, MemberNode, MemberWorld


def selection(node: MemberNode, delivery: Delivery) -> Selection:
    count = len(delivery.units)
    receipt = Receipt(
        node.shard.cluster,
        delivery.epoch,
        delivery.group_id,
        delivery.topic_queue,
        delivery.lease_id,
        delivery.first_position,
        0,
        count,
    )
    return Selection(receipt, 0, count)


async def settled(call: "asyncio.Future[Any]") -> bool:
    """Whether a call has an answer, or is about to have one."""
    await let_others_run()
    return call.done()


def durable_on(world: MemberWorld, offset: int) -> list[str]:
    return [
        name for name, node in world.nodes.items() if node.shard.log.flushed_end_offset >= offset
    ]


# -- serving ---------------------------------------------------------------------------------------


async def test_named_master_serves_and_the_others_apply_the_same(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        published = await n1.publish(100, 200)
        assert (published.epoch, published.base_sequence, published.count) == (1, 0, 2)
        await n1.receive()
        await world.pass_ms(300)
        assert await n1.bodies(2) == b"100200"
        await world.agreed()
        assert n1.replica.stats.takeovers == 1
        assert n1.replica.stats.heartbeats_sent > 0
        assert world["n2"].replica.stats.heartbeats_received > 0


async def test_dead_node_leaves_the_in_sync_set_in_the_turn_in_which_an_epoch_begins(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        await world["n3"].close()
        world.control.dead.add("n3")
        world.control.elect("n2")
        await let_others_run()
        assert world.control.in_sync == {"n1", "n2"}
        await world.serving("n2")


async def test_nobody_serves_before_a_master_is_named(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        for node in world.nodes.values():
            assert not node.serves
            with pytest.raises(errors.NotMaster) as refused:
                await node.publish(1)
            assert refused.value.master_address == ""


Call = Callable[[Engine, list[Selection]], Any]


@pytest.mark.parametrize(
    "call",
    [
        lambda engine, _: engine.create_topic("invoices", 1),
        lambda engine, _: engine.delete_topic("orders"),
        lambda engine, _: engine.delete_group("billing"),
        lambda engine, _: engine.cancel(np.zeros(1, ID_DTYPE)),
        lambda engine, some: engine.resolve("billing", some, ACKED),
        lambda engine, some: engine.resolve("billing", some, Ending(retry_delay_ms=5)),
    ],
)
async def test_follower_refuses_and_names_the_master(tmp_path: Path, call: Call) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        await n1.publish(0)
        delivery = await n1.receive(wait_ms=60_000)
        assert delivery is not None
        await world.agreed()
        with pytest.raises(errors.NotMaster) as refused:
            await call(n2.engine, [selection(n1, delivery)])
        assert refused.value.master_address == "n1.example:7400"
        assert refused.value.epoch == 1
        for at_once in (n2.publish(1), n2.receive()):
            with pytest.raises(errors.NotMaster):
                await at_once
        with pytest.raises(errors.NotMaster):
            n2.engine.change_invisible("billing", [selection(n1, delivery)], 1_000)
        assert n2.shard.log.end_offset == n1.shard.log.end_offset


# -- what is acknowledged --------------------------------------------------------------------------


async def test_publish_waits_while_a_member_of_the_in_sync_set_does_not_write(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        async with world["n2"].engine.group_commit.turn:
            call = asyncio.ensure_future(n1.publish(100_000))
            end = n1.shard.log.end_offset
            await until(lambda: n1.shard.log.end_offset > end)
            await until(lambda: len(durable_on(world, n1.shard.log.end_offset)) == 2)
            assert not await settled(call)
        assert (await call).base_sequence == 1
        assert durable_on(world, n1.shard.log.end_offset) == ["n1", "n2", "n3"]


async def test_publish_goes_on_with_two_copies_when_the_third_lags(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        async with world["n2"].engine.group_commit.turn:
            call = asyncio.ensure_future(n1.publish(100_000))
            await until(lambda: len(durable_on(world, n1.shard.log.end_offset)) == 2)
            await world.pass_ms(2_000)
            await until(lambda: world.control.in_sync == {"n1", "n3"})
            assert (await within(call)).base_sequence == 1
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.agreed()


async def test_nothing_is_acknowledged_with_one_copy(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        n2, n3 = world["n2"], world["n3"]
        async with n2.engine.group_commit.turn:
            async with n3.engine.group_commit.turn:
                call = asyncio.ensure_future(n1.publish(100_000))
                await until(lambda: durable_on(world, n1.shard.log.end_offset) == ["n1"])
                await world.pass_ms(2_000)
                assert not await settled(call)
                assert len(world.control.in_sync) >= 2
                assert n1.shard.uncommitted_bytes > 0
            await world.pass_ms(100)
            assert (await within(call)).base_sequence == 1


async def test_what_waits_is_answered_with_timeout_when_the_master_is_deposed(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        async with world["n2"].engine.group_commit.turn:
            call = asyncio.ensure_future(n1.publish(100_000))
            await until(lambda: n1.shard.uncommitted_bytes > 0)
            world.control.elect("n3")
            with pytest.raises(errors.Timeout, match="unknown"):
                await within(call)
        n3 = await world.serving("n3")
        await n3.publish(100_000)
        await world.agreed()


# -- another master --------------------------------------------------------------------------------


async def test_hand_over_is_at_once_and_names_the_new_master(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100, 200)
        await n1.receive()
        await world.agreed()
        await world.elect("n2")  # time stands still: its promise was released, not waited for
        assert not n1.serves
        with pytest.raises(errors.NotMaster) as refused:
            await n1.publish(1)
        assert refused.value.master_address == "n2.example:7400"
        assert refused.value.epoch == 2
        n2 = world["n2"]
        assert (await n2.publish(300)).base_sequence == 2
        await world.pass_ms(400)
        assert await n2.bodies(3) == b"100200300"
        await world.agreed()


async def test_long_polls_are_told_when_the_master_retires(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        await n1.receive()
        poll = asyncio.ensure_future(n1.receive(wait_ms=60_000))
        await until(lambda: n1.service.receive_service.waiting_count)
        world.control.elect("n2")
        with pytest.raises(errors.NotMaster) as refused:
            await within(poll)
        assert refused.value.master_address == "n2.example:7400"
        await world.serving("n2")


async def test_successor_waits_for_the_promise_when_the_master_dies(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        world.control.members.pop("n1")
        await n1.cut()
        n1.member._timer.cancel()  # type: ignore[union-attr]
        for stream in n1.member._streams.values():
            stream._task.cancel()
        await until(lambda: world["n2"].replica.follower.phase.value == "none")
        world.control.elect("n2")
        await until(lambda: world["n2"].replica.is_elected)
        await let_others_run()
        assert world.role("n2") is Role.FOLLOWER
        world.jump_ms(LEASE_MS)
        await world.serving("n2")
        assert world["n2"].replica.stats.takeover_ms == LEASE_MS
        assert (await world["n2"].publish(100_000)).base_sequence == 1


async def test_poll_waits_at_a_node_that_takes_over(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(0)
        for node in ("n1", "n3"):
            await world[node].cut()
        world.control.elect("n2")
        n2 = world["n2"]
        await until(lambda: n2.member.is_taking_over)
        poll = asyncio.ensure_future(n2.receive(wait_ms=60_000))
        assert not await settled(poll), "a node that takes over sends nobody on"
        for node in ("n1", "n3"):
            await world[node].listen()
        await world.pass_ms(LEASE_MS)
        delivery = await within(poll)
        assert delivery is not None
        assert len(delivery.units) == 1
        assert not n2.member.is_taking_over


async def test_overdue_messages_are_released_at_once_by_a_new_master(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(*range(5_000, 5_400))
        await n1.receive()
        await world.agreed()
        world.jump_ms(10_000)  # nobody's lease outlives that
        assert not n1.serves
        n2 = await world.elect("n2")
        assert len(await n2.bodies(400)) == 1_600
        await until(lambda: n2.shard.views.cursor.released_count == 400)
        await until(lambda: n2.replica.stats.catch_up_released == 400)
        assert n1.replica.stats.catch_up_released == 0


# -- the lease -------------------------------------------------------------------------------------


async def test_master_does_nothing_without_its_lease_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(200)
        await n1.receive()
        await world.agreed()
        for silent in ("n2", "n3"):
            await world[silent].cut()
        await until(lambda: not world.connected())
        assert n1.serves  # until the lease is over
        world.jump_ms(LEASE_MS)
        assert not n1.serves
        await let_others_run()
        released = n1.shard.views.cursor.released_count
        for call in (n1.publish(1), n1.receive()):
            with pytest.raises(errors.NotMaster, match="no node is the master"):
                await call
        assert n1.mastership.dispatches_in_flight == 0
        assert n1.shard.views.cursor.released_count == released == 0
        for silent in ("n2", "n3"):
            await world[silent].listen()
        await world.serving("n1")
        assert await n1.bodies(1) == b"200"
        assert n1.replica.stats.takeovers == 1


async def test_callers_are_told_when_the_lease_does_not_come_back(tmp_path: Path) -> None:
    """They could wait for ever: nothing is committed, and the node hears of no other epoch."""
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        await n1.receive()
        await world.agreed()
        for silent in ("n2", "n3"):
            await world[silent].cut()
        await until(lambda: not world.connected())
        poll = asyncio.ensure_future(n1.receive(wait_ms=60_000))
        publish = asyncio.ensure_future(n1.publish(100_000))
        await until(lambda: n1.shard.uncommitted_bytes and n1.service.receive_service.waiting_count)
        world.jump_ms(LEASE_MS + 900)
        await let_others_run()
        assert not poll.done()
        assert not publish.done()
        world.jump_ms(100)
        with pytest.raises(errors.NotMaster):
            await within(poll)
        with pytest.raises(errors.Timeout, match="unknown"):
            await within(publish)
        await until(lambda: world.control.reports["n1"].has_retired)
        for silent in ("n2", "n3"):
            await world[silent].listen()
        assert (await (await world.elect("n1")).publish(1)).base_sequence == 2
        await world.agreed()


async def test_answer_is_not_given_when_the_lease_ran_out_meanwhile(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        async with world["n2"].engine.group_commit.turn:
            call = asyncio.ensure_future(n1.publish(100_000))
            await until(lambda: n1.shard.uncommitted_bytes > 0)
            n1.mastership.act_until_ms = float("-inf")  # until the next acknowledgement but one
            n1.member._refresh = lambda: None  # type: ignore[method-assign]
        with pytest.raises(errors.Timeout, match="unknown"):
            await within(call)
        del n1.member._refresh
        await world.serving("n1")


async def test_old_master_does_nothing_when_it_wakes_up_behind_a_new_one(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(500)
        await world.agreed()
        deaf = frozenset({"n1"})
        n1.member._timer.cancel()  # type: ignore[union-attr]
        world.jump_ms(LEASE_MS)
        world.control.elect("n2", deaf=deaf)
        n2 = await world.serving("n2")
        with pytest.raises(errors.NotMaster):
            await n1.publish(1)
        await n2.publish(600)
        n1.member._tick()  # it hears of the new epoch by the streams alone
        await until(lambda: world.role("n1") is Role.FOLLOWER)
        await world.agreed()


# -- reports ---------------------------------------------------------------------------------------


async def test_report_says_how_the_shard_stands(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        end = n1.shard.log.end_offset

        def said(node: str) -> tuple[int, int, int, bool]:
            report = world.control.reports[node]
            return report.epoch, report.last_epoch, report.log_end, report.is_ready

        await until(lambda: all(said(node) == (1, 1, end, True) for node in world.nodes))
        n1.member.transfer_mastership("n3")
        assert world.control.reports["n1"].hand_over_to == "n3"
        assert not world.control.reports["n1"].is_resigning
        n1.member.transfer_mastership("")
        assert world.control.reports["n1"].is_resigning
        await world.elect("n3")
        await until(lambda: not world.control.reports["n1"].is_resigning)


async def test_epoch_of_a_former_life_is_not_taken_up(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(100_000)
        await n1.close()
        world.control.boots["n1"] = bytes(16)
        await n1.open()
        n1.member.on_state(world.control.state)  # names the incarnation that has ended
        await let_others_run()
        assert not n1.replica.is_elected
        assert world.role("n1") is Role.FOLLOWER
        world.jump_ms(LEASE_MS)
        await world.elect("n2")
        await world.agreed()
