"""What a member of the cluster needs of the control plane."""

from typing import Protocol

from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import NodeId


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
        """Have a command applied. Raises where nobody knows whether it was."""
        ...
