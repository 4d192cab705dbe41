"""A command that runs beside a test, reads a file that changes, and tells how it is on a port."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from tests.support.eventually import until


class ProbedProcess:
    """`hourwheel NAME --config NAME.toml --health ...` in a folder, until the block is left."""

    name = ""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder, self._server = folder, server
        self.said = self.probes = ""
        """What it has said, and where its probes and metrics are."""

    def put(self, text: str) -> None:
        """Let this be its configuration: the former one or this, never a part of it."""
        (self._folder / "new.toml").write_text(text)
        (self._folder / "new.toml").rename(self._folder / f"{self.name}.toml")

    @property
    def is_ready(self) -> bool:
        """Whether it has said all that a test needs."""
        return bool(self.probes)

    def heard(self, line: str) -> None:
        """It has said this line."""
        if found := re.search(r"metrics on (\S+)", line):
            self.probes = found[1]

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hourwheel.cli", self.name, "--config", f"{self.name}.toml"),
            *("--health", "127.0.0.1:0"),
            cwd=self._folder,
            env={**os.environ, "HOURWHEEL_SERVER": self._server},
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        await until(lambda: self.is_ready or self._reading.done())
        return self

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := (await self._process.stderr.readline()).decode():
            self.said += line
            self.heard(line)

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        assert await self._process.wait() == 0
        await self._reading
        assert "Traceback" not in self.said

    def metric(self, text: str) -> float:
        """Of a line of `/metrics` that begins with `text`; 0: there is none."""
        with urlopen(self.probes + "/metrics") as answer:
            lines = answer.read().decode().splitlines()
        found = [float(line.split()[-1]) for line in lines if line.startswith(text + " ")]
        return found[0] if found else 0.0
