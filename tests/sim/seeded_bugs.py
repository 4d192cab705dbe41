"""Bugs to put into the rules, each with a life in which it does harm: to prove the checkers.

A checker that catches nothing is worth nothing. Each bug here is one that replicated logs have
really had, or one step away from our own rules.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from hourwheel.internal.v1.replication_pb2 import BeginFrom, FollowerHello, MasterHello
from hourwheel.types import Epoch, NodeId, Offset
from node.catalog.name_expiry import NameExpiry
from node.catalog.unused_names import UnusedGroups
from node.delivery import reading_order
from node.delivery.expiry import Expired
from node.delivery.receiver import Receiver
from node.delivery.resolve_rows import dead_rows
from node.replica.effects import Role
from node.replica.replica import Replica
from node.shard.message_lookup import MessageLookup, Wanted
from replication.control_state import member_commands
from replication.control_state.state import ControlState, Member
from replication.rules.cluster_clock import ClusterClock
from replication.rules.follower import LogFacts
from replication.rules.isr import InSyncReplicas
from replication.rules.master import Master, Phase, Progress, ReplicationConfig
from replication.rules.master_lease import LeaseConfig, LeaseGrant
from storage.log.commit_log import LogWrite
from storage.log.epochs import EpochStore
from storage.queues.page_sums import PageSums
from storage.views.unit import Units
from tests.sim.cluster import Cluster, Lives
from tests.sim.cluster_clients import Proposer
from tests.sim.cluster_damage import NodeDamage
from tests.sim.cluster_faults import HOUR_MS, live
from tests.sim.cluster_members import ChangingCluster
from tests.sim.cluster_node import SimNode
from tests.sim.control import ControlPlane
from timewheel.bodies import Overlay, place_of

EARLY_MS = 50

NEXT_STATE = member_commands.next_state

Bug = Callable[[], Any]
Life = Callable[[int], None]


# -- the bugs -------------------------------------------------------------------------------------


def acknowledge_before_fsync() -> Any:
    """A write counts as durable when it is in the page cache."""

    def run_write(_: SimNode, write: LogWrite) -> None:
        write.run(durable=False)

    return mock.patch.object(SimNode, "run_write", run_write)


def truncate_at_the_high_watermark() -> Any:
    """A follower cuts its log at its own high watermark, as Kafka did before KIP-101."""
    right = Replica.on_hello

    def on_hello(self: Replica, hello: MasterHello, monotonic_ms: float) -> Any:
        shard = self.shard
        known = min(shard.committed_offset, shard.log.flushed_end_offset)
        shard.truncate(max(known, shard.views.applied_offset))
        return right(self, hello, monotonic_ms)

    return mock.patch.object(Replica, "on_hello", on_hello)


def count_what_was_acknowledged_in_an_old_epoch() -> Any:
    """What a follower has when it says hello counts, whether it is the master's or not."""
    right = Master.on_hello

    def on_hello(self: Master, node: NodeId, hello: FollowerHello, *rest: Any) -> BeginFrom:
        begin = right(self, node, hello, *rest)
        if not begin.take_snapshot:
            progress = self.followers[node]
            progress.phase = Phase.REPLICATING
            progress.acked_end = Offset(hello.log_end_offset)
        return begin

    return mock.patch.object(Master, "on_hello", on_hello)


def forget_promises_at_restart() -> Any:
    """A node that has just started follows anybody at once."""
    right = LeaseGrant.__init__

    def init(self: LeaseGrant, monotonic_ms: float, lease_ms: float) -> None:
        del lease_ms
        right(self, monotonic_ms, 0.0)

    return mock.patch.object(LeaseGrant, "__init__", init)


def report_the_end_on_a_lost_connection() -> Any:
    """Who is not heard of any more is reported as one whose process has ended."""
    right = ControlPlane.is_alive

    def is_alive(self: ControlPlane, node: NodeId) -> bool:
        found = right(self, node)
        if not found and node in self.boots:
            self.ended[node] = self.boots[node]
        return found

    return mock.patch.object(ControlPlane, "is_alive", is_alive)


