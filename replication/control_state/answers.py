"""How commands answer: the next state, and the answer to the proposer. Pure."""

from dataclasses import replace
from typing import Any

from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.state import ControlState

Answer = tuple[ControlState, pb.ControlResult]


def result_of(
    state: ControlState, outcome: pb.ControlOutcome, reason: str = "", **fields: Any
) -> pb.ControlResult:
    """A result as of this state."""
    return pb.ControlResult(outcome=outcome, reason=reason, revision=state.revision, **fields)


def ok(state: ControlState, **fields: Any) -> Answer:
    """Done; `state` is the next one."""
    return state, result_of(state, pb.CONTROL_OUTCOME_OK, **fields)


def refused(state: ControlState, reason: str, **fields: int) -> Answer:
    """Never allowed in this state."""
    return state, result_of(state, pb.CONTROL_OUTCOME_REFUSED, reason, **fields)


def conflict(state: ControlState, reason: str, **fields: int) -> Answer:
    """Something has another version or epoch than was expected."""
    return state, result_of(state, pb.CONTROL_OUTCOME_CONFLICT, reason, **fields)


def unknown_version(state: ControlState) -> Answer:
    """The command needs newer rules."""
    reason = f"the cluster follows rules {state.codec_version}"
    return state, result_of(state, pb.CONTROL_OUTCOME_UNKNOWN_VERSION, reason)


def generation_ended(state: ControlState) -> Answer:
    """The command came behind the last one of a generation of voters."""
    reason = f"generation {state.membership.generation} has ended"
    return state, result_of(state, pb.CONTROL_OUTCOME_GENERATION_ENDED, reason)


def next_revision(state: ControlState) -> ControlState:
    """Something changes."""
    return replace(state, revision=state.revision + 1)
