"""A repair that is interrupted at any of its writes: nothing is lost that no report names.

The power fails before or after each operation that makes something durable, and of what was not
durable a random part survives. The command is then given again, until it is done.
"""

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from hourwheel.formats.message_id import parse
from hourwheel.types import SEQUENCE_MAX, Key
from node.shard.recovery import ShardConfig, open_shard
from node.tools.repair.carry_out import ASIDE, REPORT, carry_out, find_unfinished
from node.tools.repair.survey import survey
from storage.files.disk import Disk
from storage.log.commit_log import LogConfig
from storage.queues.queue_chunk import ENTRIES_AT
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.shard_proposals import GROUP
from tests.support.shard_world import START_MS, ShardWorld
from tests.support.snapshot_world import place_on
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.range_scan import RangeScan

CONFIG: Final = ShardConfig(log=LogConfig(segment_bytes=10_000, index_interval_bytes=512))
Files = dict[str, bytes]


class State(NamedTuple):
    """What a shard owes."""

    pending: frozenset[int]
    """Sequences."""
    waiting: frozenset[tuple[int, int]]
    """(position, sequence) of what is released and not resolved by the group."""


def files_of(disk: Disk, path: str = "") -> Iterator[tuple[str, bytes]]:
    """All files below a folder."""
    for name in disk.list(path):
        below = f"{path}/{name}" if path else name
        try:
            yield from files_of(disk, below)
        except FileNotFoundError:
            file = disk.open(below)
            yield below, file.pread(file.size(), 0)
            file.close()


def disk_of(files: Files) -> SimulatedDisk:
    """A disk with these files, all durable."""
    disk = SimulatedDisk()
    for path, raw in files.items():
        folder = ""
        for part in path.split("/")[:-1]:
            folder = f"{folder}/{part}" if folder else part
            disk.make_dir(folder)
        file = disk.open(path, create=True)
        file.pwrite((raw,), 0)
        file.datasync()
        file.close()
        disk.sync_dir(folder)
    return disk


def state_of(disk: Disk) -> State:
    """What a node that is started there owes."""
    shard = open_shard(place_on(disk), CONFIG).shard
    views, pending, waiting = shard.views, set[int](), set[tuple[int, int]]()
    scan = RangeScan(views.wheel, views.cursor.key, Key(START_MS + 100 * DAY_MS, SEQUENCE_MAX))
    while not scan.is_done:
        for units in scan.step(1_000):
            is_there = ~views.tombstones.contains(np.ascontiguousarray(units["sequence"]))
            pending |= set(units["sequence"][is_there].tolist())
    for queue in views.queues.all():
        window = views.acks.get(GROUP, queue.topic_queue)
        bounds = queue.start_position, queue.end_position
        for first, end in window.unresolved(*bounds):
            units = queue.pick(np.arange(first, end, dtype=np.int64))
            assert not shard.bodies.read(units)[1]
            waiting |= set(zip(range(first, end), units["sequence"].tolist(), strict=True))
    shard.check()
    return State(frozenset(pending), frozenset(waiting))


@pytest.fixture(scope="module")
def sound() -> Files:
    """A node whose log begins behind what was published first."""
    world = ShardWorld(SimulatedDisk(), CONFIG)
    for low in range(0, 200, 40):
        world.publish([START_MS + HOUR_MS + low + one for one in range(40)])
        world.commit()
    trimmed = world.shard.log.end_offset
    for low in range(0, 200, 40):
        world.publish([START_MS + 2 * HOUR_MS + low + one for one in range(40)])
        world.publish([START_MS - 40 + one for one in range(40)])
        world.publish([START_MS + 20 * DAY_MS + one for one in range(4)])
        world.commit()
    world.cancel(list(range(10, 20)))
    world.commit()
    delivery = world.receive(10)
    assert delivery is not None
    world.ack(delivery)
    world.commit()
    world.save()
    log = world.shard.log
    ends = [one.end_offset for one in log.segments() if one.end_offset <= trimmed]
    for work in log.begin_delete_below(ends[-1]):
        work()
    world.remove()
    log.close()
    return dict(files_of(world.disk))


