"""An engine of a node alone, with clocks that a test gives; everything else of it is real."""

from collections.abc import Callable
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import NodeId
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.settings import EngineConfig
from node.cluster.data_plane import Dialer
from node.cluster.member import ClusterMember, MemberPorts, build_member
from node.cluster.peer_trust import Trust
from node.cluster.standalone import EpochInMemory, serve
from node.replica.effects import ReplicaIdentity
from node.shard.recovery import Opened
from node.telemetry.failure import Failure
from replication.rules.master import ReplicationConfig

NODE: Final = NodeId("node-1")


class GivenTime:
    """As node.cluster.cluster_time: the clocks are whatever a test says."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        until_ms: Callable[[int], float] | None = None,
        monotonic_ms: Callable[[], float] | None = None,
    ) -> None:
        """By default timers go by `now_ms`, and the monotonic clock stands still."""
        self.now_ms = now_ms
        self.until_ms = until_ms or (lambda at_ms: float(at_ms - now_ms()))
        self.monotonic_ms = monotonic_ms or (lambda: 0.0)

    def own_ms(self) -> float:
        """This node's clock."""
        return float(self.now_ms())

    def begin(self, offset_ms: float) -> None:
        """A node alone is not ahead of itself."""

    def set_offset(self, offset_ms: float) -> None:
        """Neither later."""


class NoControlPlane:
    """In place of the control plane: an in-sync set of one never changes."""

    is_registered = True

    def is_dead(self, node: NodeId) -> bool:
        """There are no others."""
        del node
        return False

    def report(self, shards: list[ShardReport]) -> None:
        """There is no control process."""

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """Nobody does."""
        errors.violated("a node alone has nothing to propose", command=str(command))


class LoneEngine(NamedTuple):
    """One start of it."""

    engine: Engine
    member: ClusterMember
    opened: Opened
    failure: Failure

    async def serve(self) -> None:
        """Return when it serves. Raises whatever keeps it from that."""
        await serve(self.member, self.engine, self.opened, self.failure)

    async def close(self) -> None:
        """Stop cleanly."""
        await self.member.close()
        await self.engine.close()


def make_alone(
    opened: Opened,
    config: EngineConfig,
    time: GivenTime,
    guard: DiskGuard,
    failure: Failure,
    boot: int = 1,
) -> LoneEngine:
    """One that does nothing yet: `serve` is next."""
    place = opened.maintenance.place
    member = build_member(
        opened,
        EpochInMemory.begin(place),
        ReplicaIdentity(NODE, f"{boot:032x}", place.identity.cluster_id, (NODE,)),
        ReplicationConfig(min_in_sync=1),
        MemberPorts(
            time,  # type: ignore[arg-type]
            NoControlPlane(),
            Dialer(Trust(), {}),
            guard,
            failure,
        ),
    )
    engine = Engine(opened, config, time, member, guard, failure)
    return LoneEngine(engine, member, opened, failure)
