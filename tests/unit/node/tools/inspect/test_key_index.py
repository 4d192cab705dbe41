"""The key index, shown and verified."""

import pytest

from hourwheel.filter_language.text import FilterExpression
from node.shard.recovery import ShardConfig
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.inspection import inspect
from node.tools.inspect.report import Report
from node.tools.inspect.single_file import InspectOptions
from tests.sim.disk import SimulatedDisk
from tests.support.inspected import rows
from tests.support.shard_world import ShardWorld

SHARD = "shard-0"
PATH = f"{SHARD}/keys/0000000001.keys"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    world = ShardWorld(disk, ShardConfig(), wanted=FilterExpression.everything())
    world.publish([world.now_ms + at for at in range(1_000, 1_300)])
    world.commit()
    world.save()
    world.close()
    disk.open(f"{SHARD}/keys/0000000009.keys", create=True).pwrite(
        [disk.open(PATH).pread(1 << 20, 0)], 0
    )
    return disk


def looked_at(disk: SimulatedDisk, path: str) -> Report:
    is_folder = not path.endswith(".keys")
    return inspect(disk, InspectOptions(path=path, is_folder=is_folder, verify=True))


def test_runs_are_shown(disk: SimulatedDisk) -> None:
    report = looked_at(disk, f"{SHARD}/keys")
    named, other = rows(report, "key index")
    assert (named["in_manifest"], other["in_manifest"]) == ("yes", "no")
    assert named["row_count"] > 0
    assert ShardFiles(disk, SHARD).manifest().are_keys_complete


def test_a_run_is_shown(disk: SimulatedDisk) -> None:
    (row,) = rows(looked_at(disk, PATH), "run of keys")
    assert row["run_id"] == 1


@pytest.mark.parametrize("path", [f"{SHARD}/keys", PATH])
def test_damage_is_found(disk: SimulatedDisk, path: str) -> None:
    assert not looked_at(disk, path).damage
    disk.open(PATH).pwrite([b"\xff\xff"], 80)
    assert looked_at(disk, path).damage
