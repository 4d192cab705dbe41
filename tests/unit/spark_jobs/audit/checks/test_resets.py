"""What a reset of a group allows is right, and anything else that comes twice or not is found.

A group acknowledges, gives back, begins anew further back, and goes on; then the log or the node's
views are edited, with every checksum made anew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch
from hourwheel.internal.v1.state_pb2 import Checkpoint, ConfigChange
from hourwheel.types import TopicQueue
from tests.sim.disk import SimulatedDisk
from tests.support import snapshot_world
from tests.support.audit_runs import errors_of, run_audit
from tests.support.broken_logs import edit_manifest, read_queue, rewrite_queue
from tests.support.clean_lives import image_of, write_image
from tests.support.log_copies import Cluster, changed
from tests.support.shard_proposals import Side
from tests.support.shard_world import ShardWorld

MESSAGES: Final = 8
BEGIN: Final = 2
"""Where the group begins anew; all before the sixth was done by then."""
DONE_AGAIN: Final = 4
"""What it has acknowledged since; the one behind it is a retry."""


@dataclass
class Node:
    """A directory, and the group in it that was reset."""

    directory: Path
    side: Side
    retries: int
    """The topic of its retries since then."""

    def edit_reset(self, position: int) -> None:
        """Let the log say that the group began elsewhere."""
        cluster = Cluster([self.directory])
        batch = next(one for one in cluster.of(Kind.CONFIG) if _is_reset(one))
        change = ConfigChange.FromString(bytes(batch.blobs))
        size = change.ByteSize()
        change.reset_subscription.positions[:] = [position]
        assert change.ByteSize() == size
        raw = change.SerializeToString(deterministic=True)
        cluster.put(batch, changed(batch, raw + bytes(batch.payload)[size:]))

    def edit_window(self, floor: int) -> None:
        """Let the node's checkpoint say that this is done in the group's queue."""

        def change(manifest: Checkpoint) -> None:
            (window,) = [one for one in manifest.acks if one.topic_queue == self.side.queue]
            window.floor_position = floor
            window.resolved_range_deltas[:] = []

        edit_manifest(self.directory, change)


def _is_reset(batch: RecordBatch) -> bool:
    return ConfigChange.FromString(bytes(batch.blobs)).HasField("reset_subscription")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    world = ShardWorld(SimulatedDisk(), snapshot_world.CONFIG, seed=3)
    side = world.make_side(1)
    world.publish([world.now_ms] * MESSAGES, queues=[side.queue])
    world.commit()

    def resolve(first: int, count: int, outcome: Outcome) -> None:
        world.resolve_side(side, side.queue, first, count, outcome)
        world.commit()

    resolve(0, DONE_AGAIN, Outcome.ACK)
    resolve(DONE_AGAIN, 2, Outcome.RETRY)
    world.reset_side(side, BEGIN)
    world.commit()
    resolve(DONE_AGAIN, 1, Outcome.ACK)
    resolve(DONE_AGAIN + 1, 1, Outcome.RETRY)
    world.advance(60_000)
    world.commit()
    retries = world.retries_of(side)
    assert retries != side.retries
    world.close()
    return Node(write_image(image_of(world.disk), tmp_path / "node-1"), side, retries)


def test_nothing_is_found_when_all_is_as_the_reset_wants_it(node: Node) -> None:
    assert errors_of(run_audit(node.directory)) == []
    assert len(read_queue(node.directory, TopicQueue(node.retries << 8))) == 1


def deliver_again_unasked(node: Node) -> None:
    """The log says that the group began two further on: these two the node delivers again."""
    node.edit_reset(BEGIN + 2)


def leave_out_by_the_log(node: Node) -> None:
    """The log says that it began with the first: the node holds two for done."""
    node.edit_reset(0)


def leave_out_by_the_node(node: Node) -> None:
    """What the reset has opened again counts as done."""
    node.edit_window(DONE_AGAIN + 2)


def forget_what_was_done_since(node: Node) -> None:
    """What was acknowledged behind the reset would be delivered once more."""
    node.edit_window(BEGIN)


def bring_an_old_retry(node: Node) -> None:
    """A retry of before comes behind the reset, beside the message itself."""
    queue = TopicQueue(node.retries << 8)
    units = read_queue(node.directory, queue)
    again = units.copy()
    again["sequence"] = units["sequence"] - 1
    rewrite_queue(node.directory, queue, np.concatenate((units, again)))


def lose_a_retry(node: Node) -> None:
    """What was given back behind the reset does not come."""
    queue = TopicQueue(node.retries << 8)
    rewrite_queue(node.directory, queue, read_queue(node.directory, queue)[:0])


PLANTED: Final[dict[Callable[[Node], None], tuple[str, str]]] = {
    deliver_again_unasked: ("checkpoint", "has resolved"),
    leave_out_by_the_log: ("checkpoint", "has resolved"),
    leave_out_by_the_node: ("checkpoint", "has resolved"),
    forget_what_was_done_since: ("checkpoint", "has resolved"),
    bring_an_old_retry: ("queue-doubled", ""),
    lose_a_retry: ("queue-missing", ""),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda one: one.__name__)
def test_fault_behind_a_reset_is_found(node: Node, plant: Callable[[Node], None]) -> None:
    check, words = PLANTED[plant]
    plant(node)
    found = errors_of(run_audit(node.directory))
    assert check in {one.check for one in found if words in one.detail}, found
