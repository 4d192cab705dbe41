"""What a snapshot is going to carry: damage is found before it is given."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from hourwheel import errors
from node.snapshot.source import HeldSnapshot
from storage.files.file_header import FILE_HEADER_BYTES
from storage.queues.queue_chunk import ENTRIES_AT
from tests.support.shard_world import ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import age, begin_world, hold, live, log_state

KINDS = {
    "checkpoint": "checkpoint",
    "epochs": "epochs",
    "log": ".log",
    "queues": ".cq",
    "runs": ".run",
    "sequences": ".seq",
    "tail": "tail",
    "tombstones": ".tomb",
}


@pytest.fixture(scope="module")
def world() -> Iterator[ShardWorld]:
    with small_sizes(16):
        world = begin_world(3)
        age(world, Random(3))
        live(world, Random(4), 12)
        world.save()
        world.publish([world.now_ms] * 3)
        world.commit()
        yield world


def names(stage: HeldSnapshot, end: str) -> list[str]:
    return [one.name for one in stage.head().files if one.name.endswith(end)]


def flip(world: ShardWorld, name: str, at: Callable[[int], int]) -> None:
    """Flip a bit of a shard's file, or flip it back."""
    file = world.disk.open(world.place.under(name))
    position = at(file.size())
    (byte,) = file.pread(1, position)
    file.pwrite((bytes((byte ^ 1,)),), position)
    file.close()


def find_damage(world: ShardWorld, name: str, at: Callable[[int], int]) -> errors.DataLoss | None:
    """What is said of a snapshot whose file was damaged before it was held."""
    flip(world, name, at)
    stage = HeldSnapshot(world.place, 1)
    try:
        stage = hold(world, 1)
        stage.verify()
    except errors.DataLoss as error:
        return error
    finally:
        stage.close()
        flip(world, name, at)
    return None


def test_sound_snapshot_is_given(world: ShardWorld) -> None:
    stage = hold(world)
    stage.verify()
    stage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_and_named(world: ShardWorld, kind: str) -> None:
    stage = hold(world)
    found = names(stage, KINDS[kind])
    stage.close()
    assert found
    for name in found[-2:]:
        places: list[Callable[[int], int]] = [lambda _: 20]
        if kind == "queues":
            places += [lambda _: ENTRIES_AT + 10]
        elif kind == "sequences":
            places += [lambda _: FILE_HEADER_BYTES + 8]
        elif kind == "runs":
            places += [lambda _: FILE_HEADER_BYTES + 70, lambda size: size - 1]
            places += [lambda size: (FILE_HEADER_BYTES + size) // 2]
        elif kind in {"tail", "tombstones", "checkpoint"}:
            places += [lambda size: size - 1]
        elif name == found[-1]:
            places += [lambda _: FILE_HEADER_BYTES + 5]
        for place in places:
            error = find_damage(world, name, place)
            assert error is not None, name
            if kind != "checkpoint":
                assert error.params["file"] == world.place.under(name)
                assert world.place.under(name) in error.message
            assert ("offset" in error.params) == (kind == "log")
            assert isinstance(error, errors.CorruptLog) == (kind == "log")


def test_old_log_and_delay_logs_are_left_to_others(world: ShardWorld) -> None:
    """They are read again and again, and when they are needed; and repaired piece by piece."""
    stage = hold(world)
    old, delay_log = names(stage, ".log")[0], names(stage, ".dlog")[0]
    assert old.replace(".log", ".index") in names(stage, ".index")
    stage.close()
    for name in (old, delay_log):
        assert find_damage(world, name, lambda _: FILE_HEADER_BYTES + 5) is None
        assert find_damage(world, name, lambda _: 20) is not None


@pytest.mark.parametrize("end", [".run", ".dlog"])
def test_file_that_is_missing_is_named(world: ShardWorld, end: str) -> None:
    """And not taken for a shard that changes too fast."""
    stage = hold(world)
    path = world.place.under(names(stage, end)[0])
    stage.close()
    world.disk.rename(path, path + ".aside")
    stage = HeldSnapshot(world.place, 2)
    stage.begin()
    with pytest.raises(errors.CorruptFile, match="is missing") as caught:
        stage.complete(log_state(world))
    stage.close()
    assert caught.value.params["file"] == path
    world.disk.rename(path + ".aside", path)