def act_without_a_lease() -> Any:
    """A master goes on until it hears that there is another one."""

    def may_act(self: Replica, monotonic_ms: float) -> bool:
        del monotonic_ms
        return self.role is Role.MASTER

    return mock.patch.object(Replica, "may_act", may_act)


def count_a_shrink_before_it_is_confirmed() -> Any:
    """The set that was asked for counts alone."""

    def union(self: InSyncReplicas) -> frozenset[NodeId]:
        return self.members if self._requested is None else self._requested

    return mock.patch.object(InSyncReplicas, "union", property(union))


def count_growth_only_when_it_is_confirmed() -> Any:
    """A node that may be in the set already does not count yet."""
    return mock.patch.object(InSyncReplicas, "union", property(lambda self: self.members))


def acknowledge_what_is_only_appended() -> Any:
    """A follower acknowledges what it has in memory."""

    def facts(self: Replica) -> LogFacts:
        log = self.shard.log
        return LogFacts(log.start_offset, log.end_offset, self.shard.views.applied_offset)

    return mock.patch.object(Replica, "facts", property(facts))


def believe_what_was_not_sent() -> Any:
    """An acknowledgement counts at once up to the master's end."""
    right = Progress.acknowledge

    def acknowledge(
        self: Progress, flushed_end: Offset, log_end: Offset, monotonic_ms: float
    ) -> None:
        right(self, flushed_end, log_end, monotonic_ms)
        self.acked_end = log_end

    return mock.patch.object(Progress, "acknowledge", acknowledge)


def forget_epochs_at_restart() -> Any:
    """A node does not keep which epochs it has seen: one can be given twice."""

    def note(self: EpochStore, epoch: Epoch, master: NodeId) -> None:
        self.epoch, self.master = epoch, master

    return mock.patch.object(EpochStore, "note", note)


def apply_what_is_not_committed() -> Any:
    """Views run ahead of the high watermark."""
    right = Replica.on_flushed

    def on_flushed(self: Replica, monotonic_ms: float) -> None:
        right(self, monotonic_ms)
        self.shard.committed_offset = self.shard.log.flushed_end_offset

    return mock.patch.object(Replica, "on_flushed", on_flushed)


def trust_the_own_clock() -> Any:
    """The master's own clock is the cluster's."""
    return mock.patch.object(ClusterClock, "update", return_value=0.0)


def give_up_what_the_master_cannot_read() -> Any:
    """A node's own damage becomes a record that all replicas apply: as it was before 0019."""

    def take_found(self: NodeDamage) -> None:
        node = self.node
        receiver = node.mastership.receiver
        found, receiver.corrupt = receiver.corrupt, []
        for one in found:
            Proposer(node).resolve(dead_rows(one.group_queue, [(one.position, one.position + 1)]))

    return mock.patch.object(NodeDamage, "take_found", take_found)


def forget_what_is_withheld() -> Any:
    """Good bytes are found, and nobody delivers them."""
    return mock.patch.object(Receiver, "offer_again", return_value=None)


def serve_what_a_peer_says() -> Any:
    """A peer sends zeros, and nobody verifies what comes, or what is kept."""

    @contextmanager
    def bug() -> Iterator[None]:
        def find(self: MessageLookup, wanted: Wanted) -> bytes:
            del self
            return bytes(wanted.size_bytes)

        def kept(self: Overlay, unit: Units) -> bytes | None:
            return self._found.get(place_of(unit))

        with (
            mock.patch.object(MessageLookup, "find", find),
            mock.patch.object(Wanted, "is_right", return_value=True),
            mock.patch.object(Overlay, "find", kept),
        ):
            yield

    return bug()


def trust_what_lies_in_a_view() -> Any:
    """Entries of queues and units of runs are taken as they are read."""

    @contextmanager
    def bug() -> Iterator[None]:
        with (
            mock.patch.object(PageSums, "find_damage", return_value=None),
            mock.patch("timewheel.run.crc32c", _AnySum),
        ):
            yield

    return bug()


