"""For development: runs a worker, and begins it anew when a file changes.

A worker that is to end gets one SIGTERM, and its handlers have the time that they have at any stop.
It leaves SIGINT to this process, for a terminal sends that to both.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Final

MARGIN_S: Final = 10.0
"""Beyond the time that a worker gives its handlers, until it is taken for hung."""
_log = logging.getLogger("hourwheel.worker")


class Reloader:
    """Runs one command again and again."""

    def __init__(self, command: Sequence[str], stop_ms: int) -> None:
        """`stop_ms`: how long the command may take to end."""
        self._command, self._stop_s = command, stop_ms / 1_000
        self._process: asyncio.subprocess.Process
        self._is_requested = False
        """The end of the process."""
        self._signal_count = 0
        self._is_ending, self._has_changed = asyncio.Event(), asyncio.Event()

    async def run(self, changes: AsyncIterator[object]) -> int:
        """Begin anew with each of the changes, until SIGTERM or SIGINT; the command's exit status.

        A second and a third signal are the worker's, too. Where the command ends by itself, the
        next change begins it again.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.on_signal)
        watching = asyncio.create_task(self._watch(changes))
        ending = asyncio.create_task(self._is_ending.wait())
        try:
            while True:
                self._has_changed.clear()
                self._is_requested = False
                self._process = await asyncio.create_subprocess_exec(*self._command)
                if self._is_ending.is_set():
                    self._request_end()
                await self._wait_for_reason(ending)
                self._request_end()
                await self._end()
                if self._is_ending.is_set():
                    code = self._process.returncode or 0
                    return 0 if code == -signal.SIGTERM else abs(code)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            for task in (watching, ending):
                task.cancel()
            await asyncio.gather(watching, ending, return_exceptions=True)

    def on_signal(self) -> None:
        """Of a terminal, or of who ends this."""
        self._signal_count += 1
        self._is_ending.set()
        if self._signal_count > 1:
            self._is_requested = False
            self._request_end()

    async def _watch(self, changes: AsyncIterator[object]) -> None:
        async for _ in changes:
            self._has_changed.set()

    async def _wait_for_reason(self, ending: "asyncio.Task[bool]") -> None:
        """To end what runs."""
        changed = asyncio.create_task(self._has_changed.wait())
        try:
            await asyncio.wait({ending, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _request_end(self) -> None:
        if not self._is_requested and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        self._is_requested = True

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(self._stop_s + MARGIN_S):
                await self._process.wait()
        except TimeoutError:
            _log.error("the worker does not end, and is killed")
            self._process.kill()
            await self._process.wait()
