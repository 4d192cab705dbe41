"""Propose a change of in-sync set or replica list until it is known whether it was agreed upon."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from hourwheel.errors import HourwheelError
from hourwheel.internal.v1 import control_pb2 as wire
from node.contracts.control import ControlPort
from node.replica.replica import Replica
from node.telemetry import logs
from replication.control_state.state import ControlState, Member
from replication.rules.isr import IsrChange, ReplicasChange
from replication.rules.master import Master

_AGAIN_S: Final = 0.1
_log = logs.get(__name__)


async def propose_isr(
    change: IsrChange,
    replica: Replica,
    control: ControlPort,
    state: Callable[[], ControlState | None],
) -> None:
    """Propose a change for the master that `replica` is now; its rules hear of a refusal.

    What was agreed upon comes by the control plane's state.
    """
    shard, master = replica.shard.shard_id, replica.rules
    command = wire.ControlCommand(
        request_id=secrets.token_bytes(16),
        change_isr=wire.ChangeIsrCommand(
            shard=shard,
            epoch=change.epoch,
            expected_version=change.version,
            isr=[
                wire.IsrMember(node_id=one.node_id, boot_id=one.boot_id)
                for one in _members(change, replica, state())
            ],
        ),
    )
    result = await _propose(command, "in-sync set", master, replica, control)
    if result is None:
        return
    _log.info(
        "isr_change_decided", members=change.members, outcome=result.outcome, reason=result.reason
    )
    is_done = result.outcome == wire.ControlOutcome.CONTROL_OUTCOME_OK
    if not is_done and master is not None and master is replica.rules:
        master.isr.on_refused(change)


async def propose_replicas(change: ReplicasChange, replica: Replica, control: ControlPort) -> None:
    """As `propose_isr`, for the replica list."""
    master = replica.rules
    command = wire.ControlCommand(
        request_id=secrets.token_bytes(16),
        change_replicas=wire.ChangeReplicasCommand(
            shard=replica.shard.shard_id,
            epoch=change.epoch,
            expected_version=change.version,
            node_ids=change.members,
        ),
    )
    result = await _propose(command, "replica list", master, replica, control)
    if result is None:
        return
    _log.info(
        "replica_change_decided",
        members=change.members,
        outcome=result.outcome,
        reason=result.reason,
    )
    is_done = result.outcome == wire.ControlOutcome.CONTROL_OUTCOME_OK
    if not is_done and master is not None and master is replica.rules:
        master.on_replicas_refused(change)


async def _propose(
    command: wire.ControlCommand,
    what: str,
    master: Master | None,
    replica: Replica,
    control: ControlPort,
) -> wire.ControlResult | None:
    """The answer to a command of the master; None where its mastership is over before."""
    while True:  # the same request is carried out once, however often it is sent
        try:
            return await control.propose(command)
        except HourwheelError as error:
            _log.warning("shard_change_unanswered", change=what, reason=error.message)
        if master is not replica.rules:
            return None
        await asyncio.sleep(_AGAIN_S)


def _members(change: IsrChange, replica: Replica, state: ControlState | None) -> list[Member]:
    """The set with the incarnations that are meant: those in it, or as they said hello."""
    shard = None if state is None else state.shards.get(replica.shard.shard_id)
    boots = {} if shard is None else {one.node_id: one.boot_id for one in shard.isr}
    found = []
    for node in change.members:
        progress = None if replica.rules is None else replica.rules.followers.get(node)
        boot = boots.get(node, b"")
        if progress is not None and progress.boot_id and node not in boots:
            boot = bytes.fromhex(progress.boot_id)
        found.append(Member(node, boot))
    return found
