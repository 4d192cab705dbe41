"""Replication from a master to a follower: the two ends of one gRPC stream.

    master: FollowerStream                                 follower: ReplicationServer
      hello (epoch, boot id) ------------------------------>  notes the epoch; or refuses
                             <---------------- where its log stands, and its epochs: hello
      begin (where they diverge, or a snapshot) ----------->  cuts its log there
      log, heartbeat ... ---------------------------------->  appends, writes
                             <--------------- how far it is, the heartbeat's echo: ack
      leases, last heartbeat ------------------------------>  its lease grant ends

The master has one `FollowerStream` for each follower, for as long as its mastership lasts; a stream
that breaks is opened again. A follower follows one stream at a time, the latest that the rules
allow. What counts is decided in `replication.rules.master` and `replication.rules.follower`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc

from hourwheel import errors
from hourwheel.errors import HourwheelError, NotFollowed
from hourwheel.internal.v1 import replication_pb2
from hourwheel.internal.v1.replication_pb2 import (
    FetchSnapshotRequest,
    FollowerHello,
    LeaseTable,
    MasterHello,
    Refused,
    ReplicateRequest,
    ReplicateResponse,
    SyncBeat,
)
from hourwheel.transport import grpc_status
from hourwheel.types import Epoch, NodeId
from node.broker.engine import Engine
from node.cluster.cluster_time import ClusterTime
from node.cluster.snapshot_receiver import Snapshots
from node.cluster.snapshot_sender import METHOD as FETCH_SNAPSHOT
from node.contracts.control import ControlPort
from node.repair.peer_reads import PeerReads
from node.repair.peers import PeerCalls
from node.replica.replica import Replica
from node.telemetry import logs
from node.telemetry.failure import Failure

SERVICE: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"]
ANSWER_S: Final = 2.0
"""A follower has so long for each step of the beginning of a stream."""
SILENCE_S: Final = 4.0
"""A follower answers each heartbeat at once. One that has not for so long gets another stream: gRPC
itself finds out only where the other end is dead, and not where a call hangs."""
AWAY_S: Final = 5.0
"""The log says once that a follower's streams have failed for so long, and why."""
_CLOSE_S: Final = 0.5
_AGAIN_S: Final = 0.1
_AGAIN_S_MAX: Final = 1.0
_HELLO_WAIT_S_MAX: Final = 0.5
"""So long a hello waits for the end of a lease at most; a master waits longer for its answer."""
_BROKEN: Final = (asyncio.InvalidStateError, grpc.aio.UsageError)
"""What a call raises that is over already."""
_CONNECT_FAILED: Final = "failed to connect"
_NOTHING: Final = ReplicateRequest()
"""In place of a message that does not come any more."""
_log = logs.get(__name__)

Requests = AsyncIterator[ReplicateRequest]


class PeerLinks(PeerCalls, Protocol):
    """What is needed of node.cluster.data_plane.Dialer."""

    def replicate(self, node: NodeId) -> Any:
        """Begin a Replicate call."""
        ...

    def fetch_snapshot(self, node: NodeId, request: FetchSnapshotRequest) -> Any:
        """Begin a FetchSnapshot call: an asynchronous iterator of FetchSnapshotResponse."""
        ...


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
    """The master's end, of one follower. See the top of this file."""

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
        self._now_s = asyncio.get_running_loop().time
        self._heard_s = self._now_s()
        """When it last answered."""
        self._is_silent = False
        """The call is ended for that."""
        self._failing_since_s: float | None = None
        """None: it answers, or the log has it already that it does not."""
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
        if self._call is not None and self._now_s() - self._heard_s > SILENCE_S:
            self._is_silent = True
            self._call.cancel()

    def close(self, leases: LeaseTable, last_heartbeat: SyncBeat) -> Coroutine[object, None, None]:
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
            wait_s, why = 0.0, ""
            try:
                wait_s = await self._stream()
            except grpc.aio.AioRpcError as error:
                why = error.details() or error.code().name
                self._note_break(error)
            except (NotFollowed, TimeoutError, *_BROKEN) as error:
                why = str(error) or "it does not answer"
                _log.debug("replication_stream_ended", follower=self._node, reason=why)
            except errors.CorruptLog as error:  # the others have the batches: no reason to end
                why = error.message
                self._owner.report_damage(error)
            except asyncio.CancelledError:
                if errors.required(asyncio.current_task(), "it runs in a task").cancelling():
                    raise
                why = "the call was cancelled"  # so says gRPC of its own call, and not of this task
            failures = failures + 1 if why else 0
            master = self._replica.rules
            if master is None or not self._is_of_this_epoch:
                return
            master.on_lost(self._node, self._monotonic_ms())
            self._owner.perform()
            self._note_away(why, failures)
            await asyncio.sleep(max(wait_s, min(_AGAIN_S_MAX, _AGAIN_S * failures)))

    def _note_away(self, why: str, failures: int) -> None:
        """Say once in each absence that it lasts."""
        if failures <= 1:
            self._failing_since_s = self._now_s() if why else None
        elif self._failing_since_s is not None and self._now_s() - self._failing_since_s > AWAY_S:
            self._failing_since_s = None
            _log.warning("follower_away", follower=self._node, reason=why, failures=failures)

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
            async with asyncio.timeout(ANSWER_S):  # to connect, too
                await call.write(ReplicateRequest(hello=self._replica.on_connected(self._node)))
                answer = await call.read()
            if answer is grpc.aio.EOF:
                raise NotFollowed("the follower ended the stream")
            if answer.HasField("refused"):
                self._take(answer)
                if answer.refused.reason:  # that does not pass
                    return _AGAIN_S_MAX
                return max(_AGAIN_S, float(answer.refused.wait_ms) / 1_000)
            begin = self._replica.answer_hello(self._node, answer.hello)
            async with asyncio.timeout(ANSWER_S):
                await call.write(ReplicateRequest(begin=begin))
            if begin.take_snapshot:
                await call.done_writing()
                async with asyncio.timeout(ANSWER_S):
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
        self._heard_s, self._is_silent = self._now_s(), False
        try:
            await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
            if self._is_closing:
                await asyncio.wait([receiving], timeout=_CLOSE_S)
        finally:
            self._call = self._sending = None
            sending.cancel()
            receiving.cancel()
            results = await asyncio.gather(sending, receiving, return_exceptions=True)
        if self._is_silent:
            raise TimeoutError("it answers no heartbeat")
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
        self._heard_s = self._now_s()
        refused = response.refused
        if response.HasField("refused") and self._refusal != refused.why:
            self._refusal = refused.why
            level = logging.ERROR if refused.reason else logging.INFO
            fields = {"follower": self._node, "detail": refused.why, "reason": refused.reason}
            _log.log(level, "follower_refused", **fields)
        self._owner.on_response(self._node, response)


