"""Group commits: what is written together, and what callers are told when a write fails."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.outcomes import CancelOutcome, ReceiptOutcome
from node.broker.group_commit import Durability
from node.broker.settings import EngineConfig
from storage.log.commit_log import LogWrite
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until


class Gate:
    """Holds writes back, or lets them fail, on the thread that writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[int] = []
        """Of each write, from its beginning on."""
        self.durable: list[bool] = []
        self.error: errors.HourwheelError | None = None
        self.open = threading.Event()
        self.open.set()
        real = LogWrite.run

        def run(write: LogWrite, durable: bool) -> None:
            self.batches.append(write.batch_count)
            self.durable.append(durable)
            assert self.open.wait(60)
            if self.error is not None:
                raise self.error
            real(write, durable)

        monkeypatch.setattr(LogWrite, "run", run)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


async def warm(world: EngineWorld) -> None:
    """The topic exists; nothing is left to be written."""
    await world.publish(world.now_ms)
    await within(world.engine.group_commit.drain())


async def test_what_is_proposed_during_a_write_is_written_together(
    tmp_path: Path, gate: Gate
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        gate.open.clear()
        calls = [asyncio.ensure_future(world.publish(world.now_ms))]
        await until(lambda: gate.batches)
        calls += [asyncio.ensure_future(world.publish(world.now_ms)) for _ in range(3)]
        await let_others_run()
        assert gate.batches == [1]
        assert not any(call.done() for call in calls)
        gate.open.set()
        results = await within(asyncio.gather(*calls))
        assert gate.batches == [1, 3]
        assert [one.base_sequence for one in results] == [1, 2, 3, 4]


async def test_single_publishes_share_a_batch_when_they_come_during_a_write(
    tmp_path: Path, gate: Gate
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        gate.open.clear()
        calls = [asyncio.ensure_future(world.publish_single(world.now_ms))]
        await until(lambda: gate.batches)
        calls += [asyncio.ensure_future(world.publish_single(world.now_ms - n)) for n in range(5)]
        await let_others_run()
        gate.open.set()
        answers = await within(asyncio.gather(*calls))
        assert gate.batches == [1, 1]
        assert len({message_id for ((message_id, *_),) in answers}) == 6
        assert [due for ((_, due, *_),) in answers[1:]] == [world.now_ms - n for n in range(5)]


async def test_cancels_and_acks_share_records_when_they_come_during_a_write(
    tmp_path: Path, gate: Gate
) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms + 9_000
        late = await world.publish(*[due_ms] * 3)
        await world.publish(*[world.now_ms] * 3)
        leases = [await world.leased(count=1) for _ in range(3)]
        gone = np.array(
            [(late.shard, late.epoch, late.base_sequence + at, due_ms) for at in range(3)], ID_DTYPE
        )
        gate.batches.clear()
        gate.open.clear()
        first = asyncio.ensure_future(world.publish(world.now_ms))
        await until(lambda: gate.batches)
        cancels = [asyncio.ensure_future(world.engine.cancel(gone[at : at + 1])) for at in range(3)]
        acks = [asyncio.ensure_future(world.ack(world.select(lease))) for lease in leases]
        await let_others_run()
        assert not any(call.done() for call in (*cancels, *acks))
        gate.open.set()
        await within(first)
        outcomes = await within(asyncio.gather(*cancels))
        assert [each.tolist() for each in outcomes] == [[CancelOutcome.CANCELLED]] * 3
        assert await within(asyncio.gather(*acks)) == [[ReceiptOutcome.OK]] * 3
        assert gate.batches == [1, 2]


def expect_many(world: EngineWorld) -> None:
    """As if many callers had shared each of the last writes."""
    small = world.service.publishing.small_calls
    small._usual, small._peak = 30.0, 64.0
    small.on_answered()


async def linger(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch, callers: int
) -> list["asyncio.Task[list[tuple[str, int]]]"]:
    """So many of many callers have sent their next message, and the writer waits for more."""
    monkeypatch.setattr("node.broker.group_commit._LOOK_S", 3_600.0)
    expect_many(world)
    calls = [asyncio.create_task(world.publish_single(world.now_ms)) for _ in range(callers)]
    await until(lambda: world.engine.group_commit.linger.is_waiting)
    await let_others_run()
    assert not any(call.done() for call in calls)
    return calls


async def test_waiting_for_more_ends_when_enough_have_come(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        calls = await linger(world, monkeypatch, 63)
        assert gate.batches == []
        calls.append(asyncio.create_task(world.publish_single(world.now_ms)))
        await within(asyncio.gather(*calls))
        assert gate.batches == [1]


async def test_waiting_for_more_ends_when_the_answered_are_back(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.broker.group_commit._LOOK_S", 3_600.0)
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        gate.open.clear()
        first = asyncio.create_task(world.publish_single(world.now_ms))
        await until(lambda: gate.batches)
        world.service.publishing.small_calls._usual = 30.0
        others = [asyncio.create_task(world.publish_single(world.now_ms)) for _ in range(3)]
        await let_others_run()
        gate.open.set()
        await within(first)
        await until(lambda: world.engine.group_commit.linger.is_waiting)
        assert gate.batches == [1]
        await world.publish_single(world.now_ms)
        await within(asyncio.gather(*others))
        assert gate.batches == [1, 1]


async def test_waiting_for_more_begins_when_answers_have_left(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was answered comes back in that time, and it takes long to answer many."""
    monkeypatch.setattr("node.broker.group_commit._LOOK_S", 3_600.0)
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        expect_many(world)
        commit = world.engine.group_commit
        waited: list[bool] = []

        async def answered() -> None:
            await world.publish(world.now_ms)
            waited.append(commit.linger.is_waiting)

        gate.batches.clear()
        gate.open.clear()
        first = [asyncio.create_task(answered()) for _ in range(3)]
        await until(lambda: gate.batches)
        other = asyncio.create_task(world.publish_single(world.now_ms))
        await let_others_run()
        gate.open.set()
        await within(asyncio.gather(*first))
        assert waited == [False] * 3
        await until(lambda: commit.linger.is_waiting)
        commit.wake()
        await within(other)


@pytest.mark.parametrize(("callers", "first"), [(1, "answer"), (4, "answer"), (6, "turn")])
async def test_few_answers_leave_before_the_rest_of_their_turn(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, callers: int, first: str
) -> None:
    # A slow machine would apply the six in slices, each of few.
    monkeypatch.setattr("node.broker.group_commit.APPLY_SLICE_MS", 60_000.0)
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        order: list[str] = []
        turn = world.engine.turn

        def recorded(touched: Iterable[int]) -> None:
            order.append("turn")
            turn(touched)

        async def call() -> None:
            await world.publish(world.now_ms + 9_000)
            order.append("answer")

        monkeypatch.setattr(world.engine, "turn", recorded)
        batches: list[int] = []
        while batches != [callers]:  # on a busy machine they may come in several commits
            order.clear()
            gate.batches.clear()
            await within(asyncio.gather(*[call() for _ in range(callers)]))
            await until(lambda: "turn" in order)
            batches = list(gate.batches)
            await let_others_run()
        assert order[0] == first
        assert order.count("answer") == callers


async def test_caller_does_not_wait_for_more_when_they_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.broker.group_commit._LOOK_S", 0.0)
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        expect_many(world)
        small = world.service.publishing.small_calls
        assert not small.is_complete
        for _ in range(5):
            await world.publish_single(world.now_ms)
        assert small.is_complete


async def test_waiting_for_more_ends_when_something_else_is_to_be_written(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        calls = await linger(world, monkeypatch, 2)
        await world.publish(world.now_ms)
        await within(asyncio.gather(*calls))
        assert gate.batches == [2]


async def test_waiting_for_more_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        monkeypatch.setattr("node.broker.group_commit._LOOK_S", 0.0)
        expect_many(world)
        assert len(await world.publish_single(world.now_ms)) == 1


async def test_callers_are_told_when_the_disk_is_full_and_it_goes_on_when_it_is_not(
    tmp_path: Path, gate: Gate
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        end = world.engine.shard.log.end_offset
        gate.open.clear()
        gate.error = errors.DiskFull("simulated")
        calls = [asyncio.ensure_future(world.publish(world.now_ms)) for _ in range(2)]
        single = asyncio.ensure_future(world.publish_single(world.now_ms))
        gate.batches.clear()
        await until(lambda: gate.batches)
        gate.open.set()
        for call in (*calls, single):
            with pytest.raises(errors.DiskFull):
                await within(call)
        assert world.guard.read_only_reason
        with pytest.raises(errors.DiskFull):
            await world.publish(world.now_ms)
        assert world.engine.shard.log.end_offset == end
        gate.error = None
        world.guard.check(world.now_ms)
        assert (await world.publish(world.now_ms)).base_sequence == 1
        assert not world.failure.found.done()


async def test_dispatch_is_written_later_when_the_disk_was_full(tmp_path: Path, gate: Gate) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        assert await world.receive() is None
        gate.error = errors.DiskFull("simulated")
        begun = len(gate.batches)
        world.advance(5_000)
        await until(lambda: len(gate.batches) > begun)
        gate.error = None
        assert (await world.leased()).units["sequence"].tolist() == [0]


async def test_node_ends_and_nobody_is_answered_when_a_sync_fails(
    tmp_path: Path, gate: Gate
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.error = errors.FsyncFailed("simulated")
        call = asyncio.ensure_future(world.publish(world.now_ms))
        assert await world.failed() is gate.error
        await let_others_run()
        assert not call.done()
        assert world.engine.is_closing
        call.cancel()
        await asyncio.wait([call])


async def test_node_ends_when_apply_finds_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)

        def apply(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(world.engine.shard.applier, "apply", apply)
        call = asyncio.ensure_future(world.publish(world.now_ms))
        error = await world.failed()
        assert type(error) is errors.Internal
        assert "a bug" in error.message
        call.cancel()
        await asyncio.wait([call])


async def test_node_ends_when_apply_breaks_off_for_someone_who_goes_on(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback of the loop only logs what is raised, and comes again with the next batch."""
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        error, calls = errors.CorruptFile("rotten", file="a.cq"), []

        def apply(*_: object) -> None:
            calls.append(1)
            raise error

        monkeypatch.setattr(world.engine.shard.applier, "apply", apply)
        gate.open.clear()
        call = asyncio.ensure_future(world.publish(world.now_ms))
        await until(lambda: world.engine.shard.log.end_offset > 0 and gate.batches)
        gate.open.set()
        writer = world.engine.group_commit
        await until(world.failure.found.done)
        for _ in range(3):
            writer.apply_soon()
            await let_others_run()
        assert world.failure.found.result() is error
        assert calls == [1]
        call.cancel()
        await asyncio.wait([call])


async def test_caller_that_went_away_does_not_stop_the_others(tmp_path: Path, gate: Gate) -> None:
    async with EngineWorld(tmp_path) as world:
        await warm(world)
        gate.batches.clear()
        gate.open.clear()
        gone = asyncio.ensure_future(world.publish(world.now_ms))
        stays = asyncio.ensure_future(world.publish(world.now_ms))
        await until(lambda: gate.batches)
        gone.cancel()
        gate.open.set()
        assert (await within(stays)).base_sequence == 2


@pytest.mark.parametrize("is_durable", [True, False])
async def test_each_write_is_synced_when_it_is_to_be_durable(
    tmp_path: Path, gate: Gate, is_durable: bool
) -> None:
    config = EngineConfig(durability=Durability(is_durable=is_durable, flush_ms=3_600_000))
    async with EngineWorld(tmp_path, config) as world:
        await world.publish(world.now_ms)
        assert set(gate.durable) == {is_durable}
