"""Members and replica lists: what is refused, and that all voters begin a generation alike."""

import random
from collections.abc import Iterable

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.commands import apply_command
from replication.control_state.member_commands import find_min_in_sync, next_state
from replication.control_state.membership import MEMBER_COUNT_MAX
from replication.control_state.state import CODEC_VERSION, decode_state, encode_state
from tests.support.control_commands import StateWorld, boot, register

OK, CONFLICT, REFUSED, ENDED = (
    pb.CONTROL_OUTCOME_OK,
    pb.CONTROL_OUTCOME_CONFLICT,
    pb.CONTROL_OUTCOME_REFUSED,
    pb.CONTROL_OUTCOME_GENERATION_ENDED,
)


def data(names: Iterable[str]) -> list[pb.MemberData]:
    return [pb.MemberData(node_id=one, control_address=f"{one}:1") for one in names]


def change(generation: int, *names: str) -> pb.ChangeMembersCommand:
    return pb.ChangeMembersCommand(expected_generation=generation, members=data(names))


def replicas(world: StateWorld, *names: str) -> pb.ChangeReplicasCommand:
    shard = world.state.shards[0]
    return pb.ChangeReplicasCommand(
        shard=0, epoch=shard.epoch, expected_version=shard.version, node_ids=names
    )


def set_isr(world: StateWorld, *numbers: int) -> None:
    shard = world.state.shards[0]
    isr = [pb.IsrMember(node_id=f"n{one}", boot_id=boot(one)) for one in numbers]
    command = pb.ChangeIsrCommand(
        shard=0, epoch=shard.epoch, expected_version=shard.version, isr=isr
    )
    world.ok(change_isr=command)


@pytest.fixture
def world() -> StateWorld:
    """Three members; n1 is master."""
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    world.ok(note_members=pb.NoteMembersCommand(members=data(("n1", "n2", "n3"))))
    elect = pb.ElectMasterCommand(shard=0, master_node_id="n1", master_boot_id=boot(1))
    world.ok(elect_master=elect)
    return world


def begin_next(world: StateWorld) -> None:
    world.state = next_state(world.state)
    world.state.check()


def test_members_are_noted_once_and_are_the_replica_list(world: StateWorld) -> None:
    assert world.state.shards[0].replicas == ("n1", "n2", "n3")
    again = world.do(note_members=pb.NoteMembersCommand(members=data(("n1", "n2", "n3"))))
    assert again.outcome == CONFLICT
    assert decode_state(encode_state(world.state)) == world.state


def test_lost_node_is_replaced_step_by_step(world: StateWorld) -> None:
    set_isr(world, 1, 2)
    world.ok(change_members=change(0, "n1", "n2", "n4"))
    begin_next(world)
    state = world.state
    assert (state.membership.generation, state.membership.former_node_ids) == (1, ("n3",))
    assert sorted(state.membership.members) == ["n1", "n2", "n4"]
    assert state.shards[0].replicas == ("n1", "n2", "n3"), "lists follow at the master's word"
    assert state.shards[0].master is not None
    assert "n3" not in state.nodes
    assert world.do(register_node=register("n3", boot(9))).outcome == REFUSED
    world.ok(register_node=register("n4", boot(4)))
    assert world.do(change_members=change(1, "n1", "n2", "n5")).outcome == REFUSED, "under way"
    assert world.do(change_replicas=replicas(world, "n1", "n2", "n4")).outcome == REFUSED
    world.ok(change_replicas=replicas(world, "n1", "n2"))
    world.ok(change_replicas=replicas(world, "n1", "n2", "n4"))
    set_isr(world, 1, 2, 4)
    again = world.do(change_members=change(1, "n1", "n2", "n3"))
    assert (again.outcome, again.reason) == (REFUSED, "the id 'n3' was used before")
    world.ok(change_members=change(1, "n1", "n2", "n4", "n5", "n6"))


def test_member_that_never_got_its_replica_may_go_again(world: StateWorld) -> None:
    set_isr(world, 1, 2)
    world.ok(change_members=change(0, "n1", "n2", "n4"))
    begin_next(world)
    world.ok(change_replicas=replicas(world, "n1", "n2"))
    assert world.do(change_members=change(1, "n1", "n2", "n4", "n5")).outcome == REFUSED
    world.ok(change_members=change(1, "n1", "n2", "n5"))
    begin_next(world)
    assert world.state.membership.former_node_ids == ("n3", "n4")
    assert world.state.shards[0].replicas == ("n1", "n2")


