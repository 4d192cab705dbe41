"""From the control plane to the catalog of the master: each new state, and commands back."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from hourwheel.internal.v1 import control_pb2 as wire
from replication.control_state.state import ControlState

_REQUEST_ID_BYTES: Final = 16

Propose = Callable[[wire.ControlCommand], Awaitable[wire.ControlResult]]


class ControlFeed:
    """See the top of this file. Is a `CatalogControl`; belongs to one event loop."""

    def __init__(self, propose: Propose, *, is_alone: bool) -> None:
        """Nothing is known yet. `propose`: of the `ControlPort`."""
        self._propose, self.is_alone = propose, is_alone
        self.state: ControlState | None = None
        self._on_change: Callable[[], None] | None = None

    def on_state(self, state: ControlState) -> None:
        """There is a new state."""
        self.state = state
        if self._on_change is not None:
            self._on_change()

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """See CatalogControl."""
        self._on_change = on_change

    def new_request_id(self) -> bytes:
        """See CatalogControl."""
        return secrets.token_bytes(_REQUEST_ID_BYTES)

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See CatalogControl."""
        if not command.request_id:
            command.request_id = self.new_request_id()
        return await self._propose(command)
