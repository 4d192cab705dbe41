"""What `hourwheel push` does: a pusher for each subscription, signals, and the end of it all."""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hourwheel.clock import SystemClock
from hourwheel.gateway.command import listen_to_signals
from hourwheel.transport.access import Access
from hourwheel.transport.channel import Channel
from hourwheel.watched_files import ReportedInLog, WatchedFiles
from hourwheel.webhooks.metrics import FAMILIES, PushHealth
from hourwheel.webhooks.names import Names
from hourwheel.webhooks.prepared import Prepared, read_prepared
from hourwheel.webhooks.pushers import Pushers
from hourwheel.workers.health import HealthServer

STOP_MS: Final = 25_000
"""Less than the 30 s that Kubernetes gives."""
_log = logging.getLogger("hourwheel.push")
_Watched = WatchedFiles[tuple[Prepared, ...]]


@dataclass(frozen=True)
class PushOptions:
    """How it is run."""

    stop_ms: int = STOP_MS
    """How long POSTs that are under way may take when it is to stop."""
    health: tuple[str, int] | None = None
    """Address and port of probes and metrics; None: none."""


async def run_push(servers: str, path: Path, access: Access, options: PushOptions) -> None:
    """Push until SIGTERM or SIGINT. The second signal gives back what is under way.

    The file at `path`, and what it names, are read again when they change.

    Raises:
        ConfigError: they cannot be used.
        FailedPrecondition: the port of probes is taken.
        Unprotected: a secret would be sent to nodes in the clear.
    """
    stopping, ending = asyncio.Event(), asyncio.Event()
    listen_to_signals(stopping, ending)
    read = partial(read_prepared, path, Names())
    watched: _Watched = WatchedFiles(read, ReportedInLog(_log))
    async with Channel(servers, tls=access.tls, token=access.token, user=access.user) as channel:
        pushers = Pushers(channel, SystemClock())
        health = _serve_health(options, pushers, watched)
        pushers.change(watched.value)
        watch = asyncio.create_task(watched.watch(pushers.change))
        _log.info("subscriptions: %d, server: %s", len(watched.value), servers)
        try:
            await push_until(pushers, stopping, ending, options.stop_ms)
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            if health is not None:
                health.close()


async def push_until(
    pushers: Pushers, stopping: asyncio.Event, ending: asyncio.Event, stop_ms: int
) -> None:
    """Run them; `stopping` ends receiving, and `ending`, or `stop_ms` later, what is under way."""
    everything = asyncio.create_task(pushers.run(stopping))
    stop = asyncio.create_task(stopping.wait())
    end = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({everything, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not everything.done():
            _log.info("stopping: what is under way has %d s to end", stop_ms // 1_000)
            await asyncio.wait(
                {everything, end}, timeout=stop_ms / 1_000, return_when=asyncio.FIRST_COMPLETED
            )
        if everything.done():
            everything.result()
        else:
            _log.warning("ended with messages under way: they come again")
    finally:
        for task in (everything, stop, end):
            task.cancel()
        await asyncio.gather(everything, stop, end, return_exceptions=True)


def _serve_health(options: PushOptions, pushers: Pushers, watched: _Watched) -> HealthServer | None:
    if options.health is None:
        return None
    host, port = options.health
    server = HealthServer(
        host, port, FAMILIES, lambda: PushHealth(pushers.health(), watched.is_refused)
    )
    _log.info("health and metrics on http://%s:%d", host, server.port)
    return server
