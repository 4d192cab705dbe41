"""Whatever is done to the control plane's state, what the data plane builds on holds."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.access import AccessState
from replication.control_state.commands import apply_command, make_command
from replication.control_state.state import ControlState, decode_state, encode_state
from tests.support.control_commands import CLUSTER_ID, NODE_IDS, boot, register

BOOTS = st.integers(1, 4).map(boot)
NODES = st.sampled_from((*NODE_IDS, "n4"))
SMALL = st.integers(0, 6)
NAMES = st.sampled_from(("", "a", "b"))
MIN_IN_SYNC = 2
KINDS = (
    "register", "elect", "elect", "isr", "isr", "put", "delete", "ended", "rules", "access",
    "batch",
)  # fmt: skip
VERSIONS = st.integers(0, 12)


@st.composite
def access_commands(draw: st.DrawFn) -> dict[str, Any]:
    name, version = draw(NAMES), draw(VERSIONS)
    key = pb.GrantKey(principal=draw(NAMES), kind=draw(st.sampled_from(("topic", "x"))), name="t*")
    return draw(
        st.sampled_from(
            [
                {"put_user": pb.PutUserCommand(
                    name=name, secret_hash="h", expected_version=version)},
                {"delete_user": pb.DeleteUserCommand(name=name, expected_version=version)},
                {"put_grant": pb.PutGrantCommand(
                    key=key, operations=["look"], expected_version=version)},
                {"delete_grant": pb.DeleteGrantCommand(key=key, expected_version=version)},
                {"put_quota": pb.PutQuotaCommand(principal=name, expected_version=version)},
                {"delete_quota": pb.DeleteQuotaCommand(principal=name, expected_version=version)},
            ]
        )
    )  # fmt: skip


@st.composite
def commands(draw: st.DrawFn) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind
    kind = draw(st.sampled_from(KINDS))
    if kind == "register":
        seen = [
            pb.SeenEpoch(shard=0, epoch=draw(SMALL), master_node_id=draw(NODES))
            for _ in range(draw(st.integers(0, 1)))
        ]
        return {
            "register_node": register(
                draw(NODES), draw(BOOTS), is_sound=draw(st.booleans()), seen=seen
            )
        }
    if kind == "elect":
        return {
            "elect_master": pb.ElectMasterCommand(
                shard=0,
                expected_epoch=draw(SMALL),
                master_node_id=draw(NODES),
                master_boot_id=draw(BOOTS),
            )
        }
    if kind == "isr":
        isr = [pb.IsrMember(node_id=draw(NODES), boot_id=draw(BOOTS)) for _ in range(draw(SMALL))]
        return {
            "change_isr": pb.ChangeIsrCommand(
                epoch=draw(SMALL), expected_version=draw(st.integers(1, 9)), isr=isr
            )
        }
    if kind == "rules":
        return {"set_rules": pb.SetRulesCommand(rules=draw(st.integers(0, 3)))}
    if kind == "access":
        return draw(access_commands())
    if kind == "batch":
        inner = draw(st.lists(access_commands(), max_size=3))
        commands = [make_command(b"", **which) for which in inner]
        return {"batch": pb.BatchCommand(commands=commands)}
    if kind == "put":
        put = pb.PutObjectCommand(name=draw(NAMES), expected_version=draw(st.integers(0, 9)))
        return {draw(st.sampled_from(("put_topic", "put_group"))): put}
    if kind == "ended":
        return {"note_ended": pb.NoteEndedCommand(node_id=draw(NODES), boot_id=draw(BOOTS))}
    delete = pb.DeleteObjectCommand(name=draw(NAMES), expected_version=draw(st.integers(0, 9)))
    return {draw(st.sampled_from(("delete_topic", "delete_group"))): delete}


FOUND = pb.BootstrapCommand(
    cluster_id=CLUSTER_ID, min_in_sync=MIN_IN_SYNC, shard_count=1, node_ids=NODE_IDS
)


def encoded(index: int, which: dict[str, Any]) -> bytes:
    request_id = index.to_bytes(16, "big")
    return make_command(request_id, **which).SerializeToString()


def helped(state: ControlState, which: dict[str, Any], is_helped: bool) -> dict[str, Any]:
    """Most random commands conflict; let some know the state as a good proposer does."""
    if is_helped and "elect_master" in which:
        which["elect_master"].expected_epoch = state.shards[0].epoch
        member = state.shards[0].isr[0]
        which["elect_master"].master_node_id = member.node_id
        which["elect_master"].master_boot_id = member.boot_id
    if is_helped and "change_isr" in which:
        which["change_isr"].epoch = state.shards[0].epoch
        which["change_isr"].expected_version = state.shards[0].version
        members = {each.member for each in state.nodes.values()}
        keep = len(which["change_isr"].isr)
        del which["change_isr"].isr[:]
        for member in sorted(members)[:keep]:
            which["change_isr"].isr.add(node_id=member.node_id, boot_id=member.boot_id)
    return which


@given(
    st.lists(st.tuples(commands(), st.booleans()), max_size=40),
    st.lists(st.binary(max_size=60), max_size=3),
)
def test_I4_epochs_grow_sets_stay_and_replicas_agree(  # noqa: N802
    steps: list[tuple[dict[str, Any], bool]], garbage: list[bytes]
) -> None:
    state, _ = apply_command(ControlState(), encoded(0, {"bootstrap": FOUND}))
    replica = state
    masters: dict[int, object] = {}
    ids: dict[int, str] = {}
    for index, (which, is_helped) in enumerate(steps, 1):
        raw = encoded(index, helped(state, which, is_helped))
        after, answer = apply_command(state, raw)
        after.check()
        old, new = state.shards[0], after.shards[0]
        assert new.epoch >= old.epoch
        assert (new == old) == (new.version == old.version)
        if new.master is not None:
            assert masters.setdefault(new.epoch, new.master) == new.master, "two masters"
            assert new.epoch > 0
        if new.epoch > old.epoch:
            assert new.epoch > max([e for e in masters if e < new.epoch], default=0)
            assert new.epoch > old.epoch_seen
        if "change_isr" in which and len(new.isr) < len(old.isr):
            assert len(new.isr) >= MIN_IN_SYNC
        assert after.codec_version >= state.codec_version
        assert after.codec_version > 1 or after.access == AccessState()
        assert (after.access == state.access) == (after.access.version == state.access.version)
        for topic in after.topics.values():
            assert ids.setdefault(topic.object_id, topic.name) == topic.name, "an id came twice"
        # The same again is the same again; a replica that restarts from a snapshot agrees.
        assert apply_command(after, raw) == (after, answer)
        replica, same = apply_command(decode_state(encode_state(replica)), raw)
        assert same == answer
        assert replica.digest() == after.digest()
        state = after
    for raw in garbage:
        after, _ = apply_command(state, raw)
        assert after.shards == state.shards
