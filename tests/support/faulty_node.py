"""A node in a process of its own in which calls of the operating system go wrong as planned.

Two injectors: `patched` replaces functions of Python's `os` in the child
(chaos/faulty_process.py) and works everywhere; `strace` lets the kernel's calls themselves fail,
where it is installed and may trace.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from node.config.sources import ENVIRONMENT_PREFIX
from node.process.subprocess_node import ChildNode

Effect: TypeAlias = Literal["kill before", "kill after", "torn", "EIO", "ENOSPC"]
Injector: TypeAlias = Literal["patched", "strace"]

SYNCS: Final = ("fdatasync", "fsync")
WRITES: Final = ("pwritev",)
ROOM: Final = ("pwritev", "posix_fallocate")
NAMES: Final = ("replace", "unlink", "mkdir", "ftruncate")
_ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    """What is to go wrong: calls number `first` to `last`, counted from 1 at the start."""

    calls: tuple[str, ...]
    effect: Effect
    first: int
    last: int | None = None
    """None: only the first."""
    injector: Injector = "patched"

    def command(self) -> list[str]:
        """What runs a node with this fault; its arguments follow."""
        last = self.first if self.last is None else self.last
        if self.injector == "patched":
            plan = {
                "calls": self.calls,
                "first": self.first,
                "last": last,
                "effect": self.effect,
            }
            return [sys.executable, "-m", "chaos.faulty_process", json.dumps(plan)]
        what = "signal=SIGKILL" if self.effect == "kill before" else f"error={self.effect}"
        names = ",".join(self.calls)
        # -D: the process that is started is the node, and not its tracer.
        return [
            *("strace", "-D", "-f", "-qq", "-o", os.devnull, "-e", f"trace={names}"),
            *("-e", f"inject={names}:{what}:when={self.first}..{last}"),
            *(sys.executable, "-m", "node"),
        ]


class FaultyNode(ChildNode):
    """As `ChildNode`; `fault` is for the next start, None for a sound one."""

    fault: Fault | None = None

    async def _spawn(self, ready: Path) -> asyncio.subprocess.Process:
        if self.fault is None:
            return await super()._spawn(ready)
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ENVIRONMENT_PREFIX)
        }
        environ.update(self._overrides())
        log_file = self._log_file or Path(os.devnull)
        with log_file.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(*self.fault.command(), "--ready-file", str(ready)),
                cwd=_ROOT,
                env=environ,
                stderr=log,
            )

    async def ended(self) -> int:
        """Wait until the process ends by itself; its exit code, negative for a signal."""
        code = await self._running().wait()
        self._process = None
        return code

    @property
    def configured_address(self) -> str:
        """host:port as configured: known before it runs, and the same after each start."""
        return self._config.node.listen

    @property
    def has_ended(self) -> bool:
        """The process ended by itself, and `ended` will say how."""
        return self._running().returncode is not None

    @property
    def is_there(self) -> bool:
        """A process was started and not yet taken leave of."""
        return self._process is not None


@cache
def injectors() -> tuple[Injector, ...]:
    """Those that work here."""
    return ("patched", "strace") if _can_strace() else ("patched",)


def _can_strace() -> bool:
    if shutil.which("strace") is None:
        return False
    probe = ["strace", "-qq", "-o", os.devnull, "-e", "inject=fsync:error=EIO:when=1"]
    script = "import os, sys\ntry: os.fsync(os.open('/', os.O_RDONLY))\nexcept OSError: sys.exit(7)"
    ran = subprocess.run([*probe, sys.executable, "-c", script], check=False, capture_output=True)
    return ran.returncode == 7
