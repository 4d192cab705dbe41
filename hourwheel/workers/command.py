"""What `hourwheel worker` does: children, the worker, signals, and the end of it all."""

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import dataclass
from typing import Final

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.workers.app import App
from hourwheel.workers.health import HandlerHealth, HealthServer, WorkerHealth
from hourwheel.workers.metrics import FAMILIES
from hourwheel.workers.processes import Processes
from hourwheel.workers.program import Program
from hourwheel.workers.service import Parts
from hourwheel.workers.worker import STOP_MS, Worker

END_S: Final = 1.5
"""How long giving messages back may take when handlers were ended; and leaving, without."""
_log = logging.getLogger("hourwheel.worker")


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker is run."""

    program: Program
    process_count: int = 1
    stop_ms: int = STOP_MS
    """How long handlers may take to end when the worker is to stop."""
    health: tuple[str, int] | None = None
    """Address and port of probes and metrics; None: none."""
    ends_by_interrupt: bool = True
    """By SIGINT, as by SIGTERM; False: a terminal's is another process's business (`reload`)."""


async def run_worker(app: App, options: WorkerOptions) -> None:
    """Serve an app's handlers until SIGTERM or SIGINT.

    The first signal ends receiving, and what is in work has `stop_ms` to end. The second one, or
    the end of that time, ends it: its messages are given back, and come again at once. The third
    one ends the process as it is.

    Raises:
        FailedPrecondition: the app has no handlers, or cannot be loaded in a process of its own.
        HourwheelError: a failure that trying again does not mend.
    """
    if not app.handlers:
        raise errors.FailedPrecondition(f"{options.program.target} has no handlers")
    stopping, ending = asyncio.Event(), asyncio.Event()
    _listen_to_signals(stopping, ending, options)
    processes = Processes(options.program, app.handlers, options.process_count)
    async with contextlib.AsyncExitStack() as leaving:
        if not await _start(processes, leaving, stopping):
            return
        channel = await leaving.enter_async_context(app.channel())
        worker = Worker(
            Parts(channel, processes, SystemClock()),
            app.handlers,
            recurring=app.recurrences,
            process_count=options.process_count,
        )
        health = _serve_health(options, worker, processes)
        try:
            _log.info(
                "handlers: %d, processes: %d, server: %s",
                len(app.handlers),
                options.process_count,
                app.server,
            )
            stops = _Stops(stopping, ending, options.stop_ms)
            await _serve_until(worker, processes, stops)
        finally:
            if health is not None:
                health.close()


@dataclass(frozen=True)
class _Stops:
    """When it is to stop."""

    stopping: asyncio.Event
    """Receive no more, and"""
    ending: asyncio.Event
    """now, or"""
    stop_ms: int
    """later, end what is in work."""


async def _start(
    processes: Processes, leaving: contextlib.AsyncExitStack, stopping: asyncio.Event
) -> bool:
    """Whether all children have imported the program before a stop was requested."""
    start = asyncio.create_task(leaving.enter_async_context(processes))
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():
            return False
        start.result()
        return True
    finally:
        for task in (start, stop):
            task.cancel()
        await asyncio.gather(start, stop, return_exceptions=True)


def _listen_to_signals(
    stopping: asyncio.Event, ending: asyncio.Event, options: WorkerOptions
) -> None:
    def on_signal() -> None:
        if ending.is_set():
            os._exit(1)  # children see it, and end
        (ending if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_signal)
    if options.ends_by_interrupt:
        loop.add_signal_handler(signal.SIGINT, on_signal)


async def _serve_until(worker: Worker, processes: Processes, stops: _Stops) -> None:
    serving = asyncio.create_task(worker.run())
    stop = asyncio.create_task(stops.stopping.wait())
    fail = asyncio.create_task(worker.wait_for_stop())
    end = asyncio.create_task(stops.ending.wait())
    try:
        await asyncio.wait({serving, stop, fail}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            _log.info("stopping: what is in work has %d s to end", stops.stop_ms // 1_000)
            worker.stop()
            await asyncio.wait(
                {serving, end},
                timeout=stops.stop_ms / 1_000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        if serving.done():
            serving.result()
        else:
            _log.warning("ended with messages in work: they come again")
            processes.end_handlers()
            await asyncio.wait({serving}, timeout=END_S)
            if serving.done() and not serving.cancelled():
                serving.exception()  # its log has reported it, or it is raised now
            if worker.error is not None:
                raise worker.error
    finally:
        for _ in range(2):  # the second time it ends what the first one has begun
            for task in (serving, stop, fail, end):
                task.cancel()
            await asyncio.wait({serving, stop, fail, end}, timeout=END_S)


def _serve_health(
    options: WorkerOptions, worker: Worker, processes: Processes
) -> HealthServer | None:
    if options.health is None:
        return None

    def look() -> WorkerHealth:
        handlers = [
            HandlerHealth(
                name=one.handler.name,
                topic=one.topic,
                group=one.handler.group,
                is_receiving=one.is_receiving,
                running_count=one.running_count,
                counts=dict(one.counts),
                durations=one.durations,
                lost_count=one.lost_lease_count,
            )
            for one in worker.services
        ]
        return WorkerHealth(handlers, processes.live_count, processes.restart_count)

    host, port = options.health
    server = HealthServer(host, port, FAMILIES, look)
    _log.info("health and metrics on http://%s:%d", host, server.port)
    return server
