"""One node as the operating system sees it: two processes, a directory, a log file."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hourwheel import errors

_POLL_S: Final = 0.01
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_SAID_CHARS: Final = 500
TREE: Final = Path(__file__).resolve().parents[1]
MARK: Final = "HOURWHEEL_CHAOS_NODE"
"""Key of the environment of a node's processes."""


def members_of(mark: str) -> list[int]:
    """Processes that have not ended and were started with `mark` in their environment.

    Not by their group or session: a control process leads its own, and its parent changes when the
    broker is killed.
    """
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # of somebody else, or gone; of one that waits for its burial
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


@dataclass
class NodeProcess:
    """See the top of this file. What the broker starts carries its mark: the control process."""

    node_id: str
    folder: Path
    """Configuration, data and log are in it."""
    api: str
    prefix: list[str] = field(default_factory=list)
    tree: Path = TREE
    """The checkout that runs."""
    python: str = sys.executable
    """The interpreter that runs it."""
    plan: dict[str, Any] | None = None
    """For chaos/faulty_process.py, at the next start only; None: a sound process."""
    launcher: tuple[str, ...] = ()
    """Another module than `node` to run, and its arguments: for tests of the checker."""
    disk: Path | None = None
    """Where its data is, if not in `folder`."""

    def __post_init__(self) -> None:
        """Nothing runs."""
        self._process: asyncio.subprocess.Process | None = None
        self._log_read = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        """What it has logged as JSON, as of the last `read_log`."""

    @property
    def mark(self) -> str:
        """What its processes are known by; see `members_of`."""
        return f"{os.getpid()} {self.folder.absolute()}"

    @property
    def config_file(self) -> Path:
        """Its configuration."""
        return self.folder / "node.toml"

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.disk or self.folder / "data"

    @property
    def log(self) -> Path:
        """What it has said, over all its lives."""
        return self.folder / "node.log"

    @property
    def clock_file(self) -> Path:
        """Milliseconds by which its wall clock is wrong, where there is such a file."""
        return self.folder / "clock_offset_ms"

    @property
    def is_running(self) -> bool:
        """Its broker has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the broker."""
        if self._process is None:
            raise errors.FailedPrecondition(f"{self.node_id} does not run")
        return self._process.pid

    # -- life -------------------------------------------------------------------------------------

    async def spawn(self) -> None:
        """Start it, and wait for nothing."""
        await self._no_remains()
        module = ["node"]
        if self.launcher:
            module = list(self.launcher)
        elif self.plan is not None:
            module = ["chaos.faulty_process", json.dumps(self.plan)]
        self.plan = None
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self.prefix, self.python, "-m", *module, "--config", str(self.config_file)),
                *("--ready-file", str(self._ready_file)),
                cwd=self.tree,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(self.tree), MARK: self.mark},
            )

    @property
    def _ready_file(self) -> Path:
        return self.folder / "ready.json"

    async def _no_remains(self) -> None:
        self._ready_file.unlink(missing_ok=True)
        await self.reaped()

    async def reaped(self) -> None:
        """Wait until none of the last life's processes is left: they have its ports and locks."""
        if self._process is None:
            return
        await self._process.wait()
        try:
            async with asyncio.timeout(_STOP_S):
                while members_of(self.mark):  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            self.send_all(signal.SIGKILL)

    async def start(self) -> None:
        """Start it and wait until it serves; that it is part of the cluster is another matter.

        Raises:
            Unavailable: it ended, or does not serve in time.
        """
        await self.spawn()
        await self.ready()

    async def ready(self) -> None:
        """Wait until it serves. Raises Unavailable as `start`."""
        try:
            async with asyncio.timeout(_START_S):
                while not self._ready_file.exists():
                    if not self.is_running:
                        last = self.log.read_text(errors="replace")[-_SAID_CHARS:]
                        raise errors.Unavailable(f"{self.node_id} ended while it started: {last}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise errors.Unavailable(f"{self.node_id} does not serve") from None

    async def ended(self) -> int:
        """Wait until the broker ends; its exit code, negative for a signal."""
        if self._process is None:
            raise errors.FailedPrecondition(f"{self.node_id} does not run")
        return await self._process.wait()

    async def stop(self) -> int:
        """Stop it as an operator would; its exit code."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S):
                return await self.ended()
        except TimeoutError:
            self.send_all(signal.SIGKILL)
            return await self.ended()

    async def kill(self, *, whole: bool = True) -> None:
        """SIGKILL to the broker, or to all its processes; they are gone after it."""
        if whole:
            self.send_all(signal.SIGKILL)
        else:
            self.send(signal.SIGKILL)
        await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the broker, if it is there."""
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the broker and all that it has started, if any of them is there."""
        for pid in members_of(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def remove(self) -> None:
        """End everything at once, stopped processes, too."""
        if self._process is not None:
            self.send_all(signal.SIGKILL)
            await self.reaped()

    # -- what it says -----------------------------------------------------------------------------

    def read_log(self) -> list[dict[str, Any]]:
        """All events so far; `raw` holds a line that is not JSON."""
        if not self.log.exists():
            return self.events
        with self.log.open("rb") as file:
            file.seek(self._log_read)
            new = file.read()
        self._log_read += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "", "raw": line.decode(errors="replace")}
            self.events.append(event)
        return self.events
