"""The broker's end of the link to the control process beside it.

    client = ControlClient(path, on_state=..., on_lost=...)
    await client.start(Hello(node_id, boot_id))
    result = await client.propose(put_topic=pb.PutObjectCommand(...))
    client.report([ShardReport(...)])

If the control process is gone or silent the broker is alone: it must give up what it holds as
master. `is_connected` says so at once, `on_lost` is called once, and nothing reconnects: start
another client.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hourwheel import errors
from hourwheel.clock import Clock, SystemClock
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NO_NODE, NodeId
from replication.control.broker_link import LINK_VERSION, TO_BROKER_BYTES_MAX
from replication.control_state.commands import make_command
from replication.control_state.state import ControlState
from replication.control_state.state_change import state_after
from replication.raft.frames import pack_frame, read_frame

_PING_S = 0.2
_ANSWER_MARGIN_S = 0.5
"""How much longer than the control process the client waits for an answer."""

_log = logging.getLogger(__name__)


class Hello(NamedTuple):
    """Which broker this is."""

    node_id: NodeId
    boot_id: bytes
    """16 random bytes, new with each start."""


class Leader(NamedTuple):
    """Who leads the Raft group, as the control process knows it. No permission for anything."""

    node_id: NodeId = NO_NODE
    term: int = 0
    has_majority: bool = False


class ControlClient:
    """See the top of this file. On one event loop.

    Attributes:
        state: the latest that is known; empty before `start` returns.
        leader: of Raft.
        reports: node id -> the last that another node's control process said of its broker.
        heard_ms: node id -> when that came, by the monotonic clock.
        ping: the control process's last one: how its Raft thread does.
    """

    def __init__(
        self,
        socket_path: str | Path,
        *,
        on_state: Callable[[ControlState], None] | None = None,
        on_leader: Callable[[Leader], None] | None = None,
        on_report: Callable[[link.NodeReport], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        control_timeout_ms: float = 1_000.0,
        answer_margin_s: float = _ANSWER_MARGIN_S,
        clock: Clock | None = None,
    ) -> None:
        """Not connected yet.

        Args:
            socket_path: of the control process.
            on_state: called with each new state.
            on_leader: called with each change of Raft's leader.
            on_report: called with each report of another node.
            on_lost: called once, when the control process is gone or silent.
            control_timeout_ms: how long it may be silent.
            answer_margin_s: how much longer than it the client waits for an answer.
            clock: for that.
        """
        self.state = ControlState()
        self.leader = Leader()
        self.reports: dict[NodeId, link.NodeReport] = {}
        self.heard_ms: dict[NodeId, float] = {}
        self.ping = link.LinkPing()
        self._path = Path(socket_path)
        self._answer_margin_s = answer_margin_s
        self._on_state = on_state
        self._on_leader = on_leader
        self._on_report = on_report
        self._on_lost = on_lost
        self._timeout_ms = control_timeout_ms
        self._clock = clock or SystemClock()
        self._hello = Hello(NO_NODE, b"")
        self._writer: asyncio.StreamWriter | None = None
        self._heard_ms = 0.0
        self._calls: dict[int, asyncio.Future[link.LinkAnswer]] = {}
        self._next_call = 1
        self._tasks: list[asyncio.Task[None]] = []
        self._is_welcome = asyncio.Event()
        self._is_lost = False

    # --- life

    async def start(self, hello: Hello, *, timeout_s: float = 10.0) -> None:
        """Connect and wait for the first state. The control process may still be starting.

        Raises:
            Unavailable: there is none in time.
        """
        self._hello = hello
        try:
            async with asyncio.timeout(timeout_s):
                reader = await self._connect()
                self._send(
                    link.BrokerFrame(
                        hello=link.LinkHello(
                            version=LINK_VERSION, node_id=hello.node_id, boot_id=hello.boot_id
                        )
                    )
                )
                self._heard_ms = self._clock.monotonic_ms()
                self._tasks = [
                    asyncio.ensure_future(self._receive(reader)),
                    asyncio.ensure_future(self._ping()),
                ]
                await self._is_welcome.wait()
        except TimeoutError as error:
            self._lose()
            raise errors.Unavailable("the control process does not answer") from error
        if self._is_lost:
            raise errors.Unavailable("the control process refuses this broker")

    async def _connect(self) -> asyncio.StreamReader:
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                await asyncio.sleep(_PING_S / 4)
            else:
                return reader

    async def close(self) -> None:
        """Leave; the control process reports this broker gone at once."""
        self._on_lost = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lose()

    @property
    def is_connected(self) -> bool:
        """Whether the control process was heard of lately."""
        return (
            self._writer is not None
            and not self._is_lost
            and self._clock.monotonic_ms() - self._heard_ms < self._timeout_ms
        )

    @property
    def leader_node_id(self) -> NodeId:
        """Who leads Raft; empty: none is known."""
        return self.leader.node_id

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if self._writer is not None:
            self._writer.transport.abort()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(errors.Timeout("the control process is gone"))
        self._is_welcome.set()
        if self._on_lost is not None:
            self._on_lost()

    # --- talking

    def _send(self, frame: link.BrokerFrame) -> None:
        if self._writer is not None and not self._is_lost:
            self._writer.write(pack_frame(frame.SerializeToString()))

    async def _ping(self) -> None:
        while not self._is_lost:
            self._send(link.BrokerFrame(ping=link.LinkPing()))
            begun_ms = self._clock.monotonic_ms()
            await asyncio.sleep(_PING_S)
            now_ms = self._clock.monotonic_ms()
            if now_ms - begun_ms > self._timeout_ms / 2 or not self._is_welcome.is_set():
                # This process was the silent one: what the other said meanwhile lies unread. Or the
                # other is starting still: `start` says how long that may take.
                self._heard_ms = now_ms
            if not self.is_connected:
                _log.warning("control_process_silent")
                self._lose()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                raw = await read_frame(reader, TO_BROKER_BYTES_MAX)
                self._heard_ms = self._clock.monotonic_ms()
                self._take(link.ControlFrame.FromString(raw))
        except (OSError, EOFError):
            _log.warning("control_process_lost")
        except Exception:  # noqa: BLE001 - a bug: it must not look like the end of the process
            _log.exception("control_handler_failed")
        finally:
            self._lose()

    def _take(self, frame: link.ControlFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "state":
            self.state = state_after(self.state, frame.state)
            self._is_welcome.set()
            if self._on_state is not None:
                self._on_state(self.state)
        elif kind == "ping":
            self.ping = frame.ping
        elif kind == "leader":
            said = frame.leader
            self.leader = Leader(NodeId(said.leader_node_id), said.term, said.has_majority)
            if self._on_leader is not None:
                self._on_leader(self.leader)
        elif kind == "reports":
            for report in frame.reports.reports:
                self.reports[NodeId(report.node_id)] = report
                self.heard_ms[NodeId(report.node_id)] = self._clock.monotonic_ms()
                if self._on_report is not None:
                    self._on_report(report)
        elif kind == "answer":
            call = self._calls.pop(frame.answer.call_id, None)
            if call is not None and not call.done():
                call.set_result(frame.answer)

    def report(self, shards: Iterable[link.ShardReport]) -> None:
        """Say how the shards are: ten times a second, and when something changes."""
        self._send(
            link.BrokerFrame(
                report=link.NodeReport(
                    node_id=self._hello.node_id,
                    boot_id=self._hello.boot_id,
                    broker_alive=True,
                    shards=shards,
                )
            )
        )

    def partition(self, blocked_in: Iterable[NodeId], blocked_out: Iterable[NodeId]) -> None:
        """Tests: lose frames from and to these nodes' control processes, from now on."""
        self._send(
            link.BrokerFrame(
                partition=link.LinkPartition(blocked_in=blocked_in, blocked_out=blocked_out)
            )
        )

    async def propose(
        self, *, timeout_s: float = 5.0, request_id: bytes | None = None, **command: Any
    ) -> pb.ControlResult:
        """Have a command applied. One argument, named as its field in ControlCommand.

        Args:
            timeout_s: after that the outcome is unknown.
            request_id: of an earlier try whose outcome was unknown.
            command: such as `elect_master=ElectMasterCommand(...)`.

        Raises:
            Unavailable: it was not applied and never will be.
            Timeout: it is unknown. Try again with the request id, `error.params["request_id"]`.
        """
        return await self.propose_command(
            make_command(request_id or os.urandom(16), **command), timeout_s
        )

    async def propose_command(
        self, command: pb.ControlCommand, timeout_s: float
    ) -> pb.ControlResult:
        """As `propose`, of a whole command."""
        if not self.is_connected:
            raise errors.Unavailable("there is no control process")
        call_id, self._next_call = self._next_call, self._next_call + 1
        call: asyncio.Future[link.LinkAnswer] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = call
        self._send(
            link.BrokerFrame(
                proposal=link.LinkProposal(
                    call_id=call_id,
                    command=command.SerializeToString(deterministic=True),
                    timeout_ms=int(timeout_s * 1_000),
                )
            )
        )
        tried = {"request_id": command.request_id.hex()}
        try:
            async with asyncio.timeout(timeout_s + self._answer_margin_s):
                answer = await call
        except (TimeoutError, errors.Timeout) as error:
            raise errors.Timeout("the control plane did not answer in time", **tried) from error
        finally:
            self._calls.pop(call_id, None)
        if answer.error_reason:
            kind: Mapping[str, type[errors.HourwheelError]] = errors.BY_REASON
            raise kind.get(answer.error_reason, errors.Unavailable)(answer.error_message, **tried)
        return answer.result
