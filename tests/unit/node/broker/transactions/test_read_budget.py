"""Who may read megabytes now, and who waits."""

import asyncio

import pytest

from node.broker.transactions.read_budget import ReadBudget
from tests.support.engine_world import let_others_run, within


class Readers:
    """Each holds its bytes until it is told to go."""

    def __init__(self, bytes_max: int) -> None:
        self.room = ReadBudget(bytes_max)
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}

    async def come(self, name: str, size_bytes: int) -> None:
        self._leaving[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._read(name, size_bytes))
        await let_others_run()

    async def _read(self, name: str, size_bytes: int) -> None:
        async with self.room.holding(size_bytes):
            self.inside.append(name)
            try:
                await self._leaving[name].wait()
            finally:
                self.inside.remove(name)

    async def go(self, name: str) -> None:
        self._leaving[name].set()
        await within(self.tasks[name])
        await let_others_run()


async def test_who_finds_no_room_waits_and_nobody_overtakes() -> None:
    readers = Readers(100)
    for name, size in (("a", 60), ("b", 40), ("c", 90), ("d", 10)):
        await readers.come(name, size)
    assert readers.inside == ["a", "b"]
    await readers.go("b")
    assert readers.inside == ["a"], "c is too large, and d stands behind it"
    await readers.go("a")
    assert readers.inside == ["c", "d"]
    await readers.go("c")
    await readers.go("d")
    assert readers.inside == []


async def test_what_is_larger_than_the_room_is_let_in_alone() -> None:
    readers = Readers(100)
    for name, size in (("a", 1), ("large", 1_000), ("b", 1)):
        await readers.come(name, size)
    assert readers.inside == ["a"]
    await readers.go("a")
    assert readers.inside == ["large"]
    await readers.go("large")
    assert readers.inside == ["b"]
    await readers.go("b")


@pytest.mark.parametrize("name", ["waits", "has its turn"])
async def test_who_goes_away_leaves_its_room_to_others(name: str) -> None:
    readers = Readers(100)
    await readers.come("a", 100)
    await readers.come("gone", 100)
    await readers.come("b", 100)
    if name == "has its turn":
        readers.tasks["a"].cancel()
        await asyncio.sleep(0)  # a is out, and the next one has not run yet
    readers.tasks["gone"].cancel()
    await let_others_run()
    if name == "waits":
        assert readers.inside == ["a"]
        await readers.go("a")
    assert readers.inside == ["b"]
    await readers.go("b")


async def test_who_was_too_large_and_goes_away_holds_up_nobody() -> None:
    readers = Readers(100)
    await readers.come("a", 50)
    await readers.come("large", 90)
    await readers.come("b", 50)
    readers.tasks["large"].cancel()
    await let_others_run()
    assert readers.inside == ["a", "b"]
    await readers.go("a")
    await readers.go("b")
