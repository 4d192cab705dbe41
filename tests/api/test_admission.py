"""What may be in flight."""

import asyncio

import pytest

from hourwheel import errors
from node.api.admission import Admission
from node.config.model import LimitsSection
from node.telemetry.stats import ApiStats


def admission(**limits: int) -> Admission:
    return Admission(LimitsSection(**limits), ApiStats())


def test_enter_refuses_when_a_limit_is_reached_and_admits_when_it_is_left() -> None:
    gate = admission(requests_in_flight=2, bytes_in_flight=65_536)
    gate.enter(60_000)
    with pytest.raises(errors.Overloaded, match="bytes"):
        gate.enter(6_000)
    gate.enter(5_000)
    with pytest.raises(errors.Overloaded, match="calls"):
        gate.enter(1)
    gate.leave(60_000)
    gate.enter(60_000)
    gate.leave(60_000)
    gate.leave(5_000)
    assert (gate.stats.requests_in_flight, gate.stats.bytes_in_flight) == (0, 0)


def test_poll_is_no_request_in_flight_while_it_waits() -> None:
    gate = admission(requests_in_flight=1, long_polls=1)
    gate.enter(1)
    gate.begin_poll()
    gate.enter(1)
    with pytest.raises(errors.Overloaded, match="wait"):
        gate.begin_poll()
    assert (gate.stats.requests_in_flight, gate.stats.long_polls) == (1, 1)
    gate.end_poll()
    assert (gate.stats.requests_in_flight, gate.stats.long_polls) == (2, 0)


async def test_drain_refuses_what_is_new() -> None:
    gate = admission()
    gate.drain()
    with pytest.raises(errors.ShuttingDown):
        gate.enter(1)
    with pytest.raises(errors.ShuttingDown), gate.until_drain():
        pass


async def test_drain_ends_what_waits_and_the_task_goes_on() -> None:
    gate = admission()

    async def wait() -> str:
        with gate.until_drain():
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return "went on"

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    gate.drain()
    assert await task == "went on"
    assert task.cancelling() == 0


async def test_until_drain_is_cancelled_when_somebody_else_cancels() -> None:
    gate = admission()

    async def wait() -> None:
        with gate.until_drain():
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.drain()


async def test_drain_leaves_alone_what_waits_no_more() -> None:
    gate = admission()
    done = asyncio.Event()

    async def wait() -> str:
        with gate.until_drain():
            pass
        await done.wait()
        return "untouched"

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    gate.drain()
    done.set()
    assert await task == "untouched"
