"""Commands that come together share an entry of the control state, and each has its own answer."""

import asyncio

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.catalog import command_batches
from node.catalog.command_batches import CommandBatches
from replication.control_state.commands import BATCH_COUNT_MAX
from tests.support.catalog_control import ControlInMemory
from tests.support.engine_world import let_others_run, within


def put(name: str) -> wire.ControlCommand:
    return wire.ControlCommand(put_group=wire.PutObjectCommand(name=name))


class Control(ControlInMemory):
    """One that answers when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None
        self.proposed: list[int] = []
        """Commands in each entry."""

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        self.proposed.append(len(command.batch.commands) or 1)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return await super().propose(command)


def begin(batches: CommandBatches, *names: str) -> list["asyncio.Task[wire.ControlResult]"]:
    return [asyncio.create_task(batches.propose(put(name))) for name in names]


async def test_what_comes_while_a_batch_is_on_its_way_goes_together() -> None:
    control = Control()
    batches = CommandBatches(control)
    control.open.clear()
    calls = begin(batches, "a")
    await let_others_run()
    calls += begin(batches, *(f"g{number}" for number in range(BATCH_COUNT_MAX + 2)))
    await let_others_run()
    calls[5].cancel()  # its caller has gone
    control.open.set()
    done = await within(asyncio.gather(*calls, return_exceptions=True))
    assert control.proposed == [1, BATCH_COUNT_MAX - 1, 2]
    assert isinstance(done.pop(5), asyncio.CancelledError)
    assert {one.outcome for one in done} == {wire.CONTROL_OUTCOME_OK}
    assert len(control.groups) == len(done)


async def test_batch_has_no_more_than_an_entry_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_batches, "BATCH_BYTES", 100)
    control = Control()
    await within(asyncio.gather(*begin(CommandBatches(control), *(c * 40 for c in "abcd"))))
    assert control.proposed[0] < 4
    assert sum(control.proposed) == 4


@pytest.mark.parametrize("count", [1, 3])
async def test_an_error_is_for_all_that_went_together_and_a_bug_for_all_that_wait(
    count: int,
) -> None:
    control = Control()
    batches = CommandBatches(control)
    names = [f"g{number}" for number in range(count)]
    control.failure = errors.Timeout("there is no leader")
    calls = await within(asyncio.gather(*begin(batches, *names), return_exceptions=True))
    assert {type(one) for one in calls} == {errors.Timeout}
    control.failure = ZeroDivisionError()
    calls = await within(asyncio.gather(*begin(batches, *names), return_exceptions=True))
    assert {type(one) for one in calls} == {errors.Internal}
    control.failure = None
    await within(asyncio.gather(*begin(batches, *names)))  # and the next ones go


async def test_batch_that_is_refused_as_a_whole_is_refused_for_each() -> None:
    class Refusing(Control):
        async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
            return wire.ControlResult(outcome=wire.CONTROL_OUTCOME_REFUSED, reason="older rules")

    results = await within(asyncio.gather(*begin(CommandBatches(Refusing()), "a", "b")))
    assert [one.reason for one in results] == ["older rules"] * 2


async def test_no_more_wait_than_may_and_who_waits_at_the_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_batches, "WAITING_MAX", 2)
    control = Control()
    batches = CommandBatches(control)
    control.open.clear()
    begun = begin(batches, "a")
    await let_others_run()
    waiting = begin(batches, "b", "c")
    await let_others_run()
    with pytest.raises(errors.Overloaded):
        await batches.propose(put("d"))
    waiting[0].cancel()
    await let_others_run()
    batches.close(errors.NotMaster("it is over"))
    with pytest.raises(errors.NotMaster):
        await waiting[1]
    control.open.set()
    await within(begun[0])  # what is on its way comes to its end