class ReplicationServer:
    """A follower's end, as a gRPC service. See the top of this file."""

    def __init__(
        self,
        replica: Replica,
        engine: Engine,
        control: ControlPort,
        time: ClusterTime,
        perform: Callable[[], None],
        failure: Failure,
        snapshots: Snapshots,
    ) -> None:
        """Follow no master yet.

        Args:
            replica: whose rules these are.
            engine: writes and applies; while its group commit's turn is held nothing is written.
            control: knows whether this boot of the node is registered. Until then it follows no
                master: the election must see its log as it was when it started.
            time: for acknowledgements.
            perform: does what the replica's effects ask for.
            failure: takes what must end the process.
            snapshots: sent, and received where a master says that one is needed.
        """
        self._replica, self._engine, self._control, self._time = replica, engine, control, time
        self._perform, self._failure, self._snapshots = perform, failure, snapshots
        self._turn, self._monotonic_ms = engine.group_commit.turn, time.monotonic_ms
        self._reads = PeerReads(engine.shard, engine.place.identity)
        self._stream = 0
        self._complained_of: tuple[NodeId, int] | None = None
        self._followed: tuple[NodeId, int, int] | None = None
        """(master, epoch, durable end of the log) as the log last said that it follows."""
        self._has_news = asyncio.Event()
        self._may_follow = asyncio.Event()
        """A lease may have ended early."""

    def look_again(self) -> None:
        """A lease that was granted may be over: a hello that waits for that is answered."""
        self._may_follow.set()

    def wake(self) -> None:
        """There is something to acknowledge."""
        self._has_news.set()

    async def replicate(self, requests: Requests, context: Any) -> None:
        """The handler of Replicate."""
        refusal: grpc.Status | None = None
        try:
            await self._follow(aiter(requests), context)
        except HourwheelError as error:
            self._on_error(error)
            refusal = grpc_status.to_status(error)
        # Behind `except`: gRPC's error lies in a circle, and would keep this one's frames, and
        # the batch in them.
        if refusal is not None:
            await context.abort_with_status(refusal)

    def _on_error(self, error: HourwheelError) -> None:
        if isinstance(error, NotFollowed):
            _log.debug("master_stream_ended", reason=error.message)
        elif isinstance(error, errors.InvalidBatch):
            _log.error("master_batch_damaged", **logs.fields_of(error))
        elif isinstance(error, errors.DiskFull):
            _log.warning("replication_refused", reason=error.message)
        else:
            self._failure.report(error)

    async def _follow(self, requests: Requests, context: Any) -> None:
        first = await anext(requests, _NOTHING)
        if not first.HasField("hello"):
            raise NotFollowed("a stream begins with a hello")
        if not self._control.is_registered:
            raise NotFollowed("this node is not registered yet")
        answer, stream = await self._answer_hello(first.hello)
        if not isinstance(answer, FollowerHello):
            if answer.reason:
                self._complain(NodeId(first.hello.node_id), Epoch(first.hello.epoch), answer)
            await context.write(ReplicateResponse(refused=answer))
            return
        self._note_following(NodeId(first.hello.node_id), Epoch(first.hello.epoch))
        await context.write(ReplicateResponse(hello=answer))
        second = await anext(requests, _NOTHING)
        if not second.HasField("begin"):
            raise NotFollowed("a begin comes second")
        if second.begin.take_snapshot:
            self._snapshots.receiver.need(NodeId(first.hello.node_id), Epoch(first.hello.epoch))
            return
        async with self._turn:
            if second.begin.offset < self._replica.facts.end_offset:  # else nothing is cut
                await self._engine.background.wait_for_checkpoint()
            self._demand_latest(stream)
            self._replica.begin_following(second.begin)
        self._has_news = asyncio.Event()  # of this stream: an older one must not take it
        self._has_news.set()
        acknowledging = asyncio.ensure_future(self._acknowledge(self._has_news, context))
        try:
            async for request in requests:
                self._demand_latest(stream)
                self._take(request)
        finally:
            acknowledging.cancel()
            if stream == self._stream:
                self._replica.follower.end()

    async def _answer_hello(self, hello: MasterHello) -> tuple[FollowerHello | Refused, int]:
        """The answer to a master, and the number of the latest stream: this one, if it follows.

        Where only the former master's lease is in the way, and not for long, the answer waits for
        its end: a master that is refused would ask again, and commit nothing before.
        """
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + _HELLO_WAIT_S_MAX
        while True:
            self._may_follow.clear()
            async with self._turn:
                answer = self._replica.on_hello(hello, self._monotonic_ms())
                if isinstance(answer, FollowerHello):  # a refusal must not end the one in use
                    self._stream += 1
                stream = self._stream
            self._perform()
            wait_s = 0.0 if isinstance(answer, FollowerHello) else answer.wait_ms / 1_000
            if not wait_s or now_s() + wait_s > until_s:
                return answer, stream
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._may_follow.wait()

    def _note_following(self, master: NodeId, epoch: Epoch) -> None:
        """Once an epoch, and again where something was copied since.

        On a full disk each write ends the stream, and its master opens another one every second.
        """
        following = (master, epoch, self._replica.facts.end_offset)
        level = logging.DEBUG if following == self._followed else logging.INFO
        self._followed = following
        _log.log(level, "following_started", master=master, epoch=epoch)

    def _complain(self, master: NodeId, epoch: Epoch, refused: Refused) -> None:
        """Once for each epoch: a master tries again and again."""
        if self._complained_of != (master, epoch):
            self._complained_of = (master, epoch)
            kind = errors.BY_REASON.get(refused.reason, errors.HourwheelError)
            _log.error("replication_refused", **logs.fields_of(kind(refused.why)))

    def _demand_latest(self, stream: int) -> None:
        if stream != self._stream:
            raise NotFollowed("a newer stream has begun")

    def _take(self, request: ReplicateRequest) -> None:
        follower = self._replica.follower
        is_final = request.HasField("leases") or request.beat.releases_lease
        if follower.is_superseded and not is_final:
            self._has_news.set()  # the answer is a refusal; the last messages still count
        elif request.HasField("log"):
            self._replica.on_log(request.log)
        elif request.HasField("beat"):
            self._replica.on_heartbeat(request.beat, self._monotonic_ms())
            if request.beat.releases_lease:
                self.look_again()
            self._replica.stats.heartbeats_received += 1
            self._has_news.set()
        elif request.HasField("leases"):
            self._replica.on_leases(request.leases)
        else:
            raise NotFollowed("neither log nor heartbeat nor leases")
        self._perform()

    async def _acknowledge(self, has_news: asyncio.Event, context: Any) -> None:
        while True:
            await has_news.wait()
            has_news.clear()
            # A node that fell silent would not be noticed: its stream stays, and its master waits.
            with self._failure.catching():
                answer = self._answer()
            if self._failure.found.done():
                return
            await context.write(answer)

    def _answer(self) -> ReplicateResponse:
        """How far this node is, or that it follows no more."""
        follower = self._replica.follower
        if follower.is_superseded:
            return ReplicateResponse(refused=follower.refuse("a later epoch has begun"))
        ack = self._replica.acknowledge(self._monotonic_ms(), self._time.own_ms())
        ack.is_full = self._engine.guard.is_low
        return ReplicateResponse(ack=ack)

    def handlers(self) -> grpc.GenericRpcHandler:
        """For a server."""
        replicate = grpc.stream_stream_rpc_method_handler(
            self.replicate,
            request_deserializer=ReplicateRequest.FromString,
            response_serializer=ReplicateResponse.SerializeToString,
        )
        methods = {SERVICE.methods_by_name["Replicate"].name: replicate}
        methods[FETCH_SNAPSHOT.name] = self._snapshots.sender.handler()
        methods |= self._reads.handlers()
        return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)
