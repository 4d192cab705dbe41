"""What commands do to the control plane's state. Pure, total, deterministic.

`apply_command` answers whatever bytes it is given and never raises: an exception in here would stop
the whole cluster, again after each restart. What may stand in a command is decided here, at apply,
on every node alike; that a proposer has checked before is only a courtesy.

Lost answers: a command carries a request id, and its answer is remembered in the state itself, for
the next 1,024 commands. A proposer that tries again gets the first answer.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import Epoch, NodeId, ShardId
from replication.control_state import access_commands as access
from replication.control_state import catalog_commands as catalog
from replication.control_state import member_commands as members
from replication.control_state.answers import (
    Answer,
    conflict,
    generation_ended,
    next_revision,
    ok,
    refused,
    unknown_version,
)
from replication.control_state.catalog_commands import is_name
from replication.control_state.state import (
    CODEC_VERSION,
    REMEMBERED_COUNT_MAX,
    RULES_FIRST,
    ControlState,
    Member,
    NodeInfo,
    ShardInfo,
    copy_of,
    node_of,
)

COMMAND_BYTES_MAX: Final = 30 * 1024
"""PySyncObj is sound for entries below 32 KiB."""
REQUEST_ID_BYTES: Final = 16
ID_BYTES: Final = 16
NODE_COUNT_MAX: Final = 64
SHARD_COUNT_MAX: Final = 4_096
BATCH_COUNT_MAX: Final = 128
"""What a batch answers is remembered as well."""
EPOCH_MAX: Final = (1 << 32) - 2
"""Record batches carry an epoch as u32."""

_log = logging.getLogger(__name__)


def apply_command(state: ControlState, raw: bytes) -> tuple[ControlState, bytes]:
    """The next state, and an encoded ControlResult.

    Raises MemoryError, and no other error: this node alone has no memory, and the others have
    applied the command. A node that refused it would have another state from then on.
    """
    try:
        return _apply(state, raw)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the same bug on every node: all refuse, and stay alike
        _log.exception("control_command_failed")
        _, result = refused(state, "the command met a bug")
        return state, result.SerializeToString(deterministic=True)


def _apply(state: ControlState, raw: bytes) -> tuple[ControlState, bytes]:
    command, problem = _decode(raw)
    if command is None:
        _, result = refused(state, problem)
        return state, result.SerializeToString(deterministic=True)
    known = state.remembered.get(command.request_id)
    if known is not None:
        return state, known
    if state.membership.has_ended:
        # Not remembered: the state that the next generation begins with is the same wherever it
        # was taken behind the stop-sign.
        _, result = generation_ended(state)
        return state, result.SerializeToString(deterministic=True)
    after, result = _dispatch(state, command)
    encoded = result.SerializeToString(deterministic=True)
    return _remember(after, command.request_id, encoded), encoded


def _decode(raw: bytes) -> tuple[pb.ControlCommand | None, str]:
    if len(raw) > COMMAND_BYTES_MAX:
        return None, f"more than {COMMAND_BYTES_MAX} bytes"
    try:
        command = pb.ControlCommand.FromString(raw)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - protobuf's DecodeError has no public home
        return None, "not a command"
    if len(command.request_id) != REQUEST_ID_BYTES:
        return None, f"a request id has {REQUEST_ID_BYTES} bytes"
    return command, ""


def _remember(state: ControlState, request_id: bytes, result: bytes) -> ControlState:
    remembered = copy_of(state.remembered)
    remembered[request_id] = result
    while len(remembered) > REMEMBERED_COUNT_MAX:
        del remembered[next(iter(remembered))]
    return replace(state, remembered=MappingProxyType(remembered))


def _dispatch(state: ControlState, command: pb.ControlCommand) -> Answer:
    if not RULES_FIRST <= command.codec_version <= state.codec_version:
        return unknown_version(state)
    name = command.WhichOneof("command") or ""
    handler = _HANDLERS.get(name)
    if handler is None or handler.rules > command.codec_version:
        return refused(state, "no command that these rules know")
    if not state.is_bootstrapped and name not in {"bootstrap", "noop"}:
        return refused(state, "there is no cluster yet")
    if state.membership.has_ended:  # by a command before, of the same batch
        return generation_ended(state)
    return handler.apply(state, getattr(command, name))


def rules_of(command: pb.ControlCommand) -> int:
    """The oldest rules that know the command: its `codec_version`."""
    handler = _HANDLERS.get(command.WhichOneof("command") or "")
    return RULES_FIRST if handler is None else handler.rules


def make_command(request_id: bytes, **which: Any) -> pb.ControlCommand:
    """A command, from the field of ControlCommand that it has."""
    command = pb.ControlCommand(request_id=request_id, **which)
    command.codec_version = rules_of(command)
    return command


# --- handlers


def _with_shards(state: ControlState, *changed: ShardInfo) -> ControlState:
    shards: dict[int, ShardInfo] = dict(state.shards)
    shards.update({shard.shard: shard for shard in changed})
    return replace(state, shards=MappingProxyType(shards))


def _noop(state: ControlState, _: pb.NoopCommand) -> Answer:
    return ok(state)


def _bootstrap(state: ControlState, command: pb.BootstrapCommand) -> Answer:
    node_ids = sorted(set(command.node_ids))
    if len(command.cluster_id) != ID_BYTES:
        return refused(state, f"a cluster id has {ID_BYTES} bytes")
    if not node_ids or len(node_ids) > NODE_COUNT_MAX or not all(map(is_name, node_ids)):
        return refused(state, f"1 to {NODE_COUNT_MAX} nodes with proper names")
    if not 1 <= command.min_in_sync <= len(node_ids):
        return refused(state, "min_in_sync is between 1 and the number of nodes")
    if not 1 <= command.shard_count <= SHARD_COUNT_MAX:
        return refused(state, f"1 to {SHARD_COUNT_MAX} shards")
    if state.is_bootstrapped:
        same = state.cluster_id == command.cluster_id
        return conflict(state, "the cluster exists" if same else "this is another cluster")
    isr = tuple(Member(NodeId(node_id), b"") for node_id in node_ids)
    shards = {
        number: ShardInfo(ShardId(number), Epoch(0), None, isr, version=1)
        for number in range(command.shard_count)
    }
    return ok(
        next_revision(
            replace(
                state,
                cluster_id=command.cluster_id,
                min_in_sync=command.min_in_sync,
                shards=MappingProxyType(shards),
            )
        )
    )


def _register_node(state: ControlState, command: pb.RegisterNodeCommand) -> Answer:
    if not is_name(command.node_id) or len(command.boot_id) != ID_BYTES:
        return refused(state, f"a node has a name, and a boot id of {ID_BYTES} bytes")
    if command.node_id not in state.nodes and len(state.nodes) >= NODE_COUNT_MAX:
        return refused(state, f"more than {NODE_COUNT_MAX} nodes")
    if state.membership.members and command.node_id not in state.membership.members:
        return refused(state, f"{command.node_id} is not a member of the cluster")
    if any(seen.epoch > EPOCH_MAX for seen in command.seen):
        return refused(state, f"an epoch beyond {EPOCH_MAX}")
    after = next_revision(state)
    known = state.nodes.get(NodeId(command.node_id))
    node = node_of(command, after.revision, b"" if known is None else known.ended_boot_id)
    nodes = {**after.nodes, node.node_id: node}
    after = replace(after, nodes=MappingProxyType(nodes))
    changed = [
        now
        for shard in after.shards.values()
        if (now := _registered_in(shard, node, is_sound=command.isr_is_sound)) != shard
    ]
    return ok(_with_shards(after, *changed), version=node.version)


def _registered_in(shard: ShardInfo, node: NodeInfo, *, is_sound: bool) -> ShardInfo:
    """What a registration changes of a shard.

    - An older incarnation in the in-sync set becomes the new one where its log was sound. Else it
      leaves, unless it is the last: then the old one stays, and no node can be elected until an
      operator says whose log is the best. A node that says that it has seen no epoch, where there
      were some, has lost its disk: to itself its empty log looks sound. (But where no node has ever
      said that it has seen one, all died before the first epoch began: the last may stay.)
    - An older incarnation that is master is master no more: it has forgotten what it promised.
    - The node has seen a later epoch than we have given, or another master of the same one (we have
      forgotten): no node is master until there is an epoch above all that.
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
        return conflict(state, "another incarnation is registered")
    ended = replace(node, ended_boot_id=command.boot_id)
    return ok(replace(state, nodes=MappingProxyType({**state.nodes, node.node_id: ended})))


