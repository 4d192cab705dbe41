"""Starts and stops the control process beside a broker: spawned, never forked.

    control = ControlProcess(config, log_file=path)
    await control.start()
    ...
    await control.stop()

The child holds the reading end of a pipe of its parent. If the parent dies, however it dies, the
child sees the pipe's end, tells the cluster, and goes.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from hourwheel import errors
from replication.control.config import ControlConfig

_ROOT: Final = Path(__file__).resolve().parents[2]
_STOP_S: Final = 5.0


async def launch(arguments: Sequence[str], log: BinaryIO | None) -> asyncio.subprocess.Process:
    """Start the process, with a pipe as its standard input.

    Args:
        arguments: of `python -m replication.control`.
        log: its standard error; None: this process's.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "replication.control", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stderr=log,
        cwd=_ROOT,
        # Ctrl-C at a terminal is for the broker, which hands over before it ends this.
        start_new_session=True,
    )


class ControlProcess:
    """See the top of this file."""

    launch = staticmethod(launch)
    """Tests have a quicker way, which does the same."""

    def __init__(
        self, config: ControlConfig, *, log_file: Path | None = None, stop_s: float = _STOP_S
    ) -> None:
        """Nothing runs yet.

        Args:
            config: of the process.
            log_file: where its log goes, appended; None: to this process's standard error.
            stop_s: how long it may take to stop before it is killed.
        """
        self.config = replace(config, watch_parent=True)
        self._log_file, self._stop_s = log_file, stop_s
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The running process.

        Raises:
            InvariantViolated: there is none.
        """
        if self._process is None:
            errors.violated("the control process was not started")
        return self._process

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; `ControlClient.start` waits until it serves."""
        errors.invariant(not self.is_running, "the control process runs already")
        log = self._log_file.open("ab") if self._log_file is not None else None
        try:
            self._process = await self.launch(self.config.arguments(), log)
        finally:
            if log is not None:
                log.close()

    async def wait(self) -> int:
        """Wait for its end; the exit code."""
        return await self.process.wait()

    async def stop(self) -> int:
        """End it in order, by force if it takes too long; the exit code."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(self._stop_s):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
        return await self.process.wait()

    async def kill(self) -> None:
        """End it as a power failure would."""
        if self.is_running:
            self.process.kill()
        await self.process.wait()
