"""What a Receive gets: turns, limits, and what is left out."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from hourwheel import Sql, errors
from hourwheel.internal.v1.state_pb2 import ConfigChange, TopicConfig
from hourwheel.v1.consumer_pb2 import ReceiptOutcome
from node.contracts.broker import GroupSettings
from node.delivery.deliveries import Delivery, ReceiveLimits
from node.delivery.receiver import Receiver
from node.shard.group_queue import GroupQueue
from node.shard.recovery import ShardConfig
from storage.queues.ack_state import WINDOW_POSITIONS
from storage.views.unit import FEW_UNITS, Units
from tests.sim.disk import SimulatedDisk
from tests.support.engine_world import EngineWorld, let_others_run
from tests.support.eventually import until
from tests.support.leased import leased_ranges
from tests.support.shard_proposals import GROUP, LETTERS, QUEUES, RETRIES, TOPIC, body_of
from tests.support.shard_world import INVISIBLE_MS, START_MS, ShardWorld
from tests.support.units import make_units
from timewheel.bodies import BadBlob, Bodies

RETRY_QUEUE = RETRIES << 8
FIRST = GroupQueue(GROUP, QUEUES[0])
OK = int(ReceiptOutcome.RECEIPT_OUTCOME_OK)
RETRY_MS = 1_000
"""The default delay before the second attempt."""


class StubBodies:
    """Every blob is zeros; those of `bad` sequences fail their checksum."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def read_joined(self, units: Units, _rows: object = None) -> tuple[bytes, list[BadBlob]]:
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
            GROUP, TOPIC, ReceiveLimits(count_max, bytes_max, INVISIBLE_MS, now_ms)
        )

    def take(self, *, count_max: int = 100, bytes_max: int = 1 << 20) -> tuple[int, list[int]]:
        """(queue, sequences) of what a Receive gets; (0, []) for nothing."""
        delivery = self.ask(count_max=count_max, bytes_max=bytes_max)
        if delivery is None:
            return 0, []
        assert delivery.lease.count == len(delivery.units)
        return delivery.lease.group_queue.topic_queue, delivery.units["sequence"].tolist()


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
    assert leased_ranges(counter.receiver.leases, FIRST) == [(0, 2), (4, 6)]


def test_has_undelivered_says_whether_there_is_anything_to_look_at() -> None:
    counter = Counter()

    def has(now_ms: int = START_MS) -> bool:
        return counter.receiver.has_undelivered(GROUP, TOPIC, now_ms)

    assert not has()
    counter.put(QUEUES[1], 2, due_ms=START_MS + 1)
    assert not has()
    counter.put(RETRY_QUEUE, 1)
    assert has()
    assert counter.take() == (RETRY_QUEUE, [2])
    assert not has()
    retries = GroupQueue(GROUP, RETRY_QUEUE)
    assert counter.receiver.leases.withhold(retries, 0)
    counter.receiver.offer_again(retries, 0, 1)
    assert has()
    assert counter.take() == (RETRY_QUEUE, [2])
    assert (has(), has(START_MS + 1)) == (False, True)
    assert not counter.receiver.has_undelivered(GROUP, LETTERS, START_MS), "no subscription"


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
@pytest.mark.parametrize("there", [3, FEW_UNITS, FEW_UNITS + 1])
def test_as_many_come_as_fit_and_at_least_one(bytes_max: int, count: int, there: int) -> None:
    counter = Counter()
    counter.put(QUEUES[0], there, body_len=90, meta_len=10)
    delivery = counter.ask(bytes_max=bytes_max)
    assert delivery is not None
    assert delivery.lease.count == len(delivery.units) == count
    assert len(delivery.blobs) == 100 * count
    assert counter.receiver.leases.next_position(FIRST) == count


@pytest.mark.parametrize("count", [2, FEW_UNITS, FEW_UNITS + 1])
def test_messages_of_two_topics_are_cut_however_many_there_are(count: int) -> None:
    counter = Counter()
    counter.put(QUEUES[0], count - 1)
    counter.put(QUEUES[0], 1, origin_topic=77)
    assert counter.take() == (QUEUES[0], list(range(count - 1)))
    assert counter.take() == (QUEUES[0], [count - 1])


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
    assert [(one.group_queue, one.position) for one in corrupt] == [
        (FIRST, at) for at in sorted(bad)
    ]
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
    receiver = world.mastership.receiver
    unit = shard.views.queues.get(QUEUES[0]).read(0, 1)[0]
    path, at = shard.log.locate(int(unit["position"]))
    disk.flip_bit(path, at)
    delivery = receiver.receive(
        GROUP, TOPIC, ReceiveLimits(9, 1 << 20, invisible_ms=1, now_ms=START_MS)
    )
    assert delivery is not None
    assert delivery.lease.first == 1
    sequence = int(delivery.units["sequence"][0])
    assert delivery.blobs == body_of(due_ms[sequence])
    assert [(one.group_queue, one.position) for one in receiver.corrupt] == [(FIRST, 0)]
    assert path in str(receiver.corrupt[0].error)


# -- filters ---------------------------------------------------------------------------------------


