"""Recurrences through an engine: what is published when, across changes and masterships."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from hourwheel import errors, limits
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import parse_many
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import CANCEL_ROW
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from hourwheel.outcomes import Missed
from hourwheel.types import DISPATCH_TOPIC, DUE_MS_MAX
from node.broker.recurring.occurrence_planner import OccurrencePlanner
from node.contracts.broker import CatalogUpdate
from tests.support.stepped_engine import START_MS, SteppedEngine

EVERY_MS = 10_000


def every(interval_ms: int = EVERY_MS, **more: Any) -> RecurrenceConfig:
    given = {"topic": "orders", "every_ms": interval_ms, "missed": Missed.ALL, "body": b"x"}
    return RecurrenceConfig(**(given | more))


def call(engine: SteppedEngine, work: Coroutine[Any, Any, Any]) -> Any:
    task = engine.begin(work)
    engine.settle()
    return task.result()


def put(engine: SteppedEngine, config: RecurrenceConfig, name: str = "report", **more: Any) -> int:
    expected = more.get("expected_version")
    version: int = call(engine, engine.engine.recurring.put(config, name, expected))
    return version


def received(engine: SteppedEngine) -> list[tuple[int, str, str]]:
    """(due time since the start, name, index) of all that is visible and was not received yet."""
    found = []
    while True:
        delivery = call(engine, engine.receive())
        if delivery is None:
            return sorted(found)
        at = 0
        for unit in delivery.units:
            raw = bytes(delivery.blobs[at:][: int(unit["meta_len"])])
            at += int(unit["meta_len"]) + int(unit["body_len"])
            said = dict(metas.decode(raw).properties)
            due_ms = int(unit["due_ms"]) - START_MS
            name, index = said["hourwheel.recurrence"], said["hourwheel.occurrence"]
            found.append((due_ms, name, index))
        call(engine, engine.resolve(delivery, "billing", is_ack=True))


def test_interval_when_time_passes_is_published_again_and_again() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        info = engine.engine.recurring.get("orders", "report")
        assert (info.occurrence_count, info.last_due_ms) == (1, START_MS + EVERY_MS)
        engine.advance(EVERY_MS - 1)
        assert received(engine) == []
        engine.advance(1)
        assert received(engine) == [(EVERY_MS, "report", "0")]
        for _ in range(3):
            engine.advance(EVERY_MS)
        assert received(engine) == [(n * EVERY_MS, "report", str(n - 1)) for n in (2, 3, 4)]
        assert engine.engine.stats.occurrences == 5


def test_occurrence_has_tags_keys_and_properties_and_a_gene() -> None:
    with SteppedEngine() as engine:
        meta = MessageMeta(tags=("a",), keys=("k",), properties=(("p", "1"),))
        put(engine, every(meta=encode(meta).raw))
        engine.advance(EVERY_MS)
        assert call(engine, engine.receive(group="others", wanted="b")) is None
        delivery = call(engine, engine.receive(wanted="a"))
        raw = bytes(delivery.blobs[: int(delivery.units["meta_len"][0])])
        found = metas.decode(raw)
        assert (found.tags, found.keys, found.properties[0]) == (("a",), ("k",), ("p", "1"))


def test_occurrence_expires_so_long_after_it_fell_due_itself() -> None:
    with SteppedEngine() as engine:
        put(engine, every(meta=encode(MessageMeta(expires_ms=-EVERY_MS // 2)).raw))
        received(engine)  # subscribes
        engine.advance(EVERY_MS)
        engine.advance(EVERY_MS // 2)
        assert received(engine) == [], "the first has expired"
        engine.advance(EVERY_MS // 2)
        engine.advance(EVERY_MS // 2 - 1)
        assert received(engine) == [(2 * EVERY_MS, "report", "1")]
        assert engine.engine.stats.expired == 1


def test_count_and_end_when_they_are_reached() -> None:
    with SteppedEngine() as engine:
        put(engine, every(count_max=2), "counted")
        put(engine, every(end_ms=START_MS + 3 * EVERY_MS), "ended")
        for _ in range(6):
            engine.advance(EVERY_MS)
        found = received(engine)
        assert [due_ms for due_ms, name, _ in found if name == "counted"] == [10_000, 20_000]
        assert [due for due, name, _ in found if name == "ended"] == [10_000, 20_000, 30_000]
        assert call(engine, engine.engine.recurring.next_times_of("orders", "ended", 5)) == []


def test_node_goes_on_where_all_that_is_left_of_time_is_excluded() -> None:
    first_ms = START_MS + EVERY_MS
    last = datetime(9998, 12, 31, 9, tzinfo=UTC)
    days = [(last.date() - date(1970, 1, 1)).days + at for at in range(366)]
    with SteppedEngine() as engine:
        config = every(int(last.timestamp()) * 1_000 - first_ms, start_ms=first_ms)
        config.excluded_days.extend(days)
        put(engine, config)
        put(engine, every(), "other")
        for _ in range(2):  # the second one of the first is planned when that is due
            engine.advance(EVERY_MS)
        found = received(engine)
        assert [due_ms for due_ms, name, _ in found if name == "report"] == [EVERY_MS]
        assert [due for due, name, _ in found if name == "other"] == [EVERY_MS, 2 * EVERY_MS]


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_what_is_put_goes_on_behind_a_cancelled_occurrence_unless_it_is_deleted_first(
    is_deleted_first: bool,
) -> None:
    rare_ms = 10 * EVERY_MS
    with SteppedEngine() as engine:
        put(engine, every(rare_ms))
        info = engine.engine.recurring.get("orders", "report")
        call(engine, engine.engine.cancel(parse_many([info.last_message_id])))
        if is_deleted_first:
            call(engine, engine.engine.recurring.delete("orders", "report"))
        put(engine, every())
        engine.advance(EVERY_MS)
        assert received(engine) == ([(EVERY_MS, "report", "0")] if is_deleted_first else [])
        times = call(engine, engine.engine.recurring.next_times_of("orders", "report", 1))
        before_ms = EVERY_MS if is_deleted_first else rare_ms
        assert times == [START_MS + before_ms + EVERY_MS], "and that is what is said"


def test_pause_takes_back_what_lies_ahead_and_resume_goes_on() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        engine.advance(EVERY_MS)
        call(engine, engine.engine.recurring.set_paused("orders", "report", is_paused=True))
        info = engine.engine.recurring.get("orders", "report")
        assert (info.is_paused, info.occurrence_count, info.last_message_id) == (True, 1, "")
        engine.advance(3 * EVERY_MS + 5)
        assert received(engine) == [(EVERY_MS, "report", "0")]
        call(engine, engine.engine.recurring.set_paused("orders", "report", is_paused=False))
        engine.advance(EVERY_MS)
        assert received(engine) == [(5 * EVERY_MS, "report", "2")]


def test_pause_and_resume_within_an_interval_leave_its_occurrence_as_it_was() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        for is_paused in (True, False):
            call(
                engine, engine.engine.recurring.set_paused("orders", "report", is_paused=is_paused)
            )
        engine.advance(EVERY_MS)
        assert received(engine) == [(EVERY_MS, "report", "1")]


def test_change_takes_back_what_lies_ahead() -> None:
    with SteppedEngine() as engine:
        version = put(engine, every())
        engine.advance(1_000)
        with pytest.raises(errors.RecurrenceChanged):
            put(engine, every(7_000), expected_version=version + 1)
        with pytest.raises(errors.RecurrenceChanged):
            put(engine, every(7_000), expected_version=0)
        put(engine, every(7_000), expected_version=version)
        engine.advance(20_000)
        assert received(engine) == [(8_000, "report", "0"), (15_000, "report", "1")]


def hold_back(engine: SteppedEngine, *, is_paused: bool) -> None:
    """Have nothing dispatched, or all that has become due."""
    call(engine, engine.engine.update_topic(DISPATCH_TOPIC, CatalogUpdate(is_paused=is_paused)))


def move(engine: SteppedEngine, name: str, due_ms: int) -> None:
    """Reschedule the last occurrence of a recurrence to an instant since the start."""
    ids = parse_many([engine.engine.recurring.get("orders", name).last_message_id])
    times_ms = np.array([START_MS + due_ms], np.int64)
    call(engine, engine.engine.reschedule(ids, times_ms, are_delays=False))


def planner_of(engine: SteppedEngine) -> OccurrencePlanner:
    """Another one than that which the engine has."""
    service = engine.service
    return OccurrencePlanner(
        *(service, service.publishing, service.catalog_service),
        horizon_ms=1 << 40,
        monotonic_ms=lambda: 0.0,
    )


def test_change_leaves_what_is_due_already_as_it_is() -> None:
    with SteppedEngine() as engine:
        for name in ("due", "late", "moved"):
            put(engine, every(), name)
        move(engine, "late", 18_000)
        move(engine, "moved", 1_000)
        hold_back(engine, is_paused=True)
        engine.advance(EVERY_MS + 3_000)
        for name in ("due", "late", "moved"):
            put(engine, every(7_000), name)
        hold_back(engine, is_paused=False)
        engine.advance(6_999)
        assert received(engine) == [(1_000, "moved", "0"), (10_000, "due", "0")]
        engine.advance(1)
        assert received(engine) == [(20_000, name, "0") for name in ("due", "late", "moved")]


def test_what_is_paused_and_resumed_while_all_waits_publishes_nothing_that_it_missed() -> None:
    """As `hourwheel dispatch resume --discard-before ... --recurring now` does."""
    with SteppedEngine() as engine:
        for name in ("discarded", "late"):
            put(engine, every(), name)
        hold_back(engine, is_paused=True)
        engine.advance(20 * EVERY_MS + 1)
        recurring = engine.engine.recurring
        for is_paused in (True, False):
            call(engine, recurring.set_paused("orders", "discarded", is_paused=is_paused))
        hold_back(engine, is_paused=False)
        engine.advance(EVERY_MS)
        found = [(due_ms, name) for due_ms, name, _ in received(engine)]
        assert [due_ms for due_ms, name in found if name == "discarded"] == [21 * EVERY_MS]
        late = [due_ms for due_ms, name in found if name == "late"]
        assert late == [n * EVERY_MS for n in range(1, 22)]


def test_takeover_leaves_what_was_moved_as_it_is() -> None:
    with SteppedEngine() as engine:
        for name, missed in (("none", Missed.NONE), ("last", Missed.LAST), ("gone", Missed.NONE)):
            put(engine, every(missed=missed, count_max=2), name)
        later_ms = EVERY_MS + 3 * limits.RECURRENCE_MISSED_MS
        for name in ("none", "last"):
            move(engine, name, later_ms)
        engine.step_down()
        engine.settle()
        engine.advance(EVERY_MS + 2 * limits.RECURRENCE_MISSED_MS)
        engine.become_master()
        engine.settle()
        engine.advance(later_ms)
        found = received(engine)
        assert [name for due_ms, name, _ in found if due_ms == later_ms] == ["last", "none"]
        assert (EVERY_MS, "gone", "0") not in found


def test_change_that_waits_hears_that_the_mastership_is_over() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        planner = planner_of(engine)

        async def wait() -> None:
            planner.hold("orders\nreport")
            waiting = asyncio.ensure_future(planner.settle("orders\nreport"))
            await asyncio.sleep(0)
            planner.close(errors.NotMaster("another node is"))
            await waiting

        with pytest.raises(errors.NotMaster):
            engine.call(wait())


def test_what_is_to_be_looked_at_does_not_grow_and_comes_once() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        planner = planner_of(engine)

        async def turn() -> bool:
            for _ in range(3_000):  # as changes that fail
                planner.let_go("orders\nreport")
            return planner.turn(engine.now_ms)

        engine.call(turn())
        assert planner.look_count < 2_000
        engine.now_ms += EVERY_MS
        before = engine.mastership.next_sequence
        assert engine.call(turn())
        assert engine.mastership.next_sequence == before + 1


def test_delete_takes_back_what_lies_ahead_and_it_may_come_again() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        call(engine, engine.engine.recurring.delete("orders", "report"))
        with pytest.raises(errors.UnknownRecurrence):
            call(engine, engine.engine.recurring.delete("orders", "report"))
        with pytest.raises(errors.UnknownRecurrence):
            engine.engine.recurring.get("orders", "report")
        engine.advance(5 * EVERY_MS)
        assert received(engine) == []
        put(engine, every())
        engine.advance(EVERY_MS)
        assert received(engine) == [(6 * EVERY_MS, "report", "0")]


def test_topic_that_is_gone_pauses_its_recurrences() -> None:
    with SteppedEngine() as engine:
        put(engine, every())
        call(engine, engine.engine.delete_topic("orders"))
        engine.advance(EVERY_MS)
        assert engine.engine.recurring.get("orders", "report").is_paused


def test_next_times_begin_with_what_is_planned() -> None:
    with SteppedEngine() as engine:
        put(engine, every(count_max=3))
        engine.advance(3_000)
        ask = engine.engine.recurring
        times = call(engine, ask.next_times_of("orders", "report", 10))
        assert times == [START_MS + n * EVERY_MS for n in (1, 2, 3)]
        assert call(engine, ask.next_times(every(), 2)) == [
            START_MS + 3_000 + n * EVERY_MS for n in (1, 2)
        ]


def test_pages_of_one_topic_and_of_all() -> None:
    with SteppedEngine() as engine:
        for topic, name in (("bills", "a"), ("orders", "b"), ("orders", "c"), ("orders", "d")):
            put(engine, every(topic=topic), name)
        ask = engine.engine.recurring
        first, token = ask.page("orders", "", 2)
        rest, end = ask.page("orders", token, 2)
        assert ([one.name for one in first], [one.name for one in rest]) == (["b", "c"], ["d"])
        assert end == ""
        everything, _ = ask.page("", "", 100)
        assert [(one.config.topic, one.name) for one in everything][:2] == [
            ("bills", "a"),
            ("orders", "b"),
        ]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.ALL, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        # What is less than a minute late has not fallen into an outage.
        (Missed.LAST, [10, 11]),
        (Missed.NONE, [11]),
    ],
)
def test_outage_longer_than_intervals(missed: int, expected: list[int]) -> None:
    step_ms = 2 * limits.RECURRENCE_MISSED_MS
    with SteppedEngine() as engine:
        put(engine, every(step_ms, missed=missed))
        engine.step_down()
        engine.settle()
        engine.advance(10 * step_ms + limits.RECURRENCE_MISSED_MS + 1)
        engine.become_master()
        engine.settle()
        engine.advance(step_ms)
        assert [due_ms // step_ms for due_ms, _, _ in received(engine)] == expected


def test_limits_of_names_counts_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECURRENCE_COUNT_MAX", 1)
    with SteppedEngine() as engine:
        for name in ("", "x" * 129, "a\nb"):
            with pytest.raises(errors.InvalidRecurrence):
                put(engine, every(), name)
        put(engine, every())
        with pytest.raises(errors.TooManyRecurrences):
            put(engine, every(), "another")
        put(engine, every())  # the same one again
        monkeypatch.setattr(limits, "RECURRENCES_BYTES_MAX", 100)
        with pytest.raises(errors.TooManyRecurrences):
            put(engine, every(body=b"x" * 100))


def test_priority_when_the_topic_was_made_anew_without_room_for_it() -> None:
    with SteppedEngine() as engine:
        put(engine, every(meta=encode(MessageMeta(priority=9)).raw))
        call(engine, engine.engine.delete_topic("orders"))
        call(engine, engine.engine.create_topic("orders", 256))
        received(engine)  # subscribes
        for _ in range(3):
            engine.advance(EVERY_MS)
        assert [due_ms for due_ms, _, _ in received(engine)] == [20_000, 30_000]


def test_expiry_that_is_no_instant_is_refused() -> None:
    with SteppedEngine() as engine:
        endless = every(meta=encode(MessageMeta(expires_ms=-DUE_MS_MAX)).raw)
        with pytest.raises(errors.InvalidDueTime):
            put(engine, endless)


def test_recurrence_whose_messages_are_none_ends_no_master() -> None:
    with SteppedEngine() as engine:
        put(engine, every(), "sound")
        # As an earlier version took it in: without a look at what comes of it.
        broken = every(meta=encode(MessageMeta(expires_ms=-DUE_MS_MAX)).raw, name="orders\nbroken")
        change = RecurrenceChange(put=broken)
        engine.mastership.recur(change, np.zeros(0, CANCEL_ROW), engine.now_ms, None)
        engine.engine.group_commit.wake()
        engine.settle()
        engine.step_down()
        engine.become_master()
        for _ in range(3):
            engine.advance(EVERY_MS)
        assert [due_ms for due_ms, _, _ in received(engine)] == [10_000, 20_000, 30_000]
