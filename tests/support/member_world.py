"""Three members of a cluster in one process: real disks, gRPC on loopback, a fake control plane.

    async with MemberWorld(tmp_path) as world:
        await world.elect("n1")                  # and wait until it serves
        await world["n1"].publish(100)
        await world["n2"].cut()                  # its data plane hears nobody
        await world.pass_ms(1_000)               # time of leases and clocks, which a test moves

Their clocks are one clock that stands still until a test moves it: no lease runs out because the
machine is slow. Only beats and retries go by the loop's time, and no test depends on how long.
"""

import asyncio
import uuid
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import FIRST_SHARD, Epoch, NodeId, ShardId
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.master_service import MasterService
from node.broker.settings import engine_config, shard_config
from node.broker.slewed_clock import SlewedClock
from node.cluster.cluster_time import ClusterTime
from node.cluster.data_plane import DataServer, Dialer
from node.cluster.member import MemberPorts, build_member
from node.cluster.peer_trust import Trust
from node.cluster.runtime import open_epoch_seen, replication_config
from node.config.model import NodeConfig
from node.contracts.broker import Delivery, PublishedBatchResult, ReceiveParams
from node.replica.effects import ReplicaIdentity, Role
from node.replica.mastership import Mastership
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import open_shard
from node.telemetry.failure import Failure
from replication.control_state.state import ControlState, Member, NodeInfo, ShardInfo
from storage.files.disk import Disk, RealDisk
from storage.files.file_header import Identity
from tests.support.engine_world import OFTEN, within
from tests.support.eventually import until
from tests.support.fake_clock import FakeClock

NODES: Final = (NodeId("n1"), NodeId("n2"), NodeId("n3"))
LEASE_MS: Final = 600
_STEP_MS: Final = 100
CONFIG: Final = NodeConfig.of(
    {"cluster": {"sync_interval_ms": 10, "lease_ms": LEASE_MS}, "dispatch": {"lead_ms_min": 20}}
)


class FakeControl:
    """The control plane, without Raft: masters are as tests say, in-sync sets by compare-and-set.

    What is in `errors` is raised by the next proposals, one each.
    """

    def __init__(self, cluster_id: bytes) -> None:
        self.boots = {node: uuid.uuid4().bytes for node in NODES}
        self.members: dict[NodeId, Any] = {}
        self.reports: dict[NodeId, ShardReport] = defaultdict(ShardReport)
        self.dead: set[NodeId] = set()
        self.errors: list[Exception] = []
        nodes = {
            node: NodeInfo(node, f"{node}.example:7400", "", "", boot, "1", {}, 1)
            for node, boot in self.boots.items()
        }
        isr = tuple(Member(node, boot) for node, boot in sorted(self.boots.items()))
        shard = ShardInfo(ShardId(0), Epoch(0), None, isr, 0)
        self.state = ControlState(
            cluster_id=cluster_id, min_in_sync=2, nodes=nodes, shards={0: shard}
        )

    @property
    def shard(self) -> ShardInfo:
        return self.state.shards[0]

    @property
    def in_sync(self) -> set[NodeId]:
        return set(self.shard.isr_node_ids)

    def put(self, shard: ShardInfo, *, deaf: frozenset[NodeId] = frozenset()) -> None:
        """Let everybody know but those who are `deaf`."""
        self.state = replace(self.state, shards={0: shard})
        for node, member in list(self.members.items()):
            if node not in deaf:
                member.on_state(self.state)

    def elect(self, node: NodeId, *, deaf: frozenset[NodeId] = frozenset()) -> None:
        """Begin an epoch."""
        shard, master = self.shard, Member(node, self.boots[node])
        epoch = Epoch(shard.epoch + 1)
        self.put(replace(shard, epoch=epoch, master=master, version=shard.version + 1), deaf=deaf)

    def port(self, node: NodeId) -> "ControlPortOf":
        return ControlPortOf(self, node)


