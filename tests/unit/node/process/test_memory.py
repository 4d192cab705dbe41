import asyncio
import gc
from pathlib import Path

import pytest

from node.process import memory
from node.process.memory import AGAIN_LOOKS_MAX, GROWN_BYTES_MIN, TRAFFIC_BYTES_MIN, Trimming
from tests.support.eventually import until


def test_nothing_is_done_when_the_c_library_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    assert not memory.configure()
    assert not memory.trim()


def test_settings_are_understood_when_the_c_library_is_glibc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, name: int, value: int) -> int:
            asked.append((name, value))
            return 1

        def malloc_trim(self, pad: int) -> int:
            return 1 - pad

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: Library())
    assert memory.configure()
    assert memory.trim()
    assert dict(asked)[-3] == 8 << 20


class Process:
    """One whose memory is what the test says; a trim leaves `kept_bytes` of it."""

    def __init__(self) -> None:
        self.taken_bytes = self.in_flight_bytes = 0
        self.resident_bytes = self.kept_bytes = 100 << 20
        self.trim_count = 0
        self.trimming = Trimming(
            lambda: self.taken_bytes,
            lambda: self.in_flight_bytes,
            self.trim,
            lambda: self.resident_bytes,
        )

    def trim(self) -> None:
        self.trim_count += 1
        self.resident_bytes = self.kept_bytes

    async def trims_in(self, looks: int) -> int:
        before = self.trim_count
        for _ in range(looks):
            await self.trimming.look()
        return self.trim_count - before


async def test_nothing_is_trimmed_when_the_process_does_not_grow() -> None:
    process = Process()
    process.taken_bytes += 10 * TRAFFIC_BYTES_MIN
    process.resident_bytes += GROWN_BYTES_MIN - 1
    assert await process.trims_in(10) == 0


async def test_process_is_trimmed_when_a_flood_is_over() -> None:
    process = Process()
    process.resident_bytes += 10 * GROWN_BYTES_MIN
    process.taken_bytes += TRAFFIC_BYTES_MIN
    assert await process.trims_in(1) == 0, "it goes on"
    process.in_flight_bytes = TRAFFIC_BYTES_MIN
    assert await process.trims_in(1) == 0, "it is being worked on"
    process.in_flight_bytes = 0
    assert await process.trims_in(1) == 1


async def test_process_is_trimmed_when_what_made_it_grow_was_counted_nowhere() -> None:
    process = Process()
    process.resident_bytes += GROWN_BYTES_MIN
    assert await process.trims_in(1) == 1


async def test_process_is_trimmed_again_ever_more_rarely_since_some_of_a_flood_ends_late() -> None:
    process = Process()
    process.resident_bytes += GROWN_BYTES_MIN
    found = [look for look in range(10 * AGAIN_LOOKS_MAX) if await process.trims_in(1)]
    assert found == [0, 1, 3, 7, 15, 31, 63]


async def test_process_that_is_to_be_large_is_no_flood() -> None:
    process = Process()
    process.resident_bytes = process.kept_bytes = 10 * GROWN_BYTES_MIN
    assert await process.trims_in(10 * AGAIN_LOOKS_MAX) == 7
    assert await process.trims_in(10 * AGAIN_LOOKS_MAX) == 0


async def test_trimming_looks_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOK_S", 0)
    process = Process()
    running = asyncio.create_task(process.trimming.run())
    process.resident_bytes += GROWN_BYTES_MIN
    await until(lambda: process.trim_count)
    running.cancel()


def test_resident_memory_is_what_the_system_says() -> None:
    assert memory.resident_bytes() > 1 << 20


def test_resident_memory_is_nothing_where_the_system_does_not_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path / "missing")
    assert memory.resident_bytes() == 0


def test_collector_never_has_much_to_collect_when_calls_leave_circles() -> None:
    """What it collects at once is how long the process stands still: 50,000 objects took 110 ms."""
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            collected.append(info["collected"])

    before = gc.get_threshold()
    memory.settle_garbage_collector()
    gc.callbacks.append(note)
    try:
        for _ in range(100_000):
            call: list[object] = []
            call.append(call)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert sum(collected) >= 90_000
    assert max(collected) <= 3_000
