"""A way to a node that loses bytes when a test says so, and breaks.

async with LossyProxy() as proxy:
    proxy.target = node.address
    proxy.loses_answers = True      # what the node says from now on is lost
    ...
    proxy.cut()                     # all connections break; new ones are whole again
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE_BYTES = 65_536


class LossyProxy:
    """See the top of this file."""

    def __init__(self) -> None:
        self.target = ""
        self.loses_answers = self.loses_requests = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted_count = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """End all connections; those that come are as good as any."""
        self.loses_answers = self.loses_requests = False
        for writer in self._writers:
            writer.transport.abort()

    async def wait_until_unused(self) -> None:
        """Until every connection has ended, by either side."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted_count += 1
        host, _, port = self.target.rpartition(":")
        there, onward = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, onward}
        for source, sink, is_answer in ((reader, onward, False), (there, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, is_answer=is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(OSError):
            while raw := await source.read(_PIECE_BYTES):
                if not (self.loses_answers if is_answer else self.loses_requests):
                    sink.write(raw)
                    await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)