def test_only_who_has_a_replica_is_in_sync_or_stays_so(world: StateWorld) -> None:
    assert world.do(change_replicas=replicas(world, "n1", "n2")).outcome == REFUSED
    set_isr(world, 1, 2)
    assert world.do(change_replicas=replicas(world, "n1", "n2", "n3", "n4")).outcome == REFUSED
    world.ok(change_replicas=replicas(world, "n1", "n2"))
    with pytest.raises(AssertionError, match="n3 has no replica"):
        set_isr(world, 1, 2, 3)


@pytest.mark.parametrize(
    ("isr", "names", "why"),
    [
        ((1, 2, 3), ("n1",), "fewer members than min_in_sync"),
        ((1, 2), ("n1", "n3"), "too few copies in sync would stay"),
        ((1, 2, 3), ("n1", "n4", "n5"), "2 new members would outvote 1 that stay"),
        ((1, 2, 3), tuple(f"n{n}" for n in range(1, MEMBER_COUNT_MAX + 2)), "more than 5 members"),
        ((1, 2, 3), (), "members have an id"),
    ],
)
def test_change_that_could_lose_something_is_refused(
    world: StateWorld, isr: tuple[int, ...], names: tuple[str, ...], why: str
) -> None:
    if len(isr) < 3:
        set_isr(world, *isr)
    before = encode_state(world.state, with_remembered=False)
    result = world.do(change_members=change(0, *names))
    assert result.outcome == REFUSED
    assert result.reason.startswith(why)
    assert encode_state(world.state, with_remembered=False) == before


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"n1": "n1:1", "n2": "n2:1", "n3": "elsewhere:1"}, "a member's address does not change"),
        ({"n1": "n1:1", "n2": "n2:1", "n4": "n2:1"}, "two members with one address"),
        ({"n1": "n1:1", "n2": "n2:1", "n4": ""}, "members have an id of their own and an address"),
        ({"n1": "n1:1", "n2": "n2:1", "n4": "h" * 400}, "members have an id of their own"),
    ],
)
def test_addresses_are_one_for_each_and_stay(
    world: StateWorld, members: dict[str, str], why: str
) -> None:
    data_ = [pb.MemberData(node_id=one, control_address=at) for one, at in members.items()]
    command = pb.ChangeMembersCommand(expected_generation=0, members=data_)
    result = world.do(change_members=command)
    assert result.outcome == REFUSED
    assert result.reason.startswith(why)


def test_members_as_they_are_are_no_change(world: StateWorld) -> None:
    assert world.do(change_members=change(0, "n1", "n2", "n3")).outcome == CONFLICT


def test_members_are_noted_before_they_change_and_are_those_in_sync() -> None:
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    result = world.do(change_members=change(0, "n1", "n2", "n4"))
    assert (result.outcome, result.reason) == (REFUSED, "the members are not known yet")
    for names in ((), ("n1", "n1"), ("n1", "n2", "n4")):
        note = pb.NoteMembersCommand(members=data(names))
        assert world.do(note_members=note).outcome == REFUSED, names


def test_replica_list_changes_by_the_master_of_this_epoch_only(world: StateWorld) -> None:
    other_shard, late, twice = (replicas(world, "n1", "n2", "n4") for _ in range(3))
    other_shard.shard, late.epoch = 7, 9
    twice.node_ids[:] = ["n1", "n2", "n3", "n3"]
    assert world.do(change_replicas=other_shard).outcome == REFUSED
    assert world.do(change_replicas=late).outcome == CONFLICT
    assert world.do(change_replicas=twice).outcome == REFUSED


def test_of_two_administrators_the_second_is_told(world: StateWorld) -> None:
    world.ok(change_members=change(0, "n1", "n2", "n4"))
    assert world.do(change_members=change(0, "n1", "n3", "n5")).outcome == ENDED
    begin_next(world)
    late = world.do(change_members=change(0, "n1", "n3", "n5"))
    assert (late.outcome, late.reason) == (CONFLICT, "generation 1 is in force")


@pytest.mark.parametrize("seed", range(20))
def test_voters_begin_alike_however_much_of_the_old_log_each_has_applied(
    world: StateWorld, seed: int
) -> None:
    """Whatever comes behind the stop-sign, tried again, in batches or not."""
    rng = random.Random(seed)
    topics = [
        world.raw(put_topic=pb.PutObjectCommand(name=f"t{number}"))
        for number in range(rng.randint(1, 9))
    ]
    batch = world.raw(
        batch=pb.BatchCommand(
            commands=[
                pb.ControlCommand(codec_version=1, put_topic=pb.PutObjectCommand(name="of a batch"))
            ]
        )
    )
    stop = world.raw(change_members=change(0, "n1", "n2", "n4"))
    log = [*topics, batch]
    rng.shuffle(log)
    at = rng.randint(0, len(log))
    log.insert(at, stop)
    log += rng.choices(log, k=5)
    begun = set()
    for length in range(at + 1, len(log) + 1):
        state = world.state
        for raw in log[:length]:
            state, _ = apply_command(state, raw)
        assert state.membership.has_ended
        begun.add(encode_state(next_state(state)))
    assert len(begun) == 1