async def test_tags_in_sql_are_the_messages_tags(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a", "x", "b c", "", "x a")
        wanted = Sql("TAGS IS NOT NULL AND TAGS IN ('a', 'b')")
        found = await world.leased(wanted=wanted)
        assert found.units["sequence"].tolist() == [0, 2, 4]
        assert world.engine.stats.filter_masked == 2, "genes tell it"


async def test_long_poll_is_answered_though_what_it_wants_is_many_slices_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        for _ in range(10):
            await world.publish_tagged(*["x"] * 1_000)
        await world.publish_tagged("a")
        turns = 0
        poll = asyncio.ensure_future(world.leased(wanted="a"))
        while not poll.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await poll).units["sequence"].tolist() == [10_000]
        assert turns > 10, "others had their turns meanwhile"
        assert world.engine.stats.filter_masked == 10_000
        assert world.engine.stats.filter_read == 1


async def test_call_that_does_not_wait_looks_through_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        for _ in range(5):
            await world.publish_tagged(*["x"] * 1_000)
        assert await world.receive(wanted="a || b") is None
        await world.publish_tagged(*["x"] * 1_000, "b")
        found = await world.receive()
        assert found is not None
        assert found.units["sequence"].tolist() == [6_000]


async def test_queues_take_turns_though_one_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filter_scan.SLICE_WORK", 600)
    async with EngineWorld(tmp_path) as world:
        await world.engine.create_topic("orders", 2)
        for _ in range(8):
            await world.publish_tagged(*["x"] * 1_000)
        await world.publish_tagged("a", "a")
        first, second = await world.leased(wanted="a"), await world.leased()
        assert {first.topic_queue, second.topic_queue} == {1 << 8, 1 << 8 | 1}


async def test_long_poll_waits_on_when_nothing_that_comes_is_wanted(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        poll = asyncio.ensure_future(world.leased(wanted="a"))
        await until(lambda: world.service.receive_service.waiting_count == 1)
        await world.publish_tagged("x", "x")
        await let_others_run()
        assert not poll.done()
        assert world.engine.stats.filter_masked == 2, "and what came is looked at once"
        await world.publish_tagged("a")
        assert (await poll).units["sequence"].tolist() == [2]


async def test_full_window_holds_up_a_filter_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("delivery.leases", "shard.apply"):
        monkeypatch.setattr(f"node.{module}.WINDOW_POSITIONS", 4)
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["x", "a"] * 9)
        held = await world.leased(wanted="a")
        assert len(held.units) == 4
        assert await world.receive() is None
        poll = asyncio.ensure_future(world.leased())
        assert await world.ack(world.select(held, 1, 3)) == [OK]
        await let_others_run()
        assert not poll.done(), "the first one still holds it"
        assert await world.ack(world.select(held, 0, 1)) == [OK]
        assert (await poll).units["sequence"].tolist() == [9, 11, 13, 15]


async def test_hole_that_holds_up_a_filters_window_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("delivery.leases", "shard.apply"):
        monkeypatch.setattr(f"node.{module}.WINDOW_POSITIONS", 4)
    monkeypatch.setattr("node.consumers.polls.WINDOW_POSITIONS", 4)
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["x", "a"] * 9)
        held = await world.leased(wanted="a")
        assert await world.ack(world.select(held, 1, 3)) == [OK]
        assert await world.receive() is None
        assert (await world.leased()).units["sequence"].tolist() == [9, 11, 13, 15]
        world.advance(RETRY_MS)
        assert (await world.leased()).units["sequence"].tolist() == [1], "its first one again"


# -- dead letters ----------------------------------------------------------------------------------


async def buried(world: EngineWorld, *tags: str) -> None:
    """These are dead letters of the group."""
    await world.engine.put_group("billing", GroupSettings(attempts_max=1))
    await world.publish_tagged(*tags)
    found = await world.leased()
    await world.nack(world.select(found), delay_ms=0)


async def test_filter_on_dead_letters_selects_for_one_call(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await buried(world, "a", "b", "a", "c", "a")
        letters = "%DLQ%billing"
        picked = await world.receive(topic=letters, group="ops", wanted="a", count=2)
        assert picked is not None
        assert picked.units["sequence"].tolist() == [0, 2]
        other = await world.receive(topic=letters, group="ops", wanted="c")
        assert other is not None
        assert other.units["sequence"].tolist() == [3]
        rest = [await world.receive(topic=letters, group="ops") for _ in range(3)]
        assert [one.units["sequence"].tolist() for one in rest if one] == [[1], [4]]
        assert await world.ack(world.select(picked), world.select(other), group="ops") == [OK, OK]
        acks = world.engine.shard.views.acks.get(other.group_id, other.topic_queue)
        assert (acks.floor, acks.ranges()) == (1, [(2, 4)]), "nobody else's is resolved"
        assert await world.receive(topic=letters, group="ops", wanted="a || b || c") is None


async def test_long_polls_on_dead_letters_wait_for_what_each_selects(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await buried(world, "a")
        letters = "%DLQ%billing"
        polls = [
            asyncio.ensure_future(
                world.receive(topic=letters, group="ops", wanted=text, wait_ms=600_000)
            )
            for text in ("b", "c")
        ]
        await until(lambda: world.service.receive_service.waiting_count == 2)
        await buried(world, "c")
        found = await polls[1]
        assert found is not None
        assert found.units["sequence"].tolist() == [1]
        assert not polls[0].done()
        await buried(world, "b")
        assert (await polls[0]) is not None
