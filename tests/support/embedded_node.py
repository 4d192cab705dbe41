"""A real node inside the test's process and event loop.

    async with EmbeddedNode(directory) as node:
        channel = grpc.aio.insecure_channel(node.address)

It listens on a free port of the loopback interface. What is to be killed belongs into a process of
its own: node/process/subprocess_node.py.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hourwheel.clock import Clock
from node.process.app import Node
from node.process.loopback_config import config_for


class EmbeddedNode:
    """An async context manager: a serving node inside, a stopped one after it."""

    def __init__(
        self,
        directory: Path,
        values: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`directory` is made if need be; `values` as in `config_for`; `clock`: the machine's."""
        self.config = config_for(directory, values)
        self.node = Node(self.config, clock)

    @property
    def address(self) -> str:
        """Where clients reach it, host:port."""
        return self.node.address

    @property
    def metrics_address(self) -> str:
        """host:port of /metrics."""
        return self.node.metrics_address

    @property
    def console_address(self) -> str:
        """host:port of the console; empty for none."""
        return self.node.console_address

    async def __aenter__(self) -> Self:
        """Start. Raises as `Node.start`."""
        await self.node.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; calls in flight are cut short when the body failed.

        Raises:
            HourwheelError: the node could not go on meanwhile, and the body did not fail.
        """
        await self.node.stop(grace_ms=0 if kind else None)
        found = self.node.failure.found
        if kind is None and found.done():
            raise found.result()
