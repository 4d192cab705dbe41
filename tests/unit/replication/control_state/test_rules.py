"""Old and new nodes come to the same state, until all can follow newer rules."""

import pytest

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.commands import BATCH_COUNT_MAX
from replication.control_state.state import CODEC_VERSION, RULES_FIRST, decode_state, encode_state
from tests.support.control_commands import StateWorld

OK, REFUSED, UNKNOWN = (
    pb.CONTROL_OUTCOME_OK,
    pb.CONTROL_OUTCOME_REFUSED,
    pb.CONTROL_OUTCOME_UNKNOWN_VERSION,
)
NEWER = (
    "put_user", "delete_user", "put_grant", "delete_grant", "put_quota", "delete_quota",
    "batch", "note_members", "change_members", "change_replicas",
)  # fmt: skip
RAISE = pb.SetRulesCommand(rules=CODEC_VERSION)


@pytest.fixture
def world() -> StateWorld:
    world = StateWorld()
    world.found()
    return world


def put(name: str) -> pb.ControlCommand:
    return pb.ControlCommand(codec_version=1, put_topic=pb.PutObjectCommand(name=name))


@pytest.mark.parametrize("name", NEWER)
def test_newer_command_is_answered_as_old_software_does_when_old_rules_hold(
    world: StateWorld, name: str
) -> None:
    before = encode_state(world.state, with_remembered=False)
    command = type(getattr(pb.ControlCommand(), name))()
    result = world.do(**{name: command})
    assert (result.outcome, result.reason) == (UNKNOWN, "the cluster follows rules 1")
    result = world.apply(world.raw(version=1, **{name: command}))
    assert (result.outcome, result.reason) == (REFUSED, "no command that these rules know")
    assert encode_state(world.state, with_remembered=False) == before


def test_state_of_old_rules_has_the_bytes_that_old_software_makes(world: StateWorld) -> None:
    data = pb.ControlStateData.FromString(encode_state(world.state))
    assert data.codec_version == RULES_FIRST
    assert not data.HasField("access")


def test_rules_are_raised_once_and_old_commands_stay_good(world: StateWorld) -> None:
    world.ok(set_rules=RAISE)
    assert world.state.codec_version == CODEC_VERSION
    assert world.do(set_rules=RAISE).outcome == pb.CONTROL_OUTCOME_CONFLICT
    assert world.do(set_rules=pb.SetRulesCommand(rules=RULES_FIRST)).outcome == REFUSED
    world.apply(world.raw(version=1, put_topic=pb.PutObjectCommand(name="a")))
    assert "a" in world.state.topics
    assert decode_state(encode_state(world.state)) == world.state


def test_rules_that_this_code_does_not_know_are_refused(world: StateWorld) -> None:
    beyond = pb.SetRulesCommand(rules=CODEC_VERSION + 1)
    assert world.do(set_rules=beyond).outcome == REFUSED


def test_batch_applies_each_command_and_answers_each(world: StateWorld) -> None:
    world.ok(set_rules=RAISE)
    inner = pb.ControlCommand(codec_version=2, batch=pb.BatchCommand(commands=[put("x")]))
    raw = world.raw(batch=pb.BatchCommand(commands=[put("a"), put("a"), inner, put("b")]))
    answer = world.apply(raw)
    assert answer.outcome == OK
    assert [one.outcome for one in answer.results] == [
        OK, pb.CONTROL_OUTCOME_CONFLICT, REFUSED, OK,
    ]  # fmt: skip
    assert [one.object_id for one in answer.results] == [1, 1, 0, 2]
    assert sorted(world.state.topics) == ["a", "b"]
    assert world.apply(raw) == answer, "tried again it is told the same"


@pytest.mark.parametrize("count", [0, BATCH_COUNT_MAX + 1])
def test_batch_is_refused_when_it_is_empty_or_large(world: StateWorld, count: int) -> None:
    world.ok(set_rules=RAISE)
    batch = pb.BatchCommand(commands=[put(str(index)) for index in range(count)])
    assert world.do(batch=batch).outcome == REFUSED
    assert not world.state.topics
