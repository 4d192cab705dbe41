"""Each byte of the views that the manifest vouches for is verified, and nothing else."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from node.shard.view_check import EPOCHS, MANIFEST, TAIL, ViewCheck, ViewFile, find_names
from storage.files.file_header import FILE_HEADER_BYTES
from storage.views.unit import Units
from tests.support.shard_world import IDENTITY, ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import age, begin_world, live

KINDS = (MANIFEST, EPOCHS, TAIL, ".seq", ".tomb", ".run", ".dlog", ".cq")


@pytest.fixture
def world() -> Iterator[ShardWorld]:
    """A shard with files of all kinds, and more in its log than its checkpoint has."""
    with small_sizes(16):
        world = begin_world(3)
        age(world, Random(3))
        live(world, Random(4), 12)
        world.save()
        world.publish([world.now_ms] * 40)
        world.commit()
        world.advance(2_000)
        world.commit()
        yield world


def names(world: ShardWorld, end: str = "") -> list[str]:
    """Of what is needed: a queue's folder may have chunks that are just about to be removed."""
    manifest = world.opened.maintenance.manifest
    found = find_names(world.disk, world.place.directory, manifest)
    return [one for one in found if one.endswith(end) and (end != ".cq" or check(world, one) > 0)]


def view_file(world: ShardWorld, name: str) -> ViewFile:
    return ViewFile(name, world.place.under(name), 0)


def check(world: ShardWorld, name: str, *, is_growing: bool = True) -> int:
    """How many bytes are well."""
    manifest = world.opened.maintenance.manifest
    found = ViewCheck(world.disk, IDENTITY, manifest, is_growing=is_growing)
    return sum(found.steps(view_file(world, name)))


def size(world: ShardWorld, name: str) -> int:
    file = world.disk.open(world.place.under(name))
    found = file.size()
    file.close()
    return found


def test_files_of_all_kinds_are_named_and_well(world: ShardWorld) -> None:
    for kind in KINDS:
        found = names(world, kind)
        assert found, kind
        assert [name for name in found if check(world, name) == 0] == []


def test_nothing_is_named_before_the_first_checkpoint() -> None:
    world = begin_world()
    assert names(world) == []


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bit_is_found_and_the_file_is_named(world: ShardWorld, kind: str) -> None:
    rng = Random(kind)
    for name in names(world, kind):
        path, end = world.place.under(name), size(world, name)
        if kind in {".cq", ".dlog"}:  # seals take turns; of a delay log it is the header
            end = FILE_HEADER_BYTES - 8
        if kind == ".tomb":  # other pages lie behind what the manifest counts
            end = world.opened.maintenance.manifest.tombstone_bytes
        if kind == ".seq":
            end = FILE_HEADER_BYTES + 8
        for _ in range(12):
            at = rng.randrange(end)
            if 44 <= at < FILE_HEADER_BYTES - 4:
                continue  # a header has room that says nothing
            world.disk.flip_bit(path, at)
            with pytest.raises(errors.HourwheelError) as caught:
                check(world, name)
            world.disk.flip_bit(path, at)
            assert isinstance(
                caught.value,
                errors.CorruptFile | errors.ForeignDirectory | errors.IncompatibleFormat,
            ), (name, at)
            assert check(world, name) >= 0


def test_entry_of_a_queue_is_found_damaged(world: ShardWorld) -> None:
    for name in names(world, ".cq"):
        world.disk.flip_bit(world.place.under(name), 256 + 10)
        with pytest.raises(errors.CorruptFile, match="CRC32C"):
            check(world, name)
        world.disk.flip_bit(world.place.under(name), 256 + 10)


def test_queue_that_was_sealed_further_is_well_only_where_the_shard_goes_on(
    world: ShardWorld,
) -> None:
    """By a manifest of two checkpoints ago, whose seal is overwritten by now."""

    def release_one() -> None:
        world.publish([world.now_ms])
        world.commit()
        world.advance(100)
        world.commit()
        world.save()

    manifests = [world.opened.maintenance.manifest]
    while len(manifests) < 20:
        release_one()
        manifests.append(world.opened.maintenance.manifest)
    former = next(
        one
        for one, later in pairwise(manifests[::4])
        for before, after in zip(one.queues, later.queues, strict=True)
        if before.end_position % 16
        and before.end_position < after.end_position
        and before.end_position // 16 == after.end_position // 16
    )
    grown = names(world, ".cq")
    growing = ViewCheck(world.disk, IDENTITY, former, is_growing=True)
    for name in grown:
        growing.run(view_file(world, name))
    still = ViewCheck(world.disk, IDENTITY, former)
    assert any(_is_refused(still, view_file(world, name)) for name in grown)


def _is_refused(check: ViewCheck, file: ViewFile) -> bool:
    try:
        check.run(file)
    except errors.CorruptFile as error:
        return "no seal" in error.message
    return False


def test_units_that_are_needed_are_shown(world: ShardWorld) -> None:
    """All that is pending in runs, and all of the queues; each once."""
    shown: list[tuple[int, int]] = []

    def note(units: Units) -> Iterator[int]:
        shown.extend(zip(units["sequence"].tolist(), units["attempt"].tolist(), strict=True))
        return iter(())

    world.save()
    manifest = world.opened.maintenance.manifest
    checked = ViewCheck(world.disk, IDENTITY, manifest, is_growing=True, on_units=note)
    for name in names(world):
        checked.run(view_file(world, name))
    views = world.shard.views
    wanted: list[tuple[int, int]] = []
    for queue in views.queues.all():
        units = queue.pick(np.arange(queue.start_position, queue.end_position, dtype=np.int64))
        wanted.extend(zip(units["sequence"].tolist(), units["attempt"].tolist(), strict=True))
    for run in views.wheel.runs.all():
        for bucket in run.buckets():
            units = run.read(*run.section(bucket))
            units = units[units["due_ms"] > manifest.cursor.due_ms]
            wanted.extend(zip(units["sequence"].tolist(), units["attempt"].tolist(), strict=True))
    assert set(wanted) <= set(shown)
    assert len(wanted) > 20
