"""Single records of the log that are damaged here: their segments are repaired, one at a time.

What needs a record says so by its offset, and looks again until it is not in here any more. Where
no replica has the bytes they are looked for again and again: somebody may put a sound file there.
"""

import asyncio

from hourwheel.errors import HourwheelError
from hourwheel.types import Offset
from node.repair.file_repair import FileRepair
from node.telemetry import logs
from node.telemetry.failure import Failure
from node.telemetry.stats import EngineStats

_log = logs.get(__name__)


class RecordMender:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        files: FileRepair,
        stats: EngineStats,
        failure: Failure,
        *,
        again_s_min: float,
        again_s_max: float,
    ) -> None:
        """`failure` gets what must end the process; the others: how often to try again."""
        self._files, self._stats, self._failure = files, stats, failure
        self._again_s_min, self._again_s_max = again_s_min, again_s_max
        self._offsets: dict[Offset, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def __contains__(self, offset: Offset) -> bool:
        """Whether the record there is damaged still."""
        return offset in self._offsets

    def note(self, offset: Offset, error: HourwheelError | FileNotFoundError) -> None:
        """The committed record at `offset` cannot be read: repair it."""
        if offset in self._offsets or self._is_closing:
            return
        self._offsets[offset] = None
        self._stats.crc_errors += 1
        _log.error("damaged_record_found", offset=offset, error=str(error))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._mend_all())

    async def _mend_all(self) -> None:
        wait_s = self._again_s_min
        with self._failure.catching():
            while self._offsets:
                for offset in list(self._offsets):
                    if await self._files.mend_at(offset):
                        del self._offsets[offset]
                        wait_s = self._again_s_min
                if self._offsets:
                    await asyncio.sleep(wait_s)
                    wait_s = min(self._again_s_max, 2 * wait_s)
        self._task = None

    async def stop(self) -> None:
        """Look for nothing any more."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
