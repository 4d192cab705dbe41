"""Counts and cancels that take longer than one request."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.pending import PendingCancelled, PendingCount
from hourwheel.filter_language.text import FilterExpression
from node.console.operations import KEPT_COUNT_MAX, RUNNING_COUNT_MAX, Operations, Query

QUERY = Query("orders", FilterExpression.tags("a"), 5, 9)


class FakeAdmin:
    """Counts 7; cancels them in two steps, the second when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.may_go_on = asyncio.Event()
        self.error: errors.HourwheelError | None = None

    async def count_pending(
        self, topic: str, wanted: object, *, from_ms: int, to_ms: int
    ) -> PendingCount:
        self.asked.append((topic, wanted, from_ms, to_ms))
        if self.error is not None:
            raise self.error
        return PendingCount(7, 8, 1)

    async def cancel_pending(
        self,
        topic: str,
        wanted: object,
        *,
        from_ms: int,
        to_ms: int,
        on_progress: Callable[[PendingCancelled], None],
    ) -> PendingCancelled:
        self.asked.append((topic, wanted, from_ms, to_ms))
        on_progress(PendingCancelled(3, 0, 4, 0))
        await self.may_go_on.wait()
        return PendingCancelled(6, 1, 8, 1)


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def operations(admin: FakeAdmin) -> Operations:
    return Operations(cast(AsyncAdmin, admin))


async def run_on() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def counted(operations: Operations) -> dict[str, Any]:
    begun = operations.start_count(QUERY)
    assert begun["state"] == "running"
    await run_on()
    return operations.read(begun["number"])


async def test_cancel_is_of_what_was_counted_and_tells_how_it_goes(
    operations: Operations, admin: FakeAdmin
) -> None:
    count = await counted(operations)
    assert (count["state"], count["result"]["matched_count"]) == ("done", 7)
    number = operations.start_cancel(count["number"])["number"]
    await run_on()
    assert operations.read(number)["result"]["cancelled_count"] == 3
    admin.may_go_on.set()
    await run_on()
    done = operations.read(number)
    assert (done["state"], done["result"]["cancelled_count"]) == ("done", 6)
    assert done["result"]["already_released_count"] == 1
    assert admin.asked == [("orders", QUERY.filter, 5, 9)] * 2


async def test_cancel_is_refused_when_nothing_was_counted_to_its_end(
    operations: Operations, admin: FakeAdmin
) -> None:
    with pytest.raises(errors.FailedPrecondition):
        operations.start_cancel(1)
    running = operations.start_count(QUERY)["number"]
    with pytest.raises(errors.FailedPrecondition):
        operations.start_cancel(running)
    await run_on()
    cancel = operations.start_cancel(running)["number"]
    for number in (running, cancel):  # once, and only for a count
        with pytest.raises(errors.FailedPrecondition):
            operations.start_cancel(number)
    admin.error = errors.UnknownTopic("gone")
    failed = await counted(operations)
    assert (failed["state"], failed["error"]) == ("failed", "gone")
    with pytest.raises(errors.FailedPrecondition):
        operations.start_cancel(failed["number"])
    await operations.close()


async def test_cancel_is_stopped_and_tells_what_it_did(operations: Operations) -> None:
    number = operations.start_cancel((await counted(operations))["number"])["number"]
    await run_on()
    operations.stop(number)
    await run_on()
    found = operations.read(number)
    assert (found["state"], found["result"]["cancelled_count"]) == ("stopped", 3)
    operations.stop(number)  # harmless
    with pytest.raises(errors.NotFound):
        operations.stop(99)


async def test_no_more_are_begun_when_many_run(operations: Operations, admin: FakeAdmin) -> None:
    for _ in range(RUNNING_COUNT_MAX):
        operations.start_cancel((await counted(operations))["number"])
    with pytest.raises(errors.Overloaded):
        operations.start_count(QUERY)
    admin.may_go_on.set()
    await run_on()
    assert (await counted(operations))["state"] == "done"


async def test_old_ones_are_forgotten_but_none_that_runs(operations: Operations) -> None:
    runs = operations.start_cancel((await counted(operations))["number"])["number"]
    first = (await counted(operations))["number"]
    for _ in range(KEPT_COUNT_MAX):
        last = (await counted(operations))["number"]
    assert operations.read(runs)["state"] == "running"
    assert operations.read(last)["state"] == "done"
    with pytest.raises(errors.NotFound):
        operations.read(first)
    await operations.close()


async def test_close_stops_what_runs(operations: Operations) -> None:
    number = operations.start_cancel((await counted(operations))["number"])["number"]
    await run_on()
    await operations.close()
    assert operations.read(number)["state"] == "stopped"
