"""What a Receive gets: turns, limits, and what is left out."""

from typing import cast

import pytest

from hourwheel import errors
from hourwheel.wire.state_pb2 import ConfigChange, TopicConfig
from node.leases import Held
from node.opening import ShardConfig
from node.receive import Delivery, Receiver
from storage.ack_state import WINDOW_POSITIONS
from storage.unit import Units
from tests.sim.disk import SimulatedDisk
from tests.support.shard_proposals import GROUP, LETTERS, QUEUES, RETRIES, TOPIC, body_of
from tests.support.shard_world import INVISIBLE_MS, START_MS, ShardWorld
from tests.support.units import make_units
from timewheel.bodies import BadBlob, Bodies

RETRY_QUEUE = RETRIES << 8
FIRST = Held(GROUP, QUEUES[0])


class StubBodies:
    """Every blob is zeros; those of `bad` sequences fail their checksum."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def read_joined(self, units: Units) -> tuple[bytes, list[BadBlob]]:
        found = [
            BadBlob(ordinal, errors.DataLoss(f"message {sequence}"))
            for ordinal, sequence in enumerate(units["sequence"].tolist())
            if sequence in self.bad
        ]
        return bytes(int(units["body_len"].sum()) + int(units["meta_len"].sum())), found


class Counter:
    """A receiver, and queues that are filled by hand."""

    def __init__(self, bad: set[int] | None = None) -> None:
        self.views = ShardWorld(SimulatedDisk(), ShardConfig()).opened.shard.views
        self.receiver = Receiver(self.views, cast(Bodies, StubBodies(bad or set())))
        self.sequence = 0

    def put(self, queue: int, count: int, *, due_ms: int = START_MS, **columns: int) -> None:
        """Release messages to a queue; `columns` as of their units."""
        columns.setdefault("origin_topic", TOPIC)
        units = make_units(self.sequence, count, due_ms=due_ms, topic_queue=queue, **columns)
        self.views.queues.get(queue).append(units)
        self.sequence += count

    def ask(
        self, *, count_max: int = 100, bytes_max: int = 1 << 20, now_ms: int = START_MS
    ) -> Delivery | None:
        return self.receiver.receive(
            GROUP,
            TOPIC,
            count_max=count_max,
            bytes_max=bytes_max,
            invisible_ms=INVISIBLE_MS,
            now_ms=now_ms,
        )

    def take(self, *, count_max: int = 100, bytes_max: int = 1 << 20) -> tuple[int, list[int]]:
        """(queue, sequences) of what a Receive gets; (0, []) for nothing."""
        delivery = self.ask(count_max=count_max, bytes_max=bytes_max)
        if delivery is None:
            return 0, []
        assert delivery.lease.count == len(delivery.units)
        return delivery.lease.held.topic_queue, delivery.units["sequence"].tolist()


# -- turns ----------------------------------------------------------------------------------------


def test_queues_take_turns_and_retries_are_one_of_them() -> None:
    counter = Counter()
    for queue in (*QUEUES, RETRY_QUEUE):
        counter.put(queue, 2)
    assert [counter.take(count_max=1) for _ in range(7)] == [
        (RETRY_QUEUE, [4]),
        (QUEUES[0], [0]),
        (QUEUES[1], [2]),
        (RETRY_QUEUE, [5]),
        (QUEUES[0], [1]),
        (QUEUES[1], [3]),
        (0, []),
    ]


def test_queues_without_messages_are_passed_over() -> None:
    counter = Counter()
    counter.put(QUEUES[1], 2)
    assert counter.take(count_max=1) == (QUEUES[1], [0])
    assert counter.take(count_max=1) == (QUEUES[1], [1])


def test_nothing_comes_when_the_group_has_no_subscription() -> None:
    counter = Counter()
    counter.put(LETTERS << 8, 1)
    receiver = counter.receiver
    assert receiver.queues_of(GROUP, LETTERS) == receiver.queues_of(GROUP + 1, TOPIC) == []
    assert receiver.queues_of(GROUP, TOPIC) == [RETRY_QUEUE, *QUEUES]
    assert counter.take() == (0, [])


# -- what is visible ------------------------------------------------------------------------------


def test_nothing_comes_before_it_is_due() -> None:
    counter = Counter()
    counter.put(QUEUES[0], 1, due_ms=START_MS + 5)
    counter.put(QUEUES[0], 1, due_ms=START_MS + 6)
    assert counter.ask(now_ms=START_MS + 4) is None
    delivery = counter.ask(now_ms=START_MS + 5)
    assert delivery is not None
    assert delivery.units["sequence"].tolist() == [0]
    assert delivery.receive_ms == START_MS + 5
    assert delivery.invisible_until_ms == START_MS + 5 + INVISIBLE_MS
    assert delivery.topic == "orders"


def test_what_is_leased_or_resolved_does_not_come_again() -> None:
    counter = Counter()
    counter.put(QUEUES[0], 6)
    counter.views.acks.get(*FIRST).resolve(2, 2)
    assert counter.take() == (QUEUES[0], [0, 1])
    assert counter.take() == (QUEUES[0], [4, 5])
    assert counter.take() == (0, [])
    assert counter.receiver.leases.leased_ranges(FIRST) == [(0, 2), (4, 6)]


def test_is_blocked_names_the_queues_when_their_windows_are_full() -> None:
    counter = Counter()
    counter.put(QUEUES[0], WINDOW_POSITIONS + 1)
    counter.put(QUEUES[1], 1)
    counter.receiver.leases.skip_to(FIRST, WINDOW_POSITIONS)
    assert counter.receiver.is_blocked(GROUP, TOPIC, START_MS - 1) == []
    queue = counter.views.queues.get(QUEUES[0])
    seen = [int(queue.visible_end(START_MS)) for _ in range(100)]
    assert seen[-1] == WINDOW_POSITIONS + 1, "bit by bit"
    assert counter.receiver.is_blocked(GROUP, TOPIC, START_MS) == [FIRST]
    assert counter.take() == (QUEUES[1], [WINDOW_POSITIONS + 1])
    assert counter.take() == (0, [])
    counter.views.acks.get(*FIRST).resolve(0, 1)
    assert counter.take() == (QUEUES[0], [WINDOW_POSITIONS])


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bytes_max", "count"), [(0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (300, 3), (301, 3)]
)
def test_as_many_come_as_fit_and_at_least_one(bytes_max: int, count: int) -> None:
    counter = Counter()
    counter.put(QUEUES[0], 3, body_len=90, meta_len=10)
    delivery = counter.ask(bytes_max=bytes_max)
    assert delivery is not None
    assert delivery.lease.count == len(delivery.units) == count
    assert len(delivery.blobs) == 100 * count
    assert counter.receiver.leases.next_position(FIRST) == count


def test_messages_of_two_topics_do_not_come_together() -> None:
    counter = Counter()
    counter.views.catalog.apply(
        ConfigChange(put_topic=TopicConfig(topic_id=9, name="bills", queue_count=1))
    )
    for origin, count in ((TOPIC, 2), (9, 1), (77, 1), (TOPIC, 1)):
        counter.put(QUEUES[0], count, origin_topic=origin)
    found = [counter.ask() for _ in range(4)]
    assert [(one.topic, one.units["sequence"].tolist()) for one in found if one] == [
        ("orders", [0, 1]),
        ("bills", [2]),
        ("", [3]),
        ("orders", [4]),
    ], "a topic that is gone has no name"


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "deliveries"),
    [
        ({0}, [[1, 2, 3, 4]]),
        ({4}, [[0, 1, 2, 3]]),
        ({0, 1, 4}, [[2, 3]]),
        ({2}, [[0, 1], [3, 4]]),
        ({1, 3}, [[0], [2], [4]]),
        ({0, 1, 2, 3, 4}, []),
    ],
)
def test_corrupt_ones_are_skipped_and_each_is_reported_once(
    bad: set[int], deliveries: list[list[int]]
) -> None:
    counter = Counter(bad)
    counter.put(QUEUES[0], 5, body_len=10)
    found = []
    while (delivery := counter.ask()) is not None:
        assert len(delivery.blobs) == 10 * len(delivery.units)
        found.append(delivery.units["sequence"].tolist())
    assert found == deliveries
    corrupt = counter.receiver.corrupt
    assert [(one.held, one.position) for one in corrupt] == [(FIRST, at) for at in sorted(bad)]
    assert [str(one.error) for one in corrupt] == [f"message {at}" for at in sorted(bad)]
    assert counter.receiver.leases.count == len(deliveries)


def test_next_queue_is_asked_when_all_of_one_are_corrupt() -> None:
    counter = Counter({0, 1})
    counter.put(QUEUES[0], 2)
    counter.put(QUEUES[1], 1)
    assert counter.take() == (QUEUES[1], [2])


def test_limits_hold_behind_a_corrupt_one() -> None:
    counter = Counter({0})
    counter.put(QUEUES[0], 6, body_len=10)
    assert counter.take(count_max=3) == (QUEUES[0], [1, 2])
    assert counter.take(bytes_max=20) == (QUEUES[0], [3, 4])


def test_a_flipped_bit_is_found_and_its_place_named() -> None:
    disk = SimulatedDisk()
    world = ShardWorld(disk, ShardConfig())
    due_ms = [START_MS - n for n in range(4)]
    world.publish(due_ms)
    world.commit()
    world.tick()
    shard = world.opened.shard
    receiver = shard.receiver
    unit = shard.views.queues.get(QUEUES[0]).read(0, 1)[0]
    path, at = shard.log.locate(int(unit["position"]))
    disk.flip_bit(path, at)
    delivery = receiver.receive(
        GROUP, TOPIC, count_max=9, bytes_max=1 << 20, invisible_ms=1, now_ms=START_MS
    )
    assert delivery is not None
    assert delivery.lease.first == 1
    sequence = int(delivery.units["sequence"][0])
    assert delivery.blobs == body_of(due_ms[sequence])
    assert [(one.held, one.position) for one in receiver.corrupt] == [(FIRST, 0)]
    assert path in str(receiver.corrupt[0].error)
