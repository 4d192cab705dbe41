"""Directed lives of a simulated cluster: one trouble each, then everything heals and is checked.

What is checked all the while, and at the end, is in tests/sim/checkers.py: I1 to I8.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import decode
from hourwheel.types import Epoch, TopicQueue
from node.delivery.expiry_sweep import PASS_MS
from node.replica.effects import Role
from tests.sim.cluster import Cluster, Lives
from tests.sim.cluster_faults import HOUR_MS
from tests.sim.cluster_node import SimNode
from tests.support.shard_proposals import GROUP, LETTERS, QUEUES, TOPIC
from tests.support.shard_world import START_MS
from tests.support.small_sizes import small_sizes

FAILOVER_MS = 2_500.0
"""A new master acts by then: silence, election, the old promise, and some slack."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster at work."""
    with small_sizes(16):
        cluster = Cluster(seed=1)
        cluster.start()
        cluster.await_commit(5)
        yield cluster


def await_another(cluster: Cluster, former: SimNode) -> SimNode:
    """Let time pass until another node than `former` acts."""
    before = cluster.events.now_ms
    assert cluster.await_master(not_=former.name), cluster.describe()
    assert cluster.events.now_ms - before < FAILOVER_MS
    return cluster.master()


def test_cluster_publishes_and_releases_when_nothing_fails(cluster: Cluster) -> None:
    cluster.run(3_000)
    cluster.settle()
    assert cluster.acked_count > 30
    assert cluster.checkers.received > 30
    assert len(cluster.control.masterships) == 1


@pytest.mark.parametrize("end", [SimNode.kill, SimNode.power_cut])
def test_I1_another_node_goes_on_when_the_master_dies(  # noqa: N802
    cluster: Cluster, end: Callable[[SimNode], None]
) -> None:
    former = cluster.master()
    end(former)
    await_another(cluster, former)
    cluster.await_commit(5)
    former.start()
    cluster.settle()


@pytest.mark.parametrize("end", [SimNode.kill, SimNode.power_cut])
def test_I7_nothing_is_lost_when_all_nodes_die_at_once(  # noqa: N802
    cluster: Cluster, end: Callable[[SimNode], None]
) -> None:
    for _ in range(3):
        for node in cluster.nodes.values():
            end(node)
        for node in cluster.nodes.values():
            node.start()
        assert cluster.await_master()
        cluster.await_commit(3)
    cluster.settle()


@pytest.mark.parametrize("end", [SimNode.kill, SimNode.power_cut, SimNode.freeze])
def test_I2_what_expires_is_delivered_in_time_or_not_at_all(  # noqa: N802
    end: Callable[[SimNode], None],
) -> None:
    """Whoever is master; a message that did not expire in time is there, or was delivered."""
    with small_sizes(16):
        cluster = Cluster(seed=2, lives=Lives(expires_after_ms=60))
        cluster.start()
        for _ in range(2):
            former, before = cluster.master(), len(cluster.checkers.expired)
            end(former)
            await_another(cluster, former)
            former.start()
            former.thaw()
            cluster.run(1_500)
            assert len(cluster.checkers.expired) > before
        cluster.settle()
        letters = cluster.master().shard.views.queues.get(TopicQueue(LETTERS << 8))
        assert letters.end_position > 0, "some of it is kept"


def test_I1_what_nobody_receives_is_swept_when_it_has_expired() -> None:  # noqa: N802
    """By the next master, too, from its first pass on."""
    with small_sizes(16):
        cluster = Cluster(seed=4, lives=Lives(expires_after_ms=60, has_consumer=False))
        cluster.start()
        cluster.run(1_500)
        former = cluster.master()
        former.kill()
        await_another(cluster, former)
        model, now_ms = cluster.checkers.canon.model, START_MS + cluster.events.now_ms
        gone = {
            (GROUP, entry.sequence)
            for queue in QUEUES
            for entry in model.queues.get(queue, ())
            if 0 < decode(model.metas.get(entry.sequence, b"")).expires_ms < now_ms - 100
        }
        former.start()
        assert gone - cluster.checkers.expired, "some has expired with the former master"
        cluster.run(PASS_MS + 1_000)
        assert gone <= cluster.checkers.expired
        cluster.settle()
        assert not cluster.checkers.received


