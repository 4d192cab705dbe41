"""What is looked at before the members change."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.cluster.members import MemberAdministration, check_reach
from replication.control_state.commands import apply_command
from replication.control_state.member_commands import next_state
from replication.control_state.state import CODEC_VERSION
from tests.support.control_commands import StateWorld, boot

MEMBERS = [
    wire.MemberData(node_id=f"n{number}", control_address=f"h:{number}") for number in (1, 2, 3)
]


class World:
    """Node n1 of three; n2 is the master, n3 was heard of long ago."""

    def __init__(self) -> None:
        world = StateWorld()
        world.found()
        world.ok(set_rules=wire.SetRulesCommand(rules=CODEC_VERSION))
        self.unknown = world.state
        world.ok(note_members=wire.NoteMembersCommand(members=MEMBERS))
        world.ok(elect_master=wire.ElectMasterCommand(master_node_id="n2", master_boot_id=boot(2)))
        self.now_ms = 10_000.0
        self.control = SimpleNamespace(
            state=world.state, heard_ms={"n2": self.now_ms - 500, "n3": self.now_ms - 5_000}
        )
        self.listening = {"h:4", "h:5"}
        self.foreign = {"h:80"}
        self.asked: list[tuple[str, str, int]] = []
        self.is_slow = False

    @property
    def members(self) -> MemberAdministration:
        control: Any = self.control
        return MemberAdministration(
            "n1",  # type: ignore[arg-type]
            control,
            self.propose,
            monotonic_ms=lambda: self.now_ms,
            silent_ms=1_000.0,
            prove=self.prove,
            change_s=0.05,
        )

    async def prove(self, node: str, address: str, generation: int) -> None:
        self.asked.append((node, address, generation))
        if address in self.foreign:
            raise errors.PeerRefused(f"what listens at {address} speaks another protocol")
        if address not in self.listening:
            raise errors.Unavailable(f"no process listens at {address}")

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        after, raw = apply_command(self.control.state, command.SerializeToString())
        if after.membership.has_ended and not self.is_slow:
            after = next_state(after)
        self.control.state = after
        return wire.ControlResult.FromString(raw)


async def test_lost_node_is_replaced() -> None:
    world = World()
    assert [one.is_alive for one in world.members.members().members] == [True, True, False]
    assert await world.members.change({"n4": "h:4"}, ["n3"], 0) == 1  # type: ignore[dict-item,list-item]
    assert world.asked == [("n4", "h:4", 0)]
    found = world.members.members()
    assert (found.generation, found.is_changing) == (1, True)
    assert [one.node_id for one in found.members] == ["n1", "n2", "n4"]
    assert [one.has_replica for one in found.members] == [True, True, False]
    assert found.former_node_ids == ["n3"]


@pytest.mark.parametrize(
    ("add", "remove", "generation", "why"),
    [
        ({}, ["n9"], None, "node n9 is not a member"),
        ({}, ["n2"], None, "node n2 is the master"),
        ({"n1": "h:4"}, [], None, "node n1 is a member already"),
        ({"n4": "h:9"}, ["n3"], None, "no process listens at h:9: start node n4 first"),
        ({"n4": "h:80"}, ["n3"], None, r"h:80 speaks .* not prove that it is .* of node n4"),
        ({"n4": "h:4", "n5": "h:5"}, ["n1"], 3, "generation 0 is in force"),
        ({"n4": "h:1"}, ["n3"], None, "no process listens"),
    ],
)
async def test_change_is_refused(
    add: dict[Any, str], remove: list[Any], generation: int | None, why: str
) -> None:
    world = World()
    before = world.control.state
    with pytest.raises(errors.FailedPrecondition, match=why):
        await world.members.change(add, remove, generation)
    assert world.control.state is before


@pytest.mark.parametrize("address", ["LOCALHOST:4", "10.0.0.4:4", "node-4:4"])
async def test_members_on_one_machine_take_nobody_from_elsewhere(address: str) -> None:
    addresses = {"n1": "127.0.0.1:1", "n2": "localhost:2"}
    check_reach(addresses, {"n4": "127.0.0.9:4"})  # type: ignore[arg-type,dict-item]
    check_reach({**addresses, "n3": "h:3"}, {"n4": address})  # type: ignore[arg-type,dict-item]
    with pytest.raises(errors.FailedPrecondition, match="on this machine only"):
        check_reach(addresses, {"n4": address})  # type: ignore[arg-type,dict-item]


async def test_change_is_refused_that_would_lose_the_majority() -> None:
    world = World()
    world.control.heard_ms["n2"] = 0.0
    with pytest.raises(errors.FailedPrecondition, match=r"lose the majority: of 4 .* only 2"):
        await world.members.change({"n4": "h:4"}, [], None)  # type: ignore[dict-item]


class FiveWorld(World):
    """Node n1 of five, which is the master; n2 and n4 were heard of long ago."""

    def __init__(self, *replicas: str) -> None:
        super().__init__()
        state = self.control.state
        members = {f"n{number}": f"h:{number}" for number in range(1, 6)}
        shard = replace(state.shards[0], master=None, replicas=replicas or tuple(members))
        self.control.state = replace(
            state,
            membership=replace(state.membership, members=members),
            shards={0: shard},
        )
        self.control.heard_ms = dict.fromkeys(("n3", "n5"), self.now_ms - 500)
        self.listening = {"h:6", "h:7"}


async def test_change_is_refused_where_too_few_could_admit_the_new_node() -> None:
    """n6 would have the words of n1 and n5, and needs three: it would never begin."""
    world = FiveWorld("n1", "n3", "n5")
    with pytest.raises(errors.FailedPrecondition, match=r"n6 could not take part: 3 .* only 2"):
        await world.members.change({"n6": "h:6"}, ["n3"], None)  # type: ignore[dict-item,list-item]
    small = World()
    small.control.heard_ms = {"n3": small.now_ms}
    with pytest.raises(errors.FailedPrecondition, match=r"n4 could not take part: 2 .* only 1"):
        await small.members.change({"n4": "h:4"}, ["n3"], None)  # type: ignore[dict-item,list-item]


async def test_change_is_refused_where_too_few_replicas_would_stay_for_a_lease() -> None:
    world = FiveWorld()
    with pytest.raises(errors.FailedPrecondition, match="of 5 replicas only 2 stay"):
        await world.members.change({}, ["n3", "n4"], None)  # type: ignore[list-item]


async def test_new_nodes_admit_each_other_and_lost_ones_go() -> None:
    world = FiveWorld()
    assert await world.members.change({"n6": "h:6", "n7": "h:7"}, ["n2", "n4"], None) == 1  # type: ignore[dict-item,list-item]


async def test_state_has_the_last_word() -> None:
    world = World()
    await world.members.change({"n4": "h:4"}, ["n3"], None)  # type: ignore[dict-item,list-item]
    with pytest.raises(errors.FailedPrecondition, match="stay as they are: the change before"):
        await world.members.change({"n5": "h:5"}, [], None)  # type: ignore[dict-item]


async def test_change_that_does_not_begin_in_time_is_unknown() -> None:
    world = World()
    world.is_slow = True
    with pytest.raises(errors.Timeout, match="agreed upon"):
        await world.members.change({"n4": "h:4"}, ["n3"], None)  # type: ignore[dict-item,list-item]


async def test_members_that_are_not_known_are_not_changed() -> None:
    world = World()
    world.control.state = world.unknown
    with pytest.raises(errors.FailedPrecondition, match="does not know its members yet"):
        world.members.members()


@pytest.mark.parametrize(
    ("add", "remove"),
    [({}, []), ({"n 4": "h:4"}, []), ({"n4": "h"}, []), ({"n4": "h:0"}, []), ({}, ["n1"] * 99)],
)
async def test_nonsense_is_no_change(add: dict[Any, str], remove: list[Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        await World().members.change(add, remove, None)
