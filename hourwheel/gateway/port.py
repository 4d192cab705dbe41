"""The port: accepts connections, bounds them, and ends idle ones where it is full.

A connection that waits for a head (in its handshake, idle, or slow) gives way to a new one when
there are as many as there may be; the one that has waited longest first. Where there is none, one
that waits for a body does: nothing of its call has been done. One with a call under way does not:
then the new one is closed.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final

from hourwheel.errors import ConfigError, required
from hourwheel.gateway.callers import name_of
from hourwheel.gateway.exchange import Answers, Bounds, ByteBudget, Exchange, Waiting

BACKLOG: Final = 256
_ACCEPT_AGAIN_S: Final = 0.1
"""After the system had no room for another connection."""
_READ_BYTES: Final = 65_536
_SECOND_MS: Final = 1_000
_log = logging.getLogger("hourwheel.http")


class HttpPort:
    """`start` and `stop` in one event loop."""

    def __init__(
        self,
        site: Answers,
        bounds: Bounds,
        *,
        connections_max: int,
        bodies_bytes: int,
        tls: ssl.SSLContext | None,
        wall_ms: Callable[[], float],
        note_limited: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nothing listens yet.

        Args:
            site: answers.
            bounds: of each connection.
            connections_max: at one time.
            bodies_bytes: of all connections together.
            tls: None: in the clear.
            wall_ms: the time of day.
            note_limited: called with the bound that has refused or ended a connection.
        """
        self._site, self._bounds, self._tls, self._wall_ms = site, bounds, tls, wall_ms
        self._connections_max = connections_max
        self._note_limited = note_limited
        self._budget = ByteBudget(bodies_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        """Connections that are being closed; these do not count."""
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Those that wait for a head, longest first."""
        self._reading: dict[asyncio.Task[None], None] = {}
        """Those that wait for a body, longest first."""
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def connection_count(self) -> int:
        """That count."""
        return len(self._tasks)

    @property
    def body_bytes(self) -> int:
        """Being read or answered."""
        return self._budget.taken

    def change(
        self,
        bounds: Bounds,
        *,
        connections_max: int,
        bodies_bytes: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """See `__init__`. Connections that there are keep their bounds and their TLS."""
        self._bounds, self._tls = bounds, tls
        self._connections_max = connections_max
        self._budget.change(bodies_bytes)

    def start(self, host: str, port: int) -> int:
        """Listen; gives the port. Raises ConfigError: it cannot be listened on."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
        self._listener.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._listener))
        return int(self._listener.getsockname()[1])

    async def stop(self, stop_ms: int) -> None:
        """Accept no more; calls under way have `stop_ms` to end."""
        self._is_stopping = True
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close()
        for task in list(self._waiting):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=stop_ms / _SECOND_MS)
        left = self._tasks | self._ending
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:
                self._note_limited("accept")
                _log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if len(self._tasks) >= self._connections_max and not self._end_one():
                self._note_limited("connections")
                accepted.close()
                continue
            task = loop.create_task(self._serve(accepted))
            self._tasks.add(task)
            self._waiting[task] = None
            task.add_done_callback(self._on_done)
            # Accepting does not wait while others are there to be accepted. Those that are here
            # get on meanwhile, or many at once would all give way before one has been read.
            await asyncio.sleep(0)

    def _end_one(self) -> bool:
        """Whether one was found that gives way."""
        task = next(chain(self._waiting, self._reading), None)
        if task is None:
            return False
        self._note_limited("gave_way")
        self._note_waiting(task, None)
        self._tasks.discard(task)
        self._ending.add(task)
        task.cancel()
        return True

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._ending.discard(task)
        self._note_waiting(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection failed", exc_info=error)

    def _note_waiting(self, task: "asyncio.Task[None]", waiting: Waiting | None) -> None:
        """See `Exchange`."""
        self._waiting.pop(task, None)
        self._reading.pop(task, None)
        if task in self._ending or self._is_stopping:
            return
        if waiting is Waiting.HEAD:
            self._waiting[task] = None
        elif waiting is Waiting.BODY:
            self._reading[task] = None

    async def _serve(self, accepted: socket.socket) -> None:
        task = required(asyncio.current_task(), "a connection is served by a task")
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._head_s,
                ssl_shutdown_timeout=None if self._tls is None else 1.0,
            )
        except OSError:  # among them TLS that fails, and a handshake that takes too long
            self._note_limited("handshake")
            accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)

        exchange = Exchange(
            reader,
            writer,
            self._site,
            self._bounds,
            self._budget,
            wall_ms=self._wall_ms,
            note_waiting=partial(self._note_waiting, task),
            is_stopping=lambda: self._is_stopping,
        )
        exchange.certificate_name = name_of(writer.get_extra_info("peercert"))
        try:
            await exchange.run()
        except ConnectionError:
            return
        finally:
            self._tasks.discard(task)  # what it ends with is nothing that others wait for
            self._ending.add(task)
            if transport.get_write_buffer_size():
                transport.abort()  # who does not read need not be waited for
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await writer.wait_closed()

    @property
    def _head_s(self) -> float:
        return self._bounds.head_ms / _SECOND_MS