def harmed(sound: Files) -> Files:
    """Blocks of runs, entries of a queue, and single bits of small files are gone."""
    files = dict(sound)

    def change(end: str, at: int, raw: bytes = b"") -> None:
        path = min(one for one in files if one.endswith(end))
        whole = bytearray(files[path])
        whole[at : at + max(1, len(raw))] = raw or bytes((whole[at] ^ 4,))
        files[path] = bytes(whole)

    change(".run", 64 + 64 * 30, b"\xa5" * 640)
    change(".cq", ENTRIES_AT + 64 * 30, b"\xa5" * 640)
    change(".seq", 64 + 100)
    change("/checkpoint", 120)
    change("/epochs", 70)
    return files


class Names(NamedTuple):
    """What reports name."""

    pending: set[int]
    """Sequences."""
    released: set[int]
    """Positions."""


def names_of(lost: list[dict[str, Any]]) -> Names:
    pending = [one for one in lost if one["kind"] == "pending"]
    return Names(
        {parse(one["message_id"]).sequence for one in pending},
        {one["position"] for one in lost if one not in pending},
    )


def names_in(disk: Disk) -> Names:
    """Of all reports, finished or not."""
    lost: list[dict[str, Any]] = []
    for path, raw in files_of(disk):
        if path.startswith(ASIDE) and path.endswith(".json"):
            lost += json.loads(raw)["lost"]
    return names_of(lost)


def repair(disk: SimulatedDisk) -> dict[str, Any]:
    """The command, on a simulated disk; what it would print."""
    place = place_on(disk)
    found = survey(place)
    assert found.refused == []
    lost = [one._asdict() for one in found.lost]
    answer = {"is_clean": found.is_clean, "lost": lost, "unnamed": found.unnamed_count}
    if not found.is_clean:
        carry_out(place, found, json.dumps({"lost": lost}).encode())
    return answer


def test_report_names_what_is_lost_and_gets_its_last_name(sound: Files) -> None:
    disk = disk_of(harmed(sound))
    answer = repair(disk)
    assert answer["lost"]
    assert answer["unnamed"] == 0
    assert names_in(disk) == names_of(answer["lost"])
    assert all(names_in(disk))
    assert find_unfinished(disk) == []
    assert disk.exists(f"{ASIDE}1/{REPORT}")
    assert repair(disk)["is_clean"]


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_nothing_is_lost_that_no_report_names_wherever_the_power_fails(
    sound: Files, takes_effect: bool
) -> None:
    files, right = harmed(sound), state_of(disk_of(sound))
    whole = disk_of(files)
    begun = whole.durability_op_count
    repair(whole)
    count = whole.durability_op_count - begun
    assert count > 20
    expected = state_of(whole)
    interrupted = 0
    for at in range(1, count + 1):
        disk = disk_of(files)
        disk.fail_after(at, takes_effect=takes_effect)
        with pytest.raises(SimulatedCrash):
            repair(disk)
        disk.crash(Random(at))
        interrupted += bool(find_unfinished(disk))
        while not repair(disk)["is_clean"]:
            pass
        named, found = names_in(disk), state_of(disk)
        assert right.pending - found.pending <= named.pending, at
        assert {at for at, _ in right.waiting - found.waiting} <= named.released, at
        assert found == expected, at
    assert interrupted > 5


def test_report_keeps_its_first_name_when_the_end_is_not_reached(sound: Files) -> None:
    """The look that follows finds nothing of what was given up."""
    files = harmed(sound)
    disk = disk_of(files)
    begun = disk.durability_op_count
    repair(disk)
    count, is_clean = disk.durability_op_count - begun, False
    for at in range(count, 0, -1):
        disk = disk_of(files)
        disk.fail_after(at)
        with pytest.raises(SimulatedCrash):
            repair(disk)
        disk.kill()
        if find_unfinished(disk):
            is_clean = survey(place_on(disk)).is_clean
            break
    assert is_clean
    assert all(names_in(disk))
