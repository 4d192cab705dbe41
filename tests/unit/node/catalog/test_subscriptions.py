"""Long polls and calls that are under way while a group's filter is changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from node.catalog.subscriptions import find_mismatch, stored
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until


async def polling(world: EngineWorld, wanted: str | None, count: int = 1) -> Any:
    poll = asyncio.ensure_future(world.receive(wait_ms=600_000, wanted=wanted))
    await until(lambda: world.service.receive_service.waiting_count == count)
    return poll


async def test_long_poll_that_named_another_filter_is_told_when_it_is_changed(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        poll = await polling(world, "a")
        await world.put_subscription("b")
        with pytest.raises(errors.SubscriptionMismatch) as caught:
            await within(poll)
        assert caught.value.params["subscription"] == "tags 'b'"
        assert caught.value.params["receive"] == "tags 'a'"
        assert world.service.receive_service.waiting_count == 0


async def test_long_poll_that_named_none_goes_on_with_what_is_wanted_now(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.put_subscription("a")
        await world.publish_tagged("x")
        poll = await polling(world, None)
        await world.put_subscription("b")
        await let_others_run()
        assert not poll.done()
        await world.publish_tagged("a", "b")
        assert (await within(poll)).units["sequence"].tolist() == [2]


async def test_long_poll_that_named_the_new_filter_in_other_words_goes_on(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        poll = await polling(world, "a || b")
        await world.put_subscription("b||a")
        await world.publish_tagged("b")
        assert (await within(poll)).units["sequence"].tolist() == [0]


async def test_nothing_of_the_new_filter_comes_with_the_change_itself(tmp_path: Path) -> None:
    """What is applied together with the change wakes the poll before anybody hears of it."""
    async with EngineWorld(tmp_path) as world:
        poll = await polling(world, "a")
        calls = world.put_subscription("b"), world.publish_tagged("a", "b")
        answers = await asyncio.gather(poll, *calls, return_exceptions=True)
        assert isinstance(answers[0], errors.SubscriptionMismatch)
        assert 1 in (await world.leased(wanted="b")).units["sequence"]


async def test_call_is_refused_when_the_filter_is_changed_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        await world.put_subscription("a")
        await world.publish_tagged(*["x"] * 2_000, "b")
        async with world.service.receive_service._turn:  # it cannot go on before the change
            call = asyncio.ensure_future(world.receive(wanted="a"))
            await let_others_run()
            await world.put_subscription("b")
        with pytest.raises(errors.SubscriptionMismatch):
            await within(call)


async def test_poll_that_is_cancelled_as_it_is_refused_ends_as_cancelled(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        poll = await polling(world, "a")
        waiters = world.service.receive_service._polls._waiters
        waiters.refuse(
            next(iter(waiters._waiting)),
            lambda _: errors.SubscriptionMismatch("it wants something else"),
        )
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert not world.failure.found.done()


async def test_find_mismatch_when_there_is_no_subscription(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        catalog = world.engine.shard.views.catalog
        assert find_mismatch(catalog, 1, 1, FilterExpression.tags("a")) is None


def test_stored_when_it_lets_everything_through() -> None:
    assert stored(FilterExpression.everything()) is None
    assert stored(None) is None
    assert stored(FilterExpression.tags("a")) == FilterExpression.tags("a")
