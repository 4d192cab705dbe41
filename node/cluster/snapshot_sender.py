"""FetchSnapshot, the master's side: sends the shard's files to a node that cannot follow the log.

    head -> pieces -> end

Reading is done in other threads; between two pieces the loop is free, and the pace is bounded, so
that the log's own writes are not kept waiting. It sends nothing damaged: see
node/snapshot/source.py.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc

from hourwheel import errors
from hourwheel.internal.v1 import replication_pb2
from hourwheel.internal.v1.replication_pb2 import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotEnd,
)
from hourwheel.transport import grpc_status
from hourwheel.types import Epoch
from node.shard.checkpoint import ShardPlace
from node.shard.shard import Shard
from node.shard.snapshot_files import FILE_COUNT_MAX
from node.snapshot.source import HeldSnapshot, LogState
from node.telemetry import logs
from node.telemetry.epoch_stats import EpochStats
from storage.log.epochs import EpochFile

METHOD: Final = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"].methods_by_name[
    "FetchSnapshot"
]
_ATTEMPTS: Final = 10
_BYTES_PER_S: Final = 128 << 20
_log = logs.get(__name__)


class SnapshotSender:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        place: ShardPlace,
        shard: Shard,
        epochs: EpochFile,
        *,
        epoch: Callable[[], Epoch],
        may_send: Callable[[], bool],
        stats: EpochStats | None = None,
        count_max: int = 2,
        bytes_per_s: int = _BYTES_PER_S,
    ) -> None:
        """Send snapshots of a shard.

        Args:
            place: of its files.
            shard: for its log's state.
            epochs: its history.
            epoch: the one that this node knows of.
            may_send: whether this node is master in it, serving or not.
            stats: counts what is sent.
            count_max: so many snapshots at the same time.
            bytes_per_s: pace of each.
        """
        self._place, self._shard, self._epochs = place, shard, epochs
        self._epoch, self._may_send = epoch, may_send
        self._stats = EpochStats() if stats is None else stats
        self._count_max, self._bytes_per_s = count_max, bytes_per_s
        self._numbers: set[int] = set()
        self.on_damage: Callable[[errors.DataLoss], None] = lambda _: None
        """Called with what is damaged of what was to be sent."""

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """For a generic handler of the service."""
        return grpc.unary_stream_rpc_method_handler(
            self.fetch_snapshot,
            request_deserializer=FetchSnapshotRequest.FromString,
            response_serializer=FetchSnapshotResponse.SerializeToString,
        )

    async def fetch_snapshot(
        self, request: FetchSnapshotRequest, context: Any
    ) -> AsyncIterator[FetchSnapshotResponse]:
        """The handler of FetchSnapshot."""
        refusal: grpc.Status | None = None
        try:
            async with aclosing(self.send(request)) as parts:
                async for part in parts:
                    yield part
        except errors.HourwheelError as error:
            _log.warning("snapshot_refused", **logs.fields_of(error))
            refusal = grpc_status.to_status(error)
        # Behind `except`: gRPC's error lies in a circle, and would keep this one's frames.
        if refusal is not None:
            await context.abort_with_status(refusal)

    async def send(
        self, request: FetchSnapshotRequest
    ) -> AsyncGenerator[FetchSnapshotResponse, None]:
        """The parts of a snapshot.

        Raises:
            PeerRefused: of another cluster or shard. NotMaster. Overloaded: too many at a time.
            FailedPrecondition: the shard has too many files.
            Unavailable: checkpoints come too fast.
            DataLoss: something is damaged here; `on_damage` is called.
            DiskFull, Internal: see `HeldSnapshot`.
        """
        self._check(request)
        number = min(set(range(self._count_max)) - self._numbers)
        self._numbers.add(number)
        snapshot = HeldSnapshot(self._place, number)
        try:
            await self._complete_sound(snapshot)
            head = await asyncio.to_thread(snapshot.head)
            if len(head.files) > FILE_COUNT_MAX:
                raise errors.FailedPrecondition(f"{len(head.files)} files are too many")
            _log.info("snapshot_send_started", files=len(head.files), bytes=snapshot.total_bytes)
            yield FetchSnapshotResponse(head=head)
            async with aclosing(self._pieces(snapshot)) as parts:
                async for part in parts:
                    yield part
            yield FetchSnapshotResponse(end=SnapshotEnd(total_bytes=snapshot.total_bytes))
            self._stats.snapshots_sent += 1
            _log.info("snapshot_sent", bytes=snapshot.total_bytes)
        finally:
            # The number is free when the files are, also where no caller waits for that any more.
            ending = asyncio.ensure_future(asyncio.to_thread(snapshot.close))
            ending.add_done_callback(lambda done: self._on_closed(number, done))
            await asyncio.shield(ending)

    def _on_closed(self, number: int, done: "asyncio.Future[None]") -> None:
        self._numbers.discard(number)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            _log.error("snapshot_cleanup_failed", **logs.fields_of(error))

    def _check(self, request: FetchSnapshotRequest) -> None:
        identity = self._place.identity
        if request.cluster_id != identity.cluster_id or request.shard != identity.shard:
            raise errors.PeerRefused("a snapshot for another cluster or shard")
        self._check_master(Epoch(request.epoch))
        if len(self._numbers) >= self._count_max:
            raise errors.Overloaded("other snapshots are being sent")

    def _check_master(self, epoch: Epoch) -> None:
        if epoch != self._epoch() or not self._may_send():
            raise errors.NotMaster("this node is not the master in that epoch", epoch=self._epoch())

    async def _complete_sound(self, snapshot: HeldSnapshot) -> None:
        try:
            await self._complete(snapshot)
            await asyncio.to_thread(snapshot.verify)
        except errors.DataLoss as error:
            self.on_damage(error)
            raise

    async def _complete(self, snapshot: HeldSnapshot) -> None:
        for _ in range(_ATTEMPTS):
            await asyncio.to_thread(snapshot.begin)
            self._check_master(self._epoch())
            log = LogState(
                epoch=self._epoch(),
                high_watermark=self._shard.high_watermark,
                segments=self._shard.log.segments(),
                epochs=self._epochs.entries,
            )
            if await asyncio.to_thread(snapshot.complete, log):
                return
        raise errors.Unavailable("the shard changes too fast to take a snapshot of it")

    async def _pieces(self, snapshot: HeldSnapshot) -> AsyncGenerator[FetchSnapshotResponse, None]:
        loop, pieces = asyncio.get_running_loop(), snapshot.pieces()
        free_s = loop.time()
        while True:
            part = await asyncio.to_thread(_next_part, pieces)
            if part is None:
                return
            yield part
            free_s = max(free_s + len(part.bytes.data) / self._bytes_per_s, loop.time() - 1.0)
            if free_s > loop.time():
                await asyncio.sleep(free_s - loop.time())


def _next_part(pieces: Any) -> FetchSnapshotResponse | None:
    piece = next(pieces, None)
    return None if piece is None else FetchSnapshotResponse(bytes=piece)
