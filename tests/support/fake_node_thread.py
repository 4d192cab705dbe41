"""The fake node for clients that block: it serves from an event loop in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from hourwheel import errors
from tests.support.fake_node import FakeNode

Result = TypeVar("Result")


class FakeNodeThread:
    """A `FakeNode` that serves until the end of the block; touch it through `do`."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-node")
        self._thread.start()
        self.node = self._run(self._start())
        self.address = self.node.address
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.node.stop())
        self._run(self._end_calls())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, change: Callable[[FakeNode], Result]) -> Result:
        """Run `change` on the node, in the node's thread; gives its result."""

        async def changed() -> Result:
            return change(self.node)

        return self._run(changed())

    def add_topic(self, topic: str, *bodies: bytes) -> None:
        self.do(lambda node: node.add_topic(topic, *bodies))

    def fail_next(self, method: str, *failures: errors.HourwheelError) -> None:
        self.do(lambda node: node.fail_next(method, *failures))

    def wait_for(self, method: str) -> None:
        """Until the node has seen a call of `method`."""
        self._run(self.node.seen(method))

    def bodies(self) -> list[bytes]:
        """Of all published messages."""
        return self.do(lambda node: [message.body for message in node.messages])

    def acked(self) -> set[bytes]:
        """Bodies of all acknowledged messages."""
        return self.do(lambda node: node.acked())

    @staticmethod
    async def _start() -> FakeNode:
        node = FakeNode()
        await node.start()
        return node

    @staticmethod
    async def _end_calls() -> None:
        """Wait for the calls that gRPC leaves behind when clients go at the same moment.

        A task that is destroyed unfinished logs a traceback wherever the garbage collector happens
        to run: in the output of another test's command.
        """
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
