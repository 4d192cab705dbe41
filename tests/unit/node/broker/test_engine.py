"""The engine as a whole: from publishing to the acknowledgement, over restarts, into its end."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.formats.record_batch import Kind, RecordBatch, build_publish
from hourwheel.v1.admin_pb2 import MessageState
from hourwheel.v1.broker_pb2 import CancelOutcome
from hourwheel.v1.consumer_pb2 import ReceiptOutcome
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until
from tests.support.log_batches import batches_of

OK = int(ReceiptOutcome.RECEIPT_OUTCOME_OK)


async def test_message_comes_when_it_is_due_and_is_gone_when_acknowledged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms + 5_000
        result = await world.publish(due_ms)
        assert (result.base_sequence, result.count, result.duplicate) == (0, 1, False)
        assert await world.receive() is None
        world.advance(5_000)
        delivery = await world.leased()
        assert delivery.blobs == b"%d" % due_ms
        assert delivery.due_ms.tolist() == [due_ms]
        assert delivery.topic == "orders"
        assert delivery.invisible_until_ms == world.now_ms + 30_000
        assert await world.ack(world.select(delivery)) == [OK]
        world.advance(60_000)
        await let_others_run()
        assert await world.receive() is None
        stats = world.engine.stats
        assert (stats.published, stats.delivered, stats.acknowledged) == (1, 1, 1)
        assert stats.early_deliveries == 0


async def test_message_waits_over_a_restart(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        first = await world.publish(world.now_ms + 5_000, world.now_ms)
        released = await world.leased()
        await world.ack(world.select(released))
        await world.restart()
        assert world.opened.replayed_batches == 0, "closing wrote a checkpoint"
        assert world.mastership.epoch == first.epoch + 1
        world.advance(5_000)
        delivery = await world.leased()
        assert delivery.units["sequence"].tolist() == [0]
        assert delivery.message_epochs == first.epoch
        assert delivery.epoch == first.epoch + 1


async def publish_in_order(world: EngineWorld, due_ms: int) -> MessageId:
    """One message of the only ordering key."""
    batch = RecordBatch(build_publish([due_ms], [b"x"], key_hashes=[7]))
    result = await within(world.engine.publish_batch("orders", batch))
    return MessageId(0, result.epoch, result.base_sequence, due_ms)


async def test_I10_what_fell_due_before_is_released_before_when_the_timer_is_late(  # noqa: N802
    tmp_path: Path,
) -> None:
    """As after a takeover, or where the loop stood still."""
    async with EngineWorld(tmp_path) as world:
        await publish_in_order(world, world.now_ms + 1_000)
        await publish_in_order(world, world.now_ms + 1_100)
        world.now_ms += 2_000  # and the timer does not know
        await publish_in_order(world, world.now_ms)
        assert (await world.leased()).units["sequence"].tolist() == [0, 1, 2]


async def test_node_ends_when_a_publish_finds_a_bug_of_dispatching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:

        def plan(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(world.mastership.dispatcher, "plan", plan)
        await publish_in_order(world, world.now_ms)
        assert "a bug" in (await world.failed()).message


async def test_I10_what_fell_due_before_is_released_before_what_is_moved_to_now(  # noqa: N802
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        later = await publish_in_order(world, world.now_ms + 60_000)
        await publish_in_order(world, world.now_ms + 1_000)
        world.now_ms += 2_000
        ids, times_ms = np.array([tuple(later)], ID_DTYPE), np.array([world.now_ms], np.int64)
        await within(world.engine.reschedule(ids, times_ms, are_delays=False))
        assert (await world.leased()).units["sequence"].tolist() == [1, 0]


async def test_describe_is_refused_when_the_node_is_not_the_master(tmp_path: Path) -> None:
    """Its views may be behind: what it does not know may have been published all the same."""
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms
        result = await world.publish(due_ms)
        message = MessageId(0, result.epoch, 0, due_ms)
        assert world.engine.describe(message).state == MessageState.MESSAGE_STATE_RELEASED
        world.step_down()
        with pytest.raises(errors.NotMaster):
            world.engine.describe(message)
        with pytest.raises(errors.NotMaster):
            await world.engine.is_shown(message)
        with pytest.raises(errors.NotMaster):
            await world.engine.dead_letters(message)


async def test_cancelled_message_never_comes(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms + 5_000
        result = await world.publish(due_ms, due_ms)
        message = MessageId(0, result.epoch, 0, due_ms)
        ids = np.array([tuple(message)], ID_DTYPE)
        outcomes = await within(world.engine.cancel(ids))
        assert outcomes.tolist() == [CancelOutcome.CANCEL_OUTCOME_CANCELLED]
        assert world.engine.stats.cancelled == 1
        state = world.engine.describe(message).state
        assert state == MessageState.MESSAGE_STATE_CANCELLED
        world.advance(5_000)
        delivery = await world.leased()
        assert delivery.units["sequence"].tolist() == [1]
        assert world.engine.status().pending_count == 0


async def test_nothing_is_accepted_when_the_engine_closes(tmp_path: Path) -> None:
    world = EngineWorld(tmp_path)
    await world.open()
    await world.publish(world.now_ms)
    delivery = await world.leased()
    selection = world.select(delivery)
    waiting = asyncio.ensure_future(world.receive(wait_ms=60_000))
    await until(lambda: world.service.receive_service.waiting_count)
    under_way = asyncio.ensure_future(world.publish(world.now_ms))
    await asyncio.sleep(0)
    await within(world.engine.close())
    assert world.engine.is_closing
    assert await within(waiting) is None
    assert (await within(under_way)).base_sequence == 1
    with pytest.raises(errors.ShuttingDown):
        await world.publish(world.now_ms)
    with pytest.raises(errors.ShuttingDown):
        await world.publish_single(world.now_ms)
    with pytest.raises(errors.ShuttingDown):
        await world.receive()
    with pytest.raises(errors.ShuttingDown):
        await world.ack(selection)


async def test_start_fails_with_the_reason_when_the_first_write_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = errors.FsyncFailed("simulated")

    def run(*_: object) -> None:
        raise error

    monkeypatch.setattr("storage.log.commit_log.LogWrite.run", run)
    world = EngineWorld(tmp_path)
    with pytest.raises(errors.FsyncFailed) as caught:
        await world.open()
    assert caught.value is error
    await within(world.engine.close())


async def test_node_ends_when_its_timer_finds_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)

        def plan(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(world.mastership.dispatcher, "plan", plan)
        world.advance(5_000)
        error = await world.failed()
        assert type(error) is errors.Internal
        assert "a bug" in error.message
        with pytest.raises(errors.ShuttingDown):
            await world.publish(world.now_ms)


async def test_node_ends_and_distrusts_its_views_when_one_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await world.restart()
        manifest = tmp_path / "shard-0" / "checkpoint"
        assert manifest.exists()

        def receive(*_: object, **__: object) -> None:
            raise errors.CorruptFile("simulated")

        monkeypatch.setattr(world.mastership.receiver, "receive", receive)
        with pytest.raises(errors.CorruptFile):
            await world.receive()
        assert isinstance(await world.failed(), errors.CorruptFile)
        await let_others_run()
        assert not manifest.exists(), "the next start builds the views from the log"
        await world.restart()
        assert world.opened.rebuilt_because == "no checkpoint"
        assert (await world.leased()).units["sequence"].tolist() == [0]


async def test_dispatches_go_on_when_more_is_due_than_one_may_release(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        limit = world.opened.config.dispatch.units_max
        count = limit // 2 + 1
        for _ in range(4):
            await world.publish(*[world.now_ms + 1_000] * count)
        world.advance(1_000)
        await until(lambda: world.engine.status().released_count == 4 * count)
        kinds = [batch.header.kind for batch in batches_of(world.engine.shard.log)]
        assert kinds.count(Kind.DISPATCH) > 2
        assert world.engine.status().pending_count == 0


async def test_timer_rests_while_no_more_dispatches_may_be_begun(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(*(world.now_ms + 100 * number for number in range(1, 9)))
        async with world.engine.group_commit.turn:  # nothing is written
            while world.mastership.may_dispatch_more:
                before = world.mastership.dispatches_in_flight
                world.advance(100)
                await until(
                    lambda before=before: world.mastership.dispatches_in_flight > before  # type: ignore[misc]
                )
            world.advance(100)
            assert world.service.next_wakeup_ms() is None, "it would ring without end"
        world.advance(400)
        await until(lambda: world.engine.shard.views.cursor.released_count == 8)


async def test_answers_leave_before_the_turn_that_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 60_000)
        await let_others_run()
        turn = world.service.turn

        def note(touched: Iterable[int], now_ms: int) -> None:
            happened.append("turn")
            turn(touched, now_ms)

        async def stream() -> None:
            """As a publish stream and a session do: one task asks, another one writes."""
            batch = RecordBatch(build_publish([world.now_ms + 60_000], [b"x"]))
            asked = asyncio.create_task(world.engine.publish_batch("orders", batch))
            await asked
            happened.append("written")

        monkeypatch.setattr(world.service, "turn", note)
        await within(stream())
        await until(lambda: "turn" in happened)
    assert happened[:2] == ["written", "turn"]
