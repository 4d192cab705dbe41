"""What the demo plays on: one node, or three of which the master is killed in the middle.

async with stage:                    # everything runs
    stage.servers                    # for clients
    await stage.watch()              # ends only when a node does that should run
    await stage.disturb(player, ...) # what happens to it while the demo plays
    await stage.settle()             # what is wrong when all has been played; [] if nothing
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from hourwheel import errors
from hourwheel.client.cluster_status import ClusterStatus, ShardStatus
from hourwheel.client.node_probe import NodeProbe
from hourwheel.clock import SystemClock
from hourwheel.types import Epoch
from node.process.subprocess_node import ChildNode
from node.tools.demo.ledger import Failover
from node.tools.local_cluster.nodes import LocalCluster

_KILL_SHARE: Final = 0.4
"""Part of the playing time after which the master is killed: most orders are under way then."""
_DOWN_SHARE: Final = 0.1
"""And for so long it stays away."""
_POLL_S: Final = 0.02
AGREE_S: Final = 20.0
_STATUS_MS: Final = 5_000.0


class Playing(Protocol):
    """What is read of node/tools/demo/player.py."""

    @property
    def elapsed_ms(self) -> float:
        """Since the trace began."""
        ...

    @property
    def now_ms(self) -> float:
        """Since the Unix epoch."""
        ...


class OneNode:
    """A single node; nothing happens to it."""

    def __init__(self, directory: Path, log_directory: Path, values: Mapping[str, Any]) -> None:
        """Nothing runs yet."""
        self.log_files: Sequence[Path] = (log_directory / "node.log",)
        self.data_directory = directory
        self._node = ChildNode(directory, values, log_file=self.log_files[0])
        self.killed_ms: float | None = None
        """When the master was killed, as the player notes arrivals; None: it was not."""

    async def __aenter__(self) -> Self:
        """Start. Raises Unavailable."""
        await self._node.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._node.stop()

    @property
    def servers(self) -> str:
        """For clients."""
        return self._node.address

    @property
    def metrics_addresses(self) -> list[str]:
        """Of the nodes that run."""
        return [self._node.metrics_address]

    @property
    def summary(self) -> str:
        """What runs, in words."""
        return f"a node in process {self._node.pid} serves on {self.servers}"

    async def watch(self) -> None:
        """Raises Unavailable when the node ends."""
        code = await self._node.failed()
        raise errors.Unavailable(f"the node ended with exit code {code}")

    async def disturb(
        self, _player: Playing, _end_ms: int, _say: Callable[[str], None]
    ) -> Failover | None:
        """Nothing."""
        return None

    async def settle(self) -> tuple[ClusterStatus, list[str]]:
        """(what the node says, nothing wrong)."""
        probe = NodeProbe(self.servers)
        try:
            return await probe.status(_STATUS_MS), []
        finally:
            await probe.close()


class SeveralNodes:
    """A cluster of three or more. Its master is killed, and started again."""

    def __init__(self, directory: Path, count: int, values: Mapping[str, Any]) -> None:
        """Nothing runs yet. Raises ConfigError."""
        self._cluster = LocalCluster(directory, count, values=values)
        self.log_files: Sequence[Path] = [node.log_file for node in self._cluster.nodes]
        self.data_directory = self._cluster.nodes[0].config.node.data_directory
        self.killed_ms: float | None = None
        self._clock = SystemClock()

    async def __aenter__(self) -> Self:
        """Start, and wait for a master. Raises Unavailable."""
        await self._cluster.start()
        try:
            await self._cluster.wait_for_master(in_sync=len(self._cluster.nodes))
        except BaseException:
            await self._cluster.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self._cluster.stop()

    @property
    def servers(self) -> str:
        """For clients."""
        return self._cluster.servers

    @property
    def metrics_addresses(self) -> list[str]:
        """Of the nodes that run."""
        return [node.metrics_address for node in self._cluster.nodes if node.is_running]

    @property
    def summary(self) -> str:
        """What runs, in words."""
        return f"{len(self._cluster.nodes)} nodes, each in a process of its own: {self.servers}"

    async def watch(self) -> None:
        """Raises Unavailable when a node ends that was not killed on purpose."""
        await self._cluster.watch()

    async def disturb(
        self, player: Playing, end_ms: int, say: Callable[[str], None]
    ) -> Failover | None:
        """Kill the master in the middle of the play, and start it again.

        Args:
            player: which plays.
            end_ms: when it is done, since the trace began.
            say: called with what happens.

        Returns:
            What happened; the gap is still to be filled in, from the books.

        Raises:
            Unavailable: no node took over, or the node did not start again.
        """
        cluster, names = self._cluster, [node.node_id for node in self._cluster.nodes]
        await _until(player, end_ms * _KILL_SHARE)
        # A busy machine may answer one question too late: ask until a master answers.
        victim, before = await cluster.wait_for_shard()
        await cluster.kill_node(victim)
        self.killed_ms = player.now_ms
        say(f"kill -9 {names[victim]}, which was the master")
        next_master, shard = await cluster.wait_for_shard(epoch_above=before.epoch)
        say(f"{names[next_master]} is the master now, in epoch {shard.epoch}")
        await _until(player, end_ms * (_KILL_SHARE + _DOWN_SHARE))
        begun_ms = self._clock.monotonic_ms()
        await cluster.start_node(victim)
        await cluster.wait_for_master(in_sync=len(cluster.nodes))
        in_sync_ms = self._clock.monotonic_ms() - begun_ms
        say(f"{names[victim]} was started again, and is in sync")
        return Failover(
            names[victim], names[next_master], Epoch(shard.epoch), 0.0, round(in_sync_ms, 1)
        )

    async def settle(self) -> tuple[ClusterStatus, list[str]]:
        """(what the master says, where others do not say the same of what was applied)."""
        count = len(self._cluster.nodes)
        answers: list[ClusterStatus] = []
        try:
            async with asyncio.timeout(AGREE_S):
                while len({one.shards[0].applied_offset for one in answers}) != 1:
                    await asyncio.sleep(_POLL_S)
                    answers = [
                        await self._cluster.status_of(index, _STATUS_MS) for index in range(count)
                    ]
        except TimeoutError:
            return answers[0], [f"the nodes have not applied the same within {AGREE_S:g} s"]
        leading = next((one for one in answers if one.shards[0].may_act), answers[0])
        right = _counts(leading.shards[0])
        return leading, [
            f"{one.answered_by} counts {_counts(one.shards[0])}, and the master {right}"
            for one in answers
            if _counts(one.shards[0]) != right
        ]


Stage = OneNode | SeveralNodes


def _counts(shard: ShardStatus) -> dict[str, int]:
    return {
        "published": shard.published_count,
        "released": shard.released_count,
        "cancelled": shard.cancelled_count,
        "pending": shard.pending_count,
    }


async def _until(player: Playing, elapsed_ms: float) -> None:
    while player.elapsed_ms < elapsed_ms:  # noqa: ASYNC110 - it depends on time
        await asyncio.sleep(_POLL_S)
