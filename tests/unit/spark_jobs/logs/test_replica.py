"""What follows from what a replica has: how far it is durable, committed and to be trusted."""

import pickle

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.logs.replica import Inventory, Problem, Replica, SegmentFile, ShardCopy

SEGMENTS = (
    SegmentFile("shard-3/log/a", 100, 300, has_index=True),
    SegmentFile("shard-3/log/b", 300, 350, has_index=False),
)
MANIFEST = Checkpoint(applied_offset=320).SerializeToString()


def copy_of(flushed: int = 0, watermark: int | None = None, manifest: bytes = b"") -> ShardCopy:
    return ShardCopy(3, "shard-3", SEGMENTS, (), flushed, watermark, manifest)


def test_copy_when_asked_knows_its_span_and_its_files() -> None:
    copy = copy_of()
    assert (copy.start_offset, copy.end_offset) == (100, 350)
    assert copy.path("log", "a") == "shard-3/log/a"
    empty = ShardCopy(3, "shard-3")
    assert (empty.start_offset, empty.end_offset, empty.manifest) == (0, 0, None)


def test_durable_when_mark_and_checkpoint_differ_is_the_later() -> None:
    assert copy_of(310).durable_offset == 310
    assert copy_of(310, manifest=MANIFEST).durable_offset == 320
    assert copy_of(340, manifest=MANIFEST).durable_offset == 340


def test_committed_when_there_are_peers_is_what_they_agreed_on() -> None:
    assert copy_of(340).committed_offset == 340
    assert copy_of(340, watermark=330).committed_offset == 330
    assert copy_of(340, watermark=0, manifest=MANIFEST).committed_offset == 320


def test_inventory_when_sent_to_another_process_is_the_same() -> None:
    problem = Problem("no-log", "error", "b", 3, "", -1, "none")
    replicas = (
        Replica("/a", "a", bytes(16), (copy_of(manifest=MANIFEST),)),
        Replica("/b", "b", bytes(16), (), (problem,)),
    )
    inventory = Inventory(bytes(16), replicas)
    assert pickle.loads(pickle.dumps(inventory)) == inventory
    assert inventory.problems == (problem,)
    assert inventory.shards == (3,)
    assert [one.node for one, _ in inventory.copies(3)] == ["a"]
    assert inventory.cluster == "00" * 16
