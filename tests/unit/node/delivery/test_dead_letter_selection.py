"""Selecting on dead letters: each call goes on where the last one with the same filter ended."""

import asyncio
from pathlib import Path

import pytest

from hourwheel.filter_language.text import FilterExpression
from node.contracts.broker import GroupSettings
from node.delivery.dead_letter_selection import MARKS_BYTES, CallFilter, ScanMarks
from node.shard.group_queue import GroupQueue
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

LETTERS = "%DLQ%billing"
HELD, OTHER = GroupQueue(1, 256), GroupQueue(2, 256)
A, B = FilterExpression.tags("a"), FilterExpression.tags("b")


async def bury(world: EngineWorld, *tags: str) -> None:
    """One dead letter for each text of tags."""
    if not any(group.name == "billing" for group in world.groups()):
        await within(world.engine.put_group("billing", GroupSettings(attempts_max=1)))
    await world.publish_tagged(*tags)
    taken = 0
    while taken < len(tags):
        delivery = await world.leased(count=1_000)
        taken += len(delivery.units)
        assert await world.nack(world.select(delivery), delay_ms=0) == [1]


async def selected(world: EngineWorld, wanted: str, group: str = "ops") -> list[int]:
    """Letters that a call gets which does not wait."""
    found = await world.receive(topic=LETTERS, group=group, wanted=wanted, count=1_000)
    return [] if found is None else found.units["sequence"].tolist()


async def test_letters_are_read_once_however_often_the_same_is_asked(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, *["x"] * 50)
        stats = world.engine.stats
        for _ in range(5):
            assert await selected(world, "a || b") == []
            assert await selected(world, "b||a") == [], "the same in other words"
        assert stats.filter_read == 50
        await bury(world, "x", "a")
        assert await selected(world, "a || b") == [51]
        assert stats.filter_read == 52
        assert await selected(world, "x") == [*range(51)], "who wants another sees all"


async def test_each_group_and_each_filter_looks_for_itself(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "a", "b", "a b", "x")
        assert await selected(world, "a") == [0, 2]
        assert await selected(world, "b") == [1], "the third is out"
        assert await selected(world, "b", group="others") == [1, 2]
        assert await selected(world, "a") == []


async def test_letter_that_was_given_back_comes_again_behind_the_mark(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "x", "a", "x")
        delivery = await world.receive(topic=LETTERS, group="ops", wanted="a")
        assert delivery is not None
        assert await selected(world, "a") == []
        world.advance(30_000)
        await until(lambda: world.mastership.receiver.leases.count == 0)
        world.advance(1_000)
        await until(lambda: world.engine.status().pending_count == 0)
        assert await selected(world, "a") == [1], "by the group's retries"
        assert [await selected(world, "x") for _ in range(3)] == [[0], [2], []]


async def test_long_poll_reads_only_what_is_new(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, *["x"] * 20)
        assert await selected(world, "a") == []
        poll = asyncio.ensure_future(
            world.receive(topic=LETTERS, group="ops", wanted="a", wait_ms=600_000)
        )
        await let_others_run()
        assert world.engine.stats.filter_read == 20
        await bury(world, "x", "a")
        found = await within(poll)
        assert found is not None
        assert found.units["sequence"].tolist() == [21]
        assert world.engine.stats.filter_read == 22


async def test_all_is_looked_at_again_in_the_next_reign(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "x", "a")
        assert await selected(world, "a") == [1]
        await world.restart()
        assert await selected(world, "a") == [1], "its lease was forgotten, and so was the mark"


async def test_letters_are_found_slice_by_slice_though_marks_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    monkeypatch.setattr("node.delivery.dead_letter_selection.MARKS_BYTES", 0)
    async with EngineWorld(tmp_path) as world:
        world.mastership.receiver._marks = ScanMarks()
        await bury(world, *["x"] * 60, "a")
        assert await selected(world, "a") == [60]


def test_marks_are_of_a_group_a_queue_and_a_filter() -> None:
    marks = ScanMarks()
    one = CallFilter(A)
    one.note(HELD, 7, marks)
    one.note(HELD, 9, marks)
    assert CallFilter(A).begin_at(HELD, marks) == 9
    assert CallFilter(A).begin_at(OTHER, marks) == 0
    assert CallFilter(B).begin_at(HELD, marks) == 0
    late = CallFilter(A)
    late.note(HELD, 3, marks)
    assert CallFilter(A).begin_at(HELD, marks) == 9, "a mark never goes back"


def test_marks_are_bounded_however_many_filters_are_asked() -> None:
    marks = ScanMarks()
    first = CallFilter(FilterExpression.tags("first"))
    first.note(HELD, 5, marks)
    for number in range(10_000):
        marks.put(HELD, FilterExpression.tags(f"{number}" * 100), number)
    assert marks._marks.used_bytes <= MARKS_BYTES
    assert CallFilter(first.filter).begin_at(HELD, marks) == 0
    assert first.begin_at(HELD, marks) == 5, "a call under way keeps its place"
