"""A follower's end of the master's stream, as a gRPC service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import grpc

from hourwheel import errors
from hourwheel.errors import HourwheelError, NotFollowed
from hourwheel.internal.v1 import replication_pb2
from hourwheel.internal.v1.replication_pb2 import (
    FollowerHello,
    MasterHello,
    Refused,
    ReplicateRequest,
    ReplicateResponse,
)
from hourwheel.types import NodeId
from node.broker.engine import Engine
from node.cluster.cluster_time import ClusterTime
from node.cluster.snapshot_receiver import Snapshots
from node.cluster.snapshot_sender import METHOD as FETCH_SNAPSHOT
from node.contracts import grpc_status
from node.contracts.broker import Failure
from node.contracts.control import ControlPort
from node.repair.peer_reads import PeerReads
from node.replica.replica import Replica
from node.telemetry import logs

SERVICE: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"]
_HELLO_WAIT_S_MAX: Final = 0.5
"""So long a hello waits for the end of a lease at most; a master waits longer for its answer."""
_NOTHING: Final = ReplicateRequest()
"""In place of a message that does not come any more."""
_log = logs.get(__name__)

Requests = AsyncIterator[ReplicateRequest]


class ReplicationServer:
    """Follows the master that the rules allow; one stream at a time, the latest."""

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
                self._complain(NodeId(first.hello.node_id), first.hello.epoch, answer)
            await context.write(ReplicateResponse(refused=answer))
            return
        _log.info("following_started", master=first.hello.node_id, epoch=first.hello.epoch)
        await context.write(ReplicateResponse(hello=answer))
        second = await anext(requests, _NOTHING)
        if not second.HasField("begin"):
            raise NotFollowed("a begin comes second")
        if second.begin.take_snapshot:
            self._snapshots.receiver.need(NodeId(first.hello.node_id), first.hello.epoch)
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

    def _complain(self, master: NodeId, epoch: int, refused: Refused) -> None:
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
