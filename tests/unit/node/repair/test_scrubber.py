"""What nobody reads is read at its pace and told of: on real threads; a test ends each sleep.

What is looked at in the views, and how: tests/unit/node/repair/test_view_scrub.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.repair.scrubber import PASS_S_MIN, Scrubber, ScrubSinks, ScrubSource
from node.repair.view_scrub import BadMessages
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from storage.files.file_header import FILE_HEADER_BYTES
from storage.log.commit_log import CommitLog
from tests.sim.disk import SimulatedDisk
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.log_world import IDENTITY, delete_below, fill, open_log
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import age, begin_world
from timewheel.run_format import delay_log_path

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
        self.found_views: list[errors.CorruptFile] = []
        self.found_messages: list[BadMessages] = []
        self.manifest = Checkpoint()
        self.directory, self.identity = "shard-0", IDENTITY
        self.slept: list[float] = []
        self.number = 0
        self.turns: asyncio.Semaphore = asyncio.Semaphore(0)
        self.scrubber: Scrubber | None = None

    def start(self, on_damage: Callable[[errors.CorruptLog], None] | None = None) -> None:
        log = self.log
        self.scrubber = Scrubber(
            ScrubSource(
                *(self.disk, self.identity, log, lambda: log.flushed_end_offset),
                directory=self.directory,
                manifest=lambda: self.manifest,
            ),
            self.stats,
            self.failure,
            bytes_per_s=PACE,
            sinks=ScrubSinks(
                on_damage or self.found.append,
                self.found_views.append,
                self.found_messages.append,
            ),
            now_ms=lambda: self.number,
            first_s=FIRST_S,
            sleep=self.sleep,
        )

    async def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        await self.turns.acquire()

    async def passes(self, count: int) -> None:
        """Let it sleep no longer until so many passes are over; then it sleeps."""
        await until(lambda: bool(self.slept))  # else it would be a step ahead from here on
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
    assert stats.scrub_pass_ms == world.number
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


# --- views


@pytest.fixture
def aged(world: World) -> ShardWorld:
    """The views of a shard that has lived, for the world to look at."""
    with small_sizes(16):
        shard = begin_world(3)
        age(shard, Random(3))
    world.disk, world.directory = shard.disk, shard.place.directory
    world.log, world.identity = shard.shard.log, shard.place.identity
    world.manifest = shard.opened.maintenance.manifest
    return shard


async def test_damaged_view_is_told_once_until_it_is_well(world: World, aged: ShardWorld) -> None:
    path = aged.place.under("epochs")
    aged.disk.flip_bit(path, 66)
    world.number = 5
    world.start()
    await world.passes(2)
    (error,) = world.found_views
    assert error.params["file"] == path
    assert (world.stats.crc_errors, world.stats.scrub_damaged_views) == (1, 1)
    assert world.stats.scrub_pass_ms == 5
    aged.opened.epochs.renew()
    await world.passes(3)
    assert world.stats.scrub_damaged_views == 0
    aged.disk.flip_bit(path, 66)
    await world.passes(4)
    assert len(world.found_views) == 2
    assert world.found == []


async def test_damaged_message_is_told_in_each_pass(world: World, aged: ShardWorld) -> None:
    number = world.manifest.delay_logs[-1].delay_log_id
    path = delay_log_path(aged.place.under("wheel"), number)
    for position in range(FILE_HEADER_BYTES, world.manifest.delay_logs[-1].bytes):
        aged.disk.flip_bit(path, position)
    world.start()
    await world.passes(1)
    sequences = [
        [int(one.units["sequence"][bad.ordinal]) for bad in one.bad] for one in world.found_messages
    ]
    assert sequences
    assert world.found_views == []
    await world.passes(2)
    assert len(world.found_messages) == 2 * len(sequences)


async def test_what_is_doubtful_is_left_for_a_while(world: World, aged: ShardWorld) -> None:
    aged.disk.flip_bit(aged.place.under("checkpoint"), 66)
    world.start()
    await world.passes(1)
    assert 1.0 in world.slept
