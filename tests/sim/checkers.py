"""What must hold of a simulated cluster, held against one reading of what was committed.

`Canon` is the committed log as the first node that applied it had it. Every other node must apply
the same bytes (I5); the naive model of `chaos.log_model` says what they mean (I1, I3, I6).
Everything else looks at nodes from outside: disks as a power cut would leave them (I7), who may act
(I4), what clients were told and when (I1, I2, I6).
"""

from itertools import product
from typing import TYPE_CHECKING, Any

from chaos.log_model import LogModel
from hourwheel.formats.meta import decode
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch
from hourwheel.outcomes import CancelOutcome, DedupOutcome, RescheduleOutcome
from hourwheel.priorities import PRIORITY_MAX, priority_queue
from hourwheel.types import FIRST_OFFSET, Offset
from node.delivery.deliveries import Delivery
from node.replica.effects import Role
from node.shard.deduplication import Published
from node.shard.group_queue import GroupQueue
from node.shard.recovery import Opened
from storage.files.file_header import FILE_HEADER_BYTES
from tests.sim.cluster_names import check_nothing_is_lost
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import (
    ATTEMPTS_MAX,
    GROUP,
    RETRIES,
    TOPIC,
    Token,
    body_of,
    plain,
    split,
)
from tests.support.shard_views import check_views, rebuilt_digest
from tests.support.shard_world import START_MS
from tests.support.small_sizes import chunk_entries

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.cluster_node import SimNode


def durable_log(disk: SimulatedDisk, from_: int, to: int) -> bytes:
    """What of [from_, to) of the log any power cut leaves; shorter where it does not reach."""
    found = b""
    for name, raw in sorted(disk.durable("shard-0/log").items()):
        if name.endswith(".log") and len(raw) > FILE_HEADER_BYTES:
            start = int(name.removesuffix(".log"))
            low, high = max(from_ + len(found), start), min(to, start + len(raw) - 64)
            if low < high and low == from_ + len(found):
                found += raw[low - start + 64 : high - start + 64]
    return found


