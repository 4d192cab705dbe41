"""A real node as a child process: for benchmarks, and for tests that kill it.

async with ChildNode(directory) as node:
    ...                       # node.address
    await node.kill()         # as a power failure of the process
    await node.start()        # recovers from the directory
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from hourwheel import errors
from node.config.sources import ENVIRONMENT_PREFIX
from node.process.loopback_config import config_for

_ROOT: Final = Path(__file__).resolve().parents[2]
_POLL_S: Final = 0.01
_STARTUP_S: Final = 120.0


async def launch(
    arguments: Sequence[str], environ: Mapping[str, str], log: BinaryIO | None
) -> asyncio.subprocess.Process:
    """Start a process that runs a node.

    Args:
        arguments: of `python -m node`.
        environ: the variables of its environment.
        log: its standard error; None: this process's.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "node", *arguments),
        cwd=_ROOT,
        env=environ,
        stderr=log,
        # Ctrl-C at a terminal is for this process, which stops the node in its own time.
        start_new_session=True,
    )


class ChildNode:
    """An async context manager: a serving process inside, none after it."""

    launch = staticmethod(launch)
    """Tests have a quicker way, which does the same."""

    def __init__(
        self,
        directory: Path,
        values: Mapping[str, Any] | None = None,
        *,
        log_file: Path | None = None,
        startup_s: float = _STARTUP_S,
    ) -> None:
        """Nothing runs yet.

        Args:
            directory: the data directory.
            values: configuration as in TOML, on top of free ports of the loopback interface.
            log_file: where its logs go, appended; None: to this process's standard error.
            startup_s: how long it may take until it serves, recovery included.
        """
        self._config = config_for(directory, values)
        self._log_file = log_file
        self._startup_s = startup_s
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        """Where clients reach it, host:port; another one after each start."""
        self.metrics_address = ""
        self.console_address = ""

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._running().pid

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise errors.FailedPrecondition("the node does not run")
        return self._process

    async def start(self) -> None:
        """Start the process and wait until it serves.

        Raises:
            Unavailable: it ended, with its exit code in `params`, or does not serve in time.
        """
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "ready.json"
            self._process = await self._spawn(ready)
            try:
                async with asyncio.timeout(self._startup_s):
                    while not ready.exists():
                        await self._require_alive()
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                await self.kill()
                raise errors.Unavailable(
                    f"the node does not serve within {self._startup_s} s"
                ) from None
            except asyncio.CancelledError:
                self.cut_short()
                raise
            addresses = json.loads(ready.read_text())
        self.address, self.metrics_address = addresses["address"], addresses["metrics_address"]
        self.console_address = addresses["console_address"]

    async def _spawn(self, ready: Path) -> asyncio.subprocess.Process:
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ENVIRONMENT_PREFIX)
        }
        environ.update(self._overrides())
        log = None if self._log_file is None else self._log_file.open("ab")
        try:
            return await self.launch([*self._arguments(), "--ready-file", str(ready)], environ, log)
        finally:
            if log is not None:
                log.close()

    def _arguments(self) -> Sequence[str]:
        """Of `python -m node`."""
        return ()

    def _overrides(self) -> Iterator[tuple[str, str]]:
        """The configuration as variables of the environment."""
        values = self._config.model_dump(exclude_unset=True)
        values["node"]["data_directory"] = Path(values["node"]["data_directory"]).absolute()
        for section, keys in values.items():
            for key, value in keys.items():
                yield f"{ENVIRONMENT_PREFIX}{section}__{key}".upper(), str(value)

    async def _require_alive(self) -> None:
        code = self._running().returncode
        if code is not None:
            raise errors.Unavailable(f"the node ended with exit code {code}", exit_code=code)

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.returncode is None

    async def failed(self) -> int:
        """Wait until it ends by itself; its exit code, negative for a signal."""
        return await self._running().wait()

    async def stop(self) -> int:
        """Stop it as an operator would; its exit code."""
        return await self._end(signal.SIGTERM)

    def cut_short(self) -> None:
        """End it at once where it runs; what waits for its end goes on waiting."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def kill(self) -> None:
        """Stop it as a crash would: it does not get to do anything more."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> int:
        process = self._running()
        if process.returncode is None:
            process.send_signal(number)
        code = await process.wait()
        self._process = None
        return code

    async def __aenter__(self) -> Self:
        """Start. Raises as `start`."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it if it runs; at once where something went wrong: it may be the node that hangs."""
        if self._process is None:
            return
        if error is not None:
            await self.kill()
            return
        try:
            await self.stop()
        except asyncio.CancelledError:
            self.cut_short()
            raise