class _AnySum:
    """A checksum that equals every other."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *_: object) -> None:
        """Of anything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def forget_what_is_pending_of_a_name() -> Any:
    """Names are deleted whether anything of them is in the wheel or not."""

    def find_pending(_: NameExpiry, __: set[int]) -> Generator[None, None, dict[int, int]]:
        yield
        return {}

    return mock.patch.object(NameExpiry, "_find_pending", find_pending)


def forget_what_a_group_has_finished() -> Any:
    """A group goes although a new one of its name would get again what it has finished."""
    return mock.patch.object(UnusedGroups, "_would_get_again", return_value=False)


# -- lives ----------------------------------------------------------------------------------------


def forget_what_expires() -> Any:
    """A master hands out what has expired."""
    return mock.patch.object(Expired, "find", return_value=None)


def expire_too_soon() -> Any:
    """A master takes its lead for the clock."""
    right = Expired.find

    def find(self: Expired, units: Units, blobs: bytes, now_ms: int) -> Any:
        return right(self, units, blobs, now_ms + EARLY_MS)

    return mock.patch.object(Expired, "find", find)


def hand_out_the_lowest_first() -> Any:
    """A master gives a group what has no priority before what has one."""

    def lowest(levels: Any, reverse: bool) -> Any:
        return sorted(levels, reverse=not reverse)

    return mock.patch.dict(vars(reading_order), {"sorted": lowest})


def any_life(seed: int) -> None:
    """Random trouble."""
    live(Cluster(seed), 5_000)


def _start(seed: int, rules: ReplicationConfig | None = None) -> Cluster:
    cluster = Cluster(seed, rules=rules)
    cluster.start()
    cluster.await_commit(3)
    return cluster


def count_new_members_as_in_sync() -> Any:
    """Who joins is taken to have what all others have."""

    def next_state(state: ControlState) -> ControlState:
        after = NEXT_STATE(state)
        members = tuple(sorted(after.membership.members))
        shard = after.shards[0]
        isr = {one.node_id: one for one in shard.isr}
        grown = tuple(isr.get(one, Member(one, b"")) for one in members)
        shards = {0: replace(shard, isr=grown, replicas=members)}
        return replace(after, shards=shards)

    return mock.patch.object(member_commands, "next_state", next_state)


def change_lists_at_once() -> Any:
    """Replica lists are those of the members in one step."""

    def next_state(state: ControlState) -> ControlState:
        after = NEXT_STATE(state)
        members = tuple(sorted(after.membership.members))
        return replace(after, shards={0: replace(after.shards[0], replicas=members)})

    return mock.patch.object(member_commands, "next_state", next_state)


def master_cut_off(seed: int) -> None:
    """The master is alone for a while, and nobody tells it."""
    cluster = _start(seed)
    former = cluster.master()
    cluster.think_ms = 10.0
    cluster.network.isolate(former.name, ("control", *(one.name for one in cluster.others())))
    cluster.run(2_500)
    cluster.settle()


def master_cut_off_with_a_long_lease(seed: int) -> None:
    """Another one is named while the lease lasts, and has to wait for its end."""
    cluster = _start(seed, ReplicationConfig(lease=LeaseConfig(lease_ms=2_000.0)))
    former = cluster.master()
    cluster.think_ms = 10.0
    cluster.network.isolate(former.name, ("control", *(one.name for one in cluster.others())))
    cluster.run(3_000)
    cluster.settle()


def master_cut_off_and_others_restarted(seed: int) -> None:
    """A node that granted a lease is killed and restarts; another master asks it, or it leads."""
    cluster = _start(seed, ReplicationConfig(lease=LeaseConfig(lease_ms=3_000.0)))
    former = cluster.master()
    friend, rival = cluster.others()
    cluster.control.preferred = rival.name
    cluster.network.isolate(former.name, ("control", rival.name, friend.name))
    for node in (friend, rival):
        node.kill()
        node.start()
    cluster.run(50)
    cluster.control.resign(cluster.control.epoch)
    cluster.run(4_000)
    cluster.settle()


