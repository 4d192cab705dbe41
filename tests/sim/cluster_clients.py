"""Clients of a simulated cluster: they publish, cancel, consume, through any change of master."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hourwheel.errors import CorruptLog, HourwheelError
from hourwheel.formats.record_batch import Outcome
from hourwheel.formats.transaction_step import Step
from hourwheel.types import Offset, SequenceNumber, TopicId
from node.delivery.deliveries import Delivery, ReceiveLimits
from node.delivery.resolve_rows import expired_rows, filtered_rows
from node.shard.deduplication import Published
from storage.queues.ack_state import IN_PLACE
from tests.support.shard_proposals import GROUP, TOPIC, ShardProposals, Side, Token
from tests.support.shard_world import INVISIBLE_MS, START_MS
from tests.support.small_sizes import chunk_entries

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.cluster_node import SimNode

TIMEOUT_MS = 400.0
HOUR_MS = 3_600_000


@dataclass
class Call(Token):
    """A proposal to a node, and whom to tell."""

    node: "SimNode | None" = None
    then: Callable[[Any], None] | None = None

    def answer(self, result: Any, error: HourwheelError | None) -> None:
        """What the node says; where it does not know, it says nothing."""
        super().answer(result, error)
        if error is None and self.node is not None:
            self.node.cluster.on_answered(self.node, self)


class Proposer(ShardProposals):
    """Proposes to one node's shard, now."""

    def __init__(self, node: "SimNode", then: Callable[[Any], None] | None = None) -> None:
        self._node, self.mastership = node, node.mastership
        self.shard, self.model = node.shard, node.cluster.checkers.canon.model
        self.now_ms = node.cluster_ms()
        self.tokens = []
        lives = node.cluster.lives
        self.is_tagged = node.cluster.wanted is not None or lives.has_priorities
        self.expires_after_ms = lives.expires_after_ms
        self.acked = node.cluster.checkers.finished
        self._then = then

    def _token(self, kind: str) -> Call:
        return Call(kind, self.shard.log.end_offset, node=self._node, then=self._then)


def resolve_filtered(node: "SimNode") -> None:
    """The master's timer: what filters passed over, and what has expired, goes into the log."""
    filtered_ranges = node.mastership.receiver.filtered_ranges
    due = filtered_ranges.take_due(node.cluster_ms())

    def then(_: Any) -> None:
        for one in due:
            filtered_ranges.settle(one)

    if due:
        rows = [
            expired_rows(one.group_queue, [(one.first, one.end)], kept=one.first % 2 == 0)
            if one.are_expired
            else filtered_rows(one.group_queue, [(one.first, one.end)])
            for one in due
        ]
        Proposer(node, then).resolve(np.concatenate(rows))


class Client:
    """What they have in common: to ask who may be master, and to wait for an answer."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster, self.name = cluster, name

    def ask(self, request: Callable[["SimNode"], object]) -> None:
        """Send a request to the master, as far as is known; it is heard only by one."""
        cluster, random = self.cluster, self.cluster.events.random
        known = cluster.control.master
        name = known if known and random.random() < 0.8 else random.choice(cluster.names)
        node = cluster.nodes[name]

        def handle() -> None:
            if node.may_act:
                request(node)
                node.act()

        cluster.network.call(self.name, name, lambda: node.later(0, handle))


class Producer(Client):
    """Publishes one request after the other, each until it is acknowledged."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster, f"producer-{number}")
        self._id = number
        self._sequence = 0
        self._due_ms: list[int] = []
        self._dedup: list[int] = []
        self.acked_count = 0
        self._next()

    def _next(self) -> None:
        random = self.cluster.events.random
        now_ms = START_MS + int(self.cluster.events.now_ms)
        longest_ms = random.choice((20, 200, 2_500, 2_500, HOUR_MS))
        self._due_ms = [
            now_ms + random.randint(-5, longest_ms) for _ in range(random.randint(1, 3))
        ]
        self._dedup = random.choices(range(12), k=3) if random.random() < 0.3 else []
        self.cluster.events.later(random.uniform(1, self.cluster.think_ms), self.retry)

    def retry(self) -> None:
        """Send the request that waits."""
        if not self.cluster.is_publishing:
            return
        sequence, due_ms, dedup = self._sequence, self._due_ms, self._dedup

        def then(result: Any) -> None:
            if self._sequence == sequence:
                self.cluster.checkers.on_published(due_ms, result[0])
                self.acked_count += 1
                self._sequence += len(due_ms)
                self._next()

        def publish(node: "SimNode") -> None:
            proposer = Proposer(node, then)
            proposer.publish(due_ms, producer_id=self._id, producer_sequence=sequence, dedup=dedup)

        def again() -> None:
            if self._sequence == sequence:
                self.retry()

        self.ask(publish)
        self.cluster.events.later(TIMEOUT_MS, again)


