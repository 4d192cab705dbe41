"""The control plane of a node alone: its journal, written in a thread. Is a `ControlPort`.

Commands that come while others are being written are written together, with one sync. Who proposed
one is answered when it is durable, and this node decides by what it says.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import NodeId
from node.telemetry.failure import Failure
from replication.control_state.commands import BATCH_COUNT_MAX, rules_of
from replication.control_state.state import ControlState
from replication.standalone.control_journal import ControlJournal

WAITING_MAX: Final = 1_024
"""Commands that wait for the disk."""


class _Proposal(NamedTuple):
    command: bytes
    answer: "asyncio.Future[wire.ControlResult]"


class StandaloneControl:
    """See the top of this file. Belongs to one event loop."""

    is_registered = True

    def __init__(
        self,
        journal: ControlJournal,
        failure: Failure,
        on_state: Callable[[ControlState], None],
    ) -> None:
        """A control plane of one; closes `journal` when it is closed.

        `on_state` is called now and with each new state.
        """
        self._journal, self._failure, self._on_state = journal, failure, on_state
        self._waiting: list[_Proposal] = []
        self._writing: asyncio.Task[None] | None = None
        on_state(journal.state)

    def is_dead(self, node: NodeId) -> bool:
        """See ControlPort: there are no others."""
        del node
        return False

    def report(self, shards: list[ShardReport]) -> None:
        """See ControlPort: nobody elects another master."""

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See ControlPort.

        Raises:
            Overloaded, ShuttingDown, DiskFull, InvalidArgument: it was not applied.
            Timeout: nobody knows yet; see ControlJournal.
        """
        if self._failure.found.done():
            raise _ending()
        if len(self._waiting) >= WAITING_MAX:
            raise errors.Overloaded(f"{WAITING_MAX} changes wait for the disk")
        command.codec_version = rules_of(command)
        raw = command.SerializeToString(deterministic=True)
        proposal = _Proposal(raw, asyncio.get_running_loop().create_future())
        self._waiting.append(proposal)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await proposal.answer

    async def _write(self) -> None:
        with self._failure.catching():
            while self._waiting:
                taken = self._waiting[:BATCH_COUNT_MAX]
                del self._waiting[:BATCH_COUNT_MAX]
                await self._write_some(taken)
        self._writing = None
        while self._waiting:  # the node ends
            answer = self._waiting.pop().answer
            if not answer.done():
                answer.set_exception(_ending())

    async def _write_some(self, taken: list[_Proposal]) -> None:
        """Raises what ends the process."""
        try:
            commands = [one.command for one in taken]
            results = await asyncio.to_thread(self._journal.apply, commands)
        except errors.HourwheelError as error:
            self._on_state(self._journal.state)  # it may have settled what was written before
            for one in taken:
                if not one.answer.done():  # else its caller has gone
                    one.answer.set_exception(error)
            if isinstance(error, errors.Internal):
                raise
            return
        self._on_state(self._journal.state)
        for one, result in zip(taken, results, strict=True):
            if not one.answer.done():
                one.answer.set_result(wire.ControlResult.FromString(result))

    async def close(self) -> None:
        """Let what is being written end, and let go of the files."""
        if self._writing is not None:
            await self._writing
        self._journal.close()


def _ending() -> errors.ShuttingDown:
    return errors.ShuttingDown("this node ends; try another")
