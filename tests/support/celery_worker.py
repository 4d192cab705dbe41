"""Celery's command line at a real node, in a folder of its own.

async with CeleryWorker(folder, "127.0.0.1:7400", "--pool", "solo") as worker:
    ...
worker.runs("add")              # [(argument, when it ran in epoch milliseconds), ...]
"""

import asyncio
import signal
from pathlib import Path
from typing import Final, Self

from tests.support.task_program import TaskProgram

PROGRAM: Final = """
    from celery import Celery
    from celery.exceptions import Reject

    import hourwheel.integrations.kombu

    app = Celery("shop", broker="hourwheel://" + os.environ["SERVERS"].replace(",", ";"))
    app.conf.update(
        beat_schedule={"each second": {"task": "shop.note", "schedule": 1.0, "args": ("beat",)}},
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 900},
        result_backend=os.environ.get("RESULTS"),
        result_chord_retry_interval=0.1,
        task_ignore_result="RESULTS" not in os.environ,
        worker_lost_wait=0.1,
        worker_pool_putlocks="LISTENS" not in os.environ,
        worker_prefetch_multiplier=4,
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )

    @app.task
    def note(what):
        write("note", what)

    @app.task
    def add(one, other):
        write("add", f"{one}+{other}")
        return one + other

    @app.task
    def total(numbers):
        write("total", sum(numbers))
        return sum(numbers)

    @app.task(acks_late=True)
    def refuse(what):
        write("refuse", what)
        if not Path("willing").exists():
            raise Reject("not yet", requeue=False)

    @app.task(bind=True, max_retries=5)
    def flaky(self, what):
        write("flaky", what)
        if self.request.retries < 2:
            raise self.retry(countdown=0.05)

    @app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
    def late(self, what):
        is_again = self.request.delivery_info["redelivered"]
        write("late", what)
        if what == "poison" or what == "kill" and not is_again:
            os.kill(os.getpid(), 9)
        if what == "hang" and not is_again:
            time.sleep(1_000)
"""
"""Its leases are longer than any test waits (`eventually`): nothing comes again by their end."""


class CeleryWorker(TaskProgram):
    """A worker with the program above; another one may follow in the same folder."""

    def __init__(self, folder: Path, servers: str, *options: str, kind: str = "worker") -> None:
        super().__init__(folder, servers, PROGRAM)
        self._options, self._kind = options, kind
        self.process: asyncio.subprocess.Process
        self.said = ""

    async def __aenter__(self) -> Self:
        command = ("-m", "celery", "-A", "shop", self._kind, "--loglevel", "INFO", *self._options)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self.process = await self.start(command, stderr=pipe, stdout=nothing)
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
