"""The node that is measured: a child process with its own data directory, seen from outside."""

import asyncio
import contextlib
import gc
import http.client
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.cluster_status import ShardStatus
from hourwheel.transport.channel import Channel
from node.process.subprocess_node import ChildNode
from tests.bench import machine

_SETTLE_S: Final = 120.0
_SETTLE_EACH_S: Final = 20e-6
"""For each message that is pending: runs are merged until there are few."""
_WINDOW_S: Final = 0.5
_QUIET_RATIO: Final = 0.1


class Commits(NamedTuple):
    """Group commits of a node since it started."""

    syncs: int
    sync_s: float
    batches: int


@dataclass(slots=True)
class Span:
    """What a stretch of work took. Complete when the `with` block is left."""

    seconds: float = 0.0
    node_cpu_s: float = 0.0
    client_cpu_s: float = 0.0

    @property
    def cores(self) -> str:
        """How busy both sides were, for a note."""
        node = 100 * self.node_cpu_s / self.seconds
        client = 100 * self.client_cpu_s / self.seconds
        return f"node {node:.0f} % and client {client:.0f} % of a core"


class Subject:
    """A running node and a connection to it. See `running`."""

    def __init__(self, directory: Path, values: dict[str, Any] | None = None) -> None:
        """Nothing runs yet; see `ChildNode`."""
        self.log_file = directory.with_name(directory.name + ".log")
        self.child = ChildNode(directory, values, log_file=self.log_file)
        self.channel = Channel()
        self._admin = AsyncAdmin(self.channel)

    async def start(self) -> float:
        """Start it and connect; gives the seconds until the first answer."""
        await self.channel.close()
        begun = time.perf_counter()
        await self.child.start()
        self.channel = Channel(self.child.address)
        self._admin = AsyncAdmin(self.channel)
        await self.status()
        return time.perf_counter() - begun

    async def stop(self) -> float:
        """Stop it as an operator would; gives the seconds."""
        await self.channel.close()
        begun = time.perf_counter()
        code = await self.child.stop()
        if code != 0:
            raise RuntimeError(f"the node ended with exit code {code}")
        return time.perf_counter() - begun

    async def kill(self) -> None:
        """End it as a crash would. The connection stays to be broken, until the next start."""
        await self.child.kill()

    async def end(self) -> None:
        """Leave nothing behind that runs."""
        await self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            await self.child.__aexit__(None, None, None)

    @property
    def pid(self) -> int:
        """Number of the node's process."""
        return self.child.pid

    async def status(self) -> ShardStatus:
        """Its only shard."""
        return (await self._admin.status()).shards[0]

    async def metric(self, name: str) -> float:
        """One value of /metrics, by the name it has there; the sum over its labels."""
        text = await asyncio.to_thread(_get, self.child.metrics_address)
        found = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(name) and line[len(name)] in " {"
        ]
        if not found:
            raise KeyError(name)
        return sum(found)

    async def commits(self) -> Commits:
        """Group commits so far."""
        return Commits(
            int(await self.metric("hourwheel_log_fsync_duration_seconds_count")),
            await self.metric("hourwheel_log_fsync_duration_seconds_sum"),
            int(await self.metric("hourwheel_log_group_commit_batches_sum")),
        )

    @contextlib.contextmanager
    def span(self) -> Iterator[Span]:
        """Measure what happens inside: time, and the CPU time of both sides."""
        span = Span()
        node, client = machine.cpu_seconds(self.pid), time.process_time()
        begun = time.perf_counter()
        yield span
        span.seconds = time.perf_counter() - begun
        span.client_cpu_s = time.process_time() - client
        span.node_cpu_s = machine.cpu_seconds(self.pid) - node

    async def settle(self) -> float:
        """Wait until background work is over: the node is quiet. Gives the seconds.

        Raises:
            TimeoutError: it is not after two minutes, and some for very many messages.
        """
        begun = time.perf_counter()
        pending_count = (await self.status()).pending_count
        async with asyncio.timeout(_SETTLE_S + _SETTLE_EACH_S * pending_count):
            quiet = 0
            while quiet < 2:
                with self.span() as span:
                    await asyncio.sleep(_WINDOW_S)
                quiet = quiet + 1 if span.node_cpu_s < _QUIET_RATIO * span.seconds else 0
        return time.perf_counter() - begun


def _get(address: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def running(directory: Path, values: dict[str, Any] | None = None) -> AsyncIterator[Subject]:
    """A serving node inside; none after it.

    A failure shows the end of the node's log.
    """
    subject = Subject(directory, values)
    try:
        await subject.start()
        yield subject
    except Exception as error:
        if subject.log_file.exists():
            error.add_note("the node's log:\n" + _tail(subject.log_file))
        raise
    finally:
        await subject.end()


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def frozen_garbage(*, is_off: bool = False) -> Iterator[None]:
    """Inside, what this process holds now is no garbage to look for; with `is_off` nothing is."""
    was_frozen = gc.get_freeze_count() > 0  # pytest has frozen its collected tests
    gc.collect()
    gc.freeze()
    if is_off:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if not was_frozen:
            gc.unfreeze()
