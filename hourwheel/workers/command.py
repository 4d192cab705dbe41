"""What `hourwheel worker` does: children, the worker, signals, and the end of it all."""

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.workers.app import App
from hourwheel.workers.health import HandlerHealth, HealthServer, WorkerHealth
from hourwheel.workers.metrics import FAMILIES
from hourwheel.workers.processes import Processes
from hourwheel.workers.service import Parts
from hourwheel.workers.worker import Worker

STOP_MS: Final = 30_000
_log = logging.getLogger("hourwheel.worker")


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker is run."""

    target: str
    """Where the app is: "module:app"."""
    process_count: int = 1
    stop_ms: int = STOP_MS
    """How long handlers may take to end when the worker is to stop."""
    health: tuple[str, int] | None = None
    """Address and port of probes and metrics; None: none."""


async def run_worker(app: App, options: WorkerOptions) -> None:
    """Serve an app's handlers until SIGTERM or SIGINT.

    The first signal ends receiving, and what is in work has `stop_ms` to end. The second one, or
    the end of that time, ends it: its messages are given back, and come again at once.

    Raises:
        FailedPrecondition: the app has no handlers, or cannot be loaded in a process of its own.
        HourwheelError: a failure that trying again does not mend.
    """
    if not app.handlers:
        raise errors.FailedPrecondition(f"{options.target} has no handlers")
    stopping, ending = asyncio.Event(), asyncio.Event()
    _listen_to_signals(stopping, ending)
    processes = Processes(options.target, app.handlers, options.process_count)
    async with processes, app.channel() as channel:
        worker = Worker(
            Parts(channel, processes, SystemClock()),
            app.handlers,
            recurring=app.recurrences,
            process_count=options.process_count,
        )
        health = _serve_health(options, worker, processes)
        try:
            _log.info(
                "%d handlers, %d processes, server %s",
                len(app.handlers),
                options.process_count,
                app.server,
            )
            await _serve_until(worker, stopping, ending, options.stop_ms)
        finally:
            if health is not None:
                health.close()


def _listen_to_signals(stopping: asyncio.Event, ending: asyncio.Event) -> None:
    def on_signal() -> None:
        (ending if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


async def _serve_until(
    worker: Worker, stopping: asyncio.Event, ending: asyncio.Event, stop_ms: int
) -> None:
    serving = asyncio.create_task(worker.run())
    stop = asyncio.create_task(stopping.wait())
    end = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            _log.info("stopping: what is in work has %d s to end", stop_ms // 1_000)
            worker.stop()
            await asyncio.wait(
                {serving, end}, timeout=stop_ms / 1_000, return_when=asyncio.FIRST_COMPLETED
            )
        if serving.done():
            serving.result()
        else:
            _log.warning("ended with messages in work: they come again")
    finally:
        for task in (serving, stop, end):
            task.cancel()
        await asyncio.gather(serving, stop, end, return_exceptions=True)


def _serve_health(
    options: WorkerOptions, worker: Worker, processes: Processes
) -> HealthServer | None:
    if options.health is None:
        return None

    def look() -> WorkerHealth:
        handlers = [
            HandlerHealth(
                one.handler.name,
                one.topic,
                one.handler.group,
                one.is_receiving,
                one.running_count,
                dict(one.counts),
            )
            for one in worker.services
        ]
        return WorkerHealth(handlers, processes.live_count, processes.restart_count)

    host, port = options.health
    server = HealthServer(host, port, FAMILIES, look)
    _log.info("health and metrics on http://%s:%d", host, server.port)
    return server
