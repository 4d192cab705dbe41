"""What each command does, and that none ever raises."""

import logging
from types import SimpleNamespace

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state import commands
from replication.control_state.commands import COMMAND_BYTES_MAX, EPOCH_MAX, apply_command
from replication.control_state.state import (
    REMEMBERED_COUNT_MAX,
    ControlState,
    decode_state,
    encode_state,
)
from tests.support.control_commands import CLUSTER_ID, NODE_IDS, StateWorld, boot, register

OK, CONFLICT, REFUSED = (
    pb.CONTROL_OUTCOME_OK,
    pb.CONTROL_OUTCOME_CONFLICT,
    pb.CONTROL_OUTCOME_REFUSED,
)


@pytest.fixture
def world() -> StateWorld:
    world = StateWorld()
    world.found()
    return world


def seen(epoch: int, master: str) -> list[pb.SeenEpoch]:
    return [pb.SeenEpoch(shard=0, epoch=epoch, master_node_id=master)]


def test_cluster_is_founded_once() -> None:
    world = StateWorld()
    assert world.do(put_topic=pb.PutObjectCommand(name="early")).outcome == REFUSED
    assert world.do(noop=pb.NoopCommand()).outcome == OK
    found = pb.BootstrapCommand(
        cluster_id=CLUSTER_ID, min_in_sync=2, shard_count=2, node_ids=NODE_IDS
    )
    world.ok(bootstrap=found)
    assert sorted(world.state.shards) == [0, 1]
    assert world.isr == [("n1", 0), ("n2", 0), ("n3", 0)]
    assert world.do(bootstrap=found).outcome == CONFLICT
    found.cluster_id = b"x" * 16
    assert "another" in world.do(bootstrap=found).reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster_id": b"short"},
        {"min_in_sync": 0},
        {"min_in_sync": 4},
        {"shard_count": 0},
        {"shard_count": 5_000},
        {"node_ids": []},
        {"node_ids": [""]},
    ],
)
def test_bootstrap_is_refused_when_it_makes_no_sense(wrong: dict[str, object]) -> None:
    fields = {"cluster_id": CLUSTER_ID, "min_in_sync": 2, "shard_count": 1, "node_ids": NODE_IDS}
    command = pb.BootstrapCommand(**{**fields, **wrong})  # type: ignore[arg-type]
    assert StateWorld().do(bootstrap=command).outcome == REFUSED


def test_new_boot_stays_in_sync_when_its_log_is_sound(world: StateWorld) -> None:
    version = world.state.shards[0].version
    world.ok(register_node=register("n2", boot(22)))
    assert world.isr == [("n1", 1), ("n2", 22), ("n3", 3)]
    assert world.state.shards[0].version == version + 1
    world.ok(register_node=register("n2", boot(22), api_address="moved:1"))
    assert world.state.shards[0].version == version + 1
    assert world.state.nodes["n2"].api_address == "moved:1"


def test_new_boot_leaves_the_set_when_its_log_is_not_sound(world: StateWorld) -> None:
    world.ok(register_node=register("n2", boot(22), is_sound=False))
    assert world.isr == [("n1", 1), ("n3", 3)]
    world.ok(register_node=register("n3", boot(33), is_sound=False))
    assert world.isr == [("n1", 1)]
    world.ok(register_node=register("n1", boot(11), is_sound=False))
    assert world.isr == [("n1", 1)], "the last one stays, as it was: an operator has to decide"
    assert world.elect(1).outcome == REFUSED


def test_new_boot_leaves_the_set_when_it_has_lost_its_disk(world: StateWorld) -> None:
    world.ok(register_node=register("n2", boot(22), seen=seen(0, "")))
    assert world.isr == [("n1", 1), ("n2", 22), ("n3", 3)], "there was no epoch that it could know"
    world.elect(1)
    world.ok(register_node=register("n3", boot(33), seen=seen(0, "")))
    assert world.isr == [("n1", 1), ("n2", 22)]
    world.ok(register_node=register("n2", boot(23), seen=seen(1, "n1")))
    assert world.isr == [("n1", 1), ("n2", 23)]
    world.ok(register_node=register("n1", boot(11), seen=seen(0, "")))
    assert world.isr == [("n2", 23)]
    world.ok(register_node=register("n2", boot(24), seen=seen(0, "")))
    assert world.isr == [("n2", 23)], "the last one stays, as it was: an operator has to decide"


def test_last_one_stays_when_all_died_before_the_first_epoch_began(world: StateWorld) -> None:
    for number, node in enumerate(NODE_IDS, 1):
        world.ok(register_node=register(node, boot(number), seen=seen(0, "")))
    world.elect(1)
    for number, node in enumerate(NODE_IDS, 1):
        world.ok(register_node=register(node, boot(10 * number), seen=seen(0, "")))
    assert world.isr == [("n3", 30)]


