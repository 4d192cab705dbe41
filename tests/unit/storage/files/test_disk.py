"""The real disk and the simulated one, by the same tests; then what only one of them does."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hourwheel import errors
from storage.files.disk import RealDisk, join, parent_of
from tests.sim.disk import SimulatedCrash, SimulatedDisk
from tests.support.disk_conformance import DiskConformance

SEEDS = range(60)


class TestRealDisk(DiskConformance):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> RealDisk:
        return RealDisk(tmp_path)


class TestSimulatedDisk(DiskConformance):
    @pytest.fixture
    def disk(self) -> SimulatedDisk:
        return SimulatedDisk()


def test_paths() -> None:
    assert parent_of("a/b/c") == "a/b"
    assert parent_of("a") == ""
    assert join("", "a", "b") == "a/b"
    assert join("") == ""


# --- the real one


def test_open_when_not_a_file(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_dir("a")
    with pytest.raises(errors.DiskFailed):
        disk.open("a")


def test_read_only_when_inspecting(tmp_path: Path) -> None:
    RealDisk(tmp_path).open("f", create=True).pwrite([b"abcd"], 0)
    disk = RealDisk(tmp_path, read_only=True)
    assert disk.open("f").pread(9, 0) == b"abcd"
    assert disk.map("f", 4).view.readonly
    with pytest.raises(errors.DiskFailed):
        disk.open("f").pwrite([b"x"], 0)
    with pytest.raises(errors.InvariantViolated):
        disk.open("g", create=True)


# --- the simulated one, on power cuts


def test_crash_when_a_folder_is_not_durable_yet_may_take_it_with_all_that_is_in_it() -> None:
    kept = set()
    for seed in SEEDS:
        disk = SimulatedDisk()
        for name in ("a/lost", "a/synced"):
            disk.make_dir(name, is_durable=False)
            if name == "a/synced":
                disk.sync_dir("a")
            disk.open(f"{name}/f", create=True).datasync()
            disk.sync_dir(name)
        disk.make_dir(f"a/lost{seed}", is_durable=False)
        disk.crash(Random(seed))
        assert disk.list("a/synced") == ["f"]
        kept.add(disk.exists(f"a/lost{seed}"))
    assert kept == {False, True}


def test_crash_when_synced_keeps_everything() -> None:
    for seed in SEEDS:
        disk = SimulatedDisk()
        disk.make_dir("a/b")
        file = disk.open("a/b/f", create=True)
        file.pwrite([b"abcdef"], 0)
        file.truncate(4)
        file.datasync()
        disk.sync_dir("a/b")
        disk.crash(Random(seed))
        assert disk.open("a/b/f").pread(9, 0) == b"abcd"


def outcomes(
    use: Callable[[SimulatedDisk], None], look: Callable[[SimulatedDisk], bytes]
) -> set[bytes]:
    """All that `look` finds after power cuts that follow `use`."""
    found = set()
    for seed in SEEDS:
        disk = SimulatedDisk()
        use(disk)
        disk.crash(Random(seed))
        found.add(look(disk))
    return found


def test_crash_when_a_write_is_not_synced_tears_it() -> None:
    def use(disk: SimulatedDisk) -> None:
        file = disk.open("f", create=True)
        file.pwrite([b"1" * 1000], 0)
        file.datasync()
        disk.sync_dir("")
        file.pwrite([b"2" * 2000], 500)

    found = outcomes(use, lambda disk: disk.open("f").pread(9999, 0))
    assert b"1" * 1000 in found
    assert b"1" * 500 + b"2" * 2000 in found
    assert any(len(raw) == 2500 and raw.endswith(b"\0") for raw in found)
    assert any(b"2" in raw[:1000] and b"1" in raw[500:1000] for raw in found)
    assert all(raw.startswith(b"1" * 500) for raw in found)
    assert len(found) > 20


def test_crash_when_a_name_is_not_synced_may_lose_it() -> None:
    def use(disk: SimulatedDisk) -> None:
        for name in ("old", "gone"):
            file = disk.open(name, create=True)
            file.pwrite([name.encode()], 0)
            file.datasync()
        disk.sync_dir("")
        disk.open("new", create=True).datasync()
        disk.rename("old", "renamed")
        disk.remove("gone")

    found = outcomes(use, lambda disk: " ".join(disk.list("")).encode())
    assert {b"gone old", b"new renamed", b"gone new renamed", b"gone new old"} <= found
    assert not any(b"old" in names and b"renamed" in names for names in found)


def test_crash_when_a_mapping_is_not_synced_tears_it() -> None:
    def use(disk: SimulatedDisk) -> None:
        mapping = disk.map("m", 4096, create=True)
        mapping.allocate(0, 4096)
        mapping.view[:] = b"1" * 4096
        mapping.datasync()
        disk.sync_dir("")
        mapping.view[:] = b"2" * 4096

    found = outcomes(use, lambda disk: bytes(disk.map("m", 4096).view))
    assert {b"1" * 4096, b"2" * 4096} <= found
    assert len(found) > 10
    assert all(set(raw) <= set(b"12") for raw in found)


def test_kill_when_not_synced_keeps_everything() -> None:
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    file.pwrite([b"abc"], 0)
    disk.kill()
    assert disk.open("f").pread(9, 0) == b"abc"
    with pytest.raises(errors.InvariantViolated, match="before the crash"):
        file.pread(1, 0)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_fail_after_when_reached(*, takes_effect: bool) -> None:
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    disk.sync_dir("")
    file.pwrite([b"abc"], 0)
    disk.fail_after(2, takes_effect=takes_effect)
    disk.sync_dir("")
    with pytest.raises(SimulatedCrash):
        file.datasync()
    for use in (file.datasync, file.size, lambda: disk.open("f"), lambda: disk.list("")):
        with pytest.raises(SimulatedCrash):
            use()
    disk.crash(Random(0))
    if takes_effect:
        assert disk.open("f").pread(9, 0) == b"abc"
    disk.sync_dir("")
    assert disk.durability_op_count == 4


def test_capacity_when_used_up() -> None:
    disk = SimulatedDisk(capacity_bytes=8192)
    file = disk.open("f", create=True)
    file.pwrite([b"x" * 5000], 0)
    with pytest.raises(errors.DiskFull):
        disk.open("g", create=True).pwrite([b"y"], 0)
    mapping = disk.map("m", 1 << 20, create=True)
    with pytest.raises(errors.DiskFull):
        mapping.allocate(0, 4096)
    file.truncate(4096)
    mapping.allocate(4096, 8192)
    assert disk.free_bytes() == 0


def test_store_when_not_allocated_is_caught() -> None:
    mapping = SimulatedDisk().map("m", 8192, create=True)
    mapping.allocate(0, 4096)
    mapping.view[4095] = 1
    mapping.datasync()
    mapping.view[4096] = 1
    with pytest.raises(errors.InvariantViolated, match="hole"):
        mapping.datasync()


def test_fail_sync_when_tried_again_is_caught() -> None:
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    disk.fail_sync("f")
    with pytest.raises(errors.FsyncFailed):
        file.datasync()
    with pytest.raises(errors.InvariantViolated, match="tried again"):
        file.datasync()


def test_damage_when_on_the_medium_survives_everything() -> None:
    disk = SimulatedDisk()
    file = disk.open("f", create=True)
    file.pwrite([b"abcd"], 0)
    file.datasync()
    disk.sync_dir("")
    disk.flip_bit("f", 1, bit=2)
    disk.damage("f", 3, b"X")
    assert file.pread(9, 0) == b"afcX"
    disk.crash(Random(1))
    assert disk.open("f").pread(9, 0) == b"afcX"


def test_crash_when_a_folder_was_renamed_keeps_it_under_one_name() -> None:
    seen = set()
    for seed in SEEDS:
        disk = SimulatedDisk()
        disk.make_dir("a/b")
        disk.rename("a", "c")
        disk.crash(Random(seed))
        seen.add(tuple(disk.list("")))
        assert disk.exists(f"{disk.list('')[0]}/b")
    assert seen == {("a",), ("c",)}


def test_crash_when_the_rename_of_a_folder_was_synced() -> None:
    for seed in SEEDS:
        disk = SimulatedDisk()
        disk.make_dir("a/b")
        disk.rename("a", "c")
        disk.sync_dir("")
        disk.crash(Random(seed))
        assert disk.list("") == ["c"]
