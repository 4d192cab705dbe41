"""The two ends of a replication stream, as the shell drives a `Replica` through them.

What node/replicating.py does with gRPC and tasks, without either.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from hourwheel import errors
from hourwheel.errors import NotFollowed
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    FollowerAck,
    FollowerHello,
    LeaseTable,
    LogPart,
    MasterHello,
    Refused,
    SyncBeat,
)
from hourwheel.types import Epoch, NodeId
from replication.rules.follower import FollowerPhase
from tests.sim.network import Stream

if TYPE_CHECKING:
    from tests.sim.cluster_node import SimNode

BEAT_MS: Final = 50.0
RETRY_MS: Final = 50.0
SILENCE_MS: Final = 1_000.0
"""A stream on which nothing comes for so long is broken off."""


class MasterSide:
    """The master's end: says hello, then sends the log and beats."""

    def __init__(self, node: "SimNode", follower: NodeId, epoch: Epoch) -> None:
        self._node, self._follower, self._epoch = node, follower, epoch
        self._heard_ms = node.monotonic_ms()
        self._is_over = False
        self._is_begun = False
        self._stream = node.cluster.network.open(node, node.cluster.nodes[follower], self)
        self._stream.send_to_server(node.replica.on_connected(follower))
        node.later(BEAT_MS, self._beat)

    @property
    def _is_reigning(self) -> bool:
        master = self._node.replica.rules
        return not self._is_over and master is not None and master.start.epoch == self._epoch

    def on_message(self, message: Any) -> None:
        node, replica = self._node, self._node.replica
        if not self._is_reigning:
            return
        self._heard_ms = node.monotonic_ms()
        if isinstance(message, FollowerHello):
            begin = replica.answer_hello(self._follower, message)
            self._stream.send_to_server(begin)
            self._is_begun = True
            if begin.take_snapshot:
                node.cluster.on_snapshot_asked(node, self._follower, message)
            self.pump()
        elif isinstance(message, FollowerAck):
            replica.on_ack(self._follower, message, node.monotonic_ms(), node.clock.exact_ms())
            node.act()
            self.pump()
        elif isinstance(message, Refused):
            replica.on_refused(message)
            node.act()  # where the epoch is over, its last word is said on this very stream
            self._over(max(RETRY_MS, float(message.wait_ms)))

    def on_end(self) -> None:
        self._over(RETRY_MS)

    def pump(self) -> None:
        """Send what there is."""
        while self._is_reigning and self._is_begun:
            try:
                part = self._node.replica.find_part(self._follower)
            except errors.CorruptLog as error:
                self._node.damage.on_log_damage(int(error.params["offset"]))
                self._stream.end()
                self._over(RETRY_MS)
                return
            if part is None:
                return
            self._stream.send_to_server(part)

    def _beat(self) -> None:
        node = self._node
        if not self._is_reigning:
            return
        if node.monotonic_ms() - self._heard_ms > SILENCE_MS:
            self._stream.end()
            self._over(RETRY_MS)
            return
        if not node.cluster.nodes[self._follower].is_up and node.cluster.is_refusing:
            self._stream.end()
            self._over(RETRY_MS)
            return
        node.later(BEAT_MS, self._beat)
        if self._is_begun:
            beat = node.replica.make_heartbeat(node.monotonic_ms(), node.cluster_ms())
            self._stream.send_to_server(beat)
            self.pump()

    def _over(self, retry_ms: float) -> None:
        """The stream is over: tell the rules, and try again while the epoch lasts."""
        if self._is_over:
            return
        is_reigning = self._is_reigning
        self.close()
        node, master = self._node, self._node.replica.rules
        if is_reigning and master is not None:
            master.on_lost(self._follower, node.monotonic_ms())
            if not node.cluster.nodes[self._follower].is_up:
                master.on_unreachable(self._follower)
            node.later(retry_ms, lambda: node.dial(self._follower, self._epoch))

    def say_last(self, leases: LeaseTable, last_heartbeat: SyncBeat) -> None:
        """The epoch is over: say so, and end the stream."""
        if self._is_over or not self._is_begun:
            self.close()
            return
        self._is_over = True
        self._stream.send_to_server(leases)
        self._stream.send_to_server(last_heartbeat)
        self._stream.finish()

    def close(self) -> None:
        """End the stream; nobody is to be told."""
        if self._is_over:
            return
        self._is_over = True
        self._stream.client = None
        self._stream.end()


