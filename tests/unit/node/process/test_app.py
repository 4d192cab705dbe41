"""A node put together: start, stop, and what keeps it from starting."""

import asyncio
import http.client
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from hourwheel import AsyncProducer, Message, errors, limits
from hourwheel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    consumer_pb2_grpc,
)
from hourwheel.v1.consumer_pb2 import (
    RECEIVE_FORMAT_BATCH,
    RECEIVE_FORMAT_MESSAGES,
    ReceiveRequest,
)
from node.api.server import ApiServer
from node.broker.disk_guard import RESERVE
from node.process import exposure
from node.process.app import Node
from node.process.loopback_config import config_for
from node.shard.node_meta import NODE_META
from node.shard.recovery import open_shard
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import File, RealDisk
from tests.support.certificates import Authority, tls_section
from tests.support.eventually import until


def node_in(folder: Path, **sections: Any) -> Node:
    small = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
    return Node(config_for(folder / "data", {**small, **sections}))


async def status_of(node: Node) -> admin_pb2.GetStatusResponse:
    async with grpc.aio.insecure_channel(node.address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        found: admin_pb2.GetStatusResponse = await stub.GetStatus(admin_pb2.GetStatusRequest())
        return found


CERTIFIED = {"client_certificates": "required"}


@pytest.mark.parametrize(
    ("listens_beyond", "is_on", "tls", "told"),
    [
        (True, False, None, {"anyone_may_call", "clients_in_the_clear"}),
        (True, False, {}, {"anyone_may_call"}),
        (True, False, CERTIFIED, set()),
        (True, True, None, {"clients_in_the_clear"}),
        (True, True, {}, set()),
        (False, False, None, set()),
    ],
)
async def test_node_that_others_reach_says_what_they_could_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    listens_beyond: bool,
    is_on: bool,
    tls: dict[str, str] | None,
    told: set[str],
) -> None:
    caplog.set_level("WARNING")
    sections: dict[str, object] = {
        "access": {"is_on": is_on, "administrators": "root", "metrics": False}
    }
    if tls is not None:
        authority = Authority(tmp_path)
        if tls:
            tls = {**tls, "client_authority_file": str(authority.file)}
        sections["tls"] = tls_section(authority.issue("node", "127.0.0.1"), metrics=False, **tls)
    monkeypatch.setattr(exposure, "is_loopback", lambda *_: not listens_beyond)
    node = node_in(tmp_path, **sections)
    await node.start()
    page = await asyncio.to_thread(metrics_of, node)
    await node.stop(0)
    events = {one.msg["event"] for one in caplog.records if isinstance(one.msg, dict)}
    assert events & {"anyone_may_call", "clients_in_the_clear"} == told
    assert f"\nhourwheel_anyone_may_call {float('anyone_may_call' in told)}" in page


def metrics_of(node: Node) -> str:
    with urlopen(f"http://{node.metrics_address}/metrics") as page:
        return str(page.read(), "utf-8")


async def test_node_serves_then_leaves_the_directory_to_another(tmp_path: Path) -> None:
    cluster_ids = set()
    for epoch in (1, 2):
        node = node_in(tmp_path)
        await node.start()
        status = await status_of(node)
        await node.stop(0)
        cluster_ids.add(status.cluster_id)
        assert status.nodes[0].address == node.address
        assert status.shards[0].epoch == epoch
    assert len(cluster_ids) == 1


async def test_node_says_so_when_the_flushed_mark_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for turn in range(2):
        node = node_in(tmp_path)
        await node.start()
        await node.stop(0)
        said = [one for one in caplog.records if "flushed_mark_lost" in one.getMessage()]
        assert len(said) == turn
        (mark,) = (tmp_path / "data").rglob("flushed.mark")
        raw = bytearray(mark.read_bytes())
        raw[64:] = bytes(len(raw) - 64)
        mark.write_bytes(raw)


