"""What a node of several has beside a node alone. Real clusters: tests/cluster."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.types import NodeId
from node.broker.slewed_clock import SlewedClock
from node.cluster import runtime
from node.cluster.runtime import ClusterRuntime
from node.config.model import NodeConfig
from node.telemetry.failure import Failure
from replication.control_state.access import AccessState
from replication.control_state.membership import Membership
from replication.control_state.state import ControlState, NodeInfo
from tests.support.addresses import free_address
from tests.support.embedded_node import EmbeddedNode
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock


def cluster_of(tmp_path: Path, *nodes: str) -> dict[str, Any]:
    """Sections of the configuration of the first of these nodes."""
    secret = tmp_path / "secret"
    secret.write_text("known to all of them\n")
    named = [f"{node}={','.join(free_address() for _ in range(3))}" for node in nodes]
    return {
        "node": {"id": nodes[0], "metrics_listen": "", "data_directory": str(tmp_path / "data")},
        "cluster": {
            "nodes": " ".join(named),
            "secret_file": str(secret),
            "min_in_sync": len(nodes) // 2 + 1,
        },
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    }


class FakeControl:
    """In place of the control process and the broker's link to it."""

    def __init__(self, *, on_state: Any, on_lost: Any) -> None:
        self.on_state, self.on_lost = on_state, on_lost
        self.asked: list[tuple[bool, wire.SeenEpoch]] = []
        self.error: Exception | None = None
        self.is_stopped = False

    async def register(self, *, is_sound: bool, seen: wire.SeenEpoch) -> None:
        self.asked.append((is_sound, seen))
        if self.error is not None:
            raise self.error

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        raise AssertionError(f"nothing is proposed here: {command}")

    async def stop(self) -> None:
        self.is_stopped = True


class World:
    """A ClusterRuntime with a fake control process and a fake member."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[FakeControl] = []

        def make(*_: Any, **callbacks: Any) -> FakeControl:
            made.append(FakeControl(**callbacks))
            return made[-1]

        monkeypatch.setattr(runtime, "ClusterControl", make)
        clock, self.failure = FakeClock(), Failure()
        self.runtime = ClusterRuntime(
            NodeConfig.of(cluster_of(tmp_path, "n1", "n2", "n3")),
            clock,
            SlewedClock(clock),
            self.failure,
            on_snapshot_received=lambda: None,
        )
        (self.control,) = made
        self.is_master, self.transferred = True, list[str]()
        self.states: list[Any] = []
        self.runtime.member = SimpleNamespace(  # type: ignore[assignment]
            may_act=lambda: self.is_master,
            transfer_mastership=self.transferred.append,
            replica=SimpleNamespace(is_sound=True),
            on_state=self.states.append,
        )
        self.runtime._seen = SimpleNamespace(epoch=4, master="n2")  # type: ignore[assignment]


async def test_node_joins_with_what_it_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    await world.runtime.join()
    await until(lambda: world.control.asked)
    seen = wire.SeenEpoch(shard=0, epoch=4, master_node_id="n2")
    assert world.control.asked == [(True, seen)]
    news = ControlState(access=AccessState(version=7))
    world.control.on_state(news)
    assert world.states == [news]
    assert world.runtime.policies.state is news.access
    await world.runtime.stop()
    assert world.control.is_stopped


async def test_listener_believes_members_from_when_they_come_until_they_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, believed = World(tmp_path, monkeypatch), list[Any]()
    endings = list[set[str]]()

    async def start(_: Any) -> None:
        pass

    def listen(*_: Any, node_ids: Any, **__: Any) -> Any:
        believed.append(node_ids)
        return SimpleNamespace(
            start=start,
            stop=world.control.stop,
            end_calls_of_former=lambda: endings.append(set(node_ids)),
        )

    monkeypatch.setattr(runtime, "DataServer", listen)
    world.runtime.member = SimpleNamespace(  # type: ignore[assignment]
        start=lambda *_: None,
        close=world.control.stop,
        server=SimpleNamespace(handlers=list),
        on_state=world.states.append,
    )
    engine: Any = SimpleNamespace(start=lambda: None)
    async with AsyncExitStack() as undo:
        await world.runtime.take_part(engine, undo)
        (node_ids,) = believed
        assert set(node_ids) == {"n1", "n2", "n3"}
        new = NodeInfo(NodeId("n4"), "n4:1", "n4:2", "n4:3", b"", "", {}, 1)
        world.control.on_state(ControlState(nodes={new.node_id: new}))
        assert set(node_ids) == {"n1", "n2", "n3", "n4"}
        former = tuple(map(NodeId, ("n1", "n2", "n9")))  # n1 itself has left, too
        world.control.on_state(ControlState(membership=Membership(1, {}, former)))
        assert set(node_ids) == {"n1", "n3", "n4"}
        assert endings == [{"n1", "n3", "n4"}]
    await world.runtime.stop()


async def test_process_ends_when_joining_meets_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.control.error = KeyError("a bug")
    await world.runtime.join()
    failed = await within(asyncio.shield(world.failure.found))
    assert isinstance(failed, errors.Internal)
    await world.runtime.stop()


async def test_process_ends_when_its_control_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.control.on_lost(errors.Unavailable("it is gone"))
    assert isinstance(world.failure.found.result(), errors.Unavailable)


async def test_transfer_waits_until_somebody_else_is_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    handing = asyncio.ensure_future(world.runtime.transfer_mastership())
    await let_others_run()
    assert world.transferred == [""]
    assert not handing.done()
    world.is_master = False
    await within(handing)


async def test_transfer_ends_when_nobody_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    await within(world.runtime.transfer_mastership(timeout_s=0.0))
    assert world.transferred == [""]


async def test_nothing_is_transferred_by_a_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.is_master = False
    await within(world.runtime.transfer_mastership())
    assert world.transferred == []


async def test_cluster_of_one_serves_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    sections = cluster_of(tmp_path, "n1")
    data = Path(sections["node"].pop("data_directory"))
    epochs = []
    for life in (1, 2):
        async with EmbeddedNode(data, sections) as node:
            async with (
                AsyncProducer(node.address) as producer,
                AsyncConsumer(node.address, group="billing", topic="orders") as consumer,
                AsyncAdmin(node.address) as admin,
            ):
                await producer.publish("orders", Message(b"%d" % life, delay_ms=0))
                got = await consumer.receive(10, wait_ms=60_000)
                assert [one.body for one in got] == [b"%d" % life]
                await consumer.ack(got)
                epochs.append((await admin.status()).shards[0].epoch)
            facts = node.node._cluster.read_facts()  # type: ignore[union-attr]
            assert facts.shard.may_act
            assert facts.epoch_stats.takeovers == 1
            assert (facts.is_clock_unsure, facts.heartbeat_age_ms) == (False, 0.0)
    assert epochs[0] < epochs[1]


async def test_node_refuses_to_start_where_its_data_address_is_taken(tmp_path: Path) -> None:
    sections = cluster_of(tmp_path, "n1")
    data = Path(sections["node"].pop("data_directory"))
    taken = asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    server = await taken
    port = server.sockets[0].getsockname()[1]
    sections["cluster"]["data_listen"] = f"127.0.0.1:{port}"
    with pytest.raises(errors.ConfigError, match=r"cluster\.data_listen"):
        await within(EmbeddedNode(data, sections).node.start())
    server.close()
