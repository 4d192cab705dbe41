import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.state import (
    ControlState,
    Member,
    ShardInfo,
    decode_state,
    encode_state,
    state_data,
    state_of,
)
from tests.support.control_commands import StateWorld, boot, register


def full() -> ControlState:
    world = StateWorld()
    world.found(shard_count=2)
    world.elect(2)
    world.ok(put_topic=pb.PutObjectCommand(name="orders", settings=b"\x00\x01"))
    world.ok(put_group=pb.PutObjectCommand(name="billing"))
    seen = [pb.SeenEpoch(shard=1, epoch=4, master_node_id="n1")]
    world.ok(register_node=register("n3", boot(3), api_address="h:1", seen=seen))
    return world.state


def test_state_is_the_same_when_it_was_written_and_read() -> None:
    state = full()
    again = decode_state(encode_state(state))
    assert again == state
    assert again.digest() == state.digest()
    assert again.nodes["n3"].seen == {1: (4, "n1")}
    assert again.nodes["n3"].member == Member("n3", boot(3))
    assert again.shards[0].master == Member("n2", boot(2))
    again.check()


def test_shown_state_has_no_remembered_results() -> None:
    shown = state_of(state_data(full(), with_remembered=False))
    assert not shown.remembered
    assert shown.topics == full().topics
    assert len(encode_state(full(), with_remembered=False)) < len(encode_state(full()))


def test_digest_tells_states_apart() -> None:
    world = StateWorld()
    digests = {world.state.digest()}
    world.found()
    digests.add(world.state.digest())
    world.elect(1)
    digests.add(world.state.digest())
    assert len(digests) == 3


def test_state_of_other_rules_is_refused() -> None:
    data = pb.ControlStateData(codec_version=9)
    with pytest.raises(errors.IncompatibleFormat, match="rules 9"):
        decode_state(data.SerializeToString())
    with pytest.raises(errors.IncompatibleFormat, match="decoded"):
        decode_state(b"\xff\xff")


def test_check_finds_a_master_that_is_not_in_sync() -> None:
    isr = (Member("n1", boot(1)),)
    wrong = ShardInfo(0, 1, Member("n2", boot(2)), isr, 1)  # type: ignore[arg-type]
    with pytest.raises(errors.InvariantViolated, match="in sync"):
        ControlState(shards={0: wrong}).check()
