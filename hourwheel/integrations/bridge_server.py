"""The bridge process: `python -m hourwheel.integrations.bridge_server FD`.

FD is a listening Unix socket. It ends when no process has been connected for a moment, and not by
the signals that end its callers: who stops a service signals all its processes at once, and what a
worker has in work is acknowledged by way of this one.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from hourwheel import errors
from hourwheel.formats.frames import Frame, cut_frames, pack
from hourwheel.integrations.bridge_cluster import Clusters
from hourwheel.integrations.bridge_session import Session

LINGER_S: Final = 2.0
"""A worker that connects anew need not wait for another one."""
START_S: Final = 30.0
"""How long to wait for the first caller."""
_CHUNK_BYTES: Final = 1 << 18
_IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """All callers of one bridge process."""

    def __init__(self) -> None:
        """No client has called."""
        self._callers: set[asyncio.Task[None]] = set()
        self._clusters = Clusters()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = asyncio.Event()

    async def serve(self, listening: socket.socket) -> None:
        """Until no client is connected."""
        server = await asyncio.start_unix_server(self._on_connection, sock=listening)
        wait_s = START_S
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._busy.wait()
            except TimeoutError:
                break
            await self._idle.wait()
            self._busy.clear()
            wait_s = LINGER_S
        server.close()

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = errors.required(asyncio.current_task(), "a caller is served by a task")
        self._callers.add(task)
        self._idle.clear()
        self._busy.set()
        try:
            await serve_caller(reader, writer, self._clusters)
        finally:
            self._callers.discard(task)
            if not self._callers:
                self._idle.set()


async def serve_caller(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clusters: Clusters
) -> None:
    """One caller, from its hello until it is gone.

    It is read whether it reads or not: a caller of one thread that sends does not read meanwhile.
    What is written to it is bounded where messages are pushed.
    """
    session: Session | None = None
    received = bytearray()
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            received += chunk
            for frame in cut_frames(received):
                if session is None:
                    session = await _open_session(frame, writer, clusters)
                else:
                    await session.serve(frame)
    except (ConnectionError, _Refused):
        return
    finally:
        if session is not None:
            await session.close()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class _Refused(Exception):
    """The caller has its answer: it cannot be served."""


async def _open_session(hello: Frame, writer: asyncio.StreamWriter, clusters: Clusters) -> Session:
    """Raises `_Refused`."""
    session: Session | None = None
    try:
        session = Session(hello.head, writer, clusters)
        await session.reach()
    except errors.HourwheelError as error:
        writer.write(pack(Frame({"n": 0, "error": type(error).__name__, "text": str(error)})))
        await writer.drain()
        if session is not None:
            await session.close()
        raise _Refused from None
    writer.write(pack(Frame({"n": 0})))
    return session


def main() -> None:
    """Serve the socket whose descriptor is the argument."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    listening = socket.socket(fileno=int(sys.argv[1]))
    path = Path(listening.getsockname())
    try:
        asyncio.run(Server().serve(listening))
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


if __name__ == "__main__":
    main()