@pytest.mark.parametrize("end", [SimNode.kill, SimNode.freeze])
def test_I10_priorities_and_recurrences_outlive_their_master(  # noqa: N802
    end: Callable[[SimNode], None],
) -> None:
    """The highest comes first, and of an occurrence proposed twice there is one."""
    with small_sizes(16):
        cluster = Cluster(seed=5, lives=Lives(has_priorities=True, has_recurrences=True))
        cluster.think_ms = 30.0
        cluster.start()
        model = cluster.checkers.canon.model
        for _ in range(2):
            former = cluster.master()
            seen = cluster.checkers.prioritised, len(model.recurring.taken)
            cluster.run(1_500)
            end(former)
            await_another(cluster, former)
            former.start()
            former.thaw()
            cluster.run(1_500)
            now = cluster.checkers.prioritised, len(model.recurring.taken)
            assert all(later > before for before, later in zip(seen, now, strict=True))
        cluster.settle()
        sequences = [*model.recurring.taken.values()]
        assert len(set(sequences)) == len(sequences)


def test_I4_a_master_that_was_stopped_does_nothing_when_it_goes_on(cluster: Cluster) -> None:  # noqa: N802
    former = cluster.master()
    former.freeze()
    await_another(cluster, former)
    cluster.run(5_000)
    former.thaw()
    cluster.await_commit(5)
    cluster.settle()
    assert former.replica.role is Role.FOLLOWER


def test_I4_a_follower_that_was_stopped_comes_back_when_it_goes_on(cluster: Cluster) -> None:  # noqa: N802
    follower = cluster.others()[0]
    follower.freeze()
    cluster.run(4_000)
    assert follower.name not in cluster.control.isr
    cluster.await_commit(3)
    cluster.settle()


@pytest.mark.parametrize("is_idle", [True, False])
@pytest.mark.parametrize("with_control", [True, False])
def test_I4_another_node_goes_on_when_the_master_is_alone(  # noqa: N802
    cluster: Cluster, with_control: bool, is_idle: bool
) -> None:
    """Also where the control plane can reach it, and where nobody waits for an answer."""
    cluster.is_publishing = not is_idle
    cluster.run(5_000)  # nothing is due any more
    former = cluster.master()
    others = [node.name for node in cluster.others()]
    cluster.network.isolate(former.name, (*others, *(["control"] if with_control else [])))
    is_replaced = cluster.events.run_until(
        lambda: cluster.control.master != former.name, duration_max_ms=6_000
    )
    assert is_replaced, "nobody can publish, and nobody does anything about it"
    await_another(cluster, former)
    cluster.resume()
    cluster.await_commit(5)
    cluster.settle()


def test_master_goes_on_without_a_follower_when_that_one_is_cut_off(cluster: Cluster) -> None:
    master, lost = cluster.master(), cluster.others()[0]
    cluster.network.isolate(lost.name, (master.name, "control", cluster.others()[1].name))
    cluster.run(4_000)
    assert set(cluster.control.isr) == set(cluster.names) - {lost.name}
    cluster.await_commit(5)
    assert cluster.master() is master
    cluster.settle()


@pytest.mark.parametrize("hears", [True, False])
def test_I4_another_node_goes_on_when_links_of_the_master_work_one_way(  # noqa: N802
    cluster: Cluster, hears: bool
) -> None:
    former = cluster.master()
    for other in (*(node.name for node in cluster.others()), "control"):
        cluster.network.cut(*((former.name, other) if hears else (other, former.name)))
    cluster.run(6_000)
    cluster.await_commit(3)
    assert cluster.master() is not former
    cluster.settle()


def test_I7_both_sets_count_when_the_answer_to_a_shrink_is_lost(cluster: Cluster) -> None:  # noqa: N802
    """And then the lost follower comes back, and is asked in again."""
    master, follower = cluster.master(), cluster.others()[0]
    cluster.network.cut("control", master.name)
    follower.kill()
    shrunk = cluster.events.run_until(lambda: follower.name not in cluster.control.isr, 4_000)
    assert shrunk
    assert master.replica.rules is not None
    assert follower.name in master.replica.rules.isr.union
    follower.start()
    cluster.run(700)
    assert follower.name in master.replica.rules.isr.union
    cluster.network.heal()
    cluster.await_commit(3)
    cluster.settle()


