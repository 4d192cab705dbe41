"""Choose what a Receive gets: the group's queues of a topic in turn, up to the release gate."""

from dataclasses import dataclass
from typing import NamedTuple

from hourwheel import errors
from hourwheel.types import TopicQueue, topic_queue
from node.leases import Held, Lease, Leases
from node.views import Views
from storage.unit import Units
from timewheel.bodies import Bodies


@dataclass(frozen=True)
class Delivery:
    """Leased messages of one queue, with their bytes."""

    lease: Lease
    topic: str
    """Topic that they were published to."""
    units: Units
    """Structured array[n] of UNIT, in queue order; their places are the node's own business."""
    blobs: bytes
    """Meta and body of each message, one behind the other."""
    receive_ms: int

    @property
    def invisible_until_ms(self) -> int:
        """When the lease ends."""
        return self.lease.until_ms


class Corrupt(NamedTuple):
    """A message in a queue whose bytes are not what was published."""

    held: Held
    position: int
    error: errors.DataLoss


class Receiver:
    """Hands out messages. Holds the leases, and which queue is next for whom."""

    def __init__(self, views: Views, bodies: Bodies) -> None:
        """Read from `views` and `bodies`."""
        self._views, self._bodies = views, bodies
        self.leases = Leases()
        self._turns: dict[tuple[int, int], int] = {}
        self.corrupt: list[Corrupt] = []
        """Messages that failed their checksum: the shell buries them, then clears this."""

    def queues_of(self, group_id: int, topic_id: int) -> list[TopicQueue]:
        """The queues that a group's Receive of a topic reads: its retries first."""
        catalog = self._views.catalog
        subscription = catalog.find_subscription(group_id, topic_id)
        topic = catalog.find_topic_by_id(topic_id)
        if subscription is None or topic is None:
            return []
        own = [topic_queue(topic_id, queue) for queue in range(topic.queue_count)]
        return [topic_queue(subscription.retry_topic_id, 0), *own]

    def receive(
        self,
        group_id: int,
        topic_id: int,
        *,
        count_max: int,
        bytes_max: int,
        invisible_ms: int,
        now_ms: int,
    ) -> Delivery | None:
        """Lease the next messages of one queue, or None where nothing is visible."""
        queues = self.queues_of(group_id, topic_id)
        turn = self._turns.get((group_id, topic_id), 0)
        for step in range(len(queues)):
            number = queues[(turn + step) % len(queues)]
            delivery = self._receive_from(
                Held(group_id, number), count_max, bytes_max, invisible_ms, now_ms
            )
            if delivery is not None:
                self._turns[group_id, topic_id] = (turn + step + 1) % len(queues)
                return delivery
        return None

    def _receive_from(
        self,
        held: Held,
        count_max: int,
        bytes_max: int,
        invisible_ms: int,
        now_ms: int,
    ) -> Delivery | None:
        queue = self._views.queues.get(held.topic_queue)
        visible_end = queue.visible_end(now_ms)
        if self.leases.next_position(held) >= visible_end:
            return None
        window = self._views.acks.get(*held)
        bounds = queue.start_position, visible_end
        while True:
            first, end = self.leases.find_range(held, window, bounds, count_max)
            if first >= end:
                return None
            units = _cut_to_origin(_cut_to_bytes(queue.read(first, end - first), bytes_max))
            end = first + len(units)
            blobs, bad = self._bodies.read_joined(units)
            if not bad:
                break
            low, high = _good_run([one.ordinal for one in bad], len(units))
            self.corrupt += [
                Corrupt(held, first + one.ordinal, one.error) for one in bad if one.ordinal < high
            ]
            self.leases.skip_to(held, first + low)
            count_max = max(1, high - low)  # and read those again, by themselves
        lease = self.leases.grant(held, first, end, now_ms + invisible_ms)
        topic = self._views.catalog.find_topic_by_id(int(units["origin_topic"][0]))
        return Delivery(lease, topic.name if topic else "", units, blobs, now_ms)

    def is_blocked(self, group_id: int, topic_id: int, now_ms: int) -> list[Held]:
        """The group's queues of a topic that have more, but only behind a full window."""
        found = []
        for number in self.queues_of(group_id, topic_id):
            held = Held(group_id, number)
            queue = self._views.queues.get(number)
            window = self._views.acks.get(*held)
            bounds = queue.start_position, queue.visible_end(now_ms)
            if self.leases.is_blocked(held, window, bounds):
                found.append(held)
        return found


def _cut_to_bytes(units: Units, bytes_max: int) -> Units:
    """The first units whose blobs fit, and at least one."""
    sizes = units["body_len"].astype("i8") + units["meta_len"]
    total = sizes.cumsum()
    if int(total[-1]) <= bytes_max:
        return units
    return units[: max(1, int(total.searchsorted(bytes_max, "right")))]


def _cut_to_origin(units: Units) -> Units:
    """The first units that were published to one topic: dead letters are of several."""
    origins = units["origin_topic"]
    same = origins == origins[0]
    return units if same.all() else units[: int(same.argmin())]


def _good_run(bad: list[int], count: int) -> tuple[int, int]:
    """[low, high) of the first stretch without a bad one."""
    low = 0
    for index in [*bad, count]:
        if index > low:
            return low, index
        low = index + 1
    return count, count
