"""A control plane of one, in memory, and a node's administration of users and grants on it."""

import os
from typing import Any

from hourwheel.internal.v1 import control_pb2 as wire
from node.access.administration import Administration
from node.access.policy_feed import PolicyFeed
from node.config.access import AccessSection
from replication.control_state.commands import apply_command, make_command
from replication.control_state.state import ControlState


class ControlOfOne:
    """See the top of this file. The node hears of changes when `tell` is called."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.policies = PolicyFeed(AccessSection())
        self.administration = Administration(self.policies, self.propose, lambda text: f"#{text}")
        bootstrap = wire.BootstrapCommand(
            cluster_id=bytes(16), node_ids=["n1"], min_in_sync=1, shard_count=1
        )
        self.apply(bootstrap=bootstrap)
        self.apply(set_rules=wire.SetRulesCommand(rules=2))
        self.tell()

    def apply(self, **command: Any) -> wire.ControlResult:
        return self._apply(make_command(os.urandom(16), **command))

    def _apply(self, command: wire.ControlCommand) -> wire.ControlResult:
        self.state, raw = apply_command(self.state, command.SerializeToString())
        return wire.ControlResult.FromString(raw)

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        return self._apply(command)

    def tell(self) -> None:
        self.policies.on_state(self.state.access)
