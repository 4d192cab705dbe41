"""What a cluster takes over of another's state, and what stays behind."""

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control_state.founding import FIRST_GENERATION, founded, left_alone
from replication.control_state.state import CODEC_VERSION, Member, decode_state, encode_state
from tests.support.control_commands import StateWorld, boot, register

NEW = b"n" * 16
A, B, C = map(NodeId, "abc")
MEMBERS = {A: "h:1", B: "h:2", C: "h:3"}


def lived() -> StateWorld:
    world = StateWorld()
    world.found()
    world.elect(1)
    world.ok(set_rules=pb.SetRulesCommand(rules=CODEC_VERSION))
    world.ok(put_topic=pb.PutObjectCommand(name="orders"))
    world.ok(put_user=pb.PutUserCommand(name="alice", secret_hash="#"))
    key = pb.GrantKey(principal="alice", kind="topic", name="orders")
    world.ok(put_grant=pb.PutGrantCommand(key=key, operations=["publish"]))
    world.ok(put_quota=pb.PutQuotaCommand(principal="*", limits=pb.QuotaLimits(topics=3)))
    return world


def test_permissions_are_taken_over_and_nodes_are_not() -> None:
    world = lived()
    before = world.state
    after = founded(before, NEW, MEMBERS, 2)
    after.check()
    assert decode_state(encode_state(after)) == after
    assert after.access == before.access
    assert (after.next_topic_id, after.revision) == (before.next_topic_id, before.revision + 1)
    assert (after.cluster_id, after.min_in_sync, after.nodes) == (NEW, 2, {})
    shard = after.shards[0]
    assert (shard.epoch, shard.master, shard.replicas) == (0, None, (A, B, C))
    assert after.membership.generation == FIRST_GENERATION
    assert after.membership.members == MEMBERS


def test_topics_come_from_the_log_that_comes_along() -> None:
    """It may end before a topic of this state was made, or before one was deleted."""
    world = lived()
    piece = pb.ImportCatalogCommand(topics=[pb.ObjectData(name="orders", object_id=9)])
    piece.epoch, piece.is_last = 1, True
    world.ok(import_catalog=piece)
    world.state = founded(world.state, NEW, MEMBERS, 2)
    assert (world.state.topics, world.state.groups) == ({}, {})
    again = pb.ImportCatalogCommand(topics=[pb.ObjectData(name="bills", object_id=4)], is_last=True)
    world.ok(import_catalog=again)
    assert list(world.state.topics) == ["bills"]
    assert world.state.next_topic_id == 10, "no number is given out twice"


def test_new_cluster_registers_and_elects() -> None:
    world = lived()
    world.state = founded(world.state, NEW, MEMBERS, 2)
    seen = pb.SeenEpoch(epoch=1_005, master_node_id="x")
    for number, node in enumerate(MEMBERS, 1):
        world.ok(register_node=register(node, boot(number), seen=[seen]))
    # Whether the others were restored as well nobody knows.
    assert world.state.shards[0].isr == (Member(A, boot(1)),)
    for number, node in ((2, B), (3, C)):
        command = pb.ElectMasterCommand(master_node_id=node, master_boot_id=boot(number))
        assert "not in sync" in world.do(elect_master=command).reason
    elected = world.ok(
        elect_master=pb.ElectMasterCommand(master_node_id="a", master_boot_id=boot(1))
    )
    assert elected.epoch == 1_006
    shard = world.state.shards[0]
    both = [pb.IsrMember(node_id=one, boot_id=boot(at)) for at, one in ((1, A), (2, B))]
    world.ok(
        change_isr=pb.ChangeIsrCommand(epoch=shard.epoch, expected_version=shard.version, isr=both)
    )
    assert world.state.shards[0].isr_node_ids == {A, B}


def test_node_alone_has_no_members() -> None:
    after = left_alone(lived().state, NEW, A)
    after.check()
    assert (after.min_in_sync, after.membership.members) == (1, {})
    assert after.shards[0].isr_node_ids == {A}
    assert set(after.access.users) == {"alice"}


def test_more_in_sync_than_members_are_not_possible() -> None:
    with pytest.raises(errors.InvariantViolated):
        founded(lived().state, NEW, {A: "h:1"}, 2)
