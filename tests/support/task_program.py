"""A program of tasks in a folder of its own, the workers that run it, and what they have run."""

import asyncio
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WRITE: Final = """
    import os
    import time
    from pathlib import Path

    def write(*words):
        with Path("runs.txt").open("a") as file:
            file.write(" ".join(map(str, words)) + f" {int(time.time() * 1_000)}\\n")
"""
"""Begins each program: a task says that it runs."""


class TaskProgram:
    """`shop.py`, at the nodes that the variable `SERVERS` of its environment names."""

    def __init__(self, folder: Path, servers: str, text: str) -> None:
        self.folder = folder
        self.environ = {**os.environ, "SERVERS": servers, "PYTHONWARNINGS": "ignore"}
        (folder / "shop.py").write_text(textwrap.dedent(WRITE) + textwrap.dedent(text))

    async def start(
        self, command: Sequence[str], *, stderr: int | None, stdout: int | None = None
    ) -> asyncio.subprocess.Process:
        """A Python with this command line in the folder."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            cwd=self.folder,
            env=self.environ,
            stderr=stderr,
            stdout=stdout,
        )

    async def run(self, program: str) -> str:
        """What a client of the same program prints."""
        command = ("-c", "import shop\n" + textwrap.dedent(program))
        process = await self.start(command, stderr=None, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    def runs(self, task: str) -> list[tuple[str, int]]:
        """(argument, when in epoch milliseconds) of each run of a task."""
        path = self.folder / "runs.txt"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(what, int(ms)) for name, what, ms in rows if name == task]
