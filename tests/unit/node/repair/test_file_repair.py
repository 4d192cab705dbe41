"""Files of a shard that are repaired: what may be, from whom, and what is left alone."""

from pathlib import Path

import pytest

from hourwheel import errors
from node.repair.file_repair import FileRepair
from tests.support.damaging import FakePeers, Flip, join_peers
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until


async def three_segments(world: EngineWorld) -> tuple[FileRepair, FakePeers]:
    """Each with a publish, the last one open."""
    peers = join_peers(world)
    for number in range(3):
        world.engine.shard.log.roll_behind(world.engine.shard.log.end_offset - 1)
        await world.publish(world.now_ms + 3_600_000 + number)
    assert len(world.engine.shard.log.segments()) > 2
    peers.remember(world)
    return world.engine.damage.files, peers


async def test_closed_segment_is_mended(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        files, peers = await three_segments(world)
        log = world.engine.shard.log
        body = b"%d" % (world.now_ms + 3_600_000)
        flip = Flip(tmp_path, body)
        start = int(flip.path.stem)
        sound, peers.log = peers.log, {}
        assert not await files.mend_at(start), "nobody has it"
        assert not flip.is_there(body)
        peers.log = sound
        assert await files.mend_at(start)
        assert flip.is_there(body)
        assert world.engine.stats.repaired_files == 1
        assert log.read(0, len(sound[0])) == sound[0]
        assert await files.mend_at(start), "there is nothing to do"
        assert world.engine.stats.repaired_files == 1


async def test_segment_that_is_written_to_is_closed_first_though_nobody_writes(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        files, peers = await three_segments(world)
        log, body = world.engine.shard.log, b"%d" % (world.now_ms + 3_600_002)
        last = log.segments()[-1]
        flip = Flip(tmp_path, body)
        assert int(flip.path.stem) == last.start_offset
        assert files.find_closed(last.start_offset) is None
        assert not await files.mend_at(last.start_offset)
        await until(lambda: log.segments()[-1].start_offset == last.end_offset)
        assert await files.mend_at(last.start_offset)
        assert flip.is_there(body)
        assert log.end_offset == last.end_offset
        assert not await files.mend_at(log.end_offset), "there is nothing to close"
        (start,) = peers.log
        await world.restart()
        log = world.engine.shard.log
        assert log.read(start, len(peers.log[start])) == peers.log[start]
        await world.publish(world.now_ms)
        assert [one.start_offset for one in log.segments()].count(last.end_offset) == 1


async def test_segment_is_not_closed_when_there_is_no_room_for_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        files, _ = await three_segments(world)
        log = world.engine.shard.log
        last, appended = log.segments()[-1], log.end_offset
        monkeypatch.setattr(world.disk, "free_bytes", lambda: 1 << 20)
        assert not await files.mend_at(last.start_offset)
        await world.publish(world.now_ms)
        assert log.segments()[-1].start_offset == last.start_offset
        assert log.end_offset > appended


async def test_what_is_not_committed_is_left_alone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        files, _ = await three_segments(world)
        shard = world.engine.shard
        second = shard.log.segments()[1]
        shard.committed_offset = second.end_offset - 1
        assert files.find_closed(second.start_offset) is None
        shard.committed_offset = second.end_offset
        assert files.find_closed(second.start_offset) == second
        assert await files.mend_at(-1), "past retention"


async def test_too_much_damage_is_not_mended_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.repair.file_repair.PATCH_BYTES_MAX", -1)
    async with EngineWorld(tmp_path) as world:
        files, _ = await three_segments(world)
        flip = Flip(tmp_path, b"%d" % (world.now_ms + 3_600_000))
        assert not await files.mend_at(int(flip.path.stem))


async def test_there_is_no_room_for_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        files, _ = await three_segments(world)
        body = b"%d" % (world.now_ms + 3_600_000)
        flip = Flip(tmp_path, body)

        def full(*_: object, **__: object) -> None:
            raise errors.DiskFull("no room")

        with monkeypatch.context() as patch:
            patch.setattr("storage.log.segment_mend.rewrite.rewrite", full)
            assert not await files.mend_at(int(flip.path.stem))
        assert not world.failure.found.done()
        assert await files.mend_at(int(flip.path.stem))
        assert flip.is_there(body)
