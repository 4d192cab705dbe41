"""The control state in the simulated cluster, as the owner of topics and groups.

The commands and states are the real ones (replication/control_state); how nodes hear of them is the
simulation's: questions and answers are lost and late, a command may come true long after its
proposer gave up, and a state is heard of with the word about who is master.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.types import Epoch
from replication.control_state.catalog_commands import CATALOG_RULES
from replication.control_state.commands import apply_command, rules_of
from replication.control_state.state import CODEC_VERSION, ControlState
from tests.support.catalog_control import REQUEST_ID_BYTES, first_state

if TYPE_CHECKING:
    from tests.sim.cluster_node import SimNode

ANSWER_MS: Final = 400.0
_LATE_SHARE: Final = 0.1


class OwnedCatalog:
    """What the control plane has. Every method is one linearizable command."""

    def __init__(self) -> None:
        """By rules that cannot have topics and groups yet."""
        self.state = first_state(rules=CATALOG_RULES - 1)

    def raise_rules(self) -> None:
        """All nodes know the newest rules."""
        self.state = replace(
            self.state, codec_version=CODEC_VERSION, revision=self.state.revision + 1
        )

    def begin_epoch(self, epoch: Epoch) -> None:
        """A master was elected."""
        shard = replace(self.state.shards[0], epoch=Epoch(epoch))
        self.state = replace(
            self.state, shards=MappingProxyType({0: shard}), revision=self.state.revision + 1
        )

    def apply(self, command: bytes) -> wire.ControlResult:
        """A command of a node."""
        self.state, result = apply_command(self.state, command)
        self.state.check()
        return wire.ControlResult.FromString(result)

    def apply_late(self, command: bytes) -> None:
        """A command whose proposer hears nothing of it."""
        self.apply(command)


class NodeCatalogControl:
    """One life of a node. Is a `CatalogControl`."""

    is_alone = False

    def __init__(self, node: "SimNode") -> None:
        """Nothing was heard yet."""
        self._node = node
        self.state: ControlState | None = None
        self._on_change: Callable[[], None] | None = None
        self._request_ids = 0

    def listen(self, on_change: Callable[[], None] | None) -> None:
        """See CatalogControl."""
        self._on_change = on_change

    def new_request_id(self) -> bytes:
        """See CatalogControl."""
        self._request_ids += 1
        node = self._node
        number = node.boots << 64 | self._request_ids
        return (ord(node.name) << 96 | number).to_bytes(REQUEST_ID_BYTES, "big")

    def hear(self, state: ControlState | None) -> None:
        """A word of the control plane; an earlier one may come later."""
        if state is None or (self.state is not None and state.revision <= self.state.revision):
            return
        self.state = state
        names = self._node.names
        if self._on_change is not None and names is not None:
            names.loop.run_here(self._on_change)

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See CatalogControl."""
        node = self._node
        command.codec_version = rules_of(command)
        command.request_id = command.request_id or self.new_request_id()
        raw = command.SerializeToString(deterministic=True)
        owned = errors.required(node.cluster.control.owned, "there is a control state")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[wire.ControlResult] = loop.create_future()

        def tell(said: tuple[wire.ControlResult, ControlState]) -> None:
            self.hear(said[1])
            if not answer.done():
                assert node.names is not None or node.replica.mastership is None
                answer.set_result(said[0])

        random = node.cluster.events.random
        if random.random() < _LATE_SHARE:  # its proposer has given up by then, or is no master
            late_ms = random.uniform(0.5, 2.5) * ANSWER_MS
            node.cluster.events.later(late_ms, partial(owned.apply_late, raw))
        else:
            node.control_link.ask(lambda: (owned.apply(raw), owned.state), tell)
        loop.call_later(ANSWER_MS / 1_000, _give_up, answer)
        return await answer


def _give_up(answer: "asyncio.Future[wire.ControlResult]") -> None:
    if not answer.done():
        answer.set_exception(errors.Timeout("no answer"))