def test_command_before_the_stop_sign_has_its_answer_in_the_next_generation(
    world: StateWorld,
) -> None:
    raw = world.raw(put_topic=pb.PutObjectCommand(name="kept"))
    first = world.apply(raw)
    late = world.raw(put_topic=pb.PutObjectCommand(name="late"))
    world.ok(change_members=change(0, "n1", "n2", "n4"))
    assert world.apply(late).outcome == ENDED
    begin_next(world)
    assert world.apply(raw) == first
    assert world.apply(late).outcome == OK, "what came behind the stop-sign was never applied"


def raise_to(count: int) -> pb.RaiseMinInSyncCommand:
    return pb.RaiseMinInSyncCommand(min_in_sync=count)


def one_node(rules: int = CODEC_VERSION) -> StateWorld:
    """A cluster of one, which is its master."""
    world = StateWorld()
    world.ok(
        bootstrap=pb.BootstrapCommand(
            cluster_id=b"c" * 16, min_in_sync=1, shard_count=1, node_ids=["n1"]
        )
    )
    world.ok(register_node=register("n1", boot(1)))
    world.ok(set_rules=pb.SetRulesCommand(rules=rules))
    world.ok(note_members=pb.NoteMembersCommand(members=data(["n1"])))
    world.elect(1)
    return world


def test_one_node_grows_to_three_and_asks_for_two_copies_when_they_are_there() -> None:
    world = one_node()
    world.ok(change_members=change(0, "n1", "n2", "n3"))
    assert find_min_in_sync(world.state) == 0
    begin_next(world)
    assert (world.state.min_in_sync, world.state.min_in_sync_goal) == (1, 2)
    for number in (2, 3):
        world.ok(register_node=register(f"n{number}", boot(number)))
    assert world.do(raise_min_in_sync=raise_to(2)).reason == "too few copies are in sync"
    world.ok(change_replicas=replicas(world, "n1", "n2"))
    assert find_min_in_sync(world.state) == 0
    set_isr(world, 1, 2)
    assert find_min_in_sync(world.state) == 2
    assert decode_state(encode_state(world.state)) == world.state
    world.ok(raise_min_in_sync=raise_to(2))
    assert (world.state.min_in_sync, find_min_in_sync(world.state)) == (2, 0)
    assert world.do(raise_min_in_sync=raise_to(2)).outcome == CONFLICT
    assert world.do(raise_min_in_sync=raise_to(4)).reason == "more than the 3 members"
    assert world.change_isr(1).reason == "never below min_in_sync, 2"


def test_two_nodes_are_not_held_to_two_copies_of_their_own_accord() -> None:
    """The first that is down would stop them, and could not be removed."""
    world = one_node()
    world.ok(change_members=change(0, "n1", "n2"))
    begin_next(world)
    world.ok(register_node=register("n2", boot(2)))
    world.ok(change_replicas=replicas(world, "n1", "n2"))
    set_isr(world, 1, 2)
    assert find_min_in_sync(world.state) == 0
    world.ok(raise_min_in_sync=raise_to(2))


def test_older_rules_know_none_of_that() -> None:
    world = one_node(rules=3)
    outvoted = world.do(change_members=change(0, "n1", "n2", "n3"))
    assert (outvoted.outcome, "would outvote" in outvoted.reason) == (REFUSED, True)
    assert world.do(raise_min_in_sync=raise_to(2)).outcome == pb.CONTROL_OUTCOME_UNKNOWN_VERSION
    world.ok(change_members=change(0, "n1", "n2"))
    begin_next(world)
    assert world.state.min_in_sync_goal == 0


def test_one_node_is_not_replaced_by_others() -> None:
    refused = one_node().do(change_members=change(0, "n2", "n3", "n4"))
    assert (refused.outcome, "would outvote" in refused.reason) == (REFUSED, True)


def test_goal_of_a_cluster_that_never_was_one_node_is_none(world: StateWorld) -> None:
    set_isr(world, 1, 2, 3)
    world.ok(change_members=change(0, "n1", "n2", "n3", "n4", "n5"))
    begin_next(world)
    assert (world.state.min_in_sync_goal, find_min_in_sync(world.state)) == (0, 0)
    world.ok(raise_min_in_sync=raise_to(3))
    assert (world.state.min_in_sync, world.state.min_in_sync_goal) == (3, 0)
