"""Jobs on their thread: one at a time, again after a full disk, and the last one when it closes."""

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest

from hourwheel import errors
from node.broker.job_runner import Background
from node.shard.job_planner import Maintenance, Work
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until

NOW_MS = 1_800_000_000_000


class FakeJob:
    """A job that goes on when it is let, or fails."""

    def __init__(self, name: str = "merge", error: Exception | None = None) -> None:
        self.name, self.error = name, error
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.is_slice_by_slice = False

    def run(self, pause: Callable[[], None]) -> None:
        self.begun.set()
        while self.is_slice_by_slice:
            pause()
        assert self.go_on.wait(60)
        if self.error is not None:
            raise self.error


class FakeMaintenance:
    """Plans the jobs that a test gives it."""

    def __init__(self, *jobs: FakeJob) -> None:
        self.jobs = list(jobs)
        self.said: list[str] = []
        self.no_room = False
        self.unsettled = 0
        self.unsaved_bytes = 0
        self.is_far_behind = False
        self.beside: FakeJob | None = None
        """The checkpoint that is due while a merge is under way."""

    @property
    def can_save_beside(self) -> bool:
        return self.beside is not None

    def plan_beside(self, now_ms: int) -> FakeJob | None:
        assert now_ms == NOW_MS
        if self.no_room:
            self.said.append("no room")
            raise errors.DiskFull
        job, self.beside = self.beside, None
        return job

    def settle(self, _now_ms: float) -> bool:
        self.unsettled -= self.unsettled > 0
        return not self.unsettled

    def plan(self, now_ms: int, *, force_checkpoint: bool = False) -> FakeJob | None:
        assert now_ms == NOW_MS
        if self.no_room:
            self.said.append("no room")
            raise errors.DiskFull
        if force_checkpoint:
            self.said.append("save")
            job = FakeJob("checkpoint")
            job.go_on.set()
            return job
        return self.jobs.pop(0) if self.jobs else None

    def finish(self, job: FakeJob, now_ms: int) -> list[Work]:
        assert now_ms == NOW_MS
        self.said.append(f"finish {job.name}")
        return [lambda: self.said.append("remove")]

    def fail(self, job: FakeJob) -> None:
        self.said.append(f"fail {job.name}")


class World:
    def __init__(self, *jobs: FakeJob) -> None:
        self.maintenance = FakeMaintenance(*jobs)
        self.failure, self.stats = Failure(), EngineStats()
        self.ends = 0
        self.background = Background(
            cast("Maintenance", self.maintenance),
            lambda: NOW_MS,
            self._on_end,
            self.failure,
            self.stats,
        )

    def _on_end(self) -> None:
        self.ends += 1

    def try_again_now(self) -> None:
        """As if the time to wait after a full disk were over."""
        self.background._not_before_s = 0.0
        self.background.start_if_due()

    async def close(self, *, save: bool = False) -> None:
        await within(self.background.close(save=save))


async def test_one_job_runs_at_a_time_and_the_next_begins_when_it_ends() -> None:
    first, second = FakeJob("checkpoint"), FakeJob("cascade")
    world = World(first, second)
    world.background.start_if_due()
    await until(first.begun.is_set)
    world.background.start_if_due()
    await let_others_run()
    assert not second.begun.is_set()
    assert world.maintenance.jobs == [second], "not even planned"
    first.go_on.set()
    await until(second.begun.is_set)
    assert world.maintenance.said == ["finish checkpoint", "remove"]
    assert world.ends == 1
    second.go_on.set()
    await until(lambda: world.ends == 2)
    await world.close()
    stats = world.stats
    assert (stats.checkpoints, stats.flushes, stats.cascades, stats.merges) == (1, 1, 1, 0)
    assert stats.checkpoint_ms == NOW_MS


async def test_checkpoint_goes_first_while_a_merge_rests() -> None:
    merge, saving = FakeJob("merge"), FakeJob("checkpoint")
    merge.is_slice_by_slice = True
    world = World(merge)
    world.background.start_if_due()
    await until(merge.begun.is_set)
    world.maintenance.beside, world.maintenance.unsettled = saving, 5
    world.background.start_if_due()
    await until(saving.begun.is_set)
    assert not world.maintenance.unsettled, "it was prepared in several turns"
    waiting = asyncio.create_task(world.background.wait_for_checkpoint())
    await let_others_run()
    assert not waiting.done()
    world.background.start_if_due()
    saving.go_on.set()
    await within(waiting)
    await until(lambda: world.maintenance.said == ["finish checkpoint", "remove"])
    assert (world.ends, world.stats.checkpoints, world.stats.merges) == (1, 1, 0)
    merge.is_slice_by_slice = False
    merge.go_on.set()
    await until(lambda: world.stats.merges == 1)
    await world.close()
    assert not world.failure.found.done()


