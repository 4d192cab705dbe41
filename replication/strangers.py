"""Connections whose peers have not proved yet who they are: few at a time, and each for a time.

Any caller can fill a listener that waits for every caller. So only a number of strangers has a
place, TLS handshakes included, and the next one takes the place of the one that has been there
longest: a slow one gives way, and one that proves itself in time gets in.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

_ACCEPT_RETRY_S: Final = 0.1
_LINE_BYTES_MAX: Final = 64 * 1024
_TCP: Final = (socket.AF_INET, socket.AF_INET6)


class Places:
    """A number of tasks; who comes above it takes the place of who has been there longest."""

    def __init__(self, count: int, on_removed: Callable[[], None] = lambda: None) -> None:
        """`on_removed` is called for each that has to go, and is cancelled."""
        self._count, self._on_removed = count, on_removed
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @contextmanager
    def one(self) -> Iterator[None]:
        """For the task that asks, until it leaves or is cancelled."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if len(self._tasks) >= self._count:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
            self._on_removed()
        self._tasks[task] = None
        try:
            yield
        finally:
            self._tasks.pop(task, None)


class Listener:
    """Accepts connections and serves each in a task. On one event loop.

    `asyncio.start_server` is not used: TLS handshakes are out of its user's sight, and connections
    that it has accepted when it is closed stay open.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], Coroutine[Any, Any, None]],
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """Does nothing before `accept`.

        Args:
            serve: serves a connection to its end; the socket is closed behind it.
            on_bug: called with what `serve` raises.
        """
        self._serve, self._on_bug = serve, on_bug
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}

    async def accept(self, listening: socket.socket) -> None:
        """For ever, until cancelled. The socket is not closed."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            # Not `sock_accept`: cancelled at the wrong moment it loses what it has accepted.
            await _readable(loop, listening)
            try:
                connection, _ = listening.accept()
            except BlockingIOError:  # the caller is gone again
                continue
            except OSError:  # the process has no descriptors left
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            connection.setblocking(False)
            if connection.family in _TCP:
                # asyncio does this for sockets of its own making only. Else the second of two small
                # messages waits for the acknowledgement of the first, which comes 40 ms late.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.ensure_future(self._serve(connection))
            self._tasks[task] = connection
            task.add_done_callback(self._is_served)

    def _is_served(self, task: asyncio.Task[None]) -> None:
        # Also what was cancelled before it began.
        self._tasks.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)

    async def close(self) -> None:
        """Cut everybody off."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # their sockets are closed


async def _readable(loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
    """Wait until somebody has connected."""
    is_readable = asyncio.Event()
    loop.add_reader(listening, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(listening)


async def open_streams(
    connection: socket.socket,
    tls: ssl.SSLContext | None = None,
    line_bytes_max: int = _LINE_BYTES_MAX,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Reader and writer of an accepted connection, after the handshake where there is TLS.

    Raises:
        OSError: the handshake failed, or the connection ended.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=line_bytes_max)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
