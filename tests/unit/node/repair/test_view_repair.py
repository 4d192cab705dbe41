"""What becomes of each damaged file of the views, alone and in a cluster."""

from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.errors import DataLoss
from node.repair.view_repair import ViewRepair
from storage.log.epochs import EpochFile
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until


class Repaired:
    """A `ViewRepair` of an engine, and what it asks for."""

    def __init__(self, world: EngineWorld, *, is_alone: bool = True) -> None:
        self.place = world.engine.place
        self.failed: list[errors.CorruptFile] = []
        self.given_up: list[DataLoss] = []
        self.repair = ViewRepair(
            *(world.engine.shard, world.opened.epochs, world.failure),
            save_soon=world.engine.background.save_soon,
            fail=self.failed.append,
            give_up=None if is_alone else self.given_up.append,
        )

    def damage(self, name: str) -> errors.CorruptFile:
        path = self.place.under(name)
        error = errors.CorruptFile(f"{path}: damaged", file=path)
        self.repair.on_damage(error)
        return error


def flip(world: EngineWorld, tmp_path: Path, name: str, at: int) -> bytes:
    """The file as it was."""
    path = tmp_path / world.engine.place.under(name)
    was = path.read_bytes()
    raw = bytearray(was)
    raw[at] ^= 1
    path.write_bytes(raw)
    return was


async def begin(world: EngineWorld) -> None:
    """There is a checkpoint, and nothing has happened since."""
    await world.publish(*range(world.now_ms + 60_000, world.now_ms + 60_020))
    world.engine.background.save_soon()
    await until(lambda: world.engine.stats.checkpoints == 1)


@pytest.mark.parametrize("name", ["checkpoint", "sequences/tail"])
async def test_file_of_each_checkpoint_is_written_anew(tmp_path: Path, name: str) -> None:
    async with EngineWorld(tmp_path) as world:
        await begin(world)
        was, repaired = flip(world, tmp_path, name, 70), Repaired(world)
        repaired.damage(name)
        await until(lambda: world.engine.stats.checkpoints == 2)
        now = (tmp_path / world.engine.place.under(name)).read_bytes()
        assert len(now) == len(was)
        assert now == was or name == "checkpoint"
        assert not repaired.failed
        await world.restart()
        assert not world.opened.rebuilt_because
        assert world.engine.status().pending_count == 20


async def test_epochs_are_written_anew(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await begin(world)
        flip(world, tmp_path, "epochs", 70)
        place = world.engine.place
        with pytest.raises(errors.CorruptFile):
            EpochFile.open(place.disk, place.under("epochs"), place.identity)
        Repaired(world).damage("epochs")
        found = EpochFile.open(place.disk, place.under("epochs"), place.identity)
        assert found.entries == world.opened.epochs.entries


@pytest.mark.parametrize("name", ["wheel/1.run", "queues/00000100/000.cq", "sequences/0.seq"])
async def test_others_lead_in_a_cluster(tmp_path: Path, name: str) -> None:
    async with EngineWorld(tmp_path) as world:
        await begin(world)
        repaired = Repaired(world, is_alone=False)
        error = repaired.damage(name)
        assert (repaired.given_up, repaired.failed) == ([error], [])


async def test_views_are_built_anew_when_the_log_of_a_node_alone_is_whole(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await begin(world)
        repaired = Repaired(world)
        error = repaired.damage("wheel/1.run")
        assert repaired.failed == [error]


async def test_node_alone_goes_on_when_its_log_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with EngineWorld(tmp_path) as world:
        await begin(world)
        repaired = Repaired(world)
        monkeypatch.setattr(type(world.engine.shard.log), "start_offset", 100)
        repaired.damage("wheel/1.run")
        monkeypatch.undo()
        assert repaired.failed == []
        assert "view_damage_unrepairable" in caplog.text
        assert not world.failure.found.done()
