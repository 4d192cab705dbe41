"""What a node needs of the control plane: as a member, and as the master that keeps a catalog."""

from collections.abc import Callable
from typing import Protocol

from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import NodeId
from replication.control_state.state import ControlState


class ControlPort(Protocol):
    """What is needed of the control plane."""

    is_registered: bool
    """Whether the cluster knows of this life of the node."""

    def is_dead(self, node: NodeId) -> bool:
        """Whether a node's control process says that its broker is gone."""
        ...

    def report(self, shards: list[ShardReport]) -> None:
        """Tell how the shards stand."""
        ...

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """Have a command applied. Raises where it is unknown whether it was."""
        ...


class CatalogControl(Protocol):
    """The control state, as the owner of topics and groups."""

    state: ControlState | None
    """As this node knows it; None: it does not yet."""
    is_alone: bool
    """Of a node alone: its epochs are in the log, and not in this state."""

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """Call `on_change` with each new state, in place of the one before."""
        ...

    def new_request_id(self) -> bytes:
        """For a command that may be proposed several times."""
        ...

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """As `ControlPort.propose`; a request id is added where there is none."""
        ...
