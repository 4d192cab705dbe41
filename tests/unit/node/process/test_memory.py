import asyncio
import gc

import pytest

from node.process import memory
from node.process.memory import TRAFFIC_BYTES_MIN, Trimming


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


class Traffic:
    def __init__(self) -> None:
        self.taken = self.in_flight = 0
        self.trimming = Trimming(lambda: self.taken, lambda: self.in_flight)


def test_trimming_is_due_once_when_a_flood_is_over() -> None:
    traffic = Traffic()
    due = traffic.trimming.is_due
    assert not due()
    traffic.taken += 10 * TRAFFIC_BYTES_MIN
    assert not due(), "it goes on"
    traffic.in_flight = TRAFFIC_BYTES_MIN
    assert not due(), "it is being worked on"
    traffic.in_flight = 0
    assert due()
    assert not due()


def test_trimming_is_due_in_the_end_when_little_comes_for_long() -> None:
    traffic = Traffic()
    found = []
    for _ in range(8):
        traffic.taken += TRAFFIC_BYTES_MIN // 4
        found.append(traffic.trimming.is_due())
    assert found == ([False] * 3 + [True]) * 2


async def test_trimming_gives_back_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LOOK_S", 0)
    taken, given = [0], asyncio.Event()
    loop = asyncio.get_running_loop()
    trimming = Trimming(lambda: taken[0], lambda: 0, lambda: loop.call_soon_threadsafe(given.set))
    running = asyncio.create_task(trimming.run())
    taken[0] = TRAFFIC_BYTES_MIN
    await given.wait()
    running.cancel()


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
        gc.unfreeze()
    assert sum(collected) >= 90_000
    assert max(collected) <= 3_000
