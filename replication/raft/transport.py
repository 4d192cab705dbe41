"""What PySyncObj sends and receives through: journal first, our codec, nothing else.

`DurableTransport` is what every transport of ours shares, also that of the tests, which has no
network: before any message leaves, whatever the journal got is made durable. An acknowledgement, a
vote, an entry that others may count: none is out before it is on this node's disk. Where the disk
has no room for it, the message does not leave: for the others it is lost on its way.

`NetworkTransport` adds the way between two threads. Sockets live on the event loop
(`replication.raft.peers`); PySyncObj lives in the tick thread, and takes what has come in when the
pipe in its poller says so.
"""

import os
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from hourwheel import errors
from hourwheel.types import NodeId
from replication.raft.codec import FRAME_BYTES_MAX, Message, encode
from replication.raft.journal import RaftJournal
from replication.raft.pysyncobj_surface import POLL_EVENT_TYPE, Node, Transport

_INBOX_COUNT_MAX: Final = 10_000
"""Messages of peers that wait for a tick. Behind that they are lost; Raft sends again."""


class DurableTransport(Transport):  # type: ignore[misc]
    """See the top of this file. The tick thread only."""

    def __init__(self, journal: RaftJournal, peer_ids: Iterable[NodeId]) -> None:
        """No peer is connected."""
        super().__init__(None, None, [])
        self.peers: dict[NodeId, Any] = {peer_id: Node(peer_id) for peer_id in sorted(peer_ids)}
        self._journal = journal
        self.withheld_count = 0
        """Messages that did not leave because the disk had no room."""

    def send(self, node: Any, message: Message) -> bool:
        """Sync the journal, then send. False: not sent, for want of a connection or of room."""
        try:
            self._journal.sync()
        except errors.DiskFull:
            self.withheld_count += 1
            return False
        raw = encode(message).SerializeToString()
        errors.invariant(len(raw) <= FRAME_BYTES_MAX, "a frame is bounded", bytes=len(raw))
        return self.send_frame(node.id, raw)

    def send_frame(self, peer_id: NodeId, raw: bytes) -> bool:
        """Hand over an encoded PeerFrame."""
        raise NotImplementedError

    def received(self, peer_id: NodeId, message: Message) -> None:
        """A message has come, decoded."""
        self._onMessageReceived(self.peers[peer_id], message)

    def connected(self, peer_id: NodeId) -> None:
        """The way to a peer is open."""
        self._onNodeConnected(self.peers[peer_id])

    def disconnected(self, peer_id: NodeId) -> None:
        """It is closed. A snapshot that was under way begins again."""
        self._journal.snapshot_file.cancelTransmisstion(self.peers[peer_id])
        self._onNodeDisconnected(self.peers[peer_id])

    def destroy(self) -> None:
        """The end, for PySyncObj."""
        self.setOnMessageReceivedCallback(None)
        self.setOnNodeConnectedCallback(None)
        self.setOnNodeDisconnectedCallback(None)


class Poller(Protocol):
    """PySyncObj's, as far as it is used."""

    def subscribe(self, descr: int, callback: Any, eventMask: int) -> None:  # noqa: N803
        """Call back when a file descriptor is ready."""

    def unsubscribe(self, descr: int) -> None:
        """No more."""


class Outgoing(Protocol):
    """Where frames go: `replication.raft.peers.PeerNetwork`."""

    def send_threadsafe(self, peer_id: NodeId, raw: bytes) -> bool:
        """Send from any thread. False: not connected."""
        ...


class NetworkTransport(DurableTransport):
    """See the top of this file. `put` from any thread, the rest in the tick thread."""

    def __init__(
        self,
        journal: RaftJournal,
        peer_ids: Iterable[NodeId],
        network: Outgoing,
        *,
        inbox_count_max: int = _INBOX_COUNT_MAX,
    ) -> None:
        """No peer is connected. `inbox_count_max`: see `_INBOX_COUNT_MAX`."""
        super().__init__(journal, peer_ids)
        self._inbox_count_max = inbox_count_max
        self.lost_count = 0
        self._network = network
        self._inbox: deque[tuple[NodeId, Message | bool]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller: Poller | None = None
        self._is_destroyed = False

    def attach(self, poller: Poller) -> None:
        """Be drained whenever the poller is asked."""
        self._poller = poller
        poller.subscribe(self._wake_read, self._on_wake, POLL_EVENT_TYPE.READ)

    def put(self, peer_id: NodeId, what: Message | bool) -> None:  # noqa: FBT001
        """Something has come from a peer: a message, or its connection (True), or its end."""
        if self._is_destroyed:
            return
        if len(self._inbox) >= self._inbox_count_max and not isinstance(what, bool):
            self.lost_count += 1
            return
        self._inbox.append((peer_id, what))
        self.wake()

    def wake(self) -> None:
        """Let the tick thread look."""
        try:
            os.write(self._wake_write, b"w")
        except BlockingIOError:
            return  # it is awake as many times already

    def _on_wake(self, descr: int, _: int) -> None:
        try:
            while os.read(descr, 4_096):
                pass
        except BlockingIOError:
            self.drain()

    def drain(self) -> None:
        """Hand everything that has come to PySyncObj."""
        while self._inbox:
            peer_id, what = self._inbox.popleft()
            if what is True:
                self.connected(peer_id)
            elif what is False:
                self.disconnected(peer_id)
            else:
                self.received(peer_id, what)

    def send_frame(self, peer_id: NodeId, raw: bytes) -> bool:
        """See DurableTransport."""
        return self._network.send_threadsafe(peer_id, raw)

    def destroy(self) -> None:
        """See DurableTransport."""
        super().destroy()
        self._is_destroyed = True
        if self._poller is not None:
            self._poller.unsubscribe(self._wake_read)

    def close(self) -> None:
        """Let go of the pipe, when no thread uses this any more."""
        os.close(self._wake_read)
        os.close(self._wake_write)