class FollowerSide:
    """The follower's end: takes what comes, one after the other, and waits while it must."""

    def __init__(self, node: "SimNode", stream: Stream) -> None:
        self._node, self._stream = node, stream
        self._inbox: deque[Any] = deque()
        self._heard_ms = node.monotonic_ms()
        self.is_over = False
        node.later(SILENCE_MS, self._watch)

    @property
    def is_waiting(self) -> bool:
        """For quiet: until then no write and no job begins."""
        return bool(self._inbox) and not self.is_over

    def on_message(self, message: Any) -> None:
        self._heard_ms = self._node.monotonic_ms()
        self._inbox.append(message)
        self.work()

    def on_end(self) -> None:
        self.close()

    def work(self) -> None:
        """Take what came, as far as that is possible now."""
        node = self._node
        while self._inbox and not self.is_over:
            if isinstance(self._inbox[0], MasterHello | BeginFrom) and not node.is_quiet:
                return
            message = self._inbox.popleft()
            try:
                self._take(message)
            except (NotFollowed, errors.InvalidBatch) as error:
                node.cluster.events.note(f"{node.name}: ends the stream: {error}")
                self.close()
            except errors.DiskFull:
                node.make_room()
                self.close()
        node.act()

    def _take(self, message: Any) -> None:
        node, replica = self._node, self._node.replica
        if isinstance(message, MasterHello):
            answer = replica.on_hello(message, node.monotonic_ms())
            self._stream.send_to_client(answer)
            if isinstance(answer, FollowerHello):
                node.follow(self)
            else:
                self.close(is_followed=False)
        elif node.incoming is not self:
            self.close(is_followed=False)
        elif isinstance(message, BeginFrom):
            if message.take_snapshot:
                self.close()
                return
            replica.begin_following(message)
            self.acknowledge()
        else:
            self._take_more(message)

    def _take_more(self, message: Any) -> None:
        node, replica = self._node, self._node.replica
        is_final = isinstance(message, LeaseTable) or (
            isinstance(message, SyncBeat) and message.releases_lease
        )
        if replica.follower.is_superseded and not is_final:
            refused = replica.follower.refuse("a later epoch has begun")
            self._stream.send_to_client(refused)
        elif isinstance(message, LeaseTable):
            replica.on_leases(message)
        elif isinstance(message, LogPart):
            replica.on_log(message)
        elif isinstance(message, SyncBeat):
            replica.on_heartbeat(message, node.monotonic_ms())
            self.acknowledge()

    def acknowledge(self) -> None:
        """Say how far this node is."""
        node = self._node
        if not self.is_over and node.replica.follower.phase is FollowerPhase.FOLLOWING:
            clock_ms = node.clock.exact_ms()
            self._stream.send_to_client(node.replica.acknowledge(node.monotonic_ms(), clock_ms))

    def _watch(self) -> None:
        if self.is_over:
            return
        if self._node.monotonic_ms() - self._heard_ms > SILENCE_MS:
            self.close()
            return
        self._node.later(SILENCE_MS / 4, self._watch)

    def close(self, *, is_followed: bool = True) -> None:
        """The stream is over."""
        if self.is_over:
            return
        self.is_over = True
        if is_followed and self._node.incoming is self:
            self._node.incoming = None
            self._node.replica.follower.end()
        self._stream.end()
