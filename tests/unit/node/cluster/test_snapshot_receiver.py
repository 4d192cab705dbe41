"""Taking a snapshot from a call: what ends it, what is left, and when it is tried again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotEnd,
)
from node.cluster.snapshot_receiver import SnapshotReceiver, receive_snapshot
from node.shard.snapshot_files import Marker, find_marker, incoming
from node.snapshot.source import HeldSnapshot
from tests.sim.disk import SimulatedDisk
from tests.support.engine_world import let_others_run
from tests.support.eventually import until
from tests.support.shard_world import IDENTITY
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import EPOCH, age, begin_world, hold, place_on


@pytest.fixture(scope="module")
def parts() -> Iterator[list[FetchSnapshotResponse]]:
    """A whole snapshot."""
    with small_sizes(16):
        world = begin_world(1)
        age(world, Random(1))
        yield parts_of(hold(world))


def parts_of(stage: HeldSnapshot) -> list[FetchSnapshotResponse]:
    pieces = [FetchSnapshotResponse(bytes=piece) for piece in stage.pieces()]
    end = SnapshotEnd(total_bytes=stage.total_bytes)
    return [FetchSnapshotResponse(head=stage.head()), *pieces, FetchSnapshotResponse(end=end)]


class FakeCall:
    """A call that answers these parts, then hangs, ends or fails."""

    def __init__(self, parts: list[FetchSnapshotResponse], then: str | Exception = "end") -> None:
        self._parts, self._then = parts, then
        self.is_cancelled = False
        self.is_hanging = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[FetchSnapshotResponse]:
        for part in self._parts:
            yield part
        if isinstance(self._then, Exception):
            raise self._then
        if self._then == "hang":
            self.is_hanging.set()
            await asyncio.Event().wait()

    def cancel(self) -> None:
        self.is_cancelled = True


async def take(call: FakeCall, disk: SimulatedDisk, **settings: Any) -> Marker:
    return await receive_snapshot(
        call, place_on(disk), epoch=EPOCH, replaced_end_offset=5, **settings
    )


async def test_snapshot_is_complete_when_all_parts_came(parts: list[FetchSnapshotResponse]) -> None:
    disk = SimulatedDisk()
    call = FakeCall(parts)
    marker = await take(call, disk)
    assert marker == find_marker(incoming(place_on(disk)))
    assert marker.replaced_end_offset == 5
    assert call.is_cancelled


def broken() -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, "gone")


@pytest.mark.parametrize("count", [0, 1, 2, -1])
@pytest.mark.parametrize(
    ("then", "error"),
    [("end", errors.PeerRefused), ("hang", errors.Timeout), ("break", errors.Unavailable)],
)
async def test_nothing_is_left_when_it_ends_too_early(
    parts: list[FetchSnapshotResponse], count: int, then: str, error: type[errors.HourwheelError]
) -> None:
    disk = SimulatedDisk()
    call = FakeCall(parts[:count], broken() if then == "break" else then)
    with pytest.raises(error):
        await take(call, disk, silence_s=0.01 if then == "hang" else 30.0)
    assert disk.list("") == []
    assert call.is_cancelled


async def test_nothing_is_left_when_a_part_is_refused(parts: list[FetchSnapshotResponse]) -> None:
    for bad in ([FetchSnapshotResponse()], parts[1:2], parts[-1:], [parts[0], parts[0]]):
        disk = SimulatedDisk()
        with pytest.raises(errors.PeerRefused):
            await take(FakeCall(bad), disk)
        assert disk.list("") == []


async def test_nothing_is_left_when_the_disk_is_full(parts: list[FetchSnapshotResponse]) -> None:
    disk = SimulatedDisk(capacity_bytes=4_096)
    with pytest.raises(errors.DiskFull):
        await take(FakeCall(parts), disk)
    assert disk.list("") == []


async def test_nothing_is_left_when_cancelled(parts: list[FetchSnapshotResponse]) -> None:
    disk = SimulatedDisk()
    call = FakeCall(parts[:3], "hang")
    task = asyncio.ensure_future(take(call, disk))
    await call.is_hanging.wait()
    assert disk.list("") == ["shard-0.incoming"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert disk.list("") == []
    assert call.is_cancelled


async def test_failed_sync_is_told(parts: list[FetchSnapshotResponse]) -> None:
    disk = SimulatedDisk()
    disk.fail_sync("shard-0.incoming/epochs")
    with pytest.raises(errors.FsyncFailed):
        await take(FakeCall(parts), disk)


# -- one at a time, again and again ----------------------------------------------------------------


class Fetching:
    """A node that may need snapshots."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.disk = SimulatedDisk()
        self.calls: list[FakeCall] = []
        self.answers: list[FakeCall] = []
        self.requests: list[tuple[str, FetchSnapshotRequest]] = []
        self.is_needed = True
        self.taken = 0
        self.failures: list[errors.HourwheelError] = []
        self.receiver = SnapshotReceiver(
            place_on(self.disk),
            self.fetch,
            log_end=lambda: 17,
            is_needed=lambda: self.is_needed,
            on_received=self.on_received,
            on_failure=self.failures.append,
            now_s=lambda: self.now_s,
        )

    def fetch(self, node: str, request: FetchSnapshotRequest) -> FakeCall:
        self.requests.append((node, request))
        return self.answers[len(self.requests) - 1]

    def on_received(self) -> None:
        self.taken += 1

    def pass_time(self) -> None:
        """As if the time until the next attempt had passed."""
        self.now_s += 3_600.0

    async def idle(self) -> None:
        await until(lambda: len(asyncio.all_tasks()) == 1)
        await let_others_run()