class ControlPortOf:
    """One node's end; see node.contracts.control."""

    is_registered = True

    def __init__(self, control: FakeControl, node: NodeId) -> None:
        self._control, self._node = control, node

    def is_dead(self, node: NodeId) -> bool:
        return node in self._control.dead

    def report(self, shards: list[ShardReport]) -> None:
        self._control.reports[self._node] = shards[0]

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        await asyncio.sleep(0)
        control, asked, shard = self._control, command.change_isr, self._control.shard
        if control.errors:
            raise control.errors.pop(0)
        if asked.epoch != shard.epoch or asked.expected_version != shard.version:
            return wire.ControlResult(outcome=wire.CONTROL_OUTCOME_CONFLICT)
        isr = tuple(Member(NodeId(one.node_id), one.boot_id) for one in asked.isr)
        control.put(replace(shard, isr=isr, version=shard.version + 1))
        return wire.ControlResult(outcome=wire.CONTROL_OUTCOME_OK)


class MemberNode:
    """One node, but for its API and its control process."""

    engine: Engine
    server: DataServer

    def __init__(self, world: "MemberWorld", node: NodeId) -> None:
        self.world, self.node = world, node
        self.folder = world.root / node
        self.folder.mkdir(exist_ok=True)
        self.disk: Disk = RealDisk(self.folder)
        self.trust = world.trust
        self.cluster_id = world.cluster_id
        self.address = ""
        self.is_open = False

    async def open(self) -> None:
        """Start a process, as it were: it listens, and nobody has named a master to it yet."""
        world, clock = self.world, self.world.clock
        control = world.control
        place = ShardPlace(self.disk, "shard-0", Identity(self.cluster_id, FIRST_SHARD))
        opened = open_shard(place, replace(shard_config(CONFIG), has_peers=True))
        self.time = ClusterTime(SlewedClock(clock), clock.monotonic_ms)
        self.failure = Failure()
        self.guard = DiskGuard(self.disk, free_bytes_min=0, reserve_bytes=0)
        self.dialer = Dialer(self.trust, world.addresses)
        self.member = build_member(
            opened,
            open_epoch_seen(opened, self.node),
            ReplicaIdentity(self.node, control.boots[self.node].hex(), self.cluster_id, NODES),
            replication_config(CONFIG.cluster),
            MemberPorts(self.time, control.port(self.node), self.dialer, self.guard, self.failure),
        )
        self.engine = Engine(
            opened,
            replace(engine_config(CONFIG), damage_pace=OFTEN),
            self.time,
            self.member,
            self.guard,
            self.failure,
        )
        self.engine.start()
        self.member.start(self.engine, CONFIG.cluster.sync_interval_ms)
        self.is_open = True
        await self.listen()
        control.members[self.node] = self.member

    async def listen(self) -> None:
        """Hear other nodes, on the same port as before if there was one."""
        handlers = self.member.server.handlers()  # type: ignore[union-attr]
        self.server = DataServer(self.trust, self.address or "127.0.0.1:0")
        port = await self.server.start(handlers)
        self.address = self.world.addresses[self.node] = f"127.0.0.1:{port}"

    async def cut(self) -> None:
        """Hear nobody: all streams to this node break."""
        await self.server.stop()

    async def close(self) -> None:
        """Stop in order."""
        self.world.control.members.pop(self.node, None)
        self.is_open = False
        await within(self.member.close())
        await self.server.stop()
        await self.dialer.close()
        await within(self.engine.close())

    @property
    def service(self) -> MasterService:
        """What it does as master."""
        assert self.engine.service is not None
        return self.engine.service

    @property
    def mastership(self) -> Mastership:
        """Its present one."""
        return self.service.mastership

    @property
    def replica(self) -> Any:
        return self.member.replica

    @property
    def shard(self) -> Any:
        return self.engine.shard

    @property
    def serves(self) -> bool:
        return self.member.may_act()

    async def publish(self, *delay_ms: int, topic: str = "orders") -> PublishedBatchResult:
        """One batch; the body of each message is its delay."""
        bodies = [b"%d" % delay for delay in delay_ms]
        batch = RecordBatch(build_publish(list(delay_ms), bodies, relative_due=True))
        return await within(self.engine.publish_batch(topic, batch))

    async def receive(self, *, count: int = 32, wait_ms: int = 0) -> Delivery | None:
        return await within(
            self.engine.receive(
                ReceiveParams("billing", "orders", count, 1 << 20, wait_ms, invisible_ms=30_000)
            )
        )

    async def bodies(self, count: int) -> bytes:
        """So many messages, one behind the other, as they are released."""
        found, got = b"", 0
        while got < count:
            delivery = await self.receive(count=count - got, wait_ms=60_000)
            assert delivery is not None
            found, got = found + delivery.blobs, got + len(delivery.units)
        return found


