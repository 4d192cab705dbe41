"""Polls that wait for the end of a takeover."""

import asyncio

import pytest

from node.cluster import member
from node.cluster.member import TakeoverWait
from tests.support.engine_world import within
from tests.support.eventually import until


async def test_all_go_on_when_it_is_over() -> None:
    takeover, order = TakeoverWait(), list[int]()

    async def poll(number: int) -> None:
        await takeover.wait(60_000)
        order.append(number)

    polls = [asyncio.ensure_future(poll(number)) for number in range(3)]
    await until(lambda: takeover.waiting_count == 3)
    takeover.end()
    await within(asyncio.gather(*polls))
    assert order == [0, 1, 2]
    assert takeover.waiting_count == 0


async def test_next_takeover_is_waited_for_anew() -> None:
    takeover = TakeoverWait()
    takeover.end()
    poll = asyncio.ensure_future(takeover.wait(60_000))
    await until(lambda: takeover.waiting_count == 1)
    assert not poll.done()
    takeover.end()
    await within(poll)


@pytest.mark.parametrize("wait_ms", [-1, 0, 1])
async def test_poll_waits_no_longer_than_it_wants_to(wait_ms: int) -> None:
    takeover = TakeoverWait()
    await within(takeover.wait(wait_ms))
    assert takeover.waiting_count == 0


async def test_poll_goes_on_when_it_lasts_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "TAKEOVER_WAIT_MS_MAX", 1)
    await within(TakeoverWait().wait(600_000))


async def test_one_too_many_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "TAKEOVER_POLLS_MAX", 1)
    takeover = TakeoverWait()
    first = asyncio.ensure_future(takeover.wait(60_000))
    await until(lambda: takeover.waiting_count == 1)
    await within(takeover.wait(600_000))
    assert not first.done()
    first.cancel()
    await asyncio.wait([first])
    assert takeover.waiting_count == 0