async def test_taking_when_it_succeeds(parts: list[FetchSnapshotResponse]) -> None:
    fetching = Fetching()
    fetching.answers = [FakeCall(parts)]
    fetching.receiver.need("n1", EPOCH)
    fetching.receiver.need("n2", EPOCH + 1)
    await fetching.idle()
    assert fetching.taken == 1
    assert fetching.receiver.is_complete
    fetching.receiver.need("n2", EPOCH + 1)
    request = FetchSnapshotRequest(cluster_id=IDENTITY.cluster_id, shard=0, epoch=EPOCH)
    assert fetching.requests == [("n1", request)]
    marker = find_marker(incoming(place_on(fetching.disk)))
    assert marker is not None
    assert marker.replaced_end_offset == 17


async def test_taking_when_it_fails_is_tried_again_later(
    parts: list[FetchSnapshotResponse],
) -> None:
    fetching = Fetching()
    fetching.answers = [FakeCall(parts[:2]), FakeCall([], broken()), FakeCall(parts)]
    waits: list[float] = []
    for node in ("n1", "n2", "n3"):
        begun_s = fetching.now_s
        while len(fetching.requests) == len(waits):
            fetching.receiver.need(node, EPOCH)
            await asyncio.sleep(0)
            fetching.now_s += 0.25
        waits.append(fetching.now_s - begun_s)
        await fetching.idle()
    fetching.pass_time()
    fetching.receiver.need("n4", EPOCH)
    assert [node for node, _ in fetching.requests] == ["n1", "n2", "n3"]
    assert fetching.taken == 1
    assert waits[0] < waits[1] < waits[2]
    assert fetching.failures == []


async def test_taking_when_no_longer_needed(parts: list[FetchSnapshotResponse]) -> None:
    fetching = Fetching()
    fetching.answers = [FakeCall(parts), FakeCall(parts)]
    fetching.is_needed = False
    fetching.receiver.need("n1", EPOCH)
    await fetching.idle()
    assert (fetching.taken, fetching.receiver.is_complete) == (0, False)
    assert fetching.disk.list("") == []
    fetching.is_needed = True
    fetching.receiver.need("n1", EPOCH)
    await fetching.idle()
    assert fetching.taken == 1


async def test_taking_when_the_process_must_stop(parts: list[FetchSnapshotResponse]) -> None:
    fetching = Fetching()
    fetching.answers = [FakeCall(parts)]
    fetching.disk.fail_sync("shard-0.incoming/epochs")
    fetching.receiver.need("n1", EPOCH)
    await fetching.idle()
    assert [type(error) for error in fetching.failures] == [errors.FsyncFailed]


async def test_taking_when_closed(parts: list[FetchSnapshotResponse]) -> None:
    fetching = Fetching()
    await fetching.receiver.close()
    fetching.answers = [FakeCall(parts[:2], "hang")]
    fetching.receiver.need("n1", EPOCH)
    await until(fetching.answers[0].is_hanging.is_set)
    await fetching.receiver.close()
    assert fetching.disk.list("") == []
    assert fetching.taken == 0
