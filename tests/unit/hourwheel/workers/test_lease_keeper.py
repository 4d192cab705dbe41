import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.workers.lease_keeper import LeaseKeeper
from tests.support.eventually import until

CLOCK = SystemClock()
SHORT_MS = 4
LONG_MS = 3_600_000


def answer(span_ms: int) -> Any:
    return SimpleNamespace(
        lease_until_ms=CLOCK.monotonic_ms() + span_ms,
        invisible_until_ms=span_ms,
        delivery=SimpleNamespace(header=SimpleNamespace(receive_ms=0)),
    )


class Consumer:
    """Makes leases longer, or fails."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error: errors.HourwheelError | None = None

    async def change_invisible(self, batch: Any, ms: int) -> None:
        self.asked.append(batch)
        if self.error is not None:
            raise self.error
        batch.lease_until_ms = CLOCK.monotonic_ms() + ms


@asynccontextmanager
async def kept(consumer: Consumer) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(consumer, CLOCK, "orders")
    yield keeper
    await keeper.close()


async def test_a_lease_is_made_longer_again_and_again_while_a_message_is_in_work() -> None:
    consumer, batch, other = Consumer(), answer(SHORT_MS), answer(SHORT_MS)
    async with kept(consumer) as keeper:
        assert keeper.is_idle
        keeper.add(batch)
        keeper.add(batch)
        keeper.remove(batch)
        await until(lambda: len(consumer.asked) >= 3)
        keeper.remove(batch)
        assert keeper.is_idle
        del consumer.asked[:]
        keeper.add(other)
        await until(lambda: len(consumer.asked) >= 2)
        assert batch not in consumer.asked[1:]


async def test_a_lease_that_ends_before_those_that_are_held_is_not_late() -> None:
    consumer, long, short = Consumer(), answer(LONG_MS), answer(SHORT_MS)
    async with kept(consumer) as keeper:
        keeper.add(long)
        await asyncio.sleep(0)  # it waits for half an hour now
        short.lease_until_ms = CLOCK.monotonic_ms() + SHORT_MS
        keeper.add(short)
        await until(lambda: consumer.asked)
        assert consumer.asked[0] is short


async def test_a_lease_that_is_lost_is_said_once_and_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer, lost, other = Consumer(), answer(LONG_MS), answer(SHORT_MS)
    consumer.error = errors.StaleReceipt("over")
    lost.lease_until_ms = 0.0
    async with kept(consumer) as keeper:
        keeper.add(lost)
        await until(lambda: consumer.asked)
        consumer.error = None
        keeper.add(other)
        await until(lambda: len(consumer.asked) >= 3)
    assert consumer.asked.count(lost) == 1
    assert "orders: a lease could not be made longer" in caplog.text


async def test_a_call_that_failed_is_made_again_while_the_lease_lasts() -> None:
    consumer, batch = Consumer(), answer(1)
    consumer.error = errors.Unavailable("no master")
    async with kept(consumer) as keeper:
        keeper.add(batch)
        batch.lease_until_ms = CLOCK.monotonic_ms() + LONG_MS
        await until(lambda: consumer.asked)
        consumer.error = None
        await until(lambda: len(consumer.asked) >= 2)


async def test_nothing_is_made_longer_after_the_end() -> None:
    consumer, batch = Consumer(), answer(SHORT_MS)
    async with kept(consumer) as keeper:
        keeper.add(batch)
        await until(lambda: consumer.asked)
    assert not [one for one in asyncio.all_tasks() if one.get_name() == "hourwheel-leases"]
