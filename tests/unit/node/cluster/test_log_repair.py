"""What becomes of a member whose log is damaged. Real members: tests/cluster/test_scrub.py."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import errors
from node.cluster.log_repair import LogRepair
from node.telemetry.failure import Failure
from replication.rules.follower import FollowerPhase
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until

DAMAGE = errors.CorruptLog("a bit", file="log", offset=7)


class World:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.renewed: list[errors.DataLoss] = []
        self.replica: Any = SimpleNamespace(
            mastership=None,
            is_elected=False,
            identity=SimpleNamespace(node_id="n1"),
            assignment=SimpleNamespace(isr=frozenset({"n1", "n2", "n3"}), min_in_sync=0),
            follower=SimpleNamespace(phase=FollowerPhase.FOLLOWING),
        )
        self.member: Any = SimpleNamespace(
            replica=self.replica, is_damaged=False, transfer_mastership=self.asked.append
        )
        self.failure = Failure()
        self.looks = 0
        self.is_mendable = False
        self.mended: list[errors.DataLoss] = []
        self.tried: list[int] = []
        self.repair = LogRepair(
            self.member,
            self.failure,
            min_in_sync=2,
            mend=self.mend,
            renew=self.renewed.append,
            sleep=self.sleep,
        )
        self.repair.on_mended = self.mended.append

    async def mend(self, offset: int) -> bool:
        self.tried.append(offset)
        return self.is_mendable

    async def sleep(self, _: float) -> None:
        self.looks += 1
        await asyncio.sleep(0)

    async def look(self) -> None:
        """Until it has looked again."""
        seen = self.looks
        await until(lambda: self.looks > seen + 1)


async def test_damage_is_mended_and_the_node_may_lead_on() -> None:
    world = World()
    world.replica.mastership = object()
    world.is_mendable = True
    world.repair.on_damage(DAMAGE)
    other = errors.CorruptLog("another", file="log", offset=9)
    world.repair.on_damage(other)
    await until(lambda: len(world.mended) > 1)
    third = errors.CorruptLog("a third", file="log", offset=11)
    await let_others_run()
    world.repair.on_damage(third)
    await until(lambda: len(world.mended) > 2)
    assert (world.mended, world.tried) == ([DAMAGE, other, third], [7, 9, 11])
    assert (world.asked, world.renewed, world.member.is_damaged) == ([], [], False)
    await world.repair.close()


async def test_damage_that_many_come_by_is_worked_on_once() -> None:
    world = World()
    for _ in range(3):
        world.repair.on_damage(DAMAGE)
    await until(lambda: len(world.tried) > 1)
    world.repair.on_damage(DAMAGE)
    world.is_mendable = True
    await until(lambda: len(world.mended) > 0)
    await let_others_run()
    assert world.mended == [DAMAGE]
    await world.repair.close()


async def test_mending_is_tried_some_times_before_all_is_copied() -> None:
    world = World()
    world.repair.on_damage(DAMAGE)
    await until(lambda: len(world.tried) > 1)
    assert not world.member.is_damaged
    world.is_mendable = True
    await until(lambda: world.mended)
    assert not world.member.is_damaged
    await world.repair.close()


async def test_nothing_is_mended_piece_by_piece_when_very_much_is_damaged() -> None:
    world = World()
    world.is_mendable = True
    world.replica.mastership = object()
    world.repair.give_up(DAMAGE)
    await until(lambda: world.asked)
    assert world.member.is_damaged
    world.replica.mastership = None
    await until(lambda: world.renewed)
    assert (world.tried, world.renewed) == ([], [DAMAGE])
    await world.repair.close()


async def test_follower_is_copied_anew_when_enough_others_are_in_sync() -> None:
    world = World()
    world.repair.on_damage(DAMAGE)
    await until(lambda: world.renewed)
    assert world.member.is_damaged
    assert len(world.tried) > 3
    world.repair.on_damage(errors.CorruptLog("another"))
    await let_others_run()
    assert world.renewed == [DAMAGE]
    assert world.asked == []
    await world.repair.close()


async def test_master_hands_over_first() -> None:
    world = World()
    world.replica.mastership = object()
    world.repair.on_damage(DAMAGE)
    await until(lambda: world.asked)
    assert set(world.asked) == {""}
    assert world.renewed == []
    world.replica.mastership = None
    await until(lambda: world.renewed)
    await world.repair.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("is_elected", True),
        ("follower", SimpleNamespace(phase=FollowerPhase.NONE)),
        ("assignment", SimpleNamespace(isr=frozenset({"n1", "n2"}), min_in_sync=0)),
        ("assignment", SimpleNamespace(isr=frozenset({"n2"}), min_in_sync=0)),
        ("assignment", SimpleNamespace(isr=frozenset({"n1", "n2", "n3"}), min_in_sync=3)),
    ],
)
async def test_log_is_kept_while_it_may_be_needed(field: str, value: Any) -> None:
    world = World()
    well = getattr(world.replica, field)
    setattr(world.replica, field, value)
    world.repair.on_damage(DAMAGE)
    await world.look()
    assert world.renewed == []
    assert world.asked == []
    setattr(world.replica, field, well)
    await until(lambda: world.renewed)
    await world.repair.close()


async def test_nothing_is_repaired_when_closed() -> None:
    world = World()
    await world.repair.close()
    world.replica.is_elected = True
    world.repair.on_damage(DAMAGE)
    await world.look()
    await world.repair.close()
    looks = world.looks
    await let_others_run()
    assert (world.renewed, world.looks) == ([], looks)


async def test_bug_is_told() -> None:
    world = World()
    del world.replica.follower
    world.repair.on_damage(DAMAGE)
    assert isinstance(await within(asyncio.shield(world.failure.found)), errors.Internal)
    await world.repair.close()
