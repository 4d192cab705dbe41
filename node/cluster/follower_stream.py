"""A master's stream to one follower: connect, agree where the logs part, send log and heartbeats.

One task a follower, for as long as the mastership lasts; a stream that breaks is opened again.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc

from hourwheel import errors
from hourwheel.errors import NotFollowed
from hourwheel.internal.v1.replication_pb2 import (
    LeaseTable,
    ReplicateRequest,
    ReplicateResponse,
    SyncBeat,
)
from hourwheel.types import NodeId
from node.cluster.cluster_time import ClusterTime
from node.cluster.peer_links import PeerLinks
from node.contracts.broker import Failure
from node.replica.replica import Replica
from node.telemetry import logs

_ANSWER_S: Final = 2.0
_CLOSE_S: Final = 0.5
_AGAIN_S: Final = 0.1
_AGAIN_S_MAX: Final = 1.0
_BROKEN: Final = (asyncio.InvalidStateError, grpc.aio.UsageError)
"""What a call raises that is over already."""
_CONNECT_FAILED: Final = "failed to connect"
_log = logs.get(__name__)


class StreamOwner(Protocol):
    """What a stream uses of node/cluster/member.py."""

    replica: Replica
    time: ClusterTime
    links: PeerLinks
    failure: Failure

    def on_response(self, node: NodeId, response: ReplicateResponse) -> None:
        """A follower says something."""
        ...

    def perform(self) -> None:
        """Do what the rules ask for."""
        ...

    def report_damage(self, error: errors.DataLoss) -> None:
        """The log cannot be read for a follower: it is to be repaired."""
        ...


class FollowerStream:
    """See the top of this file."""

    def __init__(self, node: NodeId, owner: StreamOwner) -> None:
        """Begin to replicate to `node`, for the owner's mastership."""
        replica = owner.replica
        self._owner, self._failure = owner, owner.failure
        self._node, self._replica = node, replica
        self._monotonic_ms, self._clock_ms = owner.time.monotonic_ms, owner.time.now_ms
        self._epoch = replica.assignment.epoch
        self._has_more = asyncio.Event()
        self._is_heartbeat_due = True
        self._is_closing = False
        self._refusal = ""
        """Why it does not follow, by its last answer."""
        self._call: Any = None
        self._sending: asyncio.Future[None] | None = None
        """Both only while the log is being sent."""
        self._task = asyncio.get_running_loop().create_task(self._run_or_fail())

    def wake(self) -> None:
        """There is more of the log."""
        self._has_more.set()

    def heartbeat(self) -> None:
        """It is time for the sync."""
        self._is_heartbeat_due = True
        self._has_more.set()

    def close(self, leases: LeaseTable, last_heartbeat: SyncBeat) -> Coroutine[Any, Any, None]:
        """The mastership is over: the coroutine sends the last messages, and ends the stream."""
        self._is_closing = True
        call, sending = self._call, self._sending
        return self._close(call, sending, leases, last_heartbeat)

    def cut(self) -> None:
        """The node should not follow any more."""
        self._is_closing = True
        self._task.cancel()

    async def _close(
        self,
        call: Any,
        sending: "asyncio.Future[None] | None",
        leases: LeaseTable,
        last_heartbeat: SyncBeat,
    ) -> None:
        self._has_more.set()
        if sending is not None:  # not cancelled: gRPC would end the call where a write is under way
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.wait([sending])
                    await call.write(ReplicateRequest(leases=leases))
                    await call.write(ReplicateRequest(beat=last_heartbeat))
                    await call.done_writing()
                    await asyncio.wait([self._task])
        self._task.cancel()

    @property
    def _is_of_this_epoch(self) -> bool:
        master = self._replica.rules
        return master is not None and master.start.epoch == self._epoch

    async def _run_or_fail(self) -> None:
        with self._failure.catching():
            await self._run()

    async def _run(self) -> None:
        failures = 0
        while self._is_of_this_epoch:
            wait_s = 0.0
            try:
                wait_s = await self._stream()
                failures = 0
            except grpc.aio.AioRpcError as error:
                failures += 1
                self._note_break(error)
            except (NotFollowed, TimeoutError, *_BROKEN) as error:
                failures += 1
                _log.debug("replication_stream_ended", follower=self._node, reason=str(error))
            except errors.CorruptLog as error:  # the others have the batches: no reason to end
                failures += 1
                self._owner.report_damage(error)
            master = self._replica.rules
            if master is None or not self._is_of_this_epoch:
                return
            master.on_lost(self._node, self._monotonic_ms())
            self._owner.perform()
            await asyncio.sleep(max(wait_s, min(_AGAIN_S_MAX, _AGAIN_S * failures)))

    def _note_break(self, error: grpc.aio.AioRpcError) -> None:
        master = self._replica.rules
        details = error.details() or ""
        is_refused = error.code() is grpc.StatusCode.UNAUTHENTICATED
        level = logging.WARNING if is_refused else logging.DEBUG
        _log.log(level, "replication_stream_failed", follower=self._node, reason=details)
        if master is not None and _CONNECT_FAILED in details:
            master.on_lost(self._node, self._monotonic_ms())
            master.on_unreachable(self._node)

    async def _stream(self) -> float:
        """One stream from begin to end. Returns how long to wait before the next, in seconds."""
        call = self._owner.links.replicate(self._node)
        try:
            await call.write(ReplicateRequest(hello=self._replica.on_connected(self._node)))
            async with asyncio.timeout(_ANSWER_S):
                answer = await call.read()
            if answer is grpc.aio.EOF:
                raise NotFollowed("the follower ended the stream")
            if answer.HasField("refused"):
                self._take(answer)
                if answer.refused.reason:  # that does not pass
                    return _AGAIN_S_MAX
                return max(_AGAIN_S, float(answer.refused.wait_ms) / 1_000)
            begin = self._replica.answer_hello(self._node, answer.hello)
            await call.write(ReplicateRequest(begin=begin))
            if begin.take_snapshot:
                await call.done_writing()
                async with asyncio.timeout(_ANSWER_S):
                    await (
                        call.read()
                    )  # it has read that: a call that is cancelled may lose messages
                return _AGAIN_S_MAX
            await self._replicate(call)
        finally:
            call.cancel()
        return _AGAIN_S

    async def _replicate(self, call: Any) -> None:
        """Send and receive until either ends; `close` sends the last messages."""
        sending = asyncio.ensure_future(self._send(call))
        receiving = asyncio.ensure_future(self._receive(call))
        self._call, self._sending = call, sending
        try:
            await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
            if self._is_closing:
                await asyncio.wait([receiving], timeout=_CLOSE_S)
        finally:
            self._call = self._sending = None
            sending.cancel()
            receiving.cancel()
            results = await asyncio.gather(sending, receiving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _send(self, call: Any) -> None:
        replica = self._replica
        while not self._is_closing:
            self._has_more.clear()
            if self._is_heartbeat_due:
                self._is_heartbeat_due = False
                heartbeat = replica.make_heartbeat(self._monotonic_ms(), self._clock_ms())
                replica.stats.heartbeats_sent += 1
                await call.write(ReplicateRequest(beat=heartbeat))
            part = replica.find_part(self._node)
            if part is not None:
                await call.write(ReplicateRequest(log=part))
            elif not self._is_heartbeat_due:
                await self._has_more.wait()

    async def _receive(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            self._take(response)

    def _take(self, response: ReplicateResponse) -> None:
        """Pass an answer on; log why the follower refuses, when the reason is new."""
        refused = response.refused
        if response.HasField("refused") and self._refusal != refused.why:
            self._refusal = refused.why
            level = logging.ERROR if refused.reason else logging.INFO
            fields = {"follower": self._node, "detail": refused.why, "reason": refused.reason}
            _log.log(level, "follower_refused", **fields)
        self._owner.on_response(self._node, response)
