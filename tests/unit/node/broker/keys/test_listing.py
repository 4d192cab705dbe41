"""Listing messages by key through an engine."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from hourwheel import errors
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import MessageState
from node.broker.keys import listing
from node.contracts.pending_page import KeyPage, printable
from node.contracts.pending_token import KeyQuery
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until
from tests.unit.node.broker.keys.test_service import cancel, publish
from tests.unit.node.broker.test_history_query import move

PENDING, RELEASED, CANCELLED = (
    MessageState.PENDING,
    MessageState.RELEASED,
    MessageState.CANCELLED,
)

Listed = list[tuple[int, MessageState]]


async def page_of(
    world: EngineWorld, query: KeyQuery, token: bytes = b"", count_max: int = 100
) -> KeyPage:
    return await within(world.engine.list_by_key(query, token, count_max=count_max))


async def listed(
    world: EngineWorld, key: str, *, pending_only: bool = False, count_max: int = 100
) -> Listed:
    """(sequence, state) of all messages with a key, page by page."""
    query = KeyQuery("orders", key.encode(), pending_only)
    found: Listed = []
    token = b""
    while True:
        page = await page_of(world, query, token, count_max)
        for part in page.parts:
            names = [message_id.parse(one) for one in printable(part.ids)]
            states = map(MessageState, part.states.tolist())
            found += zip([one.sequence for one in names], states, strict=True)
            assert [one.due_ms for one in names] == part.due_ms.tolist()
            assert all(
                world.engine.describe(one).state == state
                for one, state in zip(names, map(MessageState, part.states.tolist()), strict=True)
            )
        token = page.next_token
        if not token:
            return found


async def count(world: EngineWorld, key: str, *, pending_only: bool = False) -> int:
    query, token, counted = KeyQuery("orders", key.encode(), pending_only), b"", 0
    while True:
        page = await page_of(world, query, token, 0)
        assert not page.parts
        counted, token = counted + page.matched_count, page.next_token
        if not token:
            return counted


async def test_list_when_messages_are_in_all_states(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b", "a,b", "a", ""], 5_000)
        await publish(world, ["a"], 5_000, "others")
        assert await cancel(world, "b") == [(1, 2)]
        await publish(world, ["a"], -5)
        await publish(world, ["a"], 90_000)
        due_ms = world.now_ms + 5_000
        world.advance(6_000)
        await publish(world, ["tick"], 1)
        await until(lambda: world.engine.shard.views.cursor.key.due_ms > due_ms)
        expected = [(7, PENDING), (6, RELEASED), (3, RELEASED), (2, CANCELLED), (0, RELEASED)]
        assert await listed(world, "a") == expected
        assert await listed(world, "a", count_max=2) == expected
        assert await listed(world, "a", pending_only=True) == [(7, PENDING)]
        assert await listed(world, "x") == []
        assert (await count(world, "a"), await count(world, "a", pending_only=True)) == (5, 1)
        assert await count(world, "x") == 0
        await world.restart()
        assert await listed(world, "a", count_max=1) == expected


async def test_list_when_a_range_of_due_times_is_asked_for(tmp_path: Path) -> None:
    """Bounds are half open, and those of the due times that are told; pages have them, too."""
    async with EngineWorld(tmp_path) as world:
        t_ms = world.now_ms
        for delay_ms in (0, 5_000, 6_000, 7_000, 8_000, 9_000):
            await publish(world, ["a", "a", "b"], delay_ms)
        moved = MessageId(0, 1, 3, t_ms + 5_000)
        await move(world, moved, t_ms + 8_500)
        await cancel(world, "b")

        async def found(
            from_ms: int, to_ms: int, *, pending_only: bool = False
        ) -> list[tuple[int, int]]:
            query = KeyQuery("orders", b"a", pending_only, from_ms and t_ms + from_ms, to_ms)
            token, rows = b"", []
            while True:
                page = await page_of(world, query, token, 2)
                for part in page.parts:
                    ids = [message_id.parse(one).sequence for one in printable(part.ids)]
                    rows += zip(ids, (part.due_ms - t_ms).tolist(), strict=True)
                token = page.next_token
                if not token:
                    return rows

        assert await found(8_000, 0) == [
            (16, 9_000),
            (15, 9_000),
            (13, 8_000),
            (12, 8_000),
            (3, 8_500),
        ]
        assert await found(5_000, t_ms + 7_000) == [(7, 6_000), (6, 6_000), (4, 5_000)]
        assert await found(0, t_ms + 1) == [(1, 0), (0, 0)]
        assert await found(0, t_ms + 1, pending_only=True) == []
        assert await found(8_001, t_ms + 9_000) == [(3, 8_500)]


async def test_list_when_a_key_is_on_very_many_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "ROWS_AT_ONCE", 100)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["hot"] * 700, 5_000)
        await world.restart()
        await publish(world, ["hot", "cold"] * 60, 5_000)
        sequences = [*range(818, 699, -2), *range(699, -1, -1)]
        assert [one for one, _ in await listed(world, "hot", count_max=37)] == sequences
        monkeypatch.setattr(listing, "PAGE_S", -1.0)
        assert [one for one, _ in await listed(world, "hot", count_max=500)] == sequences
        assert await count(world, "hot", pending_only=True) == 760


async def test_list_when_others_publish_and_cancel_in_between(tmp_path: Path) -> None:
    chooser = Random(5)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["k"] * 40, 5_000)
        query, token, found = KeyQuery("orders", b"k"), b"", []
        while True:
            page = await page_of(world, query, token, 7)
            found += [message_id.parse(one).sequence for one in printable(page.parts[0].ids)]
            token = page.next_token
            if not token:
                break
            await publish(world, ["k"] * chooser.randrange(3), 5_000)
            if chooser.random() < 0.3:
                await world.restart()
        assert found == [*range(39, -1, -1)]


@pytest.mark.parametrize(
    ("query", "token", "error"),
    [
        (KeyQuery("nowhere", b"a"), b"", errors.UnknownTopic),
        (KeyQuery("%DLQ%billing", b"a"), b"", errors.InvalidTopic),
        (KeyQuery("orders", b"a"), b"x" * 42, errors.InvalidArgument),
    ],
)
async def test_list_when_it_is_refused(
    tmp_path: Path, query: KeyQuery, token: bytes, error: type[errors.HourwheelError]
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        await world.receive()
        with pytest.raises(error):
            await page_of(world, query, token)


async def test_list_when_the_token_is_of_another_question(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "a"], 5_000)
        token = (await page_of(world, KeyQuery("orders", b"a"), count_max=1)).next_token
        assert token
        for query in (
            KeyQuery("orders", b"b"),
            KeyQuery("orders", b"a", pending_only=True),
            KeyQuery("orders", b"a", from_ms=1),
            KeyQuery("orders", b"a", to_ms=1),
        ):
            with pytest.raises(errors.InvalidArgument, match="page token"):
                await page_of(world, query, token)


async def test_list_when_the_index_is_being_built(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"], 5_000)
        world.engine.shard.views.keys.forget()
        with pytest.raises(errors.Unavailable, match="being built"):
            await page_of(world, KeyQuery("orders", b"a"))


async def test_two_listings_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"] * 200, 5_000)
        both = await asyncio.gather(listed(world, "a", count_max=9), listed(world, "b"))
        assert [len(one) for one in both] == [200, 200]
