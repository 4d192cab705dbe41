"""Commands for the control state that come together go together: one entry of its log for many.

A thousand topics that are published to for the first time cost eight entries and not a thousand.
While one batch is on its way the next one gathers.
"""

import asyncio
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from node.contracts.control import CatalogControl
from replication.control_state.commands import BATCH_COUNT_MAX, rules_of

BATCH_BYTES: Final = 24 * 1024
"""Below what an entry may have, with room for what frames the commands."""
WAITING_MAX: Final = 10_000
"""Commands that wait for their batch."""


class _Waiting(NamedTuple):
    command: wire.ControlCommand
    size: int
    answer: "asyncio.Future[wire.ControlResult]"


class CommandBatches:
    """See the top of this file. Belongs to one event loop."""

    def __init__(self, control: CatalogControl) -> None:
        """Nothing waits."""
        self._control = control
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """What became of a command.

        Raises:
            HourwheelError: see ControlPort. After a Timeout the outcome is unknown.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise errors.Overloaded(f"{WAITING_MAX} changes of topics and groups wait")
        loop = asyncio.get_running_loop()
        command.codec_version = rules_of(command)
        one = _Waiting(command, command.ByteSize(), loop.create_future())
        self._waiting.append(one)
        if self._sending is None:
            self._sending = loop.create_task(self._send())
        return await one.answer

    async def _send(self) -> None:
        taken: list[_Waiting] = []
        try:
            while self._waiting:
                taken = self._take()
                await self._send_some(taken)
        except Exception as error:  # noqa: BLE001 - a bug: who waits must hear of it
            for one in (*taken, *self._waiting):
                if not one.answer.done():
                    one.answer.set_exception(errors.Internal(repr(error)))
            self._waiting.clear()
        finally:
            self._sending = None

    def _take(self) -> list[_Waiting]:
        size = count = 0
        for one in self._waiting[:BATCH_COUNT_MAX]:
            size += one.size
            if count and size > BATCH_BYTES:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return [one for one in taken if not one.answer.done()]  # else the caller has gone

    async def _send_some(self, taken: list[_Waiting]) -> None:
        if not taken:
            return
        try:
            results = await self._results_of([one.command for one in taken])
        except errors.HourwheelError as error:
            for one in taken:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, result in zip(taken, results, strict=True):
            if not one.answer.done():
                one.answer.set_result(result)

    async def _results_of(self, commands: list[wire.ControlCommand]) -> list[wire.ControlResult]:
        if len(commands) == 1:
            return [await self._control.propose(commands[0])]
        batch = wire.ControlCommand(batch=wire.BatchCommand(commands=commands))
        result = await self._control.propose(batch)
        if len(result.results) != len(commands):  # refused as a whole: each with this answer
            return [result] * len(commands)
        return list(result.results)

    def close(self, error: errors.HourwheelError) -> None:
        """Nothing is waited for any more: callers that wait get `error`."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(error)
