"""The HTTP server for Prometheus and for probes, on a thread of its own.

GET /metrics tells the numbers. Orchestrators ask the other paths, and go by the status: 200 or 503,
with the reason in a line of text.

    /live       the node's event loop answers: whatever its peers do, it does not hang
    /startup    the log is recovered, and calls are taken
    /stalls     the last stalls of the event loop, newest first, as JSON: guides/stalls.md
    /ready      it should get calls of clients: in sync with a master that is heard, or the master

The probes are for everybody. The numbers and the stalls are for callers that `admit` lets in.

Any process that reaches the port may open connections, without credentials. So all of them share
one thread, and each has `_DEADLINE_S` for its request and its answer together. When there are too
many, the one that has been there longest is cut off for the one that comes: a slow client gives
way, and a quick one is answered. Scrapes are made one after the other; all that wait for one get
the same.
The node's event loop is asked only for the numbers, and a scrape fails when it does not answer in
time (a hanging node is seen as down).
"""

import asyncio
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from node.access.port_gate import Admit
from node.telemetry import logs
from node.telemetry.port_thread import PortThread
from node.telemetry.stalls import Stalls
from replication.strangers import Listener, Places, open_streams

PATH: Final = "/metrics"
LIVE: Final = "/live"
STARTUP: Final = "/startup"
READY: Final = "/ready"
STALLS: Final = "/stalls"
ASKING_COUNT_MAX: Final = 64
"""Connections whose request is not here yet."""
ANSWERED_COUNT_MAX: Final = 16
"""Connections that wait for their answer or read it."""
HEAD_BYTES_MAX: Final = 8 * 1024
"""Of a request: its line and its headers. Bodies are not read."""
_DEADLINE_S: Final = 10.0
_LOOP_TIMEOUT_S: Final = 5.0
_KEY: Final = "node.metrics_listen"
_OPENMETRICS: Final = "application/openmetrics-text"
_ALLOWED: Final = "OPTIONS,GET"

Probe: TypeAlias = Callable[[], Awaitable[str]]
"""Asked on the server's loop: why the answer is no; empty where it is yes."""

ResultT = TypeVar("ResultT")
_log = logs.get(__name__)


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


def admit_in_loop(
    loop: asyncio.AbstractEventLoop, admit: Admit, *, timeout_s: float = _LOOP_TIMEOUT_S
) -> Admit:
    """`admit`, asked on the loop's thread. No answer within `timeout_s` is a no for now."""

    async def ask(authorization: str, host: str, path: str) -> HTTPStatus:
        return await admit(authorization, host, path)

    async def admit_there(authorization: str, host: str, path: str) -> HTTPStatus:
        asking = asyncio.run_coroutine_threadsafe(ask(authorization, host, path), loop)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asking), timeout_s)
        except TimeoutError:
            return HTTPStatus.SERVICE_UNAVAILABLE

    return admit_there


def probe_in_loop(
    loop: asyncio.AbstractEventLoop,
    why_not: Callable[[], str],
    *,
    timeout_s: float = _LOOP_TIMEOUT_S,
) -> Probe:
    """A probe that asks `why_not` on the loop's thread. No answer within `timeout_s` is a no."""

    async def ask() -> str:
        return why_not()

    async def probe() -> str:
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), loop))
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            return "the event loop does not answer"

    return probe


class MetricsServer:
    """`start` listens, `stop` ends it. In between, a scrape shows `registry`."""

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry | None = None,
        probes: Mapping[str, Probe] | None = None,
        *,
        stalls: Stalls | None = None,
        deadline_s: float = _DEADLINE_S,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        admit: Admit | None = None,
    ) -> None:
        """Nothing listens yet.

        Args:
            listen: host:port; port 0 for any free.
            registry: what a scrape shows; None: that there is nothing yet.
            probes: what is asked at other paths.
            stalls: what `STALLS` shows; also of a loop that hangs.
            deadline_s: what one connection gets.
            tls: for connections that are accepted now; None: in the clear.
            admit: who may read numbers and stalls, asked on the server's loop; None: everybody.
        """
        self._thread = PortThread(_KEY, listen, "hourwheel-metrics")
        self._scrapes = _Scrapes(registry)
        self._port = _Port(self._scrapes, probes or {}, stalls or Stalls(), deadline_s, tls, admit)

    def tell(self, registry: CollectorRegistry | None) -> None:
        """From now on scrapes show `registry`; None: that there is nothing."""
        self._scrapes.registry = registry

    def start(self) -> str:
        """Listen; the address, host:port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        return self._thread.start(self._port.serve)

    def stop(self) -> None:
        """Stop listening and cut everybody off; a scrape under way is left to end."""
        self._thread.stop()


@dataclass(frozen=True, slots=True)
class _Form:
    """Which of the four forms of the numbers somebody wants."""

    is_openmetrics: bool
    is_gzip: bool


class _Scrapes:
    """Makes the numbers, one scrape at a time, each in a thread: it waits for the node's loop."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.registry = registry
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[bytes]] = set()
        self._waiting: dict[_Form, asyncio.Task[bytes]] = {}
        """Scrapes that have not begun: a request that comes now gets what they find."""

    async def get(self, form: _Form) -> bytes:
        """The answer with the numbers as they are from now on."""
        scrape = self._waiting.get(form)
        if scrape is None:
            scrape = self._waiting[form] = asyncio.ensure_future(self._scrape(form))
            self._tasks.add(scrape)
            scrape.add_done_callback(self._tasks.discard)
        return await asyncio.shield(scrape)

    async def close(self) -> None:
        """Answer no more requests; a thread that is at it ends by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _scrape(self, form: _Form) -> bytes:
        async with self._turn:
            del self._waiting[form]
            return await _in_thread(lambda: self._make(form))

    def _make(self, form: _Form) -> bytes:
        registry = self.registry
        if registry is None:
            return _packed(HTTPStatus.SERVICE_UNAVAILABLE, b"the node starts, or stops\n")
        encode, content_type = choose_encoder(_OPENMETRICS if form.is_openmetrics else "")
        headers = {"Content-Type": content_type}
        try:
            body = encode(registry)
        except Exception as error:  # noqa: BLE001 - also what a collector raises is answered
            _log.error("scrape_failed", exc_info=error)
            return _packed(HTTPStatus.SERVICE_UNAVAILABLE, b"the node does not answer\n")
        if form.is_gzip:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        return _packed(HTTPStatus.OK, body, **headers)


async def _in_thread(make: Callable[[], bytes]) -> bytes:
    """In a thread that is not waited for at the end, unlike those of the loop's executor."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def tell(made: bytes) -> None:
        if not found.done():
            found.set_result(made)

    def run() -> None:
        made = make()
        with suppress(RuntimeError):  # the server was stopped, and its loop is closed
            loop.call_soon_threadsafe(tell, made)

    threading.Thread(target=run, name="hourwheel-scrape", daemon=True).start()
    return await found


