"""HTTP/1.1 for the console: connections and their bounds, on a thread of their own.

The protocol is h11's, which does no I/O. Any process that reaches the port may open connections, so
each phase of one is bounded (`PortLimits`): a client that waits with its request, or does not read
an answer, gives way to the next when there are too many. A request whose answer is being made is
never cut off; above the bound of those, the next one is refused for now. A browser opens a
connection again by itself when one that waits is closed, so that a thousand open consoles get along
with few.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import h11

from node.telemetry import logs
from node.telemetry.port_thread import PortThread
from replication.strangers import Listener, Places, open_streams

HEAD_BYTES_MAX: Final = 16 * 1024
"""Of a request: its line and its headers."""
BODY_BYTES_MAX: Final = 512 * 1024
"""Of a request."""
KEY: Final = "console.listen"
_CHUNK_BYTES: Final = 64 * 1024
_RETRY_S: Final = 2
_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class PortLimits:
    """What the port holds at one time, and for how long."""

    connections: int = 128
    """That wait for a request, or have not sent all of it."""
    working_count: int = 32
    """Requests whose answers are being made."""
    sending_count: int = 32
    """Answers that are being read."""
    request_s: float = 20.0
    """Until a connection has sent its next request, whole."""
    send_s: float = 10.0
    """Until an answer is read."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a browser asks."""

    method: str
    target: str
    """Path and query, as they came."""
    headers: Mapping[str, str]
    """Names in lower case; values of one name are joined by commas."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What it gets."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class ConsolePort:
    """`start` listens, `stop` ends it."""

    def __init__(
        self,
        listen: str,
        answer: Callable[[Request], Awaitable[Answer]],
        limits: PortLimits | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """Nothing listens yet.

        Args:
            listen: host:port; port 0 for any free.
            answer: is called on the port's own loop, and raises nothing on purpose.
            limits: its bounds.
            tls: for connections that are accepted now; None: in the clear.
        """
        self._thread = PortThread(KEY, listen, "hourwheel-console")
        self._answer, self._tls = answer, tls
        self._limits = limits or PortLimits()
        self._waiting = Places(self._limits.connections)
        self._sending = Places(self._limits.sending_count)
        self._working_count = 0

    def start(self) -> str:
        """Listen; the address, host:port. Raises ConfigError: it cannot be listened on."""
        return self._thread.start(self._serve)

    def stop(self) -> None:
        """Stop listening and cut everybody off."""
        self._thread.stop()

    async def _serve(self, listening: socket.socket, is_over: asyncio.Event) -> None:
        listener = Listener(self._serve_one, _on_bug)
        accepting = asyncio.ensure_future(listener.accept(listening))
        await is_over.wait()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        listening.close()
        await listener.close()

    async def _serve_one(self, connection: socket.socket) -> None:
        with suppress(TimeoutError, OSError):
            with self._waiting.one():
                async with asyncio.timeout(self._limits.request_s):
                    reader, writer = await open_streams(connection, self._tls())
            try:
                await self._converse(reader, writer)
            finally:
                writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests and answers, one after the other, until one side has enough."""
        writer.transport.set_write_buffer_limits(0)
        machine = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        while True:
            with self._waiting.one():
                async with asyncio.timeout(self._limits.request_s):
                    found = await _read_request(machine, reader, writer)
            if found is None:
                return
            answer = found if isinstance(found, Answer) else await self._work(found)
            is_head = isinstance(found, Request) and found.method == "HEAD"
            with self._sending.one():
                async with asyncio.timeout(self._limits.send_s):
                    writer.write(_packed(machine, answer, is_head=is_head))
                    await writer.drain()
            if machine.our_state is not h11.DONE or machine.their_state is not h11.DONE:
                return
            machine.start_next_cycle()

    async def _work(self, request: Request) -> Answer:
        if self._working_count >= self._limits.working_count:
            return Answer(
                HTTPStatus.SERVICE_UNAVAILABLE,
                b"the console is busy: try again\n",
                headers={"Retry-After": str(_RETRY_S)},
            )
        self._working_count += 1
        try:
            return await self._answer(request)
        except Exception as error:  # noqa: BLE001 - a bug answers one request, and is logged
            _log.error("console_failed", target=request.target[:200], exc_info=error)
            return Answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, b"the console has failed; see the log\n"
            )
        finally:
            self._working_count -= 1


async def _read_request(
    machine: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | Answer | None:
    """The next request; what to say to one that is none; None: there is none any more."""
    head: h11.Request | None = None
    body = bytearray()
    try:
        while True:
            event = machine.next_event()
            match event:
                case h11.NEED_DATA:
                    if machine.they_are_waiting_for_100_continue:
                        go_on = h11.InformationalResponse(status_code=100, headers=[])
                        writer.write(machine.send(go_on) or b"")
                    machine.receive_data(await reader.read(_CHUNK_BYTES))
                case h11.Request():
                    head = event
                case h11.Data(data=data):
                    body += data
                    if len(body) > BODY_BYTES_MAX:
                        return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"too large\n")
                case h11.EndOfMessage():
                    return None if head is None else _request(head, bytes(body))
                case _:  # closed, or paused behind a request that we did not answer
                    return None
    except h11.RemoteProtocolError as error:
        status = HTTPStatus(error.error_status_hint)
        return Answer(status, f"{status.phrase}\n".encode())


def _request(head: h11.Request, body: bytes) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(head.method.decode("ascii"), head.target.decode("latin-1"), headers, body)


def _packed(machine: h11.Connection, answer: Answer, *, is_head: bool) -> bytes:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    if answer.status is not HTTPStatus.NOT_MODIFIED:  # its length would be that of the file
        headers["Content-Length"] = str(len(answer.body))
    if machine.their_state is not h11.DONE:  # it was refused before it was read
        headers["Connection"] = "close"
    response: Any = h11.Response(
        status_code=answer.status.value,
        reason=answer.status.phrase.encode(),
        headers=list(headers.items()),
    )
    out = machine.send(response) or b""
    if not is_head:
        out += machine.send(h11.Data(data=answer.body)) or b""
    return out + (machine.send(h11.EndOfMessage()) or b"")


def _on_bug(error: BaseException) -> None:
    _log.error("console_port_failed", exc_info=error)
