"""FetchSnapshot, the follower's side: fetches a snapshot from the master.

It leaves the snapshot beside the shard, for the next start to install (node.snapshot.install).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import grpc

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import FetchSnapshotRequest, FetchSnapshotResponse
from hourwheel.types import Epoch, NodeId, Offset
from node.cluster.snapshot_sender import SnapshotSender
from node.shard.checkpoint import ShardPlace
from node.shard.snapshot_files import Marker
from node.snapshot.sink import Incoming
from node.telemetry import logs
from node.telemetry.epoch_stats import EpochStats

_SILENCE_S: Final = 30.0
_AGAIN_S: Final = 1.0
_AGAIN_S_MAX: Final = 30.0
_log = logs.get(__name__)

Fetch: TypeAlias = Callable[[NodeId, FetchSnapshotRequest], Any]
"""Begins a FetchSnapshot call to a node: an asynchronous iterator of parts, with `cancel`."""


async def receive_snapshot(
    call: Any,
    place: ShardPlace,
    *,
    epoch: Epoch,
    replaced_end_offset: Offset,
    silence_s: float = _SILENCE_S,
) -> Marker:
    """Receive a snapshot; it is complete and durable when this returns.

    Whatever ends it before that, what was received is removed.

    Args:
        call: of FetchSnapshot, begun.
        place: of the shard; the snapshot lies beside it.
        epoch: of the master that sends.
        replaced_end_offset: where the log ends that the snapshot is to replace.
        silence_s: after so long without a part the master counts as gone, in seconds.

    Raises:
        PeerRefused: the peer does not send what it should.
        Unavailable, Timeout: it does not send anything.
        DiskFull: there is no room.
        CorruptFile, ForeignDirectory: what it sends is damaged, or of another cluster.
        FsyncFailed, DiskFailed: stop the process.
    """
    incoming = Incoming(place, epoch)
    loop = asyncio.get_running_loop()
    # One thread: whatever is under way when this is cancelled is over before the files are removed.
    with _SingleThread() as thread:
        try:
            return await _receive(call, incoming, replaced_end_offset, thread, silence_s)
        except BaseException:
            await asyncio.shield(loop.run_in_executor(thread, incoming.abandon))
            raise
        finally:
            call.cancel()


class _SingleThread(ThreadPoolExecutor):
    """A thread that no caller waits for: the loop must not block."""

    def __init__(self) -> None:
        super().__init__(1, "hourwheel-snapshot")

    def __exit__(self, *_: object) -> None:
        self.shutdown(wait=False)


async def _receive(
    call: Any,
    incoming: Incoming,
    replaced_end: Offset,
    thread: ThreadPoolExecutor,
    silence_s: float,
) -> Marker:
    loop, parts = asyncio.get_running_loop(), aiter(call)
    while True:
        part = await _next_part(parts, silence_s)
        if part.HasField("head"):
            await loop.run_in_executor(thread, incoming.begin, part.head)
        elif part.HasField("bytes"):
            await loop.run_in_executor(thread, incoming.add, part.bytes)
        elif part.HasField("end"):
            return await loop.run_in_executor(thread, incoming.finish, part.end, replaced_end)
        else:
            raise errors.PeerRefused("a part of a snapshot without content")


async def _next_part(parts: Any, silence_s: float) -> FetchSnapshotResponse:
    try:
        async with asyncio.timeout(silence_s):
            part: FetchSnapshotResponse = await anext(parts)
    except StopAsyncIteration:
        raise errors.PeerRefused("a snapshot without an end") from None
    except TimeoutError:
        raise errors.Timeout("nothing comes of a snapshot") from None
    except grpc.aio.AioRpcError as error:
        raise errors.Unavailable(f"no snapshot: {error.details()}") from error
    return part


def log_received() -> None:
    """Say in the log that a snapshot waits for a restart."""
    _log.warning("snapshot_restart_needed")


class Snapshots(NamedTuple):
    """Both ends: which one is used depends on who is master."""

    sender: SnapshotSender
    receiver: "SnapshotReceiver"


class SnapshotReceiver:
    """Fetches a snapshot when the master says that it is needed; one at a time.

    The master says so again and again, which is what brings the next attempt after a failure.
    """

    def __init__(
        self,
        place: ShardPlace,
        fetch: Fetch,
        *,
        log_end: Callable[[], Offset],
        is_needed: Callable[[], bool],
        on_received: Callable[[], None] = log_received,
        on_failure: Callable[[errors.HourwheelError], None],
        stats: EpochStats | None = None,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """Nothing is needed yet.

        Args:
            place: of the shard.
            fetch: begins a call to a node.
            log_end: end of the log that a snapshot would replace.
            is_needed: whether a snapshot would still be used, now.
            on_received: called when one is complete: the next start installs it.
            on_failure: called when the process must stop.
            stats: counts what is received.
            now_s: a monotonic clock, in seconds; None: the event loop's.
        """
        self._place, self._fetch = place, fetch
        self._log_end, self._is_needed = log_end, is_needed
        self._on_received, self._on_failure = on_received, on_failure
        self._stats = EpochStats() if stats is None else stats
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time if now_s is None else now_s
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self.is_complete = False
        """There is one, waiting to be installed."""

    def need(self, master: NodeId, epoch: Epoch) -> None:
        """The master of that epoch says that this node needs a snapshot."""
        is_early = self._now_s() < self._not_before_s
        if self._task is None and not self.is_complete and not is_early:
            _log.warning("snapshot_needed", master=master, epoch=epoch)
            self._task = self._loop.create_task(self._take(master, epoch))
            self._task.add_done_callback(self._on_task_end)

    async def _take(self, master: NodeId, epoch: Epoch) -> None:
        place = self._place
        identity = place.identity
        request = FetchSnapshotRequest(
            cluster_id=identity.cluster_id, shard=identity.shard, epoch=epoch
        )
        marker = await receive_snapshot(
            self._fetch(master, request),
            place,
            epoch=epoch,
            replaced_end_offset=self._log_end(),
        )
        if not self._is_needed():
            _log.info("snapshot_dropped")
            await asyncio.to_thread(Incoming(place, epoch).abandon)
            return
        _log.info(
            "snapshot_received",
            applied_offset=marker.applied_offset,
            log_start_offset=marker.log_start_offset,
            log_end_offset=marker.log_end_offset,
            files=marker.file_count,
        )
        self.is_complete = True
        self._stats.snapshots_received += 1
        self._on_received()

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._failures = 0
            return
        known = error if isinstance(error, errors.HourwheelError) else errors.Internal(repr(error))
        _log.error("snapshot_receive_failed", **logs.fields_of(known))
        if isinstance(known, errors.Internal):
            self._on_failure(known)
        wait_s = min(_AGAIN_S_MAX, _AGAIN_S * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._not_before_s = self._now_s() + wait_s

    async def close(self) -> None:
        """Fetch no more; abandon what is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, errors.HourwheelError):
                await task
