"""FetchSnapshot over gRPC: given by a master, taken by a follower, on real disks."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import FetchSnapshotRequest, FetchSnapshotResponse
from hourwheel.transport.grpc_errors import failure_of
from node.cluster.data_plane import SERVICE, DataServer, Dialer
from node.cluster.peer_trust import Trust
from node.cluster.snapshot_receiver import receive_snapshot
from node.cluster.snapshot_sender import SnapshotSender
from node.snapshot.install import install_snapshot
from node.snapshot.source import HeldSnapshot
from storage.files.disk import RealDisk
from tests.support.eventually import until
from tests.support.shard_world import IDENTITY, ShardWorld
from tests.support.small_sizes import small_sizes
from tests.support.snapshot_world import (
    EPOCH,
    age,
    begin_world,
    catch_up,
    live,
    open_replica,
    place_on,
)

TRUST = Trust(secret="a secret of some length")
WRONG = Trust(secret="another secret of some length")
REQUEST = FetchSnapshotRequest(cluster_id=IDENTITY.cluster_id, shard=0, epoch=EPOCH)


@pytest.fixture(scope="module")
def world() -> Iterator[ShardWorld]:
    with small_sizes(16):
        world = begin_world(1)
        age(world, Random(1))
        live(world, Random(2), 6)
        yield world


class Master:
    """The sending side, with switches."""

    def __init__(self, world: ShardWorld, **settings: Any) -> None:
        self.is_master, self.epoch = True, EPOCH
        self.sender = SnapshotSender(
            world.place,
            world.shard,
            world.opened.epochs,
            epoch=lambda: self.epoch,
            may_send=lambda: self.is_master,
            **settings,
        )
        self.world = world

    def folders(self) -> list[str]:
        return self.world.disk.list("")


@pytest.fixture
def master(world: ShardWorld) -> Master:
    return Master(world)


async def take_all(
    sender: SnapshotSender, request: FetchSnapshotRequest
) -> list[FetchSnapshotResponse]:
    return [part async for part in sender.send(request)]


async def test_parts_when_given(master: Master) -> None:
    parts = await take_all(master.sender, REQUEST)
    assert parts[0].HasField("head")
    assert parts[-1].HasField("end")
    pieces = [part.bytes for part in parts[1:-1]]
    sizes = [one.size_bytes for one in parts[0].head.files]
    assert parts[-1].end.total_bytes == sum(sizes)
    assert all(0 < len(piece.data) <= 1 << 20 for piece in pieces)
    assert [piece.file for piece in pieces] == sorted(piece.file for piece in pieces)
    assert master.folders() == ["shard-0"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (FetchSnapshotRequest(cluster_id=bytes(16), shard=0, epoch=EPOCH), errors.PeerRefused),
        (
            FetchSnapshotRequest(cluster_id=IDENTITY.cluster_id, shard=1, epoch=EPOCH),
            errors.PeerRefused,
        ),
        (
            FetchSnapshotRequest(cluster_id=IDENTITY.cluster_id, shard=0, epoch=EPOCH - 1),
            errors.NotMaster,
        ),
        (
            FetchSnapshotRequest(cluster_id=IDENTITY.cluster_id, shard=0, epoch=EPOCH + 1),
            errors.NotMaster,
        ),
        (FetchSnapshotRequest(), errors.PeerRefused),
    ],
)
async def test_request_is_refused(
    master: Master, request_: FetchSnapshotRequest, error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error):
        await take_all(master.sender, request_)
    assert master.folders() == ["shard-0"]


async def test_request_is_refused_when_not_master(master: Master) -> None:
    master.is_master = False
    with pytest.raises(errors.NotMaster):
        await take_all(master.sender, REQUEST)


async def test_request_is_refused_when_too_many_are_given(world: ShardWorld) -> None:
    master = Master(world, count_max=2)
    given = [master.sender.send(REQUEST) for _ in range(2)]
    for one in given:
        await anext(one)
    assert len(master.folders()) == 3
    with pytest.raises(errors.Overloaded):
        await take_all(master.sender, REQUEST)
    for one in given:
        await one.aclose()
    assert master.folders() == ["shard-0"]
    await take_all(master.sender, REQUEST)


async def test_shard_that_never_stands_still(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldSnapshot, "complete", lambda *_: False)
    with pytest.raises(errors.Unavailable, match="too fast"):
        await take_all(master.sender, REQUEST)
    assert master.folders() == ["shard-0"]


async def test_reign_ends_while_files_are_held(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = HeldSnapshot.begin

    def end_reign(stage: HeldSnapshot) -> None:
        begin(stage)
        master.is_master = False

    monkeypatch.setattr(HeldSnapshot, "begin", end_reign)
    with pytest.raises(errors.NotMaster):
        await take_all(master.sender, REQUEST)
    assert master.folders() == ["shard-0"]


async def test_pace_is_bounded(world: ShardWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    parts = await take_all(Master(world, bytes_per_s=1_000).sender, REQUEST)
    size = sum(len(part.bytes.data) for part in parts)
    assert waits[-1] > size / 1_000 - 60, "each piece is after what the ones before it took"
    assert waits == sorted(waits)


# -- over the wire -------------------------------------------------------------------------------


class Wire:
    """A data server with the sender, and ways to call it."""

    def __init__(self, master: Master) -> None:
        self.master = master
        self._server = DataServer(TRUST, "127.0.0.1:0")
        self._dialers: list[Dialer] = []

    async def start(self) -> None:
        methods = {"FetchSnapshot": self.master.sender.handler(), "Replicate": _REPLICATE}
        self.port = await self._server.start(
            grpc.method_handlers_generic_handler(SERVICE.full_name, methods)
        )

    def dialer(self, trust: Trust = TRUST) -> Dialer:
        self._dialers.append(Dialer(trust, {"n1": f"127.0.0.1:{self.port}"}))
        return self._dialers[-1]

    async def stop(self) -> None:
        for dialer in self._dialers:
            await dialer.close()
        await self._server.stop()


async def _replicate(requests: Any, context: Any) -> None:
    del requests, context


_REPLICATE = grpc.stream_stream_rpc_method_handler(_replicate)


@pytest.fixture
async def wire(master: Master) -> AsyncIterator[Wire]:
    wire = Wire(master)
    await wire.start()
    yield wire
    await wire.stop()


async def test_follower_has_the_masters_views_when_it_fetched_them(
    wire: Wire, tmp_path: Path
) -> None:
    disk, master = RealDisk(tmp_path), wire.master.world
    call = wire.dialer().fetch_snapshot("n1", REQUEST)
    marker = await receive_snapshot(call, place_on(disk), epoch=EPOCH, replaced_end_offset=0)
    assert install_snapshot(disk, "shard-0", IDENTITY) == marker
    assert disk.list("") == ["shard-0"]
    opened = open_replica(disk)
    assert opened.shard.log.start_offset == master.shard.log.start_offset > 0
    catch_up(opened.shard, master.shard)
    assert opened.shard.views.digest() == master.shard.views.digest()
    opened.shard.log.close()
    await until(lambda: wire.master.folders() == ["shard-0"])


async def test_refusal_comes_over_the_wire(wire: Wire, tmp_path: Path) -> None:
    wire.master.is_master = False
    place = place_on(RealDisk(tmp_path))
    with pytest.raises(errors.Unavailable, match="not the master"):
        await receive_snapshot(
            wire.dialer().fetch_snapshot("n1", REQUEST), place, epoch=EPOCH, replaced_end_offset=0
        )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(wire.dialer().fetch_snapshot("n1", REQUEST)))
    assert isinstance(failure_of(caught.value, is_stream=True).error, errors.NotMaster)


async def test_secret_is_wrong(wire: Wire) -> None:
    dialer = wire.dialer(WRONG)
    with pytest.raises(grpc.aio.AioRpcError) as fetching:
        await anext(aiter(dialer.fetch_snapshot("n1", REQUEST)))
    with pytest.raises(grpc.aio.AioRpcError) as replicating:
        await anext(aiter(dialer.replicate("n1")))
    for caught in (fetching, replicating):
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_files_are_let_go_when_the_follower_goes(world: ShardWorld) -> None:
    wire = Wire(Master(world, bytes_per_s=1))
    await wire.start()
    call = wire.dialer().fetch_snapshot("n1", REQUEST)
    await anext(aiter(call))
    assert len(wire.master.folders()) == 2
    call.cancel()
    await until(lambda: wire.master.folders() == ["shard-0"])
    await wire.stop()
