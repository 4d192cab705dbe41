"""Smoothing: never early, never later than the tolerance, in order, no faster than it must be."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.internal.v1.state_pb2 import ConfigChange, QueueState, TopicConfig
from node.contracts.broker import CatalogUpdate
from node.delivery.smoothing import STEP_MS, Smoothing
from storage.files.file_header import Identity
from storage.queues.consume_queue import ConsumeQueue
from storage.views.catalog import Catalog
from tests.sim.disk import SimulatedDisk
from tests.support.stepped_engine import SteppedEngine
from tests.support.units import make_units

TOPIC_QUEUE = 0x501
START_MS = 1_800_000_000_000


def topic(tolerance_ms: int) -> TopicConfig:
    return TopicConfig(topic_id=5, name="orders", queue_count=2, dispatch_tolerance_ms=tolerance_ms)


@dataclass
class Watched:
    """A queue whose consumers wait: they look when something comes, and when they are told to."""

    tolerance_ms: int
    now_ms: int = START_MS
    seen_ms: list[int] = field(default_factory=list)
    """By position: when it was visible without smoothing."""
    shown_ms: list[int] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        identity = Identity(bytes(16), 0)
        state = QueueState(topic_queue=TOPIC_QUEUE)
        self.queue = ConsumeQueue.open(SimulatedDisk(), "q", identity, state, 100)
        self.catalog = Catalog([topic(self.tolerance_ms)], next_topic_id=6)
        self.smoothing = Smoothing(self.catalog)

    def append(self, due_ms: Sequence[int]) -> None:
        """Entries come, and consumers look."""
        units = make_units(int(self.queue.end_position), len(due_ms))
        units["due_ms"] = due_ms
        self.queue.append(units)
        self.look()

    def look(self) -> None:
        """Note what is shown by now."""
        self.looks += 1
        shown = self.smoothing.visible_end(self.queue, self.now_ms)
        seen = self.queue.visible_end(self.now_ms)
        assert len(self.shown_ms) <= shown <= seen
        self.seen_ms += [self.now_ms] * (seen - len(self.seen_ms))
        self.shown_ms += [self.now_ms] * (shown - len(self.shown_ms))

    def advance(self, by_ms: int) -> None:
        """Time passes; consumers look as often as they are told."""
        end_ms = self.now_ms + by_ms
        while True:
            gate_ms = self.smoothing.next_gate_ms(self.queue, self.now_ms)
            if gate_ms is None or gate_ms > end_ms:
                break
            assert gate_ms > self.now_ms
            self.now_ms = gate_ms
            self.look()
        self.now_ms = end_ms

    @property
    def late_ms(self) -> list[int]:
        """By how much each was made later."""
        return [shown - seen for seen, shown in zip(self.seen_ms, self.shown_ms, strict=False)]


def test_hot_millisecond_is_spread_evenly_and_the_first_comes_at_once() -> None:
    watched = Watched(1_000)
    watched.append([START_MS] * 10_000)
    watched.advance(2_000)
    counts = np.bincount(np.array(watched.late_ms) // 50, minlength=20)
    assert len(watched.late_ms) == 10_000
    assert watched.late_ms[0] == 0
    assert 900 <= max(watched.late_ms) <= 1_000
    assert counts[:20].min() >= 400
    assert counts.max() <= 600
    assert watched.looks <= 1_000 // STEP_MS + 5


def test_few_are_shown_a_millisecond_apart() -> None:
    watched = Watched(1_000)
    watched.append([START_MS] * 20)
    watched.advance(1_000)
    assert max(watched.late_ms) <= 20 + STEP_MS


def test_steady_flow_is_not_made_late() -> None:
    watched = Watched(200)
    for _ in range(3_000):
        watched.append([watched.now_ms] * 10)
        watched.advance(1)
    assert max(watched.late_ms[25_000:]) <= 2 * STEP_MS
    burst = len(watched.seen_ms)
    watched.append([watched.now_ms] * 10_000)
    for _ in range(300):
        watched.advance(1)
        watched.append([watched.now_ms] * 10)
    late_ms = watched.late_ms[burst : burst + 10_000]
    assert 150 <= max(late_ms) <= 200, "a hot moment within it is spread all the same"


@given(
    tolerance_ms=st.sampled_from([1, 2, 7, 50, 1_000]),
    steps=st.lists(
        st.tuples(
            st.integers(0, 300),
            st.lists(st.integers(-40, 20), min_size=1, max_size=3),
            st.sampled_from([1, 5, 120]),
        ),
        max_size=25,
    ),
)
def test_each_is_shown_in_time_however_they_come(
    tolerance_ms: int, steps: list[tuple[int, list[int], int]]
) -> None:
    """In any order of due times, some of them past."""
    watched = Watched(tolerance_ms)
    for by_ms, offsets, times in steps:
        watched.append([watched.now_ms + offset for offset in offsets for _ in range(times)])
        watched.advance(by_ms)
    watched.advance(2_000)
    assert len(watched.late_ms) == watched.queue.end_position
    assert all(0 <= late_ms <= tolerance_ms for late_ms in watched.late_ms)


def test_old_ones_are_shown_at_once_behind_a_change_of_master_and_fresh_ones_are_not() -> None:
    watched = Watched(100)
    watched.append([START_MS] * 1_000)
    watched.advance(1_000)
    watched.append([watched.now_ms] * 1_000)
    watched.smoothing = Smoothing(watched.catalog)
    first = watched.smoothing.visible_end(watched.queue, watched.now_ms)
    assert 1_000 <= first <= 1_010
    watched.advance(100)
    assert len(watched.shown_ms) == 2_000


def test_nothing_waits_when_the_tolerance_is_taken_away_or_the_clock_set_back() -> None:
    watched = Watched(1_000)
    watched.append([START_MS] * 5_000)
    watched.advance(100)
    watched.queue.look_again()
    watched.now_ms = START_MS - 10
    watched.seen_ms, watched.shown_ms = [], []
    watched.look()
    assert not watched.shown_ms
    watched.advance(3_000)
    watched.look()
    assert len(watched.shown_ms) == 5_000
    watched.append([watched.now_ms] * 5_000)
    assert len(watched.shown_ms) < 6_000
    watched.catalog.apply(ConfigChange(put_topic=topic(0)))
    watched.look()
    assert len(watched.shown_ms) == 10_000


def test_queue_that_is_trimmed_to_its_end_before_anybody_looks_shows_what_comes_then() -> None:
    watched = Watched(1_000)
    watched.look()
    units = make_units(0, 10)
    units["due_ms"] = [START_MS] * 10
    watched.queue.append(units)
    watched.queue.trim_to(10)
    assert watched.smoothing.visible_end(watched.queue, watched.now_ms) == 10
    watched.seen_ms, watched.shown_ms = [START_MS] * 10, [START_MS] * 10
    watched.append([START_MS] * 5)
    watched.advance(1_000)
    assert len(watched.shown_ms) == 15


@pytest.mark.parametrize("wanted", [None, "a"])
def test_consumers_get_a_hot_moment_over_its_tolerance(wanted: str | None) -> None:
    """Polls that wait are woken for each part, with a filter and without."""
    with SteppedEngine() as stepped:
        update = CatalogUpdate(dispatch_tolerance_ms=400)
        assert stepped.call(stepped.engine.update_topic("orders", update))
        stepped.call(stepped.publish(*[50] * 2_000))
        due_ms, came = stepped.now_ms + 50, list[int]()
        poll = stepped.begin(stepped.receive(count=2_000, wait_ms=60_000, wanted=wanted))
        while len(came) < 2_000:
            stepped.advance(1)
            if not poll.done():
                assert stepped.now_ms <= due_ms + 400
                continue
            delivery = poll.result()
            assert delivery is not None
            came += [stepped.now_ms - due_ms] * len(delivery.units)
            assert stepped.call(stepped.resolve(delivery, "billing", is_ack=True))
            poll = stepped.begin(stepped.receive(count=2_000, wait_ms=60_000, wanted=wanted))
        poll.cancel()
        assert came[0] == 0
        assert 350 <= came[-1] <= 400
        assert np.bincount(np.array(came) // 100)[:4].tolist() == pytest.approx([500] * 4, abs=60)
