"""dramatiq's command line at a real node, in a folder of its own."""

import asyncio
import signal
from pathlib import Path
from typing import Final, Self

from tests.support.task_program import TaskProgram

PROGRAM: Final = """
    import dramatiq

    from hourwheel.integrations.dramatiq import HourwheelBroker

    broker = HourwheelBroker(os.environ["SERVERS"], invisible_ms=2_000)
    dramatiq.set_broker(broker)

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


class DramatiqWorker(TaskProgram):
    """`dramatiq shop`, of the program above; another one may follow in the same folder."""

    def __init__(self, folder: Path, servers: str) -> None:
        super().__init__(folder, servers, PROGRAM)
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        command = ("-m", "dramatiq", "shop", "--processes", "1", "--threads", "2")
        with (self.folder / "dramatiq.log").open("ab") as log:
            self.process = await self.start(command, stderr=log.fileno())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        await self.process.wait()
