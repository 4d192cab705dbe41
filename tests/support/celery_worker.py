"""Celery's command line at a real node, in a folder of its own.

async with CeleryWorker(folder, "127.0.0.1:7400", "--pool", "solo") as worker:
    ...
worker.runs("add")              # [(argument, when it ran in epoch milliseconds), ...]
"""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any, Final, Self

PROGRAM: Final = """
    import os
    import time
    from pathlib import Path

    from celery import Celery

    import hourwheel.integrations.kombu

    app = Celery("shop", broker="hourwheel://" + os.environ["SERVERS"].replace(",", ";"))
    app.conf.update(
        beat_schedule={"each second": {"task": "shop.note", "schedule": 1.0, "args": ("beat",)}},
        broker_connection_retry_on_startup=True,
        task_ignore_result=True,
        worker_lost_wait=0.1,
        worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "4")),
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    PATH = Path(os.environ["RUNS"])

    def write(*words):
        with PATH.open("a") as file:
            file.write(" ".join(map(str, words)) + f" {int(time.time() * 1_000)}\\n")

    @app.task
    def note(what):
        write("note", what)

    @app.task(bind=True, max_retries=5)
    def flaky(self, what):
        write("flaky", what)
        if self.request.retries < 2:
            raise self.retry(countdown=0.05)

    @app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
    def late(self, what):
        is_again = self.request.delivery_info["redelivered"]
        write("late", what)
        if what == "kill" and not is_again:
            os.kill(os.getpid(), 9)
        if what == "hang" and not is_again:
            time.sleep(1_000)
"""


class CeleryWorker:
    """A worker with the program above; another one may follow in the same folder."""

    def __init__(self, folder: Path, servers: str, *options: str, kind: str = "worker") -> None:
        self.folder, self._options, self._kind = folder, options, kind
        self.environ = {**os.environ, "SERVERS": servers, "RUNS": str(folder / "runs.txt")}
        self.environ["PYTHONWARNINGS"] = "ignore"
        self.process: asyncio.subprocess.Process
        self.said = ""

    async def __aenter__(self) -> Self:
        (self.folder / "shop.py").write_text(textwrap.dedent(PROGRAM))
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "celery", "-A", "shop", self._kind, "--loglevel", "INFO"),
            *self._options,
            cwd=self.folder,
            env=self.environ,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        assert self.process.stderr is not None
        self.said += (await self.process.stderr.read()).decode()
        await self.process.wait()

    async def until_said(self, text: str) -> None:
        """Read its log until a line has this text."""
        assert self.process.stderr is not None
        while True:
            line = (await self.process.stderr.readline()).decode()
            self.said += line
            assert line, f"it has ended without {text!r}: {self.said}"
            if text in line:
                return

    async def stop(self) -> int:
        """A warm shutdown."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        self.said += (await self.process.stderr.read()).decode()
        return await self.process.wait()

    async def run(self, program: str) -> str:
        """What a client of the same application prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "import shop\n" + textwrap.dedent(program)),
            cwd=self.folder,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    def runs(self, task: str) -> list[tuple[str, int]]:
        """(argument, when in epoch milliseconds) of each run of a task."""
        path = self.folder / "runs.txt"
        rows: list[list[Any]] = (
            [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [(what, int(ms)) for name, what, ms in rows if name == task]
