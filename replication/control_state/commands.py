"""What commands do to the control plane's state. Pure, total, deterministic.

`apply_command` answers whatever bytes it is given and never raises: an exception in here would stop
the whole cluster, again after each restart. What may stand in a command is decided here, at apply,
on every node alike; that a proposer has checked before is only a courtesy.

Lost answers: a command carries a request id, and its answer is remembered in the state itself, for
the next 1,024 commands. A proposer that tries again gets the first answer.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import Epoch, NodeId, ShardId
from replication.control_state.state import (
    REMEMBERED_COUNT_MAX,
    ControlState,
    Member,
    NamedObject,
    NodeInfo,
    ShardInfo,
    node_of,
)

COMMAND_BYTES_MAX: Final = 30 * 1024
"""PySyncObj is sound for entries below 32 KiB."""
REQUEST_ID_BYTES: Final = 16
ID_BYTES: Final = 16
NODE_COUNT_MAX: Final = 64
SHARD_COUNT_MAX: Final = 4_096
OBJECT_COUNT_MAX: Final = 100_000
NAME_BYTES_MAX: Final = 1_024
EPOCH_MAX: Final = (1 << 32) - 2
"""Record batches carry an epoch as u32."""

_log = logging.getLogger(__name__)

Answer = tuple[ControlState, pb.ControlResult]
"""The next state, and the answer to the proposer."""


def apply_command(state: ControlState, raw: bytes) -> tuple[ControlState, bytes]:
    """The next state, and an encoded ControlResult. Never raises."""
    try:
        return _apply(state, raw)
    except Exception:  # noqa: BLE001 - the same bug on every node: all refuse, and stay alike
        _log.exception("control_command_failed")
        refused = _result(state, pb.CONTROL_OUTCOME_REFUSED, "the command met a bug")
        return state, refused.SerializeToString(deterministic=True)


def _apply(state: ControlState, raw: bytes) -> tuple[ControlState, bytes]:
    command, problem = _decode(raw)
    if command is None:
        result = _result(state, pb.CONTROL_OUTCOME_REFUSED, problem)
        return state, result.SerializeToString(deterministic=True)
    known = state.remembered.get(command.request_id)
    if known is not None:
        return state, known
    if command.codec_version != state.codec_version:
        after, result = (
            state,
            _result(
                state,
                pb.CONTROL_OUTCOME_UNKNOWN_VERSION,
                f"the cluster follows rules {state.codec_version}",
            ),
        )
    else:
        after, result = _dispatch(state, command)
    encoded = result.SerializeToString(deterministic=True)
    return _remember(after, command.request_id, encoded), encoded


def _decode(raw: bytes) -> tuple[pb.ControlCommand | None, str]:
    if len(raw) > COMMAND_BYTES_MAX:
        return None, f"more than {COMMAND_BYTES_MAX} bytes"
    try:
        command = pb.ControlCommand.FromString(raw)
    except Exception:  # noqa: BLE001 - protobuf's DecodeError has no public home
        return None, "not a command"
    if len(command.request_id) != REQUEST_ID_BYTES:
        return None, f"a request id has {REQUEST_ID_BYTES} bytes"
    return command, ""


def _remember(state: ControlState, request_id: bytes, result: bytes) -> ControlState:
    remembered = dict(state.remembered)
    remembered[request_id] = result
    while len(remembered) > REMEMBERED_COUNT_MAX:
        del remembered[next(iter(remembered))]
    return replace(state, remembered=MappingProxyType(remembered))


def _dispatch(state: ControlState, command: pb.ControlCommand) -> Answer:
    name = command.WhichOneof("command")
    handler = _HANDLERS.get(name or "")
    if handler is None:
        return _refused(state, "no command that these rules know")
    if not state.is_bootstrapped and name not in {"bootstrap", "noop"}:
        return _refused(state, "there is no cluster yet")
    return handler(state, getattr(command, name or ""))


# --- answers


def _result(
    state: ControlState, outcome: pb.ControlOutcome, reason: str = "", **fields: Any
) -> pb.ControlResult:
    return pb.ControlResult(outcome=outcome, reason=reason, revision=state.revision, **fields)


def _ok(state: ControlState, **fields: Any) -> Answer:
    return state, _result(state, pb.CONTROL_OUTCOME_OK, **fields)


def _refused(state: ControlState, reason: str, **fields: int) -> Answer:
    return state, _result(state, pb.CONTROL_OUTCOME_REFUSED, reason, **fields)


def _conflict(state: ControlState, reason: str, **fields: int) -> Answer:
    return state, _result(state, pb.CONTROL_OUTCOME_CONFLICT, reason, **fields)


def _with_shards(state: ControlState, *changed: ShardInfo) -> ControlState:
    shards: dict[int, ShardInfo] = dict(state.shards)
    shards.update({shard.shard: shard for shard in changed})
    return replace(state, shards=MappingProxyType(shards))


def _next_revision(state: ControlState) -> ControlState:
    return replace(state, revision=state.revision + 1)


# --- handlers


def _noop(state: ControlState, _: pb.NoopCommand) -> Answer:
    return _ok(state)


def _bootstrap(state: ControlState, command: pb.BootstrapCommand) -> Answer:
    node_ids = sorted(set(command.node_ids))
    if len(command.cluster_id) != ID_BYTES:
        return _refused(state, f"a cluster id has {ID_BYTES} bytes")
    if not node_ids or len(node_ids) > NODE_COUNT_MAX or not all(map(_is_name, node_ids)):
        return _refused(state, f"1 to {NODE_COUNT_MAX} nodes with proper names")
    if not 1 <= command.min_in_sync <= len(node_ids):
        return _refused(state, "min_in_sync is between 1 and the number of nodes")
    if not 1 <= command.shard_count <= SHARD_COUNT_MAX:
        return _refused(state, f"1 to {SHARD_COUNT_MAX} shards")
    if state.is_bootstrapped:
        same = state.cluster_id == command.cluster_id
        return _conflict(state, "the cluster exists" if same else "this is another cluster")
    isr = tuple(Member(NodeId(node_id), b"") for node_id in node_ids)
    shards = {
        number: ShardInfo(ShardId(number), Epoch(0), None, isr, version=1)
        for number in range(command.shard_count)
    }
    return _ok(
        _next_revision(
            replace(
                state,
                cluster_id=command.cluster_id,
                min_in_sync=command.min_in_sync,
                shards=MappingProxyType(shards),
            )
        )
    )


def _register_node(state: ControlState, command: pb.RegisterNodeCommand) -> Answer:
    if not _is_name(command.node_id) or len(command.boot_id) != ID_BYTES:
        return _refused(state, f"a node has a name, and a boot id of {ID_BYTES} bytes")
    if command.node_id not in state.nodes and len(state.nodes) >= NODE_COUNT_MAX:
        return _refused(state, f"more than {NODE_COUNT_MAX} nodes")
    if any(seen.epoch > EPOCH_MAX for seen in command.seen):
        return _refused(state, f"an epoch beyond {EPOCH_MAX}")
    after = _next_revision(state)
    known = state.nodes.get(NodeId(command.node_id))
    node = node_of(command, after.revision, b"" if known is None else known.ended_boot_id)
    nodes = {**after.nodes, node.node_id: node}
    after = replace(after, nodes=MappingProxyType(nodes))
    changed = [
        now
        for shard in after.shards.values()
        if (now := _registered_in(shard, node, is_sound=command.isr_is_sound)) != shard
    ]
    return _ok(_with_shards(after, *changed), version=node.version)


def _registered_in(shard: ShardInfo, node: NodeInfo, *, is_sound: bool) -> ShardInfo:
    """What a registration changes of a shard.

    - An older incarnation in the in-sync set becomes the new one where its log was sound. Else it
      leaves, unless it is the last: then the old one stays, and nobody can be elected until an
      operator says whose log is the best. A node that says that it has seen no epoch, where there
      were some, has lost its disk: to itself its empty log looks sound. (But where no node has ever
      said that it has seen one, all died before the first epoch began: the last may stay.)
    - An older incarnation that is master is master no more: it has forgotten what it promised.
    - The node has seen a later epoch than we have given, or another master of the same one (we have
      forgotten): nobody is master until there is an epoch above all that.
    """
    member = node.member
    isr, master = shard.isr, shard.master
    if node.node_id in shard.isr_node_ids and member not in isr:
        others = tuple(one for one in isr if one.node_id != node.node_id)
        is_blank = shard.epoch > 0 and node.seen.get(shard.shard) == (0, "")
        may_be_blank = not others and shard.epoch_seen == 0
        if is_sound and (not is_blank or may_be_blank):
            isr = tuple(sorted((*others, member)))
        elif others:
            isr = others
    if master and master.node_id == node.node_id and master != member:
        master = None
    epoch, seen_master = node.seen.get(shard.shard, (0, ""))
    if epoch > shard.epoch or (
        epoch == shard.epoch and master is not None and seen_master not in {"", master.node_id}
    ):
        master = None
    seen = max(shard.epoch_seen, epoch)
    after = replace(shard, isr=isr, master=master, epoch_seen=seen)
    return after if after == shard else replace(after, version=shard.version + 1)


def _note_ended(state: ControlState, command: pb.NoteEndedCommand) -> Answer:
    """A process has ended.

    The revision stays: nodes whose software does not know this command yet refuse it, and must
    give the same versions to everything else. For the same reason nothing else depends on it here.
    """
    node = state.nodes.get(NodeId(command.node_id))
    if node is None or not command.boot_id or node.boot_id != command.boot_id:
        return _conflict(state, "another incarnation is registered")
    ended = replace(node, ended_boot_id=command.boot_id)
    return _ok(replace(state, nodes=MappingProxyType({**state.nodes, node.node_id: ended})))


def _elect_master(state: ControlState, command: pb.ElectMasterCommand) -> Answer:
    shard = state.shards.get(command.shard)
    if shard is None:
        return _refused(state, "no such shard")
    if shard.epoch != command.expected_epoch:
        return _conflict(state, "another epoch", epoch=shard.epoch, version=shard.version)
    master = Member(NodeId(command.master_node_id), command.master_boot_id)
    node = state.nodes.get(master.node_id)
    if master not in shard.isr or node is None or node.boot_id != master.boot_id:
        return _refused(
            state, "not in sync in this incarnation", epoch=shard.epoch, version=shard.version
        )
    epoch = max(shard.epoch, shard.epoch_seen) + 1
    if epoch > EPOCH_MAX:
        return _refused(state, "epochs are used up", epoch=shard.epoch, version=shard.version)
    elected = replace(shard, epoch=Epoch(epoch), master=master, version=shard.version + 1)
    after = _with_shards(_next_revision(state), elected)
    return _ok(after, epoch=epoch, version=elected.version)


def _change_isr(  # noqa: PLR0911 - one for each reason
    state: ControlState, command: pb.ChangeIsrCommand
) -> Answer:
    shard = state.shards.get(command.shard)
    if shard is None:
        return _refused(state, "no such shard")
    found = {"epoch": shard.epoch, "version": shard.version}
    if shard.epoch != command.epoch or shard.version != command.expected_version:
        return _conflict(state, "another epoch or version", **found)
    isr = tuple(sorted(Member(NodeId(one.node_id), one.boot_id) for one in command.isr))
    if len({one.node_id for one in isr}) != len(isr):
        return _refused(state, "a node is named twice", **found)
    if shard.master is None or shard.master not in isr:
        return _refused(state, "the master is always in sync", **found)
    for one in isr:
        node = state.nodes.get(one.node_id)
        if one not in shard.isr and (node is None or node.boot_id != one.boot_id):
            return _refused(state, f"{one.node_id} is not registered in this incarnation", **found)
    is_shrunk = not set(isr) >= set(shard.isr)
    if is_shrunk and len(isr) < state.min_in_sync:
        return _refused(state, f"never below min_in_sync, {state.min_in_sync}", **found)
    changed = replace(shard, isr=isr, version=shard.version + 1)
    after = _with_shards(_next_revision(state), changed)
    return _ok(after, epoch=changed.epoch, version=changed.version)


def _is_name(name: str) -> bool:
    return 0 < len(name.encode()) <= NAME_BYTES_MAX


def _put(
    objects: Mapping[str, NamedObject], next_id: int, state: ControlState, command: Any
) -> tuple[NamedObject | None, Answer]:
    """The new object, or none and the answer why not."""
    old = objects.get(command.name)
    version = old.version if old else 0
    if not _is_name(command.name):
        return None, _refused(state, f"a name has 1 to {NAME_BYTES_MAX} bytes")
    if version != command.expected_version:
        number = old.object_id if old else 0
        return None, _conflict(state, "another version", version=version, object_id=number)
    if old is None and len(objects) >= OBJECT_COUNT_MAX:
        return None, _refused(state, f"more than {OBJECT_COUNT_MAX}")
    after = _next_revision(state)
    new = NamedObject(
        command.name, old.object_id if old else next_id, command.settings, after.revision
    )
    return new, _ok(after, version=new.version, object_id=new.object_id)


def _put_topic(state: ControlState, command: pb.PutObjectCommand) -> Answer:
    new, (after, result) = _put(state.topics, state.next_topic_id, state, command)
    if new is None:
        return after, result
    topics = MappingProxyType({**state.topics, new.name: new})
    next_id = max(state.next_topic_id, new.object_id + 1)
    return replace(after, topics=topics, next_topic_id=next_id), result


def _put_group(state: ControlState, command: pb.PutObjectCommand) -> Answer:
    new, (after, result) = _put(state.groups, state.next_group_id, state, command)
    if new is None:
        return after, result
    groups = MappingProxyType({**state.groups, new.name: new})
    next_id = max(state.next_group_id, new.object_id + 1)
    return replace(after, groups=groups, next_group_id=next_id), result


def _without(
    objects: Mapping[str, NamedObject], state: ControlState, command: Any
) -> tuple[Mapping[str, NamedObject] | None, Answer]:
    old = objects.get(command.name)
    if old is None or old.version != command.expected_version:
        found = old.version if old else 0
        return None, _conflict(state, "another version, or none", version=found)
    left = {name: one for name, one in objects.items() if name != command.name}
    return MappingProxyType(left), _ok(_next_revision(state), object_id=old.object_id)


def _delete_topic(state: ControlState, command: pb.DeleteObjectCommand) -> Answer:
    topics, (after, result) = _without(state.topics, state, command)
    return (after if topics is None else replace(after, topics=topics)), result


def _delete_group(state: ControlState, command: pb.DeleteObjectCommand) -> Answer:
    groups, (after, result) = _without(state.groups, state, command)
    return (after if groups is None else replace(after, groups=groups)), result


_HANDLERS: Final[dict[str, Callable[[ControlState, Any], Answer]]] = {
    "noop": _noop,
    "bootstrap": _bootstrap,
    "register_node": _register_node,
    "elect_master": _elect_master,
    "change_isr": _change_isr,
    "put_topic": _put_topic,
    "delete_topic": _delete_topic,
    "put_group": _put_group,
    "delete_group": _delete_group,
    "note_ended": _note_ended,
}
"""Field of ControlCommand -> what it does."""
