"""The control plane in memory, as the owner of topics and groups: real commands, real states.

What it does to whoever proposes is up to a test: answers that are lost, a leader that is missing,
states that are heard of late.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from replication.control_state.commands import apply_command, make_command, rules_of
from replication.control_state.state import CODEC_VERSION, ControlState

CLUSTER_ID: Final = bytes(range(16))
REQUEST_ID_BYTES: Final = 16


def first_state(*, rules: int = CODEC_VERSION) -> ControlState:
    """Of a cluster of one node, by some rules."""
    bootstrap = wire.BootstrapCommand(
        cluster_id=CLUSTER_ID, min_in_sync=1, shard_count=1, node_ids=["node-1"]
    )
    command = make_command(bytes(REQUEST_ID_BYTES), bootstrap=bootstrap)
    state, _ = apply_command(ControlState(), command.SerializeToString())
    return replace(state, codec_version=rules)


class ControlInMemory:
    """See the top of this file. Is a `CatalogControl`; belongs to one event loop."""

    def __init__(self, state: ControlState | None = None, *, is_alone: bool = True) -> None:
        """`is_alone`: as `CatalogControl.is_alone`."""
        self.applied = first_state() if state is None else state
        """What the control plane has."""
        self.state: ControlState | None = self.applied
        """What the node has heard of."""
        self.is_alone = is_alone
        self.entries: list[wire.ControlCommand] = []
        """All that was applied."""
        self.has_leader = True
        self.loses_answers = False
        """Commands are applied, and nobody is told."""
        self.is_late = False
        """States are heard of when a test says so: `tell`."""
        self._on_change: Callable[[], None] | None = None
        self._request_ids = 0

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """See CatalogControl."""
        self._on_change = on_change

    def new_request_id(self) -> bytes:
        """See CatalogControl."""
        self._request_ids += 1
        return (1 << 64 | self._request_ids).to_bytes(REQUEST_ID_BYTES, "big")

    def apply(self, command: wire.ControlCommand) -> wire.ControlResult:
        """Have the control plane apply a command, whoever proposes it."""
        command.codec_version = rules_of(command)
        command.request_id = command.request_id or self.new_request_id()
        self.applied, result = apply_command(self.applied, command.SerializeToString())
        self.applied.check()
        self.entries.append(command)
        return wire.ControlResult.FromString(result)

    def tell(self) -> None:
        """The node hears of what was applied."""
        self.state = self.applied
        if self._on_change is not None:
            self._on_change()

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See CatalogControl."""
        await asyncio.sleep(0)
        if not self.has_leader:
            raise errors.Timeout("there is no leader")
        result = self.apply(command)
        if not self.is_late:
            self.tell()
        if self.loses_answers:
            raise errors.Timeout("the answer is lost")
        return result

    # -- what it has

    @property
    def topics(self) -> dict[str, int]:
        """Name -> number."""
        return {name: one.object_id for name, one in self.applied.topics.items()}

    @property
    def groups(self) -> dict[str, int]:
        """Name -> number."""
        return {name: one.object_id for name, one in self.applied.groups.items()}
