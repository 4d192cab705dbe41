"""What `hourwheel http` does: the port, the site, signals, and the end of it all."""

import asyncio
import base64
import logging
import signal
from pathlib import Path
from typing import Final

import hourwheel
from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.gateway.callers import Callers
from hourwheel.gateway.exchange import Bounds
from hourwheel.gateway.openapi import make_json
from hourwheel.gateway.port import HttpPort, make_tls
from hourwheel.gateway.routes import ROUTES
from hourwheel.gateway.settings import CertificateSection, HttpSection
from hourwheel.gateway.site import Site
from hourwheel.transport.access import Access, Tls

_log: Final = logging.getLogger("hourwheel.http")


class Gateway:
    """`start` and `stop` in one event loop."""

    def __init__(self, servers: str, settings: HttpSection, tls: Tls | None = None) -> None:
        """Nothing listens yet.

        Args:
            servers: the nodes.
            settings: see there.
            tls: how the nodes' certificates are known.

        Raises:
            ConfigError: a file cannot be used.
        """
        self._settings = settings
        self._callers = Callers(
            servers,
            tls,
            call_timeout_ms=settings.call_timeout_ms,
            certificates={
                name: _authorization_of(section) for name, section in settings.certificates.items()
            },
        )
        self._site = Site(
            ROUTES,
            self._callers,
            openapi=make_json(ROUTES, hourwheel.__version__),
            hosts=settings.hosts,
        )
        self._port = HttpPort(
            self._site,
            Bounds(
                head_bytes=settings.head_bytes,
                body_bytes=settings.body_bytes,
                head_ms=settings.head_ms,
                body_ms=settings.body_ms,
                answer_ms=settings.answer_ms,
            ),
            connections_max=settings.connections,
            bodies_bytes=settings.bodies_bytes,
            tls=make_tls(settings.cert, settings.key, settings.client_ca),
            wall_ms=SystemClock().wall_ms,
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


async def run_gateway(servers: str, settings: HttpSection, access: Access) -> None:
    """Serve until SIGTERM or SIGINT; the second one ends calls that are under way.

    Raises:
        InvalidArgument: it is to have credentials of its own.
        ConfigError: a file cannot be used, or the address not be listened on.
    """
    if access.token is not None or access.user is not None:
        raise errors.InvalidArgument("callers bring their credentials: a gateway has none")
    stopping, ending = asyncio.Event(), asyncio.Event()
    listen_to_signals(stopping, ending)
    gateway = Gateway(servers, settings, access.tls)
    try:
        _log.info("HTTP on %s, server %s", gateway.start(), servers)
        if settings.behind_proxy and not settings.cert:
            _log.warning("in the clear: only a proxy that speaks TLS may reach this address")
        await stopping.wait()
        _log.info("stopping: calls under way have %d s to end", settings.stop_ms // 1_000)
    finally:
        stop = asyncio.create_task(gateway.stop(settings.stop_ms))
        end = asyncio.create_task(ending.wait())
        await asyncio.wait({stop, end}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            _log.warning("ended with calls under way")
        stop.cancel()
        end.cancel()
        await asyncio.gather(stop, end, return_exceptions=True)


def _authorization_of(section: CertificateSection) -> str:
    """What is passed on to the nodes. Raises ConfigError: the file cannot be read."""
    path = Path(section.login_file or section.token_file)
    try:
        text = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        raise errors.ConfigError(f"{path} cannot be read") from None
    if section.token_file:
        return f"Bearer {text}"
    return "Basic " + base64.b64encode(text.encode()).decode()