class MemberWorld:
    """See the top of this file."""

    def __init__(self, root: Path) -> None:
        """Files go below `root`."""
        self.root, self.clock = root, FakeClock()
        self.cluster_id = bytes(range(16))
        self.trust = Trust(secret="known to all three of them")
        self.addresses: dict[NodeId, str] = {}
        self.control = FakeControl(self.cluster_id)
        self.nodes = {node: MemberNode(self, node) for node in NODES}
        self.expected: set[str] = set()
        """Nodes that a test makes fail."""

    def __getitem__(self, node: NodeId) -> MemberNode:
        return self.nodes[node]

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            await node.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            if node.is_open:
                await node.close()
        if error is None:
            failed = {
                name: repr(node.failure.found.result())
                for name, node in self.nodes.items()
                if node.failure.found.done() and name not in self.expected
            }
            assert failed == {}

    async def elect(self, node: NodeId) -> MemberNode:
        """Make a node master, and wait until it serves; its predecessor ends in order."""
        self.control.elect(node)
        return await self.serving(node)

    async def elect_with_message(self, node: NodeId) -> MemberNode:
        """Make a node master, publish a message that is due in 100 s, and let all apply it."""
        elected = await self.elect(node)
        await elected.publish(100_000)
        await self.agreed()
        return elected

    async def serving(self, node: NodeId) -> MemberNode:
        await until(lambda: self[node].serves)
        return self[node]

    def connected(self) -> list[tuple[NodeId, Any]]:
        """(node, what its master knows of it) of all streams that stand."""
        masters = [one.replica.rules for one in self.nodes.values() if one.is_open]
        return [
            (node, progress)
            for master in masters
            if master is not None
            for node, progress in master.followers.items()
            if progress.phase.may_send
        ]

    async def pass_ms(self, duration_ms: int) -> None:
        """Time passes, in steps that are short enough for leases to be renewed meanwhile."""
        for passed in range(0, duration_ms, _STEP_MS):
            self.jump_ms(min(_STEP_MS, duration_ms - passed))
            now_ms = self.clock.monotonic
            await until(partial(self._has_heard, now_ms))

    def _has_heard(self, since_ms: float) -> bool:
        return all(progress.heard_ms >= since_ms for _, progress in self.connected())

    def jump_ms(self, duration_ms: float) -> None:
        """Time passes at once, as it does for a process that is stopped."""
        self.clock.pass_ms(duration_ms)
        for node in self.nodes.values():
            if node.is_open:
                node.engine.rearm()

    async def agreed(self) -> None:
        """Wait until everybody has applied all of the same log."""
        shards = [node.shard for node in self.nodes.values() if node.is_open]

        def is_so() -> bool:
            ends = {one.log.end_offset for one in shards}
            return len(ends) == 1 and {one.views.applied_offset for one in shards} == ends

        await until(is_so)
        assert len({one.views.digest() for one in shards}) == 1

    def role(self, node: NodeId) -> Role:
        found: Role = self[node].replica.role
        return found
