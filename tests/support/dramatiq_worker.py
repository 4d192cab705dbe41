"""dramatiq's command line at a real node, in a folder of its own."""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Final, Self

PROGRAM: Final = """
    import os
    import time
    from pathlib import Path

    import dramatiq

    from hourwheel.integrations.dramatiq import HourwheelBroker

    broker = HourwheelBroker(os.environ["SERVERS"], invisible_ms=2_000)
    dramatiq.set_broker(broker)

    def write(*words):
        with Path("runs.txt").open("a") as file:
            file.write(" ".join(map(str, words)) + f" {int(time.time() * 1_000)}\\n")

    @dramatiq.actor
    def note(what):
        write("note", what)

    @dramatiq.actor(min_backoff=10, max_backoff=20, max_retries=2)
    def fail(what):
        write("fail", what)
        raise ValueError(what)

    @dramatiq.actor
    def kill(what):
        path = Path("killed")
        write("kill", what)
        if not path.exists():
            path.touch()
            os.kill(os.getppid() if what == "parent" else os.getpid(), 9)
"""


class DramatiqWorker:
    """`dramatiq shop`, of the program above; another one may follow in the same folder."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        self.environ = {**os.environ, "SERVERS": servers}
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        (self.folder / "shop.py").write_text(textwrap.dedent(PROGRAM))
        with (self.folder / "dramatiq.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dramatiq", "shop", "--processes", "1", "--threads", "2"),
                cwd=self.folder,
                env=self.environ,
                stderr=log,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await self.process.wait()

    async def run(self, program: str) -> str:
        """What a client of the same program prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import shop\n" + textwrap.dedent(program)),
            cwd=self.folder,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    def runs(self, actor: str) -> list[tuple[str, int]]:
        """(argument, when in epoch milliseconds) of each run of an actor."""
        path = self.folder / "runs.txt"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(what, int(ms)) for name, what, ms in rows if name == actor]
