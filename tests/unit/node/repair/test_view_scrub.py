"""All of the views and of the delay logs is looked at, while the shard goes on."""

from collections.abc import Iterator
from random import Random

import pytest

from node.repair.view_scrub import ViewScrub
from node.shard.view_check import EPOCHS, MANIFEST, TAIL, find_names
from storage.files.file_header import FILE_HEADER_BYTES
from tests.support.shard_world import IDENTITY, ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import age, begin_world, live

STEP_BYTES = 1_000
KINDS = (MANIFEST, EPOCHS, TAIL, ".seq", ".tomb", ".run", ".dlog")


@pytest.fixture
def world() -> Iterator[ShardWorld]:
    with small_sizes(16):
        world = begin_world(3)
        age(world, Random(3))
        live(world, Random(4), 12)
        world.save()
        world.remove()
        yield world


class Pass:
    """One look at everything, piece by piece."""

    def __init__(self, world: ShardWorld) -> None:
        self.world = world
        place, log = world.place, world.shard.log
        self.scrub = ViewScrub(place.disk, place.directory, IDENTITY, log)
        self.verified_bytes = 0
        self.doubts = 0
        self.sequences: list[int] = []

    def step(self) -> bool:
        """Take a step. False: it was the last."""
        count = self.scrub.run(STEP_BYTES, self.world.opened.maintenance.manifest)
        self.doubts += self.scrub.is_doubtful
        for units, bad in self.scrub.messages:
            self.sequences += [int(units["sequence"][one.ordinal]) for one in bad]
        self.scrub.messages.clear()
        self.verified_bytes += count or 0
        return count is not None

    def run(self) -> list[str]:
        """To the end; names of the files that are damaged."""
        while self.step():
            pass
        self.scrub.close()
        skipped = len(self.world.place.directory) + 1
        return [str(one.params["file"])[skipped:] for one in self.scrub.damaged]


def names(world: ShardWorld, end: str) -> list[str]:
    manifest = world.opened.maintenance.manifest
    found = find_names(world.disk, world.place.directory, manifest)
    return [one for one in found if one.endswith(end)]


def referred_to(world: ShardWorld) -> dict[tuple[int, int], int]:
    """(delay log, byte) -> sequence, of all that runs and queues need."""
    views, found = world.shard.views, {}
    for run in views.wheel.runs.all():
        for bucket in run.buckets():
            for unit in run.read(*run.section(bucket)):
                if int(unit["due_ms"]) > world.opened.maintenance.manifest.cursor.due_ms:
                    found[int(unit["dlog_id"]), int(unit["position"])] = int(unit["sequence"])
    for state in world.opened.maintenance.manifest.queues:
        queue = views.queues.get(state.topic_queue)
        at = state.start_position
        while at < state.end_position:
            units = queue.read(at, state.end_position - at)
            at += len(units)
            for unit in units:
                found[int(unit["dlog_id"]), int(unit["position"])] = int(unit["sequence"])
    return {place: sequence for place, sequence in found.items() if place[0]}


def test_sound_shard_is_looked_at_as_a_whole(world: ShardWorld) -> None:
    looked = Pass(world)
    assert looked.run() == []
    assert (looked.sequences, looked.doubts) == ([], 0)
    assert (
        looked.verified_bytes
        > sum(one.bytes for one in world.opened.maintenance.manifest.delay_logs) // 2
    )


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_named_once_and_the_rest_looked_at(world: ShardWorld, kind: str) -> None:
    name, last = names(world, kind)[-1], names(world, ".cq")[-1]
    world.disk.flip_bit(world.place.under(name), 20)
    world.disk.flip_bit(world.place.under(last), 20)
    looked = Pass(world)
    assert looked.run() == [name, last]
    assert looked.doubts >= 2


def test_each_message_in_a_delay_log_is_verified(world: ShardWorld) -> None:
    places = referred_to(world)
    assert len({number for number, _ in places}) > 1
    chosen = Random(5).sample(sorted(places), 7)
    for number, position in chosen:
        world.disk.flip_bit(f"{world.place.under('wheel')}/{number:010d}.dlog", position)
    looked = Pass(world)
    assert looked.run() == []
    assert set(looked.sequences) == {places[one] for one in chosen}


def test_file_that_is_replaced_meanwhile_is_no_damage(world: ShardWorld) -> None:
    """As when a half of one version is read, and a half of the next."""
    path = world.place.under(EPOCHS)
    world.disk.flip_bit(path, FILE_HEADER_BYTES + 4)
    looked = Pass(world)
    while not looked.scrub.is_doubtful:
        assert looked.step()
    world.opened.epochs.renew()
    assert looked.run() == []


@pytest.mark.parametrize("seed", range(4))
def test_files_that_jobs_remove_meanwhile_are_no_damage(world: ShardWorld, seed: int) -> None:
    """Merges and checkpoints go on under it, in all the places where it may stand."""
    rng, looked, steps = Random(seed), Pass(world), 0
    while looked.step():
        steps += 1
        if steps < 40:  # then it is let come to the end
            live(world, rng, 1)
            world.save()
            world.remove()
    assert looked.run() == []
    assert looked.sequences == []
    assert steps > 10


def test_missing_file_is_damage_while_the_manifest_names_it(world: ShardWorld) -> None:
    name = names(world, ".run")[0]
    world.disk.rename(world.place.under(name), world.place.under(name) + ".aside")
    looked = Pass(world)
    assert looked.run() == [name]
    assert "missing" in looked.scrub.damaged[0].message