def test_new_boot_of_a_master_is_no_master(world: StateWorld) -> None:
    world.elect(1)
    assert world.master == "n1"
    world.ok(register_node=register("n1", boot(11)))
    assert world.master is None
    assert world.isr[0] == ("n1", 11)


def test_epoch_is_above_all_that_nodes_have_seen(world: StateWorld) -> None:
    assert world.elect(1).epoch == 1
    world.ok(register_node=register("n2", boot(2), seen=seen(7, "n3")))
    assert world.master is None, "it was forgotten that there was an epoch 7"
    result = world.elect(2)
    assert (result.outcome, result.epoch) == (OK, 8)
    world.ok(register_node=register("n3", boot(3), seen=seen(8, "n2")))
    assert world.master == "n2"
    world.ok(register_node=register("n3", boot(3), seen=seen(8, "n1")))
    assert world.master is None, "epoch 8 was given twice"
    world.ok(register_node=register("n2", boot(2)))
    assert world.elect(2).epoch == 9
    world.ok(register_node=register("n1", boot(1), seen=seen(EPOCH_MAX, "n1")))
    assert "used up" in world.elect(2).reason
    assert (
        world.do(register_node=register("n1", boot(1), seen=seen(EPOCH_MAX + 1, ""))).outcome
        == REFUSED
    )


def test_master_is_elected_by_epoch_from_the_set(world: StateWorld) -> None:
    assert world.elect(1, expected_epoch=5).outcome == CONFLICT
    first = world.elect(1)
    assert (first.epoch, first.version) == (1, world.state.shards[0].version)
    assert world.elect(2, expected_epoch=0).epoch == 1, "a conflict tells the epoch"
    assert world.elect(4).outcome == REFUSED
    world.change_isr(1, 2)
    assert world.elect(3).outcome == REFUSED
    elect = pb.ElectMasterCommand(expected_epoch=1, master_node_id="n2", master_boot_id=boot(22))
    assert world.do(elect_master=elect).outcome == REFUSED, "another boot"
    elect = pb.ElectMasterCommand(shard=9, master_node_id="n2", master_boot_id=boot(2))
    assert world.do(elect_master=elect).outcome == REFUSED


def test_set_shrinks_to_the_minimum_and_no_further(world: StateWorld) -> None:
    assert world.change_isr(1, 2).outcome == REFUSED, "nobody is master"
    world.elect(1)
    shrunk = world.change_isr(1, 2)
    assert (shrunk.outcome, shrunk.epoch) == (OK, 1)
    assert world.change_isr(1).outcome == REFUSED
    assert world.change_isr(1, 3).outcome == OK, "as many as there have to be"
    assert world.change_isr(2, 3).outcome == REFUSED, "without the master"
    assert world.change_isr(1, 2, 3).outcome == OK
    assert world.change_isr(1, 1, 2).outcome == REFUSED
    assert world.change_isr(1, 2, 3, 4).outcome == REFUSED
    world.ok(register_node=register("n3", boot(33), is_sound=False))
    assert world.change_isr(1, 2, 3).outcome == REFUSED, "n3 has another boot now"
    stale = pb.ChangeIsrCommand(epoch=1, expected_version=1, isr=[])
    assert world.do(change_isr=stale).outcome == CONFLICT
    assert world.do(change_isr=pb.ChangeIsrCommand(shard=3)).outcome == REFUSED


def test_set_may_grow_below_the_minimum(world: StateWorld) -> None:
    for number in (2, 3):
        world.ok(register_node=register(f"n{number}", boot(number * 11), is_sound=False))
    world.ok(register_node=register("n2", boot(2)))
    assert world.isr == [("n1", 1)]
    world.elect(1)
    assert world.change_isr(1, 2).outcome == OK


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_objects_are_changed_by_their_version(world: StateWorld, kind: str) -> None:
    def put(name: str, version: int, settings: bytes = b"") -> pb.ControlResult:
        command = pb.PutObjectCommand(name=name, expected_version=version, settings=settings)
        return world.do(**{f"put_{kind}": command})

    def delete(name: str, version: int) -> pb.ControlResult:
        command = pb.DeleteObjectCommand(name=name, expected_version=version)
        return world.do(**{f"delete_{kind}": command})

    first = put("a", 0)
    assert (first.outcome, first.object_id) == (OK, 1)
    again = put("a", 0)
    assert (again.outcome, again.version, again.object_id) == (CONFLICT, first.version, 1)
    second = put("a", first.version, b"more")
    assert second.object_id == 1
    assert second.version > first.version
    objects = world.state.topics if kind == "topic" else world.state.groups
    assert objects["a"].settings == b"more"
    assert delete("a", first.version).outcome == CONFLICT
    assert delete("a", second.version).outcome == OK
    assert delete("a", second.version).outcome == CONFLICT
    third = put("a", 0)
    assert third.object_id == 2, "ids are never used again"
    assert third.version > second.version, "nor are versions"
    assert put("", 0).outcome == REFUSED