def _elect_master(state: ControlState, command: pb.ElectMasterCommand) -> Answer:
    shard = state.shards.get(command.shard)
    if shard is None:
        return refused(state, "no such shard")
    if shard.epoch != command.expected_epoch:
        return conflict(state, "another epoch", epoch=shard.epoch, version=shard.version)
    master = Member(NodeId(command.master_node_id), command.master_boot_id)
    node = state.nodes.get(master.node_id)
    if master not in shard.isr or node is None or node.boot_id != master.boot_id:
        return refused(
            state, "not in sync in this incarnation", epoch=shard.epoch, version=shard.version
        )
    epoch = max(shard.epoch, shard.epoch_seen) + 1
    if epoch > EPOCH_MAX:
        return refused(state, "epochs are used up", epoch=shard.epoch, version=shard.version)
    elected = replace(shard, epoch=Epoch(epoch), master=master, version=shard.version + 1)
    after = _with_shards(next_revision(state), elected)
    return ok(after, epoch=epoch, version=elected.version)


def _change_isr(  # noqa: PLR0911 - one for each reason
    state: ControlState, command: pb.ChangeIsrCommand
) -> Answer:
    shard = state.shards.get(command.shard)
    if shard is None:
        return refused(state, "no such shard")
    found = {"epoch": shard.epoch, "version": shard.version}
    if shard.epoch != command.epoch or shard.version != command.expected_version:
        return conflict(state, "another epoch or version", **found)
    isr = tuple(sorted(Member(NodeId(one.node_id), one.boot_id) for one in command.isr))
    if len({one.node_id for one in isr}) != len(isr):
        return refused(state, "a node is named twice", **found)
    if shard.master is None or shard.master not in isr:
        return refused(state, "the master is always in sync", **found)
    for one in isr:
        node = state.nodes.get(one.node_id)
        if shard.replicas and one.node_id not in shard.replicas:
            return refused(state, f"{one.node_id} has no replica", **found)
        if one not in shard.isr and (node is None or node.boot_id != one.boot_id):
            return refused(state, f"{one.node_id} is not registered in this incarnation", **found)
    is_shrunk = not set(isr) >= set(shard.isr)
    if is_shrunk and len(isr) < state.min_in_sync:
        return refused(state, f"never below min_in_sync, {state.min_in_sync}", **found)
    changed = replace(shard, isr=isr, version=shard.version + 1)
    after = _with_shards(next_revision(state), changed)
    return ok(after, epoch=changed.epoch, version=changed.version)


