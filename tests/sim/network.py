"""Simulated streams between nodes: in order each way, delayed, held up, cut, broken.

As gRPC over TCP: what was sent on a stream arrives once and in order, or not at all, and then
nothing after it does. Two streams overtake each other. While a link is cut, messages wait (TCP
sends them again); a stream that breaks loses them, and each side learns of it when it does.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from hourwheel.types import NodeId
from tests.sim.events import Events


class Side(Protocol):
    """One end's handler."""

    def on_message(self, message: Any) -> None:
        """The next message."""
        ...

    def on_end(self) -> None:
        """The stream is over; nothing more comes."""
        ...


class Host(Protocol):
    """A node, as the network sees it."""

    name: NodeId
    is_up: bool

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something in this life of the node, when it is not frozen."""
        ...

    def accept(self, stream: "Stream") -> None:
        """A stream comes in: set `stream.server`."""
        ...


class Stream:
    """A call from `client` to `server`; both ends are gone when `is_open` is false."""

    def __init__(self, network: "Network", client: Host, server: Host, handler: Side) -> None:
        self._network = network
        self.hosts = (client, server)
        self.client: Side | None = handler
        self.server: Side | None = None
        self.is_open = True
        self.is_connected = False
        self._waiting: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self._free_ms = [0.0, 0.0]

    def send_to_server(self, message: Any) -> None:
        self._send(1, message)

    def send_to_client(self, message: Any) -> None:
        self._send(0, message)

    def _send(self, to: int, message: Any) -> None:
        if self.is_open:
            self._waiting[to].append(message)
            self._schedule(to)

    def _schedule(self, to: int) -> None:
        """A message's arrival; each one schedules one delivery, whichever is next then."""
        network = self._network
        at_ms = network.events.now_ms + network.delay_ms()
        self._free_ms[to] = max(self._free_ms[to], at_ms)
        network.events.later(self._free_ms[to] - network.events.now_ms, lambda: self._arrive(to))

    def _arrive(self, to: int) -> None:
        receiver, sender = self.hosts[to], self.hosts[1 - to]
        if not self.is_open or not self._waiting[to]:
            return
        if self._network.is_cut(sender.name, receiver.name):
            self._network.hold(lambda: self._schedule(to))
            return
        receiver.later(0, lambda: self._deliver(to))

    def _deliver(self, to: int) -> None:
        if not self.is_open or not self._waiting[to]:
            return
        message = self._waiting[to].popleft()
        if to == 1 and not self.is_connected:
            self.is_connected = True
            self.hosts[1].accept(self)
        side = self.server if to == 1 else self.client
        if message is None:
            self.end()
        elif side is not None:
            side.on_message(message)

    def finish(self) -> None:
        """The client says no more: the server hears what was said, then that it is over."""
        self.client = None
        self._send(1, None)

    def end(self) -> None:
        """Break the stream: both sides learn of it, each after a while of its own."""
        if not self.is_open:
            return
        self.is_open = False
        for host, side in zip(self.hosts, (self.client, self.server), strict=True):
            if side is not None:
                host.later(self._network.delay_ms(), side.on_end)
        self.client = self.server = None


class Network:
    """All links.

    Attributes:
        delay_ms_max: of most messages; one in fifty takes ten times as long.
        loss: share of one-way calls (see `call`) that are lost.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.delay_ms_max = 4.0
        self.loss = 0.0
        self._cut: set[tuple[str, str]] = set()
        self._held: list[Callable[[], None]] = []
        self._streams: list[Stream] = []

    def delay_ms(self) -> float:
        random = self.events.random
        delay = 0.1 + random.random() * self.delay_ms_max
        return delay * 10 if random.random() < 0.02 else delay

    # -- faults

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut

    def cut(self, sender: str, receiver: str) -> None:
        """Messages this way wait from now on."""
        self._cut.add((sender, receiver))

    def isolate(self, one: str, others: tuple[str, ...]) -> None:
        """Cut all links of `one` with `others`, both ways."""
        for other in others:
            self._cut |= {(one, other), (other, one)}

    def heal(self) -> None:
        """All links are whole again; what waited goes on."""
        self._cut.clear()
        held, self._held = self._held, []
        for action in held:
            action()

    def hold(self, action: Callable[[], None]) -> None:
        self._held.append(action)

    def break_streams(self, host: str | None = None) -> None:
        """Break all streams, or those that `host` is an end of."""
        for stream in self.open_streams():
            if host is None or host in {one.name for one in stream.hosts}:
                stream.end()

    # -- use

    def open_streams(self) -> list[Stream]:
        self._streams = [one for one in self._streams if one.is_open]
        return list(self._streams)

    def open(self, client: Host, server: Host, handler: Side) -> Stream:
        """Begin a stream; its first message makes it known to the server."""
        stream = Stream(self, client, server, handler)
        self._streams.append(stream)
        return stream

    def call(self, sender: str, receiver: str, action: Callable[[], None]) -> None:
        """One message that belongs to no stream: it may be lost, and overtaken."""
        if not self.is_cut(sender, receiver) and self.events.random.random() >= self.loss:
            self.events.later(self.delay_ms(), action)