class Canceller(Client):
    """Cancels messages that were acknowledged, once each and whatever becomes of the answer."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "canceller")
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        cluster = self.cluster
        cluster.events.later(cluster.events.random.uniform(50, 400), self._try)
        acked = cluster.checkers.acked
        if not cluster.is_publishing or not acked:
            return
        newest = list(acked)[-20:]
        sequence = cluster.events.random.choice(newest)

        def then(result: Any) -> None:
            cluster.checkers.cancels.append((sequence, int(result[0])))

        def cancel(node: "SimNode") -> None:
            Proposer(node, then).cancel([sequence])
            if cluster.events.random.random() < 0.2:  # with what is retained being very little
                floor = cluster.events.random.choice(newest)
                now_ms = int(node.cluster_ms())
                node.mastership.trim_sequences(SequenceNumber(floor), now_ms)

        self.ask(cancel)


class Mover(Client):
    """Moves messages that were acknowledged to other due times, again and again."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "mover")
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        cluster, random = self.cluster, self.cluster.events.random
        cluster.events.later(random.uniform(50, 400), self._try)
        acked = cluster.checkers.acked
        if not cluster.is_publishing or not acked:
            return
        newest = list(acked)[-20:]
        sequences = random.choices(newest, k=3)
        delays = [random.choice((-5, 0, 20, 200, 1_500, 2_500)) for _ in sequences]

        def then(result: Any) -> None:
            cluster.checkers.moves += zip(sequences, result["outcome"].tolist(), strict=True)

        def move(node: "SimNode") -> None:
            due_ms = [int(node.cluster_ms()) + delay for delay in delays]
            if random.random() < 0.3:  # back to where it was
                due_ms[0] = acked[sequences[0]]
            Proposer(node, then).reschedule(sequences, due_ms)

        self.ask(move)


class Trader(Client):
    """Prepares transactions, one after the other, and ends each: now and then twice, or not at all.

    What it is told of the end is final; the master gives up what nobody ends.
    """

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster, f"trader-{number}")
        self._token = number << 32
        self._offset: Offset | None = None
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        random = self.cluster.events.random
        self.cluster.events.later(random.uniform(50, 400), self._try)
        if not self.cluster.is_publishing:
            return
        offset = self._offset
        if offset is None:
            self.ask(self._prepare)  # until it is answered: with the same token
            return
        if random.random() < 0.7:  # else another one ends it as well
            self._offset = None
            self._token += 1
        if random.random() < 0.7:
            self.ask(lambda node: self._commit(node, offset))
        else:
            step = random.choice((Step.CHECK, Step.ROLL_BACK, Step.EXPIRE))
            self.ask(lambda node: self._step(node, offset, step))

    def _prepare(self, node: "SimNode") -> None:
        random, token = self.cluster.events.random, self._token
        due_ms = [int(node.cluster_ms()) + random.choice((-5, 20, 1_500)) for _ in range(2)]

        def then(result: Any) -> None:
            if self._token == token:
                self._offset = result.offset

        Proposer(node, then).prepare(due_ms, token)

    def _commit(self, node: "SimNode", offset: Offset) -> None:
        def then(result: Any) -> None:
            if isinstance(result[0], Published):
                self.cluster.checkers.deals.append((offset, "COMMITTED"))

        with suppress(CorruptLog):  # a service tells its caller to try again
            Proposer(node, then).commit_transaction(offset)

    def _step(self, node: "SimNode", offset: int, step: Step) -> None:
        state = "EXPIRED" if step == Step.EXPIRE else "ROLLED_BACK"

        def then(result: Any) -> None:
            if step != Step.CHECK and result[0]:
                self.cluster.checkers.deals.append((offset, state))

        Proposer(node, then).transact([offset], step)