def _set_rules(state: ControlState, command: pb.SetRulesCommand) -> Answer:
    """Newer rules from here on.

    A node whose software does not know this command refuses it, and answers all newer commands with
    UNKNOWN_VERSION: it falls behind, and does nothing else than the others.
    """
    if command.rules == state.codec_version:
        return conflict(state, "these rules are in force")
    if not state.codec_version < command.rules <= CODEC_VERSION:
        return refused(state, f"rules {state.codec_version} are in force")
    return ok(replace(next_revision(state), codec_version=command.rules))


def _batch(state: ControlState, command: pb.BatchCommand) -> Answer:
    """All in their order, each with its own result."""
    if not 0 < len(command.commands) <= BATCH_COUNT_MAX:
        return refused(state, f"a batch has 1 to {BATCH_COUNT_MAX} commands")
    results = []
    for one in command.commands:
        if one.WhichOneof("command") == "batch":
            state, result = refused(state, "a batch has no batches")
        else:
            state, result = _dispatch(state, one)
        results.append(result)
    return ok(state, results=results)


class _Handler(NamedTuple):
    """What a command does, and the oldest rules that know it."""

    rules: int
    apply: Callable[[ControlState, Any], Answer]


_HANDLERS: Final[dict[str, _Handler]] = {
    "noop": _Handler(1, _noop),
    "bootstrap": _Handler(1, _bootstrap),
    "register_node": _Handler(1, _register_node),
    "elect_master": _Handler(1, _elect_master),
    "change_isr": _Handler(1, _change_isr),
    "put_topic": _Handler(1, catalog.put_topic),
    "delete_topic": _Handler(1, catalog.delete_topic),
    "put_group": _Handler(1, catalog.put_group),
    "delete_group": _Handler(1, catalog.delete_group),
    "note_ended": _Handler(1, _note_ended),
    "set_rules": _Handler(1, _set_rules),
    "put_user": _Handler(2, access.put_user),
    "delete_user": _Handler(2, access.delete_user),
    "put_grant": _Handler(2, access.put_grant),
    "delete_grant": _Handler(2, access.delete_grant),
    "put_quota": _Handler(2, access.put_quota),
    "delete_quota": _Handler(2, access.delete_quota),
    "batch": _Handler(2, _batch),
    "note_members": _Handler(3, members.note_members),
    "change_members": _Handler(3, members.change_members),
    "change_replicas": _Handler(3, members.change_replicas),
    "raise_min_in_sync": _Handler(members.GROWING_RULES, members.raise_min_in_sync),
    "import_catalog": _Handler(catalog.CATALOG_RULES, catalog.import_catalog),
    "expire_topic": _Handler(catalog.CATALOG_RULES, catalog.expire_topic),
    "expire_group": _Handler(catalog.CATALOG_RULES, catalog.expire_group),
}
"""Field of ControlCommand -> what it does."""
