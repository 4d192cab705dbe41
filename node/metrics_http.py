"""The HTTP server that Prometheus scrapes: GET /metrics and nothing else, on threads of its own.

A slow or silent peer costs one sleeping thread for some seconds; the event loop is asked only for
the numbers, and a scrape fails when it does not answer in time (a hanging node is seen as down).
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from http import HTTPStatus
from socket import AF_INET6
from socketserver import ThreadingMixIn
from typing import Any, Final, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from hourwheel import errors
from node.config_check import split_address

PATH: Final = "/metrics"
_PEER_TIMEOUT_S: Final = 10.0
_LOOP_TIMEOUT_S: Final = 5.0
_KEY: Final = "node.metrics_listen"

ResultT = TypeVar("ResultT")


def in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Coroutine[Any, Any, ResultT]]
) -> Callable[[], ResultT]:
    """`function`, to be called from another thread and run on the loop's.

    The result raises TimeoutError where the loop does not come to it within 5 seconds.
    """

    def call() -> ResultT:
        answer = asyncio.run_coroutine_threadsafe(function(), loop)
        try:
            return answer.result(_LOOP_TIMEOUT_S)
        except TimeoutError:
            answer.cancel()
            raise

    return call


class MetricsServer:
    """`start` listens, `stop` ends it."""

    def __init__(self, listen: str, registry: CollectorRegistry) -> None:
        """`listen`: host:port; port 0 for any free."""
        self._listen = listen
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Listen; the address, host:port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        host, port = split_address(_KEY, self._listen)
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, self._app, kind, _Handler)
        except OSError as error:
            raise errors.ConfigError(
                f"{_KEY} = {self._listen!r}: cannot listen there: {error.strerror}",
                key=_KEY,
                value=self._listen,
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="hourwheel-metrics", daemon=True
        )
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening. Blocks for up to half a second; scrapes under way are left to end."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == PATH:
            return self._metrics(environ, start_response)
        status = HTTPStatus.NOT_FOUND
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [f"only {PATH} is here\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _PEER_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a scrape is no event."""