async def test_node_keeps_what_it_acknowledged_when_it_is_started_again(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    await node.start()
    async with grpc.aio.insecure_channel(node.address) as channel:
        stub = broker_pb2_grpc.ProducerServiceStub(channel)
        message = broker_pb2.OutgoingMessage(body=b"x", delay_ms=3_600_000)
        await stub.Publish(broker_pb2.PublishRequest(topic="orders", messages=[message]))
    await node.stop(0)
    again = node_in(tmp_path)
    await again.start()
    assert (await status_of(again)).shards[0].pending_count == 1
    await again.stop(0)


async def test_node_refuses_to_start_when_the_directory_is_locked(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    node.config.node.data_directory.mkdir()
    with (
        DirectoryLock.acquire(node.config.node.data_directory),
        pytest.raises(errors.DirectoryLocked),
    ):
        await node.start()
    await node.start()
    await node.stop(0)


async def test_node_refuses_to_start_when_the_directory_is_another_nodes(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    await node.start()
    await node.stop(0)
    other = node_in(tmp_path, node={"id": "node-2"})
    with pytest.raises(errors.ForeignDirectory):
        await other.start()
    (tmp_path / "data" / NODE_META).unlink()
    with pytest.raises(errors.CorruptFile):
        await node_in(tmp_path).start()


async def test_node_refuses_to_start_when_the_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(errors.ConfigError, match=r"node\.data_directory"):
        await node_in(tmp_path).start()


@pytest.mark.parametrize("key", ["listen", "metrics_listen"])
async def test_node_lets_everything_go_when_an_address_is_taken(tmp_path: Path, key: str) -> None:
    first = node_in(tmp_path / "first")
    await first.start()
    second = node_in(tmp_path / "second", node={key: first.address})
    with pytest.raises(errors.ConfigError, match=rf"node\.{key}"):
        await second.start()
    with DirectoryLock.acquire(second.config.node.data_directory):
        pass
    await first.stop(0)


async def asked(address: str, path: str) -> int:
    """The status of one GET."""

    def ask() -> int:
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    return await asyncio.to_thread(ask)


async def test_probes_tell_start_recovery_service_and_stop_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ("/live", "/startup", "/ready", "/metrics")
    may_go_on = threading.Event()

    def open_slowly(*arguments: Any) -> Any:
        assert may_go_on.wait(60)
        return open_shard(*arguments)

    monkeypatch.setattr("node.cluster.standalone.open_shard", open_slowly)
    node = node_in(tmp_path, node={"metrics_listen": "127.0.0.1:0"})
    starting = asyncio.ensure_future(node.start())
    await until(lambda: node.metrics_address)
    assert [await asked(node.metrics_address, path) for path in paths] == [200, 503, 503, 503]
    may_go_on.set()
    await starting
    assert [await asked(node.metrics_address, path) for path in paths] == [200, 200, 200, 200]
    may_stop, drain = asyncio.Event(), ApiServer.drain

    async def drain_slowly(server: ApiServer) -> None:
        await may_stop.wait()
        await drain(server)

    monkeypatch.setattr(ApiServer, "drain", drain_slowly)
    stopping = asyncio.ensure_future(node.stop())
    await asyncio.sleep(0)
    assert [await asked(node.metrics_address, path) for path in paths] == [200, 200, 503, 200]
    may_stop.set()
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await asked(node.metrics_address, "/live")


async def test_node_has_no_metrics_when_they_are_switched_off(tmp_path: Path) -> None:
    node = node_in(tmp_path, node={"metrics_listen": ""})
    await node.start()
    assert node.metrics_address == ""
    await node.stop(0)


async def test_node_frees_the_directory_when_it_is_stopped_without_having_started(
    tmp_path: Path,
) -> None:
    await node_in(tmp_path).stop()


async def test_node_stops_at_once_when_the_draining_is_cut_short(tmp_path: Path) -> None:
    node = node_in(tmp_path, node={"drain_ms": 600_000})
    await node.start()
    async with grpc.aio.insecure_channel(node.address) as channel:
        method: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watch = method(b"")
        await watch.read()
        stopping = asyncio.ensure_future(node.stop())
        await watch.read()
        await node.cut_short()
        await stopping


async def test_node_says_where_old_log_is_damaged_that_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("node.process.app.FIRST_S", 0.0)
    first = node_in(tmp_path, log={"segment_bytes": 1 << 16, "scrub_bytes_per_s": 0})
    await first.start()
    async with AsyncProducer(first.address) as producer:
        for _ in range(3):
            messages = [Message(bytes(1_000), delay_ms=3_600_000) for _ in range(60)]
            await producer.publish_many("orders", messages)
    await first.stop(0)
    segment = min((tmp_path / "data" / "shard-0" / "log").glob("*.log"))
    raw = bytearray(segment.read_bytes())
    raw[20_000] ^= 1
    segment.write_bytes(raw)

    node = node_in(tmp_path, log={"segment_bytes": 1 << 16})
    await node.start()
    logged: list[Any] = []

    def is_said() -> bool:
        logged[:] = [one.msg for one in caplog.records if one.levelname == "ERROR"]
        return bool(logged)

    await until(is_said)
    (said,) = logged
    assert (said["error_type"], said["file"]) == ("CorruptLog", f"shard-0/log/{segment.name}")
    assert not node.failure.found.done()
    assert (await status_of(node)).shards[0].pending_count == 180
    await node.stop(0)


@pytest.mark.parametrize("form", [RECEIVE_FORMAT_MESSAGES, RECEIVE_FORMAT_BATCH])
async def test_what_is_accepted_can_be_received_by_a_client_with_grpcs_defaults(
    tmp_path: Path, form: Any
) -> None:
    node = node_in(tmp_path)
    await node.start()
    async with grpc.aio.insecure_channel(node.address) as channel:
        producer: Any = broker_pb2_grpc.ProducerServiceStub(channel)
        consumer: Any = consumer_pb2_grpc.ConsumerServiceStub(channel)
        largest = broker_pb2.OutgoingMessage(body=bytes(limits.MESSAGE_BODY_BYTES_DEFAULT))
        for name in ("a" * limits.PROPERTY_NAME_BYTES_MAX, "b"):
            largest.meta.properties.add(name=name, value="v" * (16 * 1024 - 100))
        topic = "t" * limits.NAME_BYTES_MAX
        request = broker_pb2.PublishRequest(topic=topic, messages=[largest])
        published = await producer.Publish(request)
        larger = broker_pb2.OutgoingMessage(body=largest.body + b"x")
        with pytest.raises(grpc.aio.AioRpcError, match="at most 4128768 are allowed"):
            await producer.Publish(broker_pb2.PublishRequest(topic=topic, messages=[larger]))
        asking = ReceiveRequest(
            group="g" * limits.NAME_BYTES_MAX,
            topic=topic,
            max_bytes=limits.RECEIVE_BYTES_MAX,
            wait_ms=limits.RECEIVE_WAIT_MS_MAX,
            format=form,
        )
        answer = await consumer.Receive(asking)
    assert len(published.messages) == 1
    assert limits.MESSAGE_BODY_BYTES_DEFAULT < answer.ByteSize() < 4 << 20
    await node.stop(0)


class FullDisk(RealDisk):
    """No file of the shard can be made while `is_full` says so."""

    is_full: Callable[[RealDisk], bool]
    refused = 0

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.startswith("shard-0/") and type(self).is_full(self):
            type(self).refused += 1
            raise errors.DiskFull(f"no room for {path}", file=path)
        return super().open(path, create=create)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> type[FullDisk]:
    """The disk of the nodes of a test, full; they look for room without a pause."""

    class Disk(FullDisk):
        is_full = staticmethod(lambda _: True)

    monkeypatch.setattr("node.process.app.RealDisk", Disk)
    monkeypatch.setattr("node.process.app.ROOM_LOOK_S", 0.0)
    return Disk


async def test_start_waits_and_serves_when_a_full_disk_has_room_again(
    tmp_path: Path, full_disk: type[FullDisk]
) -> None:
    node = node_in(tmp_path)
    start = asyncio.create_task(node.start())
    await until(lambda: full_disk.refused >= 3 or start.done())
    assert not start.done(), "it does not end, and does not serve"
    assert not node.address
    full_disk.is_full = staticmethod(lambda _: False)
    await start
    assert (await status_of(node)).nodes[0].address == node.address
    await node.stop(0)


async def test_start_gives_up_the_reserve_before_it_waits_for_room(
    tmp_path: Path, full_disk: type[FullDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk.is_full = staticmethod(lambda disk: disk.exists(RESERVE))
    node = node_in(tmp_path, disk={"free_bytes_min": 0, "reserve_bytes": 1 << 20})
    monkeypatch.setattr("node.process.app.ROOM_LOOK_S", 3_600.0)
    async with asyncio.timeout(60):  # and not an hour, which is its pause
        await node.start()
    assert full_disk.refused, "the reserve was in the way"
    assert (await status_of(node)).nodes[0].address == node.address
    await node.stop(0)


async def test_start_that_waits_for_room_can_be_cancelled(
    tmp_path: Path, full_disk: type[FullDisk]
) -> None:
    node = node_in(tmp_path)
    start = asyncio.create_task(node.start())
    await until(lambda: full_disk.refused >= 2 or start.done())
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await node.stop(0)
    DirectoryLock.acquire(tmp_path / "data").release()