async def test_producers_wait_for_the_checkpoint_and_for_no_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    merge, saving = FakeJob("merge"), FakeJob("checkpoint")
    merge.is_slice_by_slice = True
    saving.go_on.set()
    world = World(merge)
    world.background.start_if_due()
    await until(merge.begun.is_set)
    finish = world.maintenance.finish

    def catch_up(job: FakeJob, now_ms: int) -> list[Work]:
        world.maintenance.is_far_behind = False
        return finish(job, now_ms)

    monkeypatch.setattr(world.maintenance, "finish", catch_up)
    world.maintenance.beside, world.maintenance.is_far_behind = saving, True
    await within(world.background.wait_until_near())
    assert (world.stats.checkpoints, world.stats.merges) == (1, 0)
    merge.is_slice_by_slice = False
    merge.go_on.set()
    await world.close()


@pytest.mark.parametrize("at", ["plan", "run"])
async def test_merge_goes_on_when_the_checkpoint_beside_it_finds_no_room(at: str) -> None:
    merge, saving = FakeJob("merge"), FakeJob("checkpoint", errors.DiskFull("none"))
    merge.is_slice_by_slice = True
    saving.go_on.set()
    world = World(merge)
    world.background.start_if_due()
    await until(merge.begun.is_set)
    world.maintenance.beside, world.maintenance.no_room = saving, at == "plan"
    world.background.start_if_due()
    said = "no room" if at == "plan" else "fail checkpoint"
    await until(lambda: world.maintenance.said == [said])
    await within(world.background.wait_for_checkpoint())
    merge.is_slice_by_slice = False
    merge.go_on.set()
    await until(lambda: world.stats.merges == 1)
    assert world.stats.checkpoints == 0
    await world.close()
    assert not world.failure.found.done()


async def test_close_waits_for_the_checkpoint_and_drops_the_merge() -> None:
    merge, saving = FakeJob("merge"), FakeJob("checkpoint")
    merge.is_slice_by_slice = True
    world = World(merge)
    world.background.start_if_due()
    await until(merge.begun.is_set)
    world.maintenance.beside = saving
    world.background.start_if_due()
    await until(saving.begun.is_set)
    closing = asyncio.create_task(world.background.close(save=False))
    await let_others_run()
    assert not closing.done()
    saving.go_on.set()
    await within(closing)
    assert world.maintenance.said == ["finish checkpoint", "remove", "fail merge"]


async def test_node_ends_when_the_checkpoint_beside_a_merge_fails() -> None:
    merge, saving = FakeJob("merge"), FakeJob("checkpoint", ZeroDivisionError("a bug"))
    merge.is_slice_by_slice = True
    saving.go_on.set()
    world = World(merge)
    world.background.start_if_due()
    await until(merge.begun.is_set)
    world.maintenance.beside = saving
    world.background.start_if_due()
    assert type(await within(world.failure.found)) is errors.Internal
    await world.close()


async def test_a_plan_is_prepared_in_as_many_turns_as_it_takes() -> None:
    job = FakeJob()
    job.go_on.set()
    world = World(job)
    world.maintenance.unsettled = 50
    world.background.start_if_due()
    world.background.start_if_due()
    assert world.maintenance.unsettled == 49, "once in a turn, whoever asks"
    await until(lambda: world.ends == 1)
    await world.close()


async def test_job_is_tried_again_later_when_the_disk_was_full() -> None:
    first, second = FakeJob("merge", errors.DiskFull("none")), FakeJob("merge")
    first.go_on.set()
    second.go_on.set()
    world = World(first, second)
    world.background.start_if_due()
    await until(lambda: world.ends == 1)
    assert world.maintenance.said == ["fail merge"]
    world.background.start_if_due()
    await let_others_run()
    assert world.maintenance.jobs == [second], "not at once"
    assert world.stats.merges == 0
    world.try_again_now()
    await until(lambda: world.stats.merges == 1)
    assert not world.failure.found.done()
    await world.close()


async def test_job_is_planned_again_later_when_there_is_no_room_to_begin() -> None:
    job = FakeJob()
    job.go_on.set()
    world = World(job)
    world.maintenance.no_room = True
    world.background.start_if_due()
    world.maintenance.no_room = False
    world.background.start_if_due()
    assert world.maintenance.said == ["no room"]
    assert world.maintenance.jobs == [job]
    world.try_again_now()
    await until(lambda: world.stats.merges == 1)
    await world.close()


