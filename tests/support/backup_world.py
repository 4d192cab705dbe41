"""A shard that lives at random, folders with backups of it, and what is restored of them."""

from random import Random

import numpy as np

from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.restored_control import find_restored
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import CONTROL_ALONE
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.tools.backup.capture import Captured, capture
from node.tools.backup.repository import Repository
from node.tools.backup.restore import Overdue, Restored, RestorePlan, restore
from node.tools.backup.store import FolderStore
from replication.control_state.commands import make_command
from replication.standalone.control_journal import ControlJournal
from storage.files.disk import Disk
from storage.files.file_header import Identity
from storage.views.unit import Units
from tests.sim.disk import SimulatedDisk
from tests.support.shard_world import ShardWorld
from tests.support.snapshot_world import CONFIG, live

NEW_CLUSTER = bytes(range(100, 116))


def lived(seed: int, steps: int = 14) -> ShardWorld:
    """A shard with a past."""
    world = ShardWorld(SimulatedDisk(), CONFIG, seed=seed)
    live(world, Random(seed), steps)
    return world


def back_up(world: ShardWorld, folder: Disk) -> Captured:
    return capture(
        world.place,
        Repository(FolderStore(folder)),
        node_id=NodeId("n"),
        made_ms=world.now_ms,
        pace=lambda _: None,
    )


def plan_of(
    world: ShardWorld, overdue: Overdue = Overdue.RELEASE, until_ms: int | None = None
) -> RestorePlan:
    return RestorePlan(NEW_CLUSTER, NodeId("n"), world.now_ms, overdue, until_ms)


def restored(folder: Disk, backup_id: str, plan: RestorePlan) -> tuple[Restored, Disk]:
    disk = SimulatedDisk()
    return restore(Repository(FolderStore(folder)), backup_id, disk, plan), disk


def opened_of(disk: Disk) -> Opened:
    return open_shard(
        ShardPlace(disk, "shard-0", Identity(NEW_CLUSTER, FIRST_SHARD)), ShardConfig()
    )


def log_of(opened: Opened) -> bytes:
    """From where the log begins."""
    log = opened.shard.log
    return log.read(log.start_offset, log.end_offset - log.start_offset)


def keys_of(units: Units) -> list[tuple[int, int]]:
    return list(zip(units["due_ms"].tolist(), units["sequence"].tolist(), strict=True))


def overdue_keys(units: Units, now_ms: int) -> list[tuple[int, int]]:
    """Of those that never were released."""
    return keys_of(units[np.flatnonzero((units["due_ms"] <= now_ms) & (units["attempt"] == 1))])


def give_users(world: ShardWorld, *numbers: int) -> ControlJournal:
    """Users that are known to the node alone whose shard it is."""
    journal = ControlJournal.open(world.disk, CONTROL_ALONE, world.place.identity, NodeId("n"))
    for number in numbers:
        put = pb.PutUserCommand(name=f"user-{number}", secret_hash="#")
        command = make_command(b"user" + number.to_bytes(12, "big"), put_user=put)
        journal.apply([command.SerializeToString(deterministic=True)])
    return journal


def users_of(disk: Disk) -> set[str]:
    """Of what was restored: the users with which a start begins; empty where there are none."""
    state = find_restored(disk, Identity(NEW_CLUSTER, FIRST_SHARD))
    return set() if state is None else set(state.access.users)