def test_I7_a_lone_answer_of_a_former_change_settles_nothing_when_it_comes_late(  # noqa: N802
    cluster: Cluster,
) -> None:
    cluster.network.loss = 0.6
    for _ in range(3):
        for node in cluster.others():
            node.kill()
            cluster.run(700)
            node.start()
            cluster.run(700)
            if cluster.find_master() is None:
                assert cluster.await_master()
    cluster.settle()


@pytest.mark.parametrize("is_master", [True, False])
def test_I7_cluster_goes_on_when_a_disk_is_full(cluster: Cluster, is_master: bool) -> None:  # noqa: N802
    node = cluster.master() if is_master else cluster.others()[0]
    node.disk.capacity_bytes = node.disk.used_bytes("")
    cluster.run(3_000)
    cluster.await_commit(5)
    cluster.settle()


def test_a_blank_follower_has_everything_when_it_joins(cluster: Cluster) -> None:
    follower = cluster.others()[0]
    follower.wipe()
    cluster.await_commit(10)
    assert follower.name not in cluster.control.isr
    follower.start()
    joined = cluster.events.run_until(lambda: follower.name in cluster.control.isr, 5_000)
    assert joined
    cluster.settle()


def test_I1_a_blank_disk_never_leads_when_its_node_dies_again(cluster: Cluster) -> None:  # noqa: N802
    """It is in the set still, under its old name; it must not come back as what it was."""
    former = cluster.master()
    follower = cluster.others()[0]
    cluster.control.preferred = follower.name
    cluster.network.isolate(follower.name, ("control",))
    follower.wipe()
    follower.start()
    cluster.run(150)
    follower.kill()
    follower.start()
    cluster.network.heal()
    cluster.run(100)
    former.kill()
    cluster.run(100)
    former.start()
    cluster.await_commit(3)
    cluster.settle()