@pytest.mark.parametrize(
    ("error", "reported"),
    [(ZeroDivisionError("a bug"), errors.Internal), (errors.FsyncFailed("no"), errors.FsyncFailed)],
)
async def test_node_ends_when_a_job_fails(
    error: Exception, reported: type[errors.HourwheelError]
) -> None:
    broken, next_one = FakeJob("merge", error), FakeJob()
    broken.go_on.set()
    world = World(broken, next_one)
    world.background.start_if_due()
    found = await within(world.failure.found)
    assert type(found) is reported
    world.background.start_if_due()
    assert world.maintenance.jobs == [next_one]
    world.maintenance.unsaved_bytes = 1
    await world.close(save=True)
    assert "save" not in world.maintenance.said


@pytest.mark.parametrize(
    ("unsaved_bytes", "save", "said"),
    [
        (1, True, ["save", "finish checkpoint", "remove"]),
        (1, False, []),
        (0, True, []),
    ],
)
async def test_last_checkpoint_is_written_when_there_is_something_to_save(
    unsaved_bytes: int, save: bool, said: list[str]
) -> None:
    world = World(FakeJob())
    world.maintenance.unsaved_bytes = unsaved_bytes
    await world.close(save=save)
    assert world.maintenance.said == said
    assert world.stats.checkpoints == int(bool(said))
    world.background.start_if_due()
    assert len(world.maintenance.jobs) == 1, "nothing begins any more"


async def test_merge_is_left_when_the_node_closes() -> None:
    job = FakeJob()
    job.is_slice_by_slice = True
    world = World(job)
    world.maintenance.unsaved_bytes = 1
    world.background.start_if_due()
    await until(job.begun.is_set)
    await world.close(save=True)
    assert world.maintenance.said == ["fail merge", "save", "finish checkpoint", "remove"]


async def test_close_waits_for_a_checkpoint_that_is_under_way() -> None:
    job = FakeJob("checkpoint")
    world = World(job)
    world.background.start_if_due()
    await until(job.begun.is_set)
    closing = asyncio.ensure_future(world.close())
    await let_others_run()
    assert not closing.done()
    job.go_on.set()
    await closing
    assert world.maintenance.said == ["finish checkpoint", "remove"]


async def test_manifest_is_changed_by_none_but_the_job_that_is_under_way() -> None:
    job, later = FakeJob("checkpoint"), FakeJob()
    world = World(job, later)
    world.background.start_if_due()
    await until(job.begun.is_set)
    ended = world.background.end_with(lambda: world.maintenance.said.append("distrust"))
    await let_others_run()
    assert world.maintenance.said == []
    job.go_on.set()
    await within(ended)
    assert world.maintenance.said == ["finish checkpoint", "remove", "distrust"]
    assert not later.begun.is_set(), "nothing begins any more"
    await world.close()


async def test_merge_is_left_for_what_is_to_be_done_at_the_end() -> None:
    job = FakeJob()
    job.is_slice_by_slice = True
    world = World(job)
    world.background.start_if_due()
    await until(job.begun.is_set)
    await within(world.background.end_with(lambda: world.maintenance.said.append("distrust")))
    assert world.maintenance.said == ["fail merge", "distrust"]
    await within(world.background.end_with(lambda: world.maintenance.said.append("once more")))
    assert world.maintenance.said[-1] == "once more"
    await world.close()


async def test_publishing_waits_when_it_outruns_flushing() -> None:
    job = FakeJob("checkpoint")
    world = World(job)
    await within(world.background.wait_until_near())
    world.maintenance.is_far_behind = True
    waiting = asyncio.ensure_future(world.background.wait_until_near())
    await until(job.begun.is_set)
    assert not waiting.done()
    world.maintenance.is_far_behind = False
    job.go_on.set()
    await within(waiting)
    await world.close()


async def test_publishing_waits_no_longer_when_there_is_no_room_to_flush() -> None:
    """Whoever publishes is told that by the log."""
    world = World()
    world.maintenance.is_far_behind = True
    waiting = asyncio.ensure_future(world.background.wait_until_near())
    await let_others_run()
    assert not waiting.done()
    world.maintenance.no_room = True
    world.background.start_if_due()
    await within(waiting)
    await world.close()


async def test_publishing_waits_no_longer_when_the_node_closes() -> None:
    world = World()
    world.maintenance.is_far_behind = True
    waiting = asyncio.ensure_future(world.background.wait_until_near())
    await let_others_run()
    assert not waiting.done()
    await world.close()
    await within(waiting)
