import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hourwheel.integrations.bridge import Bridge, Target
from hourwheel.integrations.bridge_cluster import Clusters
from hourwheel.integrations.bridge_server import serve_caller
from tests.support.fake_node import FakeNode

Run = Callable[[Callable[[], Any]], Any]


class LocalBridge:
    """A bridge process on the loop of the test: as a process of its own, seen by its callers."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clusters = Clusters()

    @property
    def target(self) -> Target:
        return Target(self.node.address, invisible_ms=30_000)

    def open_bridge(self, target: Target) -> Bridge:
        """In another thread than the loop's."""
        ours, its = socket.socketpair()
        asyncio.run_coroutine_threadsafe(self.serve(its), self._loop).result()
        return Bridge(target, ours)

    async def serve(self, its: socket.socket) -> None:
        """Whoever has the other end."""
        reader, writer = await asyncio.open_unix_connection(sock=its)
        self._tasks.add(asyncio.create_task(serve_caller(reader, writer, self._clusters)))

    async def done(self) -> None:
        """Wait for the end of all that callers have left behind."""
        await asyncio.gather(*self._tasks)


@pytest.fixture
async def local(node: FakeNode) -> AsyncIterator[LocalBridge]:
    found = LocalBridge(node)
    yield found
    await found.done()
