"""A shard that gives snapshots, and an empty disk that takes them. No gRPC, no threads."""

from dataclasses import replace
from random import Random

from hourwheel.internal.v1.replication_pb2 import SnapshotEnd, SnapshotHead
from hourwheel.types import FIRST_OFFSET, Epoch, Offset, SequenceNumber
from node.shard.checkpoint import ShardPlace
from node.shard.dispatcher import DispatchConfig
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.shard import Shard
from node.shard.snapshot_files import Marker
from node.snapshot.install import install_snapshot
from node.snapshot.sink import Incoming
from node.snapshot.source import HeldSnapshot, LogState
from storage.files.disk import Disk
from storage.log.commit_log import LogConfig
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import IDENTITY, ShardWorld
from timewheel.levels import HOUR_MS
from timewheel.wheel import WheelConfig

EPOCH = Epoch(7)
CONFIG = ShardConfig(
    log=LogConfig(segment_bytes=2_500, index_interval_bytes=512),
    wheel=WheelConfig(
        near_bytes_max=64 * 48,
        load_units=16,
        memtable_units_max=40,
        hour_level_days=1,
        merge_run_count=2,
        job_units_per_slice=8,
    ),
    dispatch=DispatchConfig(units_max=64),
    retention=RetentionConfig(retention_ms=HOUR_MS),
)


def place_on(disk: Disk) -> ShardPlace:
    """Where the shard lies on a disk."""
    return ShardPlace(disk, "shard-0", IDENTITY)


def begin_world(seed: int = 0) -> ShardWorld:
    """A master with a topic, a group and nothing else."""
    return ShardWorld(SimulatedDisk(), CONFIG, seed=seed)


def live(world: ShardWorld, rng: Random, steps: int) -> None:
    """A stretch of random life, all of it committed and applied."""
    for _ in range(steps):
        step = rng.choice(("publish", "publish", "advance", "consume", "cancel", "job", "trim"))
        if step == "publish":
            delays = [rng.choice((0, 50, 3_000, HOUR_MS, 30 * HOUR_MS)) for _ in range(12)]
            world.publish([world.now_ms + delay for delay in delays])
        elif step == "advance":
            world.commit()
            world.advance(rng.choice((20, 2_000, HOUR_MS // 2, 2 * HOUR_MS)))
        elif step == "consume":
            delivery = world.receive(rng.randint(1, 30))
            if delivery is not None:
                world.ack(delivery, 0, rng.randint(1, delivery.lease.count))
        elif step == "cancel":
            world.cancel([rng.randint(0, world.mastership.next_sequence)])
        elif step == "job":
            world.work()
        else:
            world.mastership.trim(world.now_ms - HOUR_MS, world.now_ms)
            world.mastership.trim_sequences(
                SequenceNumber(world.mastership.next_sequence // 2), world.now_ms
            )
        world.commit()


def age(world: ShardWorld, rng: Random) -> None:
    """Live until the log does not begin at 0 any more, with a checkpoint in the end."""
    while world.shard.log.start_offset == 0:
        live(world, rng, 8)
        while (delivery := world.receive()) is not None:
            world.ack(delivery)
            world.commit()
        world.advance(2 * HOUR_MS)
        world.mastership.trim(world.now_ms - HOUR_MS, world.now_ms)
        world.commit()
        world.save()
        world.save()
    world.save()
    world.remove()


def log_state(world: ShardWorld) -> LogState:
    """The log as the sender takes it."""
    shard = world.shard
    epochs = world.opened.epochs.entries
    return LogState(EPOCH, shard.high_watermark, shard.log.segments(), epochs)


def hold(world: ShardWorld, number: int = 0) -> HeldSnapshot:
    """A snapshot of the shard as it is now."""
    stage = HeldSnapshot(world.place, number)
    stage.begin()
    assert stage.complete(log_state(world))
    return stage


def receive(
    stage: HeldSnapshot, disk: Disk, *, replaced_end_offset: Offset = FIRST_OFFSET
) -> Marker:
    """Bring a snapshot to another disk, beside its shard."""
    incoming = Incoming(place_on(disk), EPOCH)
    incoming.begin(SnapshotHead.FromString(stage.head().SerializeToString()))
    for piece in stage.pieces():
        incoming.add(piece)
    return incoming.finish(SnapshotEnd(total_bytes=stage.total_bytes), replaced_end_offset)


def transfer(world: ShardWorld, disk: Disk) -> Marker:
    """Give, take and install a snapshot."""
    stage = hold(world)
    marker = receive(stage, disk)
    stage.close()
    assert install_snapshot(disk, "shard-0", IDENTITY) == marker
    return marker


def open_replica(disk: Disk) -> Opened:
    """Start a follower; what it is not told to be committed is not applied."""
    return open_shard(place_on(disk), replace(CONFIG, has_peers=True))


def catch_up(follower: Shard, master: Shard) -> None:
    """Copy the rest of the master's log, and apply all of it."""
    start, end = follower.log.end_offset, master.log.flushed_end_offset
    if start < end:
        follower.append_copies(master.log.read(start, end - start))
    write = follower.take_write()
    if write is not None:
        write.run(True)
        follower.finish_write(write)
    follower.committed_offset = end
    while follower.apply_some(64):
        pass
    assert follower.views.applied_offset == end