class Clockmaker(Client):
    """Makes and changes recurrences, and publishes their occurrences: as a master does by itself.

    Now and then twice, as a master that has not heard of what its predecessor published.
    """

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "clockmaker")
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        random = self.cluster.events.random
        self.cluster.events.later(random.uniform(30, 200), self._try)
        if not self.cluster.is_publishing:
            return
        name = random.choice(("hourly", "daily"))
        known = self.cluster.checkers.canon.model.recurring.recurrences
        if name not in known or random.random() < 0.15:
            what = random.choice(("put", "put", "pause", "resume", "delete"))
            is_stale = random.random() < 0.2
            self.ask(lambda node: Proposer(node).recur(name, what, is_stale=is_stale))
        else:
            delays_ms = [random.choice((20, 200, 1_500))]
            for _ in range(random.choice((1, 1, 2))):
                self.ask(lambda node: Proposer(node).occur([name], delays_ms))


class Administrator(Client):
    """Makes topics and groups beside the others', uses them a little, and deletes them."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "administrator")
        self._made = 0
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        random = self.cluster.events.random
        self.cluster.events.later(random.uniform(100, 500), self._try)
        if not self.cluster.is_publishing:
            return
        if not self._made or random.random() < 0.2:
            self._made += 1
            number = self._made
            self.ask(lambda node: self._make(node, number))
            return
        side = Side.of(random.randint(1, self._made))
        act = random.choice(
            (
                *(self._publish, self._publish, self._resolve, self._resolve, self._reset),
                *(self._retain, self._trim, self._delete),
            )
        )
        self.ask(lambda node: act(node, side))

    @staticmethod
    def _make(node: "SimNode", number: int) -> None:
        Proposer(node).make_side(number)

    def _publish(self, node: "SimNode", side: Side) -> None:
        delays = (-5, 20, 200, 1_500)
        random = self.cluster.events.random
        due_ms = [int(node.cluster_ms()) + random.choice(delays) for _ in range(3)]
        Proposer(node).publish(due_ms, queues=[side.queue])

    def _resolve(self, node: "SimNode", side: Side) -> None:
        random = self.cluster.events.random
        proposer = Proposer(node)
        queue = random.choice((side.queue, proposer.retries_of(side) << 8))
        outcomes = (
            *(Outcome.ACK, Outcome.RETRY, Outcome.RETRY, Outcome.SKIPPED),
            *(Outcome.REDRIVE, *sorted(IN_PLACE)),
        )
        outcome = random.choice(outcomes)
        if outcome == Outcome.REDRIVE:  # of those that are such no longer, too
            queue = side.letters << 8
        proposer.resolve_side(side, queue, random.randrange(6), 3, outcome)

    def _reset(self, node: "SimNode", side: Side) -> None:
        """Its group begins anew, further back or further on; void where it was reset meanwhile."""
        random = self.cluster.events.random
        is_stale = random.random() < 0.2
        Proposer(node).reset_side(side, random.randrange(8), is_stale=is_stale)

    def _retain(self, node: "SimNode", side: Side) -> None:
        """It gets a retention of its own, and more than one file of its queue holds."""
        Proposer(node).retain(
            TopicId(side.topic), self.cluster.events.random.choice((0, 100, 1_000))
        )
        count = chunk_entries() + 3
        Proposer(node).publish([int(node.cluster_ms())] * count, queues=[side.queue])

    def _trim(self, node: "SimNode", _: Side) -> None:
        """What has a retention of its own goes by that; nothing else does."""
        node.mastership.trim(0, int(node.cluster_ms()))

    def _delete(self, node: "SimNode", side: Side) -> None:
        proposer = Proposer(node)
        number = self.cluster.events.random.choice((side.topic, side.letters, side.retries, 0))
        if number:
            proposer.delete_topic(number)
        else:
            proposer.delete_group(side.group)


class Consumer(Client):
    """Receives and acknowledges, at whoever is master."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster, "consumer")
        cluster.events.later(300, self._try)

    def _try(self) -> None:
        cluster = self.cluster
        cluster.events.later(cluster.events.random.uniform(30, 150), self._try)
        self.ask(self._receive)

    def _receive(self, node: "SimNode") -> None:
        delivery: Delivery | None = node.mastership.receiver.receive(
            GROUP, TOPIC, ReceiveLimits(16, 1 << 20, INVISIBLE_MS, node.cluster_ms())
        )
        node.damage.take_found()
        if delivery is None:
            return
        self.cluster.checkers.on_delivery(node, delivery)
        if self.cluster.events.random.random() < 0.8:
            Proposer(node).ack(delivery)
