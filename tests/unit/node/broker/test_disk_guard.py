"""When messages are refused, and what becomes of the reserve."""

import pytest

from hourwheel import errors
from node.broker.disk_guard import RESERVE, DiskGuard
from tests.sim.disk import SimulatedDisk, SimulatedMapping

BLOCK = 4_096
MIN, HELD_BACK = 10 * BLOCK, 4 * BLOCK
"""Free bytes that must be there, and those of the reserve."""


class Said:
    """What `on_change` was told."""

    def __init__(self) -> None:
        self.changes: list[tuple[bool, int]] = []

    def __call__(self, reason: str, free_bytes: int) -> None:
        self.changes.append((bool(reason), free_bytes))


def guard_of(disk: SimulatedDisk, said: Said | None = None) -> DiskGuard:
    return DiskGuard(disk, free_bytes_min=MIN, reserve_bytes=HELD_BACK, on_change=said)


def test_reserve_is_made_when_there_is_room() -> None:
    disk, said = SimulatedDisk(MIN + HELD_BACK), Said()
    guard = guard_of(disk, said)
    assert guard.read_only_reason == ""
    assert disk.used_bytes("") == HELD_BACK, "it takes real room"
    assert disk.open(RESERVE).size() == HELD_BACK
    assert said.changes == [], "nothing changed"
    guard.check(0)
    assert guard.read_only_reason == "", "the room of the reserve is not asked for twice"
    assert guard.free_bytes == MIN


def test_messages_are_refused_when_there_is_no_room_for_the_reserve() -> None:
    disk, said = SimulatedDisk(MIN + HELD_BACK - 1), Said()
    guard = guard_of(disk, said)
    assert str(MIN + HELD_BACK) in guard.read_only_reason
    assert not disk.exists(RESERVE)
    assert said.changes == [(True, MIN + HELD_BACK - 1)]


def test_messages_are_refused_below_the_threshold_and_accepted_from_it_on() -> None:
    disk, said = SimulatedDisk(MIN + HELD_BACK), Said()
    guard = guard_of(disk, said)
    for shift, is_read_only in ((-1, True), (-2, True), (0, False), (5, False), (-1, True)):
        disk.capacity_bytes = MIN + HELD_BACK + shift
        guard.check(0)
        assert bool(guard.read_only_reason) == is_read_only
        assert guard.free_bytes == MIN + shift
    assert said.changes == [(True, MIN - 1), (False, MIN), (True, MIN - 1)]
    assert disk.exists(RESERVE), "only a write without room takes it"


def test_reserve_is_given_up_when_a_write_found_no_room() -> None:
    disk, said = SimulatedDisk(MIN + HELD_BACK), Said()
    guard = guard_of(disk, said)
    disk.capacity_bytes = HELD_BACK
    assert disk.free_bytes() == 0
    guard.on_disk_full(0)
    assert not disk.exists(RESERVE)
    assert guard.free_bytes == disk.free_bytes() == HELD_BACK
    assert guard.read_only_reason
    assert said.changes == [(True, HELD_BACK)]
    guard.on_disk_full(0)
    assert said.changes == [(True, HELD_BACK)], "said once"


def test_reserve_is_made_again_before_messages_are_accepted() -> None:
    disk, said = SimulatedDisk(MIN + HELD_BACK), Said()
    guard = guard_of(disk, said)
    disk.capacity_bytes = HELD_BACK
    guard.on_disk_full(0)
    disk.capacity_bytes = MIN + HELD_BACK - 1
    guard.check(0)
    assert guard.read_only_reason
    assert not disk.exists(RESERVE)
    disk.capacity_bytes = MIN + HELD_BACK
    guard.check(0)
    assert guard.read_only_reason == ""
    assert disk.used_bytes("") == HELD_BACK
    assert [is_read_only for is_read_only, _ in said.changes] == [True, False]


def test_messages_are_refused_until_the_next_look_when_room_seems_to_be_there() -> None:
    disk, said = SimulatedDisk(1 << 30), Said()
    guard = guard_of(disk, said)
    guard.on_disk_full(0)
    assert guard.read_only_reason == "a write found no room"
    assert disk.exists(RESERVE)
    guard.check(0)
    assert guard.read_only_reason == ""
    assert [is_read_only for is_read_only, _ in said.changes] == [True, False]


def test_give_up_reserve_says_whether_there_was_one() -> None:
    disk = SimulatedDisk(MIN + HELD_BACK)
    guard = guard_of(disk)
    assert guard.give_up_reserve()
    assert disk.used_bytes("") == 0
    assert not guard.give_up_reserve()


def test_disk_is_exhausted_when_there_is_no_reserve_to_give_up_and_until_there_is_room() -> None:
    disk = SimulatedDisk((1 << 30) + HELD_BACK)
    guard = DiskGuard(disk, free_bytes_min=1 << 30, reserve_bytes=HELD_BACK)
    disk.capacity_bytes = HELD_BACK
    guard.on_disk_full(0)
    assert (guard.is_low, guard.is_exhausted) == (True, False), "the reserve has made room"
    guard.on_disk_full(0)
    assert guard.is_exhausted
    disk.capacity_bytes = HELD_BACK + (1 << 20) - 1
    guard.check(0)
    assert guard.is_exhausted, "too little has changed"
    disk.capacity_bytes = HELD_BACK + (1 << 20)
    guard.check(0)
    assert not guard.is_exhausted


def test_messages_are_refused_while_another_node_is_needed_whose_disk_is_low() -> None:
    guard = guard_of(SimulatedDisk(MIN + HELD_BACK))
    assert guard.refusal == ""
    guard.note_others(frozenset({"n2", "n3"}))
    assert "n2, n3" in guard.refusal
    assert not guard.is_low
    guard.note_others(frozenset())
    assert guard.refusal == ""


def test_reserve_is_kept_from_the_last_life() -> None:
    disk = SimulatedDisk(MIN + HELD_BACK)
    guard_of(disk)
    disk.kill()
    assert guard_of(disk).read_only_reason == ""
    assert disk.used_bytes("") == HELD_BACK


def test_no_reserve_is_left_when_its_room_went_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(mapping: SimulatedMapping, from_bytes: int, to_bytes: int) -> None:
        raise errors.DiskFull("another took it")

    disk = SimulatedDisk(MIN + HELD_BACK)
    with monkeypatch.context() as patched:
        patched.setattr(SimulatedMapping, "allocate", allocate)
        guard = guard_of(disk)
    assert not disk.exists(RESERVE), "an empty one would be taken for a reserve"
    guard.check(0)
    assert disk.used_bytes("") == HELD_BACK


def test_no_reserve_is_made_when_none_is_wanted() -> None:
    disk = SimulatedDisk(MIN)
    guard = DiskGuard(disk, free_bytes_min=MIN, reserve_bytes=0)
    assert guard.read_only_reason == ""
    assert not disk.exists(RESERVE)
