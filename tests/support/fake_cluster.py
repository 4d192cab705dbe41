"""Several fake nodes that keep the same messages; one of them is the master, the others redirect.

    async with FakeCluster(3) as cluster:
        await cluster.nodes[0].stop()                     the master dies
        cluster.promote(cluster.nodes[1])                 another one takes over
        cluster.depose()                                  there is none, and nobody knows of one

A call to another node than the master is refused with `NotMaster`, which names the master and the
epoch; so do polls that wait at a node when it is deposed.
"""

from collections import Counter
from typing import Any, Self

from hourwheel import errors
from hourwheel.transport.channel import Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.transport.retry import Backoff
from hourwheel.types import Epoch, NodeId
from tests.support.fake_broker import EPOCH
from tests.support.fake_node import FakeNode

__all__ = ["FakeCluster", "Member", "channel_to"]


class Member(FakeNode):
    """One node of a cluster."""

    def __init__(self, cluster: "FakeCluster", node_id: NodeId) -> None:
        super().__init__()
        self._cluster = cluster
        self.node_id = node_id

    @property
    def epoch(self) -> Epoch:
        return Epoch(self._cluster.epoch)

    def nodes(self) -> list[tuple[str, str]]:
        others = [node for node in self._cluster.nodes if node is not self._cluster.master]
        first = self._cluster.master
        master = (first.node_id, first.address) if first else ("", "")
        return [master, *((node.node_id, node.address) for node in others)]

    def refusal(self) -> errors.NotMaster | None:
        cluster = self._cluster
        if cluster.master is self:
            return None
        hints: dict[str, Any] = {}
        if cluster.master is not None and cluster.are_hints_given:
            hints = {"master_address": cluster.master.address, "epoch": cluster.epoch}
        return errors.NotMaster(**hints)


class FakeCluster:
    """See the top of this file."""

    def __init__(self, count: int = 3) -> None:
        self.nodes = [Member(self, NodeId(f"n{number}")) for number in range(1, count + 1)]
        self.master: Member | None = self.nodes[0]
        self.epoch = EPOCH
        self.are_hints_given = True
        for node in self.nodes[1:]:
            node.share(self.nodes[0])

    @property
    def servers(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(node.address for node in self.nodes)

    @property
    def bodies(self) -> list[bytes]:
        """Of all published messages."""
        return [message.body for message in self.nodes[0].messages]

    @property
    def repeated(self) -> list[bytes]:
        """Bodies that were published more than once."""
        return [body for body, count in Counter(self.bodies).items() if count > 1]

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await node.stop()

    def promote(self, node: Member) -> None:
        """Make `node` the master, in a new epoch."""
        self.master = node
        self.epoch = Epoch(self.epoch + 1)
        for each in self.nodes:
            each.wake()

    def depose(self) -> None:
        """There is no master now."""
        self.master = None
        for each in self.nodes:
            each.wake()

    def count(self, method: str) -> list[int]:
        """How many calls of `method` each node saw."""
        return [len(node.calls[method]) for node in self.nodes]


def channel_to(servers: Servers, **settings: Any) -> Channel:
    """A channel that begins with the first of `servers`."""
    channel = Channel(servers, backoff=Backoff(ms_min=1.0, ms_max=5.0), **settings)
    channel.random = lambda: 0.0
    return channel