def master_cut_off_for_a_moment(seed: int) -> None:
    """It is back before the next one has given it up, with a longer log."""
    cluster = _start(seed)
    former = cluster.master()
    for one in cluster.producers:
        one.retry()
    cluster.network.isolate(former.name, ("control", *(one.name for one in cluster.others())))
    epoch = cluster.control.epoch
    assert cluster.events.run_until(lambda: cluster.control.epoch > epoch, 2_000)
    cluster.run(100)
    cluster.settle()


def two_masters_die_in_turn(seed: int) -> None:
    """The second as soon as a follower has heard of it; that one is the third."""
    cluster = _start(seed)
    cluster.await_commit(1)
    first = cluster.master()
    first.kill()
    epoch = cluster.control.epoch
    assert cluster.events.run_until(lambda: cluster.control.epoch > epoch, 2_000)
    second = cluster.nodes[cluster.control.master]
    (third,) = (one for one in cluster.nodes.values() if one not in {first, second})
    follower = third.replica.follower
    cluster.events.run_until(lambda: follower.epoch > epoch, 2_000)
    second.kill()
    cluster.control.preferred = third.name
    cluster.run(800)
    cluster.settle()


def shrink_that_never_arrives(seed: int) -> None:
    """The master's word does not reach the control plane."""
    cluster = _start(seed)
    former, lost = cluster.master(), cluster.others()[0]
    cluster.network.cut(former.name, "control")
    lost.kill()
    cluster.run(450)
    lost.start()
    cluster.run(2_000)
    cluster.settle()


def growth_without_an_answer(seed: int) -> None:
    """The control plane's answer does not reach the master, and then the new member is gone."""
    cluster = _start(seed)
    master, lost = cluster.master(), cluster.others()[0]
    lost.kill()
    assert cluster.events.run_until(lambda: lost.name not in cluster.control.isr, 3_000)
    cluster.run(300)
    lost.start()
    cluster.network.cut("control", master.name)
    assert cluster.events.run_until(lambda: lost.name in cluster.control.isr, 3_000)
    lost.kill()
    cluster.run(300)
    lost.start()
    cluster.settle()


def control_plane_restored(seed: int) -> None:
    """The control plane comes back as it was some epochs ago, and all nodes start again."""
    cluster = _start(seed)
    for _ in range(3):
        former = cluster.master()
        cluster.control.resign(cluster.control.epoch)
        assert cluster.await_master(not_=former.name)
    cluster.control.epoch, cluster.control.epoch_seen = Epoch(1), 0
    for node in cluster.nodes.values():
        node.kill()
        node.start()
    cluster.await_commit(3)
    cluster.settle()


def clock_of_the_master_wrong(seed: int) -> None:
    """It is an hour ahead."""
    cluster = _start(seed)
    node = cluster.others()[0]
    cluster.control.preferred = node.name
    node.machine.error_ms += HOUR_MS
    node.kill()
    node.start()
    cluster.await_commit(3)
    cluster.run(1_000)  # it is in sync again
    cluster.control.resign(cluster.control.epoch)
    cluster.run(2_000)
    cluster.settle()


def bits_flip_under_the_master(seed: int) -> None:
    """In its log, where what is published lies that is due a little later; and again."""
    cluster = _start(seed)
    for _ in range(6):
        cluster.await_commit(4)
        node = cluster.master()
        end = min(node.applied_offset, len(cluster.checkers.canon.data))
        for offset in range(max(0, end - 1_500), end, 97):
            node.flips.flip_log(offset, offset % 8)
        cluster.run(300)
    cluster.settle()


