"""What `hourwheel http` does: the port, the site, signals, and the end of it all."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import hourwheel
from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.gateway.callers import Callers
from hourwheel.gateway.exchange import Bounds
from hourwheel.gateway.metrics import FAMILIES, HttpCounts, HttpHealth
from hourwheel.gateway.openapi import make_json
from hourwheel.gateway.port import HttpPort
from hourwheel.gateway.prepared import Prepared, prepare
from hourwheel.gateway.routes import ROUTES
from hourwheel.gateway.settings import HttpSection
from hourwheel.gateway.site import Site
from hourwheel.transport.access import Access, Tls
from hourwheel.watched_files import ReportedInLog, WatchedFiles
from hourwheel.workers.health import HealthServer

WAITING_ROUTE: Final = next(route.name for route in ROUTES if route.is_waiting)
_log: Final = logging.getLogger("hourwheel.http")


class Gateway:
    """`start` and `stop` in one event loop."""

    def __init__(self, servers: str, prepared: Prepared, tls: Tls | None = None) -> None:
        """Nothing listens yet.

        Args:
            servers: the nodes.
            prepared: the configuration.
            tls: how the nodes' certificates are known.
        """
        self._settings = settings = prepared.section
        self._counts = HttpCounts()
        self._callers = Callers(
            servers,
            tls,
            call_timeout_ms=settings.call_timeout_ms,
            certificates=prepared.authorizations,
        )
        self._site = Site(
            ROUTES,
            self._callers,
            openapi=make_json(ROUTES, hourwheel.__version__),
            counts=self._counts,
            hosts=settings.hosts,
        )
        self._port = HttpPort(
            self._site,
            _bounds_of(settings),
            connections_max=settings.connections,
            bodies_bytes=settings.bodies_bytes,
            tls=prepared.tls,
            wall_ms=SystemClock().wall_ms,
            note_limited=self._note_limited,
        )

    def _note_limited(self, limit: str) -> None:
        self._counts.limited[limit] += 1

    def change(self, prepared: Prepared) -> None:
        """Go on by another configuration. Connections and calls that there are do as they did."""
        settings = prepared.section
        self._callers.change(prepared.authorizations, settings.call_timeout_ms)
        self._site.change(settings.hosts)
        self._port.change(
            _bounds_of(settings),
            connections_max=settings.connections,
            bodies_bytes=settings.bodies_bytes,
            tls=prepared.tls,
        )

    def health(self, *, is_refused: bool) -> HttpHealth:
        """For probes and metrics. Called in other threads; `is_refused`: the files are."""
        return HttpHealth(
            self._counts.samples(WAITING_ROUTE),
            self._port.connection_count,
            self._port.body_bytes,
            self._callers.count,
            is_refused,
            self._site.is_stopping,
        )

    def start(self) -> str:
        """Listen; gives the URL. Raises ConfigError: it cannot be listened on."""
        host, port = self._settings.address
        port = self._port.start(host, port)
        scheme = "https" if self._settings.cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def begin_stop(self) -> None:
        """Long polls end, and probes say so."""
        self._site.stop()

    async def stop(self, stop_ms: int) -> None:
        """Accept no more; calls under way have `stop_ms` to end."""
        self.begin_stop()
        await self._port.stop(stop_ms)
        await self._callers.close()


def listen_to_signals(stopping: asyncio.Event, ending: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT sets one, the second the other."""

    def on_signal() -> None:
        (ending if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


async def run_gateway(
    servers: str,
    read: Callable[[], tuple[HttpSection, Sequence[str]]],
    access: Access,
    health: tuple[str, int] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; the second one ends calls that are under way.

    Args:
        servers: the nodes.
        read: reads the configuration; gives it, and the paths that it has read. It is read again,
            with the files that it names, when one of them changes.
        access: to the nodes.
        health: address and port of probes and metrics; None: none.

    Raises:
        InvalidArgument: it is to have credentials of its own.
        ConfigError: a file cannot be used, or the address not be listened on.
        FailedPrecondition: the port of probes is taken.
    """
    if access.token is not None or access.user is not None:
        raise errors.InvalidArgument("callers bring their credentials: a gateway has none")
    stopping, ending = asyncio.Event(), asyncio.Event()
    listen_to_signals(stopping, ending)
    watched = WatchedFiles(partial(_prepare, read, read()[0].listen), ReportedInLog(_log))
    settings = watched.value.section
    gateway = Gateway(servers, watched.value, access.tls)
    server = _serve_health(health, lambda: gateway.health(is_refused=watched.is_refused))
    watch = asyncio.create_task(watched.watch(gateway.change))
    try:
        _log.info("HTTP on %s, server %s", gateway.start(), servers)
        if settings.behind_proxy and not settings.cert:
            _log.warning("in the clear: only a proxy that speaks TLS may reach this address")
        await stopping.wait()
        stop_ms = watched.value.section.stop_ms
        _log.info("stopping: calls under way have %d s to end", stop_ms // 1_000)
    finally:
        watch.cancel()
        stop = asyncio.create_task(gateway.stop(watched.value.section.stop_ms))
        end = asyncio.create_task(ending.wait())
        await asyncio.wait({stop, end}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            _log.warning("ended with calls under way")
        stop.cancel()
        end.cancel()
        await asyncio.gather(watch, stop, end, return_exceptions=True)
        if server is not None:
            server.close()


def _prepare(
    read: Callable[[], tuple[HttpSection, Sequence[str]]], listen: str
) -> tuple[Prepared, Sequence[str]]:
    section, paths = read()
    if section.listen != listen:
        raise errors.ConfigError(f"listen = {section.listen!r} needs a restart", key="listen")
    prepared = prepare(section)
    return prepared, [*paths, *prepared.paths]


def _bounds_of(settings: HttpSection) -> Bounds:
    return Bounds(
        head_bytes=settings.head_bytes,
        body_bytes=settings.body_bytes,
        head_ms=settings.head_ms,
        body_ms=settings.body_ms,
        answer_ms=settings.answer_ms,
    )


def _serve_health(
    address: tuple[str, int] | None, look: Callable[[], HttpHealth]
) -> HealthServer | None:
    if address is None:
        return None
    server = HealthServer(*address, FAMILIES, look)
    _log.info("health and metrics on http://%s:%d", address[0], server.port)
    return server