class Canon:
    """The committed log, and what it means."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.model = LogModel(chunk_entries())
        self.digests: dict[int, str] = {}
        self.names_expired = 0
        """Topics and groups that the master deleted by itself."""
        self._checked: dict[str, tuple[int, Offset]] = {}

    def follow(self, node: "SimNode") -> int:
        """`node` has applied up to somewhere. Returns how many bytes of that were new."""
        life, from_ = self._checked.get(node.name, (-1, FIRST_OFFSET))
        from_, to = from_ if life == node.life else FIRST_OFFSET, node.applied_offset
        raw = node.shard.log.read(from_, to - from_)
        known = self.data[from_:to]
        raw = node.flips.seen_through(raw, from_, known)
        assert raw[: len(known)] == known, f"I5: {node.name} has applied other bytes below {to}"
        self._checked[node.name] = (node.life, to)
        fresh = raw[len(known) :]
        self.data += fresh
        at, view = 0, memoryview(fresh)
        while at < len(fresh):
            batch = RecordBatch(view[at:])
            size = batch.header.total_bytes
            batch = RecordBatch(view[at : at + size])
            if batch.header.kind == Kind.RESOLVE:
                self._check_outcomes(batch)
            if node.cluster.visitors:
                self.names_expired += check_nothing_is_lost(self.model, batch)
            self.model.read(batch)
            at += size
        return len(fresh)

    def _check_outcomes(self, batch: RecordBatch) -> None:
        """I8: nobody discards here, so a message is dead only when its attempts are used up."""
        model = self.model
        for group, queue, first, count, outcome, _ in batch.rows.tolist():
            resolved = model.resolved.get((group, queue), set())
            entries = model.queues.get(queue, [])
            for at in range(first, first + count) if outcome == Outcome.DEAD else ():
                is_spent = entries[at].attempt >= ATTEMPTS_MAX or at in resolved
                assert is_spent, (
                    f"I8: message {entries[at].sequence} was given up, and nobody asked"
                )


class Checkers:
    """All of them; each is called where its name says."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.canon = Canon()
        self.finished: set[tuple[int, int]] = set()
        """(topic_queue, position) of each message that a consumer acknowledged."""
        self.acked: dict[int, int] = {}
        """Sequence -> due_ms of each message whose publish was acknowledged."""
        self.cancels: list[tuple[int, int]] = []
        """(sequence, CancelOutcome) as callers were told."""
        self.moves: list[tuple[int, int]] = []
        """(sequence, RescheduleOutcome) as callers were told."""
        self.deals: list[tuple[int, str]] = []
        """(Offset of its PREPARE, outcome) of transactions, as callers were told."""
        self.received = 0
        self.prioritised = 0
        """Deliveries of some priority."""
        self.expired: set[tuple[int, int]] = set()
        """(group, sequence) of what the log says has expired."""
        self.early_ms = float("-inf")
        """How much too early by true time the earliest delivery or dispatch was."""
        self._reigns: dict[int, str] = {}

    # -- at any instant ---------------------------------------------------------------------------

    def after_event(self) -> None:
        """I4: no two nodes hold a lease, frozen or not; an epoch is of one node, and they grow."""
        masters = [
            node
            for node in self._cluster.nodes.values()
            if node.is_up and hasattr(node, "replica") and node.replica.role is Role.MASTER
        ]
        holders = []
        for node in masters:
            master = node.replica.rules
            assert master is not None
            if master.lease.is_valid(node.monotonic_ms()):
                epoch = master.start.epoch
                holders.append((node.name, epoch))
                if epoch not in self._reigns:
                    assert epoch > max(self._reigns, default=0), f"I4: epoch {epoch} comes late"
                    self._reigns[epoch] = node.name
                    self._check_heir(node)
                assert self._reigns[epoch] == node.name, f"I4: epoch {epoch} has two masters"
        assert len(holders) <= 1, f"I4: two masters at once: {holders}"

    def _check_heir(self, node: "SimNode") -> None:
        """I1: a new master has applied everything that was ever committed."""
        size = len(self.canon.data)
        assert node.applied_offset >= size, f"I1: {node.name} leads, and lacks what is committed"
        assert node.log_until(size) == self.canon.data, "I5: a master of another log"

    def on_opened(self, node: "SimNode", opened: Opened) -> None:
        """I8, I7: no crash looks like damage; who is in sync has all that was ever committed."""
        if not node.flips.are_in_views:
            assert opened.rebuilt_because in {"", "no checkpoint"}, opened.rebuilt_because
        control, size = self._cluster.control, len(self.canon.data)
        if node.name in control.isr and not self._cluster.is_wiped(node):
            log, known = opened.shard.log, self.canon.data
            assert log.end_offset >= size, f"I7: {node.name} is in sync and has lost records"
            assert node.flips.seen_through(log.read(FIRST_OFFSET, size), 0, known) == known, (
                f"I5: {node.name} has another log"
            )

    # -- when something is committed, or told -----------------------------------------------------

    def on_applied(self, node: "SimNode") -> None:
        """I5 and I7: the same bytes everywhere, and durable on enough disks before anyone knows."""
        fresh = self.canon.follow(node)
        if fresh:
            self.check_durable(len(self.canon.data) - fresh, len(self.canon.data))
            self._check_expired()

    def _check_expired(self) -> None:
        """I2, I3: nothing is done with before it has expired, by true time, and each once."""
        model, at = self.canon.model, len(self.expired)
        for group, sequence, _ in model.expiries.ended[at:]:
            at_ms = decode(model.metas[sequence]).expires_ms
            early_ms = at_ms - START_MS - self._cluster.events.now_ms
            bound_ms = self._cluster.clock_bound_ms
            assert early_ms <= bound_ms, f"I2: expired {early_ms:.0f} ms early"
            assert (group, sequence) not in self.expired, f"I3: {sequence} has expired twice"
            self.expired.add((group, sequence))

    def check_durable(self, from_: int, to: int) -> None:
        """I7: bytes of the committed log are durable on at least `min_in_sync` disks.

        And on those of all that may be elected.
        """
        raw, cluster = self.canon.data[from_:to], self._cluster
        nodes = cluster.nodes.values()
        having = {
            one.name
            for one in nodes
            if one.flips.seen_through(durable_log(one.disk, from_, to), from_, raw) == raw
        }
        count = len(having)
        lacking = [
            name
            for name in cluster.control.isr
            if name not in having and not cluster.is_wiped(cluster.nodes[name])
        ]
        assert not lacking, f"I7: {lacking} in sync, and without {from_}..{to}"
        assert count >= self._cluster.rules.min_in_sync, f"I7: {from_}..{to} on {count} disks only"

    def check_may_act(self, node: "SimNode") -> None:
        """I4: who does or says something holds the lease, whatever it thinks itself."""
        master = node.replica.rules
        is_holder = master is not None and master.lease.is_valid(node.monotonic_ms())
        assert is_holder, f"I4: {node.name} acts without a lease"

    def on_answer(self, node: "SimNode", token: Token) -> None:
        """I6, I7: what a caller is told is what the committed log says."""
        self.check_may_act(node)
        model = self.canon.model
        assert token.offset < model.offset, "I7: answered before it was committed"
        assert plain(token.result) == model.results[token.offset], "I6: another answer"
        end = next((at for at in sorted(model.results) if at > token.offset), model.offset)
        self.check_durable(token.offset, end)

    def on_published(self, due_ms: list[int], result: Any) -> None:
        """A publish was acknowledged to its caller."""
        assert isinstance(result, Published), f"a good publish was refused: {result}"
        model = self.canon.model
        told = {at: (outcome, other) for at, outcome, other in result.deduped.tolist()}
        wanted = model.unique.answers_from(result.base_sequence, len(due_ms))
        assert told == wanted, "another answer"
        for sequence, due in enumerate(due_ms, result.base_sequence):
            outcome = told.get(sequence - result.base_sequence, (DedupOutcome.PUBLISHED, 0))[0]
            if outcome in {DedupOutcome.REJECTED, DedupOutcome.KEPT}:
                assert sequence not in model.messages, "stored, although it was refused"
                continue
            assert self.canon.model.messages.get(sequence) == due, "I1: acknowledged, not stored"
            self.acked[sequence] = due

    # -- time -------------------------------------------------------------------------------------

    def _check_early(self, due_ms: int, what: str) -> None:
        """I2: early by no more than clocks may differ."""
        early_ms = due_ms - START_MS - self._cluster.events.now_ms
        self.early_ms = max(self.early_ms, early_ms)
        bound_ms = self._cluster.clock_bound_ms
        assert early_ms <= bound_ms, f"I2: {what} {early_ms:.0f} ms early"

    def on_dispatched(self, node: "SimNode") -> None:
        """I2: a dispatch reaches no further than its lead."""
        self.check_may_act(node)
        cursor = node.mastership.dispatcher.append_cursor
        lead_ms = self._cluster.config.dispatch.lead_ms_max
        self._check_early(int(cursor.due_ms) - lead_ms, "dispatched")

    def on_delivery(self, node: "SimNode", delivery: Delivery) -> None:
        """I1, I2, I6: what consumers get is due, was published, and was not cancelled."""
        self.check_may_act(node)
        self._check_priority(node, delivery)
        model = self.canon.model
        for unit, blob in split(delivery):
            sequence = int(unit["sequence"])
            assert sequence in model.messages, f"{node.name} serves {sequence}, never published"
            due_ms = model.messages[sequence]
            self._check_early(model.moved.get(sequence, (due_ms, 0))[0], "delivered")
            meta = self.canon.model.metas.get(sequence, b"")
            assert blob == meta + body_of(due_ms), "I8: not what was published"
            at_ms = decode(meta).expires_ms
            late_ms = START_MS + self._cluster.events.now_ms - at_ms
            assert not at_ms or at_ms > delivery.receive_ms, "I2: delivered although expired"
            assert not at_ms or late_ms <= self._cluster.clock_bound_ms, "I2: long expired"
            is_wanted = model.is_wanted(GROUP, TOPIC, sequence)
            assert is_wanted, "delivered to a group that does not want it"
            assert sequence in model.released, "I3: delivered, not released"
            self.received += 1

    def _check_priority(self, node: "SimNode", delivery: Delivery) -> None:
        """I10: nothing of a higher priority is visible to the group, and was not delivered."""
        model, views = self.canon.model, node.shard.views
        leases, now_ms = node.mastership.receiver.leases, delivery.receive_ms
        level = model.priorities.of(delivery.lease.group_queue.topic_queue)
        self.prioritised += level > 0
        for topic_id, priority in product((TOPIC, RETRIES), range(level + 1, PRIORITY_MAX + 1)):
            number = priority_queue(topic_id, priority)
            group_queue, queue = GroupQueue.of(GROUP, number), views.queues.get(number)
            window = views.acks.get(*group_queue)
            for at in range(queue.start_position, queue.end_position):
                unit = queue.read(at, 1)[0]
                first, end = leases.find_undelivered(group_queue, window, (at, at + 1))
                if first >= end or max(unit["due_ms"], unit["store_ms"]) > now_ms:
                    continue
                sequence = int(unit["sequence"])
                expires_ms = decode(model.metas.get(sequence, b"")).expires_ms
                is_there = not expires_ms or expires_ms > now_ms
                is_there &= model.is_wanted(GROUP, TOPIC, sequence)
                assert not is_there, f"I10: {level} came before {sequence} of {priority}"

    # -- at rest ----------------------------------------------------------------------------------

    def check_at_rest(self) -> None:
        """Everything has come together: all nodes up, in sync and idle."""
        model, nodes = self.canon.model, self._cluster.members
        model.check()
        self._check_damage()
        for sequence, due_ms in self.acked.items():
            assert model.messages.get(sequence) == due_ms, f"I1: message {sequence} is lost"
        for queue, position in model.done.get(GROUP, set()) - self.finished:
            sequence = model.queues[queue][position].sequence
            assert not model.is_wanted(GROUP, TOPIC, sequence), "I3: acknowledged by nobody"
        for sequence, outcome in self.cancels:
            self._check_cancel(sequence, outcome)
        for sequence, outcome in self.moves:
            self._check_move(sequence, outcome)
        for offset, state in self.deals:
            assert model.deals.outcomes[offset] == state, f"I10: {offset} is not {state}"
        digests = set()
        for node in nodes:
            log = node.shard.log
            assert log.end_offset == len(self.canon.data), f"{node.name} is elsewhere"
            assert log.read(FIRST_OFFSET, log.end_offset) == self.canon.data, (
                f"I5: {node.name} differs"
            )
            node.shard.check()
            check_views(node.shard.views, model)
            digests.add(node.shard.views.digest())
        digests.add(rebuilt_digest(nodes[0].shard, nodes[0].place))
        assert len(digests) == 1, f"I5: views differ: {digests}"

    def _check_damage(self) -> None:
        """I8: nothing is withheld any more, and no node's damage became a record."""
        master = self._cluster.master()
        leases, views = master.mastership.receiver.leases, master.shard.views
        for queue in master.mastership.receiver.queues_of(GROUP, TOPIC):
            group_queue = GroupQueue(GROUP, queue)
            bounds = views.queues.get(queue).start_position, views.queues.get(queue).end_position
            count = leases.withheld_count(group_queue, views.acks.get(*group_queue), bounds)
            assert not count, f"I8: {count} messages of queue {queue} are withheld for good"
        for node in self._cluster.members:
            node.damage.check()
            if node.names is not None:
                node.names.check_tasks()

    def _check_cancel(self, sequence: int, outcome: int) -> None:
        model = self.canon.model
        if outcome == CancelOutcome.CANCELLED:
            is_true = sequence in model.cancelled and sequence not in model.released
        elif outcome == CancelOutcome.ALREADY_RELEASED:
            is_true = sequence in model.released and sequence not in model.cancelled
        elif outcome == CancelOutcome.EXPIRED:
            is_pending = sequence in {one.sequence for one in model.pending if one.attempt == 1}
            is_true = sequence < model.sequence_floor and not is_pending
        else:
            is_true = sequence not in self.acked
        assert is_true, f"I6: cancel of {sequence} was answered {outcome}"

    def _check_move(self, sequence: int, outcome: int) -> None:
        model = self.canon.model
        if outcome == RescheduleOutcome.RESCHEDULED:
            is_true = sequence in model.moved
        elif outcome == RescheduleOutcome.CANCELLED:
            is_true = sequence in model.cancelled
        else:
            self._check_cancel(sequence, CancelOutcome[RescheduleOutcome(outcome).name])
            return
        assert is_true, f"I6: reschedule of {sequence} was answered {outcome}"
