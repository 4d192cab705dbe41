"""Large filters are read and compiled on a thread of their own, small ones at once."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filters import compile as compiling
from hourwheel import errors
from hourwheel.filter_language import text
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from node.catalog.filter_cache import make_ready, read_filter
from node.contracts.pending_token import PendingQuery
from tests.support.engine_world import EngineWorld, within

LARGE = "||".join(f"t{number}" for number in reversed(range(300)))


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the threads that read or compiled a filter; nothing is known before."""
    names: list[str] = []

    def told(function: Any) -> Any:
        def call(*args: Any) -> Any:
            names.append(threading.current_thread().name)
            return function(*args)

        return call

    monkeypatch.setattr(text, "_read_anew", told(text._read_anew))
    monkeypatch.setattr(compiling, "BlockFilter", told(compiling.BlockFilter))
    for cache in (text._cache, compiling._cache):
        cache.clear()
    yield names
    for cache in (text._cache, compiling._cache):
        cache.clear()


def is_all_beside(names: list[str]) -> bool:
    return bool(names) and all(name.startswith("hourwheel-filters") for name in names)


async def test_large_filter_is_read_and_compiled_beside_the_loop(readers: list[str]) -> None:
    wanted = FilterExpression.tags(LARGE)
    canonical = await within(read_filter(wanted))
    await within(make_ready(canonical, DEFAULT_SPEC))
    assert len(readers) == 2, "the canonical form was not read again"
    assert is_all_beside(readers)
    assert await read_filter(wanted) == wanted.canonical()
    await make_ready(canonical, DEFAULT_SPEC)
    assert len(readers) == 2, "it is known"


async def test_short_filter_is_read_at_once(readers: list[str]) -> None:
    asked = read_filter(FilterExpression.tags("b||a"))
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    assert ended.value.value == FilterExpression.tags("a || b")
    await make_ready(FilterExpression.tags("a"), DEFAULT_SPEC)
    assert readers == [threading.current_thread().name]


async def test_large_filter_that_is_none_is_refused(readers: list[str]) -> None:
    for wanted in (FilterExpression.tags(LARGE + "||"), FilterExpression.sql(LARGE)):
        with pytest.raises(errors.InvalidFilter):
            await within(read_filter(wanted))
    assert is_all_beside(readers)


async def test_no_call_reads_a_large_filter_on_the_loop(tmp_path: Path, readers: list[str]) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "t7")
        found = await world.receive(wanted=LARGE)
        assert found is not None
        assert found.units["sequence"].tolist() == [1]
        await world.put_subscription(LARGE + "||z")
        poll = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await world.publish_tagged("z")
        late = await within(poll)
        assert late is not None
        assert late.units["sequence"].tolist() == [2]
        assert await world.receive(topic="%DLQ%billing", wanted=LARGE + "||y") is None
        wanted = FilterExpression.tags(LARGE + "||p")
        query = PendingQuery("orders", wanted)
        await within(world.engine.list_pending(query, b"", count_max=9, with_bodies=False))
        wanted = FilterExpression.tags(LARGE + "||c")
        await within(world.engine.cancel_pending(PendingQuery("orders", wanted), b""))
    assert is_all_beside(readers)
