"""Old log is read at its pace and told of: on real threads, with a sleep that a test ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hourwheel import errors
from node.contracts.broker import Failure
from node.repair.scrubber import PASS_S_MIN, Scrubber, ScrubSource
from node.telemetry.stats import EngineStats
from storage.log.commit_log import CommitLog
from tests.sim.disk import SimulatedDisk
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.log_world import IDENTITY, delete_below, fill, open_log

PACE = 1_000
FIRST_S = 5.0


class World:
    """A log, and a scrubber that goes on when a test lets it."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.log: CommitLog = open_log(self.disk)
        fill(self.log, 70, writes_of=5)
        self.stats, self.failure = EngineStats(), Failure()
        self.found: list[errors.CorruptLog] = []
        self.slept: list[float] = []
        self.number = 0
        self.turns: asyncio.Semaphore = asyncio.Semaphore(0)
        self.scrubber: Scrubber | None = None

    def start(self, on_damage: Callable[[errors.CorruptLog], None] | None = None) -> None:
        log = self.log
        self.scrubber = Scrubber(
            ScrubSource(self.disk, IDENTITY, log, lambda: log.flushed_end_offset),
            self.stats,
            self.failure,
            bytes_per_s=PACE,
            on_damage=on_damage or self.found.append,
            now_ms=lambda: self.number,
            first_s=FIRST_S,
            sleep=self.sleep,
        )

    async def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        await self.turns.acquire()

    async def passes(self, count: int) -> None:
        """Let it sleep no longer until so many passes are over."""
        while self.stats.scrub_passes < count:
            seen = len(self.slept)
            self.turns.release()
            await until(lambda seen=seen: len(self.slept) > seen)  # type: ignore[misc]

    @property
    def log_bytes(self) -> int:
        return self.log.flushed_end_offset - self.log.start_offset


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    if made.scrubber is not None:
        await within(made.scrubber.close())


async def test_all_segments_are_read_at_the_pace(world: World) -> None:
    world.start()
    await world.passes(1)
    stats = world.stats
    assert (stats.scrub_bytes, stats.scrub_damaged_segments) == (world.log_bytes, 0)
    assert world.slept[0] == FIRST_S
    assert sum(world.slept[1:-1]) >= world.log_bytes / PACE * 0.999
    assert PASS_S_MIN - 60 < world.slept[-1] <= PASS_S_MIN


@pytest.mark.parametrize("number", [1, 3, 400])
async def test_pass_is_whole_wherever_it_begins(world: World, number: int) -> None:
    world.number = number
    world.start()
    await world.passes(2)
    assert world.stats.scrub_bytes == 2 * world.log_bytes


async def test_damage_is_told_once_and_the_rest_is_read(world: World) -> None:
    segment = world.log.segments()[1]
    world.disk.flip_bit(segment.path, 300)
    world.start()
    await world.passes(2)
    (error,) = world.found
    assert error.params["file"] == segment.path
    assert (world.stats.crc_errors, world.stats.scrub_damaged_segments) == (1, 1)
    rest = world.log_bytes - (segment.end_offset - segment.start_offset)
    assert world.stats.scrub_bytes >= 2 * rest


async def test_damage_is_forgotten_when_the_segment_is_gone_or_well(world: World) -> None:
    first, second, *_ = world.log.segments()
    for segment in (first, second):
        world.disk.flip_bit(segment.path, 300)
    world.start()
    await world.passes(1)
    assert world.stats.scrub_damaged_segments == 2
    delete_below(world.log, first.end_offset)
    world.disk.flip_bit(second.path, 300)
    await world.passes(2)
    assert world.stats.scrub_damaged_segments == 0
    assert len(world.found) == 2


async def test_log_that_is_deleted_meanwhile_is_no_damage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = world.log.segments()
    delete_below(world.log, listed[1].end_offset)
    monkeypatch.setattr(world.log, "segments", lambda: listed)
    world.start()
    await world.passes(1)
    assert world.found == []
    assert world.stats.scrub_bytes == world.log_bytes


async def test_bug_is_told(world: World) -> None:
    def on_damage(_: errors.CorruptLog) -> None:
        raise ZeroDivisionError

    world.disk.flip_bit(world.log.segments()[0].path, 300)
    world.start(on_damage)
    world.turns.release()
    failed: Any = await within(asyncio.shield(world.failure.found))
    assert isinstance(failed, errors.Internal)
