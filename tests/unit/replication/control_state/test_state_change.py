"""A broker that hears of changes knows the same as one that hears the whole state."""

from dataclasses import replace
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.state import CODEC_VERSION, ControlState
from replication.control_state.state_change import change_of, state_after, whole
from tests.support.control_commands import StateWorld

NAMES = st.sampled_from("abc")
KINDS = st.sampled_from(("topic", "group", "user"))


def shown(state: ControlState) -> ControlState:
    return replace(state, remembered=MappingProxyType({}))


def step(world: StateWorld, kind: str, name: str, is_put: bool) -> None:
    """Put or delete it, whatever version it has."""
    if kind == "user":
        user = world.state.access.users.get(name)
        version = 0 if user is None else user.version
        if is_put:
            put = pb.PutUserCommand(name=name, secret_hash="h", expected_version=version)
            world.do(put_user=put)
        else:
            world.do(delete_user=pb.DeleteUserCommand(name=name, expected_version=version))
        return
    objects = world.state.topics if kind == "topic" else world.state.groups
    version = objects[name].version if name in objects else 0
    if is_put:
        world.do(**{f"put_{kind}": pb.PutObjectCommand(name=name, expected_version=version)})
    else:
        delete = pb.DeleteObjectCommand(name=name, expected_version=version)
        world.do(**{f"delete_{kind}": delete})


@given(st.lists(st.lists(st.tuples(KINDS, NAMES, st.booleans()), max_size=4), max_size=8))
def test_changes_one_after_the_other_make_the_whole_state(
    frames: list[list[tuple[str, str, bool]]],
) -> None:
    world = StateWorld()
    world.found()
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    told, known = world.state, state_after(ControlState(), whole(world.state))
    for steps in frames:
        for one in steps:
            step(world, *one)
        known = state_after(known, change_of(told, world.state))
        told = world.state
        assert known == shown(told)
        assert known.digest() == shown(told).digest()


def test_change_is_as_long_as_what_has_changed() -> None:
    world = StateWorld()
    world.found()
    for number in range(200):
        world.ok(put_topic=pb.PutObjectCommand(name=f"topic-{number}", settings=b"s" * 50))
    before = world.state
    world.ok(put_topic=pb.PutObjectCommand(name="one-more"))
    change = change_of(before, world.state)
    assert [one.name for one in change.state.topics] == ["one-more"]
    assert change.ByteSize() < whole(world.state).ByteSize() / 10


def test_whole_state_takes_the_place_of_what_was_known() -> None:
    world = StateWorld()
    world.found()
    world.ok(put_topic=pb.PutObjectCommand(name="gone"))
    fresh = StateWorld()
    fresh.found()
    assert not state_after(world.state, whole(fresh.state)).topics