@pytest.mark.parametrize("shift_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("is_master", [True, False])
def test_I2_nothing_is_early_when_a_clock_is_set_wrong(  # noqa: N802
    cluster: Cluster, shift_ms: float, is_master: bool
) -> None:
    """First under way, then taken up by a restart."""
    node = cluster.master() if is_master else cluster.others()[0]
    node.machine.error_ms += shift_ms
    cluster.run(1_000)
    node.kill()
    node.start()
    cluster.control.preferred = node.name
    cluster.await_commit(3)
    cluster.run(1_000)  # it is in sync again
    if cluster.control.master != node.name:
        cluster.control.resign(cluster.control.epoch)
    cluster.run(2_000)
    assert cluster.master() is node
    cluster.await_commit(3)
    cluster.settle()


@pytest.mark.parametrize("delay_ms", [1.0, 20.0, 60.0, 150.0, 400.0])
def test_I1_a_third_node_goes_on_when_the_next_master_dies_as_it_takes_over(  # noqa: N802
    cluster: Cluster, delay_ms: float
) -> None:
    cluster.master().kill()
    epoch = cluster.control.epoch
    assert cluster.events.run_until(lambda: cluster.control.epoch > epoch, 2_000)
    cluster.run(delay_ms)
    cluster.nodes[cluster.control.master].power_cut()
    cluster.run(300)
    for node in cluster.nodes.values():
        node.start()
    cluster.await_commit(3)
    cluster.settle()


def test_hand_over_takes_less_than_a_lease_when_it_is_planned(cluster: Cluster) -> None:
    """The old master's last beat frees the others from what they promised."""
    former = cluster.master()
    before = cluster.events.now_ms
    cluster.control.resign(cluster.control.epoch)
    assert cluster.await_master(not_=former.name)
    assert cluster.events.now_ms - before < cluster.rules.lease.lease_ms
    cluster.await_commit(3)
    cluster.settle()


def test_another_node_goes_on_when_the_masters_disk_hangs(cluster: Cluster) -> None:
    former = cluster.master()
    former.write_ms = (60_000.0, 60_000.0)
    replaced = cluster.events.run_until(lambda: cluster.control.master != former.name, 6_000)
    assert replaced, "a master that writes nothing stays master"
    former.kill()
    former.start()
    former.write_ms = (0.1, 1.0)
    cluster.await_commit(3)
    cluster.settle()


def test_I4_epochs_go_on_when_the_control_plane_forgets_them(cluster: Cluster) -> None:  # noqa: N802
    for _ in range(2):
        former = cluster.master()
        cluster.control.resign(cluster.control.epoch)
        await_another(cluster, former)
    cluster.control.epoch = Epoch(1)
    cluster.control.epoch_seen = 0
    cluster.control.version += 1
    for node in cluster.nodes.values():
        node.kill()
        node.start()
    cluster.await_commit(3)
    cluster.settle()
    assert cluster.control.epoch > 3


def test_I6_a_cancel_is_answered_truly_when_the_master_dies_before_it_answers(  # noqa: N802
    cluster: Cluster,
) -> None:
    for _ in range(4):
        count = len(cluster.checkers.cancels)
        cluster.events.run_until(lambda: len(cluster.checkers.cancels) > count, 2_000)  # noqa: B023
        former = cluster.master()
        former.kill()
        await_another(cluster, former)
        former.start()
    cluster.settle()
    assert cluster.checkers.cancels


def test_I8_a_node_does_not_start_when_its_log_is_damaged(cluster: Cluster) -> None:  # noqa: N802
    """Nor is it waited for; a peer's copy is what it needs."""
    follower = cluster.others()[0]
    follower.kill()
    (first, *_) = sorted(follower.disk.list("shard-0/log"))
    follower.disk.flip_bit(f"shard-0/log/{first}", 300)
    with pytest.raises(errors.CorruptLog) as caught:
        follower.start()
    assert caught.value.params["file"].endswith(first)
    follower.kill()
    cluster.await_commit(5)
    follower.wipe()
    cluster.settle()


def test_same_seed_gives_the_same_life() -> None:
    def life() -> list[str]:
        with small_sizes(16):
            cluster = Cluster(seed=5)
            cluster.events.is_tracing = True
            cluster.start()
            cluster.master().kill()
            cluster.run(2_000)
            cluster.settle()
            return [
                *cluster.events.trace,
                str(cluster.acked_count),
                *sorted(map(str, cluster.checkers.acked)),
            ]

    assert life() == life()


@pytest.mark.parametrize("is_planned", [True, False])
def test_I3_filtered_consumers_get_all_they_want_and_nothing_else_when_masters_change(  # noqa: N802
    is_planned: bool,
) -> None:
    """Leases, and what was passed over, travel where it is planned; else the next looks again."""
    with small_sizes(16):
        cluster = Cluster(seed=5, wanted=FilterExpression.tags("third && !even"))
        cluster.start()
        for _ in range(3):
            cluster.await_commit(8)
            former = cluster.master()
            if is_planned:
                cluster.control.resign(cluster.control.epoch)
                await_another(cluster, former)
            else:
                former.kill()
                await_another(cluster, former)
                former.start()
        cluster.run(8_000)
        cluster.settle()
        model = cluster.checkers.canon.model
        assert cluster.checkers.received > 3
        assert len(model.passed[GROUP]) > 3
        own = [queue for queue in model.queues if queue in QUEUES]
        wanted = {
            (queue, position)
            for queue in own
            for position, entry in enumerate(model.queues[queue])
            if model.is_wanted(GROUP, TOPIC, entry.sequence)
        }
        assert wanted.isdisjoint(model.passed[GROUP])


def _has_expired(cluster: Cluster, count: int) -> bool:
    return cluster.checkers.canon.names_expired >= count


def test_names_that_nobody_uses_go_and_come_again_at_each_master() -> None:
    cluster = Cluster(21, producers=1, visitors=2)
    cluster.start()
    for _ in range(3):
        aim = cluster.checkers.canon.names_expired + 2
        assert cluster.events.run_until(partial(_has_expired, cluster, aim), 15_000)
        former = cluster.master()
        former.kill()
        assert cluster.await_master(not_=former.name)
        former.start()
    cluster.settle()