def bits_flip_in_views(seed: int) -> None:
    """Whatever the master reads next of its runs and queues may be damaged, and nobody scrubs."""
    cluster = _start(seed)
    for number in range(400):
        master = cluster.find_master()
        if master is not None and all(one.is_up for one in cluster.nodes.values()):
            kind = (".run", ".cq")[number % 2]
            master.flips.flip_view(kind, number * 7_919 * 7, number % 8)
        if number % 8 == 0:
            cluster.run(60)


def names_left_alone(seed: int) -> None:
    """Topics and groups are used for a while, and go by themselves."""
    cluster = Cluster(seed, producers=1, visitors=2)
    cluster.start()
    cluster.run(4_000)
    cluster.settle()


def members_change(seed: int) -> None:
    """Nodes come and go, and one that stays dies."""
    cluster = ChangingCluster(seed)
    cluster.start()
    cluster.run(1_500)
    _, one, *_ = cluster.members
    one.kill()
    cluster.run(500)
    cluster.settle()


def master_leaves_while_it_is_cut_off(seed: int) -> None:
    """It holds its lease by one of the others, and the third has not heard it for long."""
    cluster = ChangingCluster(seed)
    cluster.is_changing_members = False
    cluster.start()
    master, (follower, heir) = cluster.master(), cluster.others()
    control = cluster.control
    control.is_electing = False
    cluster.network.isolate(master.name, (heir.name, "control"))
    cluster.run(2 * cluster.rules.lease.lease_ms)
    control.preferred = heir.name
    assert cluster.change([heir.name, follower.name], coming=1)
    cluster.network.isolate(follower.name, ("control",))
    control.is_electing = True
    cluster.run(1_500)
    cluster.settle()


def _live_and_lose_the_master(cluster: Cluster) -> None:
    cluster.start()
    cluster.run(2_000)
    former = cluster.master()
    former.kill()
    cluster.run(2_000)
    former.start()
    cluster.settle()


def short_lives(seed: int) -> None:
    """Messages expire soon after they are due, and the master dies."""
    cluster = Cluster(seed, lives=Lives(expires_after_ms=60))
    _live_and_lose_the_master(cluster)


def prioritised_lives(seed: int) -> None:
    """Most messages are due at once, some have priorities, and the master dies."""
    cluster = Cluster(seed, lives=Lives(has_priorities=True, has_recurrences=True))
    cluster.think_ms = 20.0
    _live_and_lose_the_master(cluster)


BUGS: dict[Bug, Life] = {
    acknowledge_before_fsync: any_life,
    truncate_at_the_high_watermark: two_masters_die_in_turn,
    count_what_was_acknowledged_in_an_old_epoch: master_cut_off_for_a_moment,
    forget_promises_at_restart: master_cut_off_and_others_restarted,
    act_without_a_lease: master_cut_off,
    report_the_end_on_a_lost_connection: master_cut_off_with_a_long_lease,
    count_a_shrink_before_it_is_confirmed: shrink_that_never_arrives,
    count_growth_only_when_it_is_confirmed: growth_without_an_answer,
    acknowledge_what_is_only_appended: any_life,
    believe_what_was_not_sent: any_life,
    forget_epochs_at_restart: control_plane_restored,
    apply_what_is_not_committed: any_life,
    trust_the_own_clock: clock_of_the_master_wrong,
    give_up_what_the_master_cannot_read: bits_flip_under_the_master,
    forget_what_is_withheld: bits_flip_under_the_master,
    serve_what_a_peer_says: bits_flip_under_the_master,
    trust_what_lies_in_a_view: bits_flip_in_views,
    forget_what_is_pending_of_a_name: names_left_alone,
    forget_what_a_group_has_finished: names_left_alone,
    forget_what_expires: short_lives,
    expire_too_soon: short_lives,
    hand_out_the_lowest_first: prioritised_lives,
    count_new_members_as_in_sync: members_change,
    change_lists_at_once: master_leaves_while_it_is_cut_off,
}
"""Each bug, and the life that shows it."""


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Within this, the code has the bug."""
    with bug():
        yield
