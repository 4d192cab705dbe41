"""What `hourwheel push` does: a pusher for each subscription, signals, and the end of it all."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from hourwheel.clock import SystemClock
from hourwheel.gateway.command import listen_to_signals
from hourwheel.transport.access import Access
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.post import Poster
from hourwheel.webhooks.pusher import Pusher
from hourwheel.webhooks.settings import PushSettings
from hourwheel.workers.health import HealthServer, WorkerHealth

STOP_MS: Final = 30_000
_log = logging.getLogger("hourwheel.push")


@dataclass(frozen=True)
class PushOptions:
    """How it is run."""

    stop_ms: int = STOP_MS
    """How long POSTs that are under way may take when it is to stop."""
    health: tuple[str, int] | None = None
    """Address and port of probes and metrics; None: none."""


async def run_push(
    servers: str, settings: PushSettings, access: Access, options: PushOptions
) -> None:
    """Push until SIGTERM or SIGINT. The second signal gives back what is under way.

    Raises:
        ConfigError: a secret or an authority cannot be used.
        FailedPrecondition: the port of probes is taken.
        Unprotected: a secret would be sent to nodes in the clear.
    """
    stopping, ending = asyncio.Event(), asyncio.Event()
    listen_to_signals(stopping, ending)
    clock = SystemClock()
    async with Channel(servers, tls=access.tls, token=access.token, user=access.user) as channel:
        pushers = [
            Pusher(
                one,
                channel,
                Poster(
                    one.target,
                    timeout_ms=one.timeout_ms,
                    ca=one.ca,
                    allow_private=one.allow_private,
                ),
                clock,
            )
            for one in settings.subscriptions
        ]
        health = _serve_health(options, pushers)
        _log.info("%d subscriptions, server %s", len(pushers), servers)
        try:
            await push_until(pushers, stopping, ending, options.stop_ms)
        finally:
            if health is not None:
                health.close()


async def push_until(
    pushers: list[Pusher], stopping: asyncio.Event, ending: asyncio.Event, stop_ms: int
) -> None:
    """Run them; `stopping` ends receiving, and `ending`, or `stop_ms` later, what is under way."""
    runs = [asyncio.create_task(one.run(stopping)) for one in pushers]
    everything = asyncio.create_task(_all(runs))
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
        for task in (*runs, stop, end):
            task.cancel()
        await asyncio.gather(*runs, stop, end, everything, return_exceptions=True)


async def _all(runs: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*runs)


def _serve_health(options: PushOptions, pushers: list[Pusher]) -> HealthServer | None:
    if options.health is None:
        return None
    host, port = options.health
    server = HealthServer(host, port, lambda: WorkerHealth([one.health() for one in pushers], 1, 0))
    _log.info("health and metrics on http://%s:%d", host, server.port)
    return server