def test_command_is_applied_once_when_it_comes_twice(world: StateWorld) -> None:
    raw = world.raw(put_topic=pb.PutObjectCommand(name="a"))
    first = world.apply(raw)
    before = world.state
    assert world.apply(raw) == first
    assert world.state == before
    for number in range(REMEMBERED_COUNT_MAX):
        world.ok(put_topic=pb.PutObjectCommand(name=f"t{number}"))
    assert len(world.state.remembered) == REMEMBERED_COUNT_MAX
    assert world.apply(raw).outcome == CONFLICT, "forgotten: the versions still protect"


def test_command_changes_nothing_when_its_rules_are_not_known(world: StateWorld) -> None:
    raw = world.raw(version=9, put_topic=pb.PutObjectCommand(name="a"))
    assert world.apply(raw).outcome == pb.CONTROL_OUTCOME_UNKNOWN_VERSION
    assert not world.state.topics


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 40,
        b"x" * (COMMAND_BYTES_MAX + 1),
        pb.ControlCommand(codec_version=1, request_id=b"short").SerializeToString(),
        pb.ControlCommand(codec_version=1, request_id=b"r" * 16).SerializeToString(),
    ],
)
def test_garbage_is_refused(world: StateWorld, raw: bytes) -> None:
    before = world.state.revision
    assert world.apply(raw).outcome == REFUSED
    assert world.state.revision == before


def test_bug_in_a_handler_is_an_answer(
    world: StateWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(state: ControlState, command: object) -> None:
        raise ZeroDivisionError

    raw = world.raw(noop=pb.NoopCommand())
    handlers = commands._HANDLERS
    monkeypatch.setitem(handlers, "noop", handlers["noop"]._replace(apply=broken))
    before = world.state
    with caplog.at_level(logging.CRITICAL):
        after, answer = apply_command(world.state, raw)
    assert after is before
    assert pb.ControlResult.FromString(answer).outcome == REFUSED


@pytest.mark.parametrize("where", ["apply", "decode"])
def test_want_of_memory_is_no_answer(
    world: StateWorld, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The other nodes have applied the command: this one must not go on as if it were refused."""

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    raw = world.raw(noop=pb.NoopCommand())
    with monkeypatch.context() as patch:
        if where == "decode":
            decoder = SimpleNamespace(ControlCommand=SimpleNamespace(FromString=broken))
            patch.setattr(commands, "pb", decoder)
        else:
            patch.setattr(commands, "replace", broken)
        with pytest.raises(MemoryError):
            apply_command(world.state, raw)
    assert apply_command(world.state, raw)[0] is not world.state, "once there is memory again"


def test_names_are_bounded_and_nodes_too(world: StateWorld) -> None:
    assert world.do(register_node=register("", boot(1))).outcome == REFUSED
    assert world.do(register_node=register("x", b"1")).outcome == REFUSED
    for number in range(4, commands.NODE_COUNT_MAX + 1):
        world.ok(register_node=register(f"n{number}", boot(number)))
    assert world.do(register_node=register("more", boot(99))).outcome == REFUSED


def test_end_of_a_process_is_noted_and_changes_nothing_else(world: StateWorld) -> None:
    before = world.state
    world.ok(note_ended=pb.NoteEndedCommand(node_id="n2", boot_id=boot(2)))
    assert world.state.ended_boot_ids == {boot(2)}
    assert world.state.revision == before.revision
    assert (world.state.shards, world.state.nodes["n1"]) == (before.shards, before.nodes["n1"])
    assert decode_state(encode_state(world.state)) == world.state
    world.ok(register_node=register("n2", boot(22)))
    assert world.state.ended_boot_ids == {boot(2)}, "that stays true"
    world.ok(note_ended=pb.NoteEndedCommand(node_id="n2", boot_id=boot(22)))
    assert world.state.ended_boot_ids == {boot(22)}


@pytest.mark.parametrize(
    ("node_id", "boot_id"), [("n2", boot(22)), ("n2", b""), ("n9", boot(9)), ("n1", boot(2))]
)
def test_end_of_another_incarnation_than_the_registered_one_changes_nothing(
    world: StateWorld, node_id: str, boot_id: bytes
) -> None:
    before = world.state.nodes
    ended = pb.NoteEndedCommand(node_id=node_id, boot_id=boot_id)
    assert world.do(note_ended=ended).outcome == CONFLICT
    assert world.state.nodes == before
