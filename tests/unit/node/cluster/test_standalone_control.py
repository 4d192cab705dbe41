"""The control plane of a node alone: many changes with one sync, and what ends it."""

import asyncio
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.types import NodeId
from node.cluster.standalone import WAITING_MAX, StandaloneControl
from node.telemetry.failure import Failure
from replication.control_state.commands import BATCH_COUNT_MAX, make_command
from replication.control_state.state import ControlState
from replication.standalone.control_journal import ControlJournal
from storage.files.file_header import Identity
from tests.sim.disk import SimulatedDisk


class World:
    """A control plane on a simulated disk."""

    def __init__(self) -> None:
        self.disk, self.failure = SimulatedDisk(), Failure()
        self.states: list[ControlState] = []
        self.calls = 0
        self.start()

    def start(self) -> None:
        identity = Identity(b"c" * 16, 0)
        self.journal = ControlJournal.open(self.disk, "control-alone", identity, NodeId("n1"))
        self.control = StandaloneControl(self.journal, self.failure, self.states.append)

    def put(self, name: str, number: int = 0) -> Any:
        user = wire.PutUserCommand(name=name, secret_hash="#", expected_version=0)
        request_id = name.encode().ljust(12, b"-") + number.to_bytes(4, "big")
        return self.control.propose(make_command(request_id, put_user=user))


async def test_state_is_told_before_the_answer_and_kept() -> None:
    world = World()
    assert world.states[0].is_bootstrapped
    result = await world.put("alice")
    assert result.outcome == wire.CONTROL_OUTCOME_OK
    assert world.states[-1].access.users["alice"].version == result.version
    again = await world.put("alice", 1)
    assert (again.outcome, again.version) == (wire.CONTROL_OUTCOME_CONFLICT, result.version)
    await world.control.close()
    world.disk.kill()
    world.start()
    assert set(world.states[-1].access.users) == {"alice"}


async def test_commands_that_come_together_share_syncs() -> None:
    world = World()
    await world.put("first")
    before = world.disk.durability_op_count
    results = await asyncio.gather(*(world.put(f"user-{number}") for number in range(100)))
    assert {one.outcome for one in results} == {wire.CONTROL_OUTCOME_OK}
    assert [one.version for one in results] == sorted(one.version for one in results)
    assert world.disk.durability_op_count - before <= 2
    assert len(world.states[-1].access.users) == 101


async def test_command_whose_caller_goes_away_is_applied_all_the_same() -> None:
    world = World()
    proposing = asyncio.ensure_future(world.put("alice"))
    await asyncio.sleep(0)
    proposing.cancel()
    await world.put("bob")
    assert set(world.states[-1].access.users) == {"alice", "bob"}
    await world.control.close()


async def test_full_disk_refuses_and_the_node_goes_on() -> None:
    world = World()
    world.disk.capacity_bytes = 0
    with pytest.raises(errors.DiskFull):
        await world.put("alice")
    world.disk.capacity_bytes = 1 << 40
    await world.put("alice", 1)
    assert not world.failure.found.done()


async def test_what_is_settled_before_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    apply = world.journal.apply

    def settle_and_refuse(commands: list[bytes]) -> None:
        apply(commands)
        raise errors.DiskFull("no room for what came behind")

    monkeypatch.setattr(world.journal, "apply", settle_and_refuse)
    with pytest.raises(errors.DiskFull):
        await world.put("alice")
    assert set(world.states[-1].access.users) == {"alice"}


async def test_sync_that_fails_ends_the_node_and_nothing_is_tried_again() -> None:
    world = World()
    await world.put("alice")
    world.disk.fail_sync("control-alone/journal")
    with pytest.raises(errors.FsyncFailed):
        await world.put("bob")
    assert isinstance(await world.failure.found, errors.FsyncFailed)
    with pytest.raises(errors.ShuttingDown):
        await world.put("carol")
    assert set(world.states[-1].access.users) == {"alice"}


async def test_more_than_can_wait_is_refused() -> None:
    world = World()
    waiting = [asyncio.ensure_future(world.put("u", number)) for number in range(WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(errors.Overloaded):
        await world.put("u", WAITING_MAX)
    assert len(await asyncio.gather(*waiting)) == WAITING_MAX


async def test_commands_that_wait_when_a_sync_fails_are_answered() -> None:
    world = World()
    await world.put("alice")
    world.disk.fail_sync("control-alone/journal")
    many = [world.put(f"user-{number}") for number in range(BATCH_COUNT_MAX + 5)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    kinds = [type(one) for one in answers]
    assert kinds == [errors.FsyncFailed] * BATCH_COUNT_MAX + [errors.ShuttingDown] * 5
    assert set(world.states[-1].access.users) == {"alice"}
