"""How much of large requests one turn takes up, and in which order they go on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from hourwheel.clock import SystemClock
from node.access.control import AccessControl
from node.access.quotas import Quotas
from node.api.admission import SMALL_BYTES, TURN_BYTES_MAX, Admission, TurnBudget
from node.api.calls import Calls
from node.api.publish_stream import PublishStreams
from node.api.quota_gate import QuotaGate
from node.api.session import HELLO, Sessions
from node.config.model import LimitsSection
from node.telemetry.failure import Failure
from node.telemetry.stats import ApiStats
from tests.support.fake_engine import FakeEngine

LARGE = 3 * SMALL_BYTES
GARBAGE = b"\xff" * (TURN_BYTES_MAX + 1)
"""More than a turn takes up, and refused as soon as it is."""


async def turns_of(budget: TurnBudget, sizes: list[int]) -> dict[int, int]:
    """At which turn each of the requests, all there at once, went on; in the order they did."""
    found: dict[int, int] = {}
    turn = 0

    async def take(at: int, size: int) -> None:
        await budget.take(size)
        found[at] = turn

    tasks = [asyncio.ensure_future(take(at, size)) for at, size in enumerate(sizes)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    return found


async def test_a_turn_takes_up_no_more_than_its_budget_and_one_request() -> None:
    found = await turns_of(TurnBudget(2 * LARGE), [LARGE] * 7)
    assert list(found) == list(range(7))
    counts = [list(found.values()).count(turn) for turn in sorted(set(found.values()))]
    assert counts == [2, 2, 2, 1]
    found = await turns_of(TurnBudget(LARGE), [9 * LARGE, LARGE, 9 * LARGE])
    assert len(set(found.values())) == 3


async def test_small_requests_do_not_wait_and_a_turn_without_work_gives_the_room_back() -> None:
    budget = TurnBudget(LARGE)
    found = await turns_of(budget, [LARGE, LARGE, LARGE, SMALL_BYTES - 1])
    assert found[3] == found[0]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(set((await turns_of(budget, [LARGE])).values())) == 1
    await asyncio.wait_for(budget.take(LARGE), 60)


async def test_one_that_is_given_up_takes_no_room() -> None:
    budget = TurnBudget(LARGE)
    first, second, given_up, kept = (asyncio.ensure_future(budget.take(LARGE)) for _ in range(4))
    await first
    given_up.cancel()
    await second
    assert not kept.done()
    await asyncio.sleep(0)
    await kept
    assert given_up.cancelled()


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self.counting = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.now += 1


class Caller:
    """The context of a stream that sends garbage, then ends; notes when it is refused."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._requests = [GARBAGE]
        self.refused_at: int | None = None

    async def read(self) -> Any:
        return self._requests.pop() if self._requests else grpc.aio.EOF

    async def write(self, raw: bytes) -> None:
        if raw != HELLO:
            self.refused_at = self._turns.now

    async def abort_with_status(self, _status: Any) -> None:
        self.refused_at = self._turns.now

    def add_done_callback(self, _callback: Callable[[Any], None]) -> None:
        pass

    def peer(self) -> str:
        return "caller"


def handler_of(kind: str) -> Callable[[None, Any], Coroutine[Any, Any, None]]:
    """What serves such streams, all with one budget."""
    allowed, access, clock, engine = LimitsSection(), AccessControl(), SystemClock(), FakeEngine()
    calls = Calls(Admission(allowed, ApiStats()), clock, Failure(), access)
    if kind == "session":
        return Sessions(calls, {}, allowed).handle
    gate = QuotaGate(Quotas(), access, engine, clock)
    return PublishStreams(calls, engine, access, allowed, 1, gate).handle


@pytest.mark.parametrize("kind", ["session", "publish stream"])
async def test_streams_of_large_requests_have_a_turn_each(kind: str) -> None:
    handle, turns = handler_of(kind), Turns()
    callers = [Caller(turns) for _ in range(4)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(handle(None, caller) for caller in callers))
    turns.counting.cancel()
    assert len({caller.refused_at for caller in callers} - {None}) == len(callers)
