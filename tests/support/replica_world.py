"""Replicas driven by hand: messages are calls, writes happen when a test says so."""

from hourwheel.types import FIRST_SHARD, Epoch, NodeId
from node.replica.effects import Assignment, Effect, ReplicaIdentity
from node.replica.mastership import Mastership
from node.replica.replica import Replica
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import Opened, ShardConfig, open_shard
from replication.rules.follower import Follower
from replication.rules.master import ReplicationConfig
from replication.rules.master_lease import LeaseGrant
from storage.files.file_header import Identity
from storage.log.epochs import EpochStore
from storage.log.tail import LogConfig
from tests.sim.disk import SimulatedDisk

IDENTITY = Identity(bytes(range(16)), FIRST_SHARD)
NAMES = (NodeId("a"), NodeId("b"), NodeId("c"))
START_MS = 1_800_000_000_000
"""By every node's clock, unless a test sets one wrong. Monotonic clocks say 1 ms, unless a test
says otherwise: a beat that was sent at 0 would look like none."""


class ReplicaWorld:
    """One node's replica on a simulated disk."""

    def __init__(
        self,
        name: NodeId,
        *,
        members: tuple[NodeId, ...] = NAMES,
        grant_left_ms: float = 0.0,
        log: LogConfig | None = None,
        boot_id: str = "",
    ) -> None:
        self.name, self.members, self.log = name, members, log or LogConfig()
        self.boot_id = boot_id or f"boot-{name}"
        self.own_clock_ms = START_MS
        self.disk = SimulatedDisk()
        self.opened: Opened
        self.replica: Replica
        self.open(grant_left_ms)

    def open(self, grant_left_ms: float = 0.0, monotonic_ms: float = 0.0) -> None:
        """Start the process."""
        place = ShardPlace(self.disk, "shard-0", IDENTITY)
        self.opened = open_shard(place, ShardConfig(log=self.log, has_peers=True))
        self.shard = self.opened.shard
        self.seen = EpochStore.open(self.disk, place.under("epoch_seen"), IDENTITY)
        self.seen.keep_room()
        follower = Follower(
            me=self.name,
            boot_id=self.boot_id,
            cluster_id=IDENTITY.cluster_id,
            shard=FIRST_SHARD,
            seen=self.seen,
            grant=LeaseGrant(monotonic_ms, grant_left_ms),
        )
        self.replica = Replica(
            self.opened,
            follower,
            ReplicaIdentity(self.name, self.boot_id, IDENTITY.cluster_id, self.members),
            ReplicationConfig(min_in_sync=min(2, len(self.members))),
            now_ms=lambda: self.own_clock_ms,
        )

    @property
    def mastership(self) -> Mastership:
        """Of the master."""
        assert self.replica.mastership is not None
        return self.replica.mastership

    def effects(self) -> list[Effect]:
        """What is to be done."""
        return self.replica.take_effects()

    def kinds(self) -> list[str]:
        """The same, by name."""
        return [type(effect).__name__ for effect in self.effects()]

    def assign(
        self,
        epoch: Epoch,
        master: NodeId,
        *,
        isr: str = "abc",
        version: int = 0,
        monotonic_ms: float = 1.0,
        min_in_sync: int = 0,
    ) -> None:
        """The control plane's word."""
        self.replica.on_assignment(
            Assignment(
                *(Epoch(epoch), master, frozenset(map(NodeId, isr)), version or epoch),
                min_in_sync=min_in_sync,
            ),
            monotonic_ms,
        )

    def write(self, monotonic_ms: float = 1.0) -> None:
        """Write what is appended, and apply what is committed."""
        write = self.shard.take_write()
        if write is not None:
            write.run(durable=True)
            self.shard.finish_write(write)
            self.replica.on_flushed(monotonic_ms)
        self.apply(monotonic_ms)

    def apply(self, monotonic_ms: float = 1.0) -> None:
        """Apply what is committed."""
        while applied := self.shard.apply_some(8):
            self.replica.on_applied(applied, monotonic_ms)

    def become_master(self, epoch: Epoch, *, isr: str = "abc", monotonic_ms: float = 1.0) -> None:
        """Become the master of an epoch; EPOCH_START is written."""
        self.assign(epoch, self.name, isr=isr, monotonic_ms=monotonic_ms)
        self.replica.step(monotonic_ms)
        assert self.replica.rules is not None
        self.write(monotonic_ms)


def join(master: ReplicaWorld, follower: ReplicaWorld, monotonic_ms: float = 1.0) -> None:
    """Open a stream, and let the two agree where their logs part."""
    hello = master.replica.on_connected(follower.name)
    answer = follower.replica.on_hello(hello, monotonic_ms)
    begin = master.replica.answer_hello(follower.name, answer)  # type: ignore[arg-type]
    follower.replica.begin_following(begin)


def send(master: ReplicaWorld, follower: ReplicaWorld) -> None:
    """Send all of the log that may be sent."""
    while (part := master.replica.find_part(follower.name)) is not None:
        follower.replica.on_log(part)


def sync(master: ReplicaWorld, follower: ReplicaWorld, monotonic_ms: float = 1.0) -> None:
    """One round: log, write, heartbeat, acknowledgement."""
    send(master, follower)
    follower.write(monotonic_ms)
    follower.replica.on_heartbeat(
        master.replica.make_heartbeat(monotonic_ms, START_MS), monotonic_ms
    )
    acknowledge(master, follower, monotonic_ms)
    master.apply(monotonic_ms)
    follower.apply(monotonic_ms)


def acknowledge(master: ReplicaWorld, follower: ReplicaWorld, monotonic_ms: float = 1.0) -> None:
    """The follower says how far it is."""
    ack = follower.replica.acknowledge(monotonic_ms, float(START_MS))
    master.replica.on_ack(follower.name, ack, monotonic_ms, float(START_MS))
