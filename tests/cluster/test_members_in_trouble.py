"""Members whose disks are full or fail, and members with bugs."""

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from tests.support.engine_world import within
from tests.support.eventually import until
from tests.support.member_world import MemberNode, MemberWorld


async def test_follower_with_a_full_disk_leaves_the_set_and_comes_back(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = await world.elect("n1"), world["n2"]
        await n1.publish(100_000)
        await world.agreed()
        n2.guard.free_bytes_min = 1 << 60
        n2.guard.check(0)
        await until(lambda: world.control.in_sync == {"n1", "n3"})
        await n1.publish(100_000)
        await until(lambda: world.control.reports["n2"].is_low)
        n2.guard.free_bytes_min = 0
        n2.guard.check(0)
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.agreed()


async def test_master_whose_write_finds_no_room_hands_over(tmp_path: Path) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        fill(n1)
        with pytest.raises(errors.Timeout, match="unknown"):
            await n1.publish(100_000)
        assert not n1.serves
        assert world.control.reports["n1"].is_resigning
        assert n1.replica.stats.step_down_requests == 1
        n2 = await world.elect("n2")  # time stands still: the promise was released
        await n2.publish(100_000)
        make_room(n1)
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.agreed()


async def test_node_that_resigned_for_want_of_room_can_lead_again_when_it_has_some(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        fill(n1)
        with pytest.raises(errors.Timeout):
            await n1.publish(100_000)
        await until(lambda: world.control.reports["n1"].is_resigning)
        make_room(n1)
        await until(lambda: not world.control.reports["n1"].is_resigning)
        await until(lambda: world.control.reports["n1"].is_ready)
        assert world.control.reports["n1"].has_retired
        await world.elect("n1")
        await until(lambda: not world.control.reports["n1"].has_retired)
        await n1.publish(100_000)
        await world.agreed()


async def test_what_is_durable_is_delivered_when_all_disks_are_low(tmp_path: Path) -> None:
    """And messages are refused; also after the master is gone."""
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(0, 0, 5_000)
        assert (await n1.bodies(1))[:1] == b"0"
        await world.agreed()
        set_low(world, *world.nodes)
        with pytest.raises(errors.DiskFull):
            await n1.publish(0)
        n2 = await world.elect("n2")
        # On a busy machine a follower may lag a moment, and come back.
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.pass_ms(5_000)
        await until(lambda: n2.shard.views.cursor.released_count == 3)
        with pytest.raises(errors.DiskFull):
            await n2.publish(0)
        set_low(world)
        await until(lambda: not n2.guard.refusal)
        await n2.publish(0)
        await world.agreed()


async def test_messages_are_refused_where_the_only_other_copy_would_be_on_a_low_disk(
    tmp_path: Path,
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect_with_message("n1")
        set_low(world, "n2")
        await until(lambda: world.control.in_sync == {"n1", "n3"})
        await n1.publish(100_000)
        await world["n3"].cut()
        world.control.dead.add("n3")
        await until(lambda: world.control.in_sync == {"n1", "n2"})
        await until(lambda: n1.guard.refusal)
        with pytest.raises(errors.DiskFull, match="n2"):
            await n1.publish(100_000)
        assert n1.engine.gauges().read_only_reason
        world.control.dead.clear()
        await world["n3"].listen()
        await until(lambda: world.control.in_sync == {"n1", "n3"})
        await until(lambda: not n1.guard.refusal)
        await n1.publish(100_000)
        set_low(world)
        await until(lambda: world.control.in_sync == {"n1", "n2", "n3"})
        await world.agreed()


def set_low(world: MemberWorld, *nodes: str) -> None:
    """Exactly these have little room."""
    for name, node in world.nodes.items():
        node.guard.free_bytes_min = (1 << 60) if name in nodes else 0
        node.guard.check(0)


class NoRoom(Executor):
    """In place of the thread that writes."""

    def __init__(self, room: ThreadPoolExecutor) -> None:
        self.room = room

    def submit(self, *_: Any, **__: Any) -> "Future[Any]":  # type: ignore[override]
        failed: Future[Any] = Future()
        failed.set_exception(errors.DiskFull("no space left on device"))
        return failed


def fill(node: MemberNode) -> None:
    """No write finds room from now on."""
    writer: Any = node.engine.group_commit
    writer._flusher = NoRoom(writer._flusher)
    node.guard.free_bytes_min = 1 << 60


def make_room(node: MemberNode) -> None:
    writer: Any = node.engine.group_commit
    writer._flusher = writer._flusher.room
    node.guard.free_bytes_min = 0
    node.guard.check(0)


async def test_new_epoch_is_noted_later_when_there_is_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemberWorld(tmp_path) as world:
        n1, n2 = world["n1"], world["n2"]
        seen = n1.replica.follower._seen
        asked: list[int] = []

        def note(epoch: int, master: str) -> None:
            asked.append(epoch)
            raise errors.DiskFull

        monkeypatch.setattr(seen, "note", note)
        world.control.elect("n1")
        await until(lambda: len(asked) > 1)
        assert not n1.failure.found.done()
        reports = world.control.reports
        await until(lambda: reports["n1"].is_resigning)
        assert reports["n1"].epoch == 1, "else it would not be about this one"
        monkeypatch.undo()
        await world.serving("n1")
        assert n2.replica.assignment.epoch == 1
        await until(lambda: not reports["n1"].is_resigning)


async def test_process_ends_when_a_follower_cannot_make_its_log_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemberWorld(tmp_path) as world:
        world.expected.add("n2")
        n2 = world["n2"]

        def truncate(offset: int) -> None:
            raise errors.FsyncFailed("no")

        monkeypatch.setattr(n2.shard, "truncate", truncate)
        world.control.elect("n1")
        assert isinstance(await within(asyncio.shield(n2.failure.found)), errors.FsyncFailed)


async def test_process_ends_when_the_step_has_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemberWorld(tmp_path) as world:
        world.expected.add("n3")
        n3 = world["n3"]
        monkeypatch.setattr(n3.replica, "step", lambda _: 1 // 0)
        failed = await within(asyncio.shield(n3.failure.found))
        assert isinstance(failed, errors.Internal)
        assert "ZeroDivisionError" in failed.message


async def test_I1_lease_that_ends_while_its_master_hands_over_is_not_forgotten(  # noqa: N802
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it ended is in the log of a master whose mastership is over, and nowhere else."""
    async with MemberWorld(tmp_path) as world:
        n1 = await world.elect("n1")
        await n1.publish(0)
        assert await n1.bodies(1) == b"0"
        await world.agreed()
        monkeypatch.setattr(n1.replica, "find_part", lambda _: None)
        end = n1.shard.log.end_offset
        await world.pass_ms(30_000)
        await until(lambda: n1.shard.log.end_offset > end)
        n2 = await world.elect("n2")
        await world.pass_ms(15_000)  # what is held ends, and the retry's delay
        assert await n2.bodies(1) == b"0"
        monkeypatch.undo()
        await world.agreed()
