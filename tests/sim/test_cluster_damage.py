"""Bits that flip under simulated nodes that run: local damage is local (decision 0019)."""

from collections.abc import Iterator

import pytest

from hourwheel.types import FIRST_OFFSET
from tests.sim.cluster import Cluster
from tests.sim.cluster_faults import VIEW_KINDS
from tests.sim.cluster_node import SimNode
from tests.support.small_sizes import small_sizes


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_sizes(16):
        yield


def begin(seed: int, commits: int = 12) -> Cluster:
    """A cluster in which something was published."""
    cluster = Cluster(seed)
    cluster.think_ms = 30.0
    cluster.start()
    cluster.await_commit(commits)
    return cluster


def flip_what_was_published(cluster: Cluster, node: SimNode, *, step: int = 97) -> None:
    """One bit in each batch or two of all that a node has applied."""
    end = min(node.applied_offset, len(cluster.checkers.canon.data))
    for offset in range(0, end, step):
        node.flips.flip_log(offset, offset % 8)


def log_bytes(node: SimNode) -> bytes:
    """Its log as it lies on the disk."""
    return node.shard.log.read(FIRST_OFFSET, node.applied_offset)


def test_group_gets_all_when_bits_flip_under_the_master() -> None:
    cluster = begin(1)
    master = cluster.master()
    flip_what_was_published(cluster, master)
    stats = master.damage.stats
    assert cluster.events.run_until(lambda: stats.damaged_fetched > 0, 10_000)
    assert cluster.events.run_until(lambda: stats.repaired_files > 0, 10_000)
    assert cluster.master() is master, "it need not step down"
    cluster.settle()


def test_messages_are_withheld_as_long_as_no_peer_can_be_asked() -> None:
    """By FetchMessages; the log's own streams go on, or nothing could be released."""
    cluster = begin(2)
    master = cluster.master()
    for other in cluster.others():
        other.damage.reads = {}
        other.damage.serve = lambda *_: None  # type: ignore[method-assign]
    flip_what_was_published(cluster, master)
    control, stats = master.damage.control, master.damage.stats
    assert cluster.events.run_until(lambda: control.damaged.count > 0, 10_000)
    cluster.run(1_500)
    assert (stats.damaged_fetched, stats.repaired_files) == (0, 0)
    assert control.damaged.count > 0
    for other in cluster.others():
        other.kill()
        other.start()
    cluster.settle()
    assert not control.damaged.count


def test_next_master_delivers_what_was_withheld() -> None:
    cluster = begin(3)
    former = cluster.master()
    for other in cluster.others():
        other.damage.serve = lambda *_: None  # type: ignore[method-assign]
    flip_what_was_published(cluster, former)
    control = former.damage.control
    assert cluster.events.run_until(lambda: control.damaged.count > 0, 10_000)
    cluster.control.resign(cluster.control.epoch)
    assert cluster.await_master(not_=former.name)
    cluster.settle()


def test_follower_catches_up_from_a_master_whose_log_is_damaged() -> None:
    cluster = begin(4, commits=3)
    master, late = cluster.master(), cluster.others()[0]
    late.kill()
    cluster.await_commit(20)
    flip_what_was_published(cluster, master)
    late.start()
    cluster.await_commit(10)
    cluster.settle()
    assert sum(one.damage.stats.repaired_files for one in cluster.nodes.values()) > 0


def test_follower_repairs_its_log_where_the_scrubber_comes_by() -> None:
    cluster = begin(5, commits=60)
    follower = cluster.others()[0]
    segment = follower.shard.log.segments()[0]
    right = log_bytes(follower)
    follower.flips.flip_log(int(segment.end_offset) // 2, 3)
    assert log_bytes(follower) != right
    follower.damage.on_log_damage(0)
    stats = follower.damage.stats
    assert cluster.events.run_until(lambda: stats.repaired_files == 1, 10_000)
    assert log_bytes(follower)[: len(right)] == right
    cluster.settle()


def test_delay_logs_are_read_again_from_the_log() -> None:
    cluster = begin(6, commits=40)
    master = cluster.master()
    assert cluster.events.run_until(lambda: master.flips.flip_delay_log(0, 0), 10_000)
    stats = master.damage.stats
    for number in range(4_000):
        if number % 50 == 0:
            cluster.run(20)
        master.flips.flip_delay_log(number * 7_919, number % 8)
    cluster.run(3_000)
    assert stats.damaged_fetched > 0
    cluster.settle()


@pytest.mark.parametrize("seed", [7, 8])
def test_life_with_damage_is_the_same_each_time(seed: int) -> None:
    def live() -> list[str]:
        cluster = Cluster(seed)
        cluster.events.is_tracing = True
        cluster.start()
        cluster.await_commit(12)
        flip_what_was_published(cluster, cluster.master())
        cluster.run(2_000)
        cluster.settle()
        return [*cluster.events.trace, str(cluster.events.now_ms)]

    assert live() == live()


# --- views


@pytest.mark.parametrize("kind", VIEW_KINDS)
@pytest.mark.parametrize("is_master", [True, False], ids=["master", "follower"])
def test_damaged_view_is_repaired_or_built_anew_where_the_scrubber_comes_by(
    kind: str, is_master: bool
) -> None:
    cluster = begin(9, commits=40)
    node = cluster.master() if is_master else cluster.others()[0]
    assert cluster.events.run_until(lambda: node.flips.flip_view(kind, 64 * 7, 0), 20_000)
    boots = node.boots
    node.guarded(node.damage.scrub_views)
    cluster.run(1_000)
    is_renewed = kind in {"checkpoint", "epochs", "sequences/tail"}
    assert node.boots == boots + (not is_renewed)
    assert is_renewed or cluster.await_master()
    cluster.settle()
    assert node.damaged_view_count == (not is_renewed)


@pytest.mark.parametrize("kind", [".run", ".cq"])
def test_group_gets_all_when_bits_flip_in_what_the_master_is_about_to_read(kind: str) -> None:
    """Nobody scrubs: it is found when it is read, or never needed any more."""
    cluster = begin(10, commits=40)
    for number in range(400):
        master = cluster.find_master()
        if master is not None and all(one.is_up for one in cluster.nodes.values()):
            master.flips.flip_view(kind, number * 7_919 * 7, number % 8)
        if number % 8 == 0:
            cluster.run(100)
    cluster.settle()
    assert sum(one.damaged_view_count for one in cluster.nodes.values()) > 0