class _Port:
    """All connections, on one event loop."""

    def __init__(
        self,
        scrapes: _Scrapes,
        probes: Mapping[str, Probe],
        stalls: Stalls,
        deadline_s: float,
        tls: Callable[[], ssl.SSLContext | None],
        admit: Admit | None,
    ) -> None:
        self._admit = admit
        self._scrapes, self._probes, self._stalls = scrapes, probes, stalls
        self._deadline_s, self._tls = deadline_s, tls
        self._asking, self._answered = Places(ASKING_COUNT_MAX), Places(ANSWERED_COUNT_MAX)

    async def serve(self, listening: socket.socket, is_over: asyncio.Event) -> None:
        """Until `is_over`."""
        listener = Listener(self._serve_for_a_time, _on_bug)
        accepting = asyncio.ensure_future(listener.accept(listening))
        await is_over.wait()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        listening.close()
        await listener.close()
        await self._scrapes.close()

    async def _serve_for_a_time(self, connection: socket.socket) -> None:
        with suppress(TimeoutError, OSError, EOFError):
            async with asyncio.timeout(self._deadline_s):
                with self._asking.one():
                    reader, writer = await open_streams(connection, self._tls(), HEAD_BYTES_MAX)
                try:
                    await self._serve(reader, writer)
                finally:
                    writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._asking.one():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                head = b""
        with self._answered.one():
            if head:
                peer = writer.get_extra_info("peername") or ("",)
                writer.write(await self._answer(head, str(peer[0])))
            else:
                writer.write(_packed(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            writer.transport.set_write_buffer_limits(0)
            await writer.drain()  # the system has all of it, and sends it after an abort, too

    async def _answer(self, head: bytes, host: str) -> bytes:
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004
            return _packed(HTTPStatus.BAD_REQUEST)
        method, target, _ = words
        path = target.partition("?")[0]
        if path not in (PATH, STALLS) and path not in self._probes:
            here = ", ".join((PATH, STALLS, *self._probes))
            return _packed(HTTPStatus.NOT_FOUND, f"only {here} is here\n".encode())
        if method == "OPTIONS":
            return _packed(HTTPStatus.OK, Allow=_ALLOWED)
        if method != "GET":
            return _packed(HTTPStatus.METHOD_NOT_ALLOWED, Allow=_ALLOWED)
        return await self._page(path, fields, host)

    async def _page(self, path: str, fields: list[str], host: str) -> bytes:
        if path in self._probes:
            return _body_of(await self._probes[path]())
        headers = {
            name.strip().lower(): value for name, _, value in (one.partition(":") for one in fields)
        }
        if self._admit is not None:
            status = await self._admit(headers.get("authorization", "").strip(), host, path)
            if status is not HTTPStatus.OK:
                return _packed(status, b"", **{"WWW-Authenticate": "Bearer, Basic realm=Hourwheel"})
        if path == STALLS:
            return _stalls_of(self._stalls)
        form = _Form(
            _OPENMETRICS in headers.get("accept", ""),
            gzip_accepted(headers.get("accept-encoding", "")),
        )
        return await self._scrapes.get(form)


def _body_of(why_not: str) -> bytes:
    status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
    return _packed(status, f"{why_not or 'yes'}\n".encode())


def _stalls_of(stalls: Stalls) -> bytes:
    last = [one.as_dict() for one in reversed(list(stalls.last))]
    shown = {"count": stalls.count, "by_cause": dict(stalls.by_cause), "last": last}
    body = json.dumps(shown, indent=1).encode() + b"\n"
    return _packed(HTTPStatus.OK, body, **{"Content-Type": "application/json"})


def _on_bug(error: BaseException) -> None:
    _log.error("metrics_port_failed", exc_info=error)


def _packed(status: HTTPStatus, body: bytes = b"", **headers: str) -> bytes:
    """An answer, after which the connection is closed."""
    found = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in found.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
