"""I10 through random lives of an engine: recurrences are changed while masterships come and go."""

from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.log_model import LogModel
from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
from hourwheel.limits import RECURRENCE_MISSED_MS
from tests.support.stepped_engine import SteppedEngine

_steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "pause", "resume", "delete", "away", "time", "time"]),
        st.sampled_from("ab"),
        st.sampled_from([5_000, 7_000, 60_000, 200_000]),
        st.integers(1, 3),
    ),
    min_size=3,
    max_size=14,
)


def act(engine: SteppedEngine, what: str, name: str, ms: int, missed: int) -> None:
    ask = engine.engine
    if what == "time":
        engine.advance(ms)
    elif what == "away":  # nobody is the master for a while
        engine.step_down()
        engine.settle()
        engine.advance(ms)
        engine.become_master()
    elif what == "put":
        config = RecurrenceConfig(topic="orders", every_ms=ms, missed=missed)
        engine.begin(ask.recurring.put(config, name, None))
    elif what == "delete":
        engine.begin(_quietly(ask.recurring.delete("orders", name)))
    else:
        is_paused = what == "pause"
        engine.begin(_quietly(ask.recurring.set_paused("orders", name, is_paused=is_paused)))
    engine.settle()


async def _quietly(call: object) -> None:
    with suppress(errors.UnknownRecurrence):
        await call  # type: ignore[misc]


@settings(max_examples=40)
@given(steps=_steps)
def test_i10_no_instant_of_a_recurrence_comes_twice(
    steps: list[tuple[str, str, int, int]],
) -> None:
    with SteppedEngine() as engine:
        for step in steps:
            act(engine, *step)
        model, shard = LogModel(), engine.engine.shard
        model.follow(shard.log, shard.views.applied_offset)
        model.check()
        model.recurring.check(model.cancelled)
        for name, one in model.recurring.recurrences.items():
            state = shard.views.recurrences.find(name)
            assert state is not None
            is_planned = state.after_ms > engine.now_ms and bool(one.own)
            assert one.is_paused or is_planned, "of each that goes on the next one lies ahead"


# --- none is lost --------------------------------------------------------------------------------

ALL, LAST, NONE = 1, 2, 3
STEP_MS = 20_000
CRONS = {60_000: "* * * * *", 300_000: "*/5 * * * *"}
_lives = st.lists(
    st.tuples(
        st.sampled_from(["away", "time"]), st.sampled_from([3_000, 61_000, 150_000, 400_000])
    ),
    min_size=2,
    max_size=9,
)


@settings(max_examples=25)
@given(
    steps=_lives,
    missed=st.sampled_from([ALL, LAST, NONE]),
    every_ms=st.sampled_from([7_000, 60_000, 300_000]),
    is_cron=st.booleans(),
)
@example(steps=[("away", 700_000)] * 2, missed=ALL, every_ms=60_000, is_cron=True)
@example(steps=[("away", 700_000)] * 2, missed=LAST, every_ms=60_000, is_cron=True)
@example(steps=[("away", 700_000)] * 2, missed=NONE, every_ms=7_000, is_cron=False)
def test_i10_no_instant_is_lost_but_those_that_an_outage_has_delayed(
    steps: list[tuple[str, int]], missed: int, every_ms: int, *, is_cron: bool
) -> None:
    """All of those come, or the last one of an outage, or none, as was chosen."""
    config = RecurrenceConfig(topic="orders", missed=missed, every_ms=every_ms)
    if is_cron and every_ms in CRONS:
        config = RecurrenceConfig(topic="orders", missed=missed, cron=CRONS[every_ms], zone="UTC")
    outages: list[tuple[int, int]] = []
    with SteppedEngine() as engine:
        engine.begin(engine.engine.recurring.put(config, "a", None))
        engine.settle()
        for what, ms in (*steps, ("time", 2 * every_ms)):
            begin_ms = engine.now_ms
            if what == "away":
                act(engine, what, "a", ms, missed)
                outages.append((begin_ms, engine.now_ms))
            while engine.now_ms < begin_ms + ms:  # a master that is a minute late was away
                act(engine, "time", "a", min(STEP_MS, begin_ms + ms - engine.now_ms), missed)
        shard, model = engine.engine.shard, LogModel()
        model.follow(shard.log, shard.views.applied_offset)
        ((name, _),) = model.recurring.recurrences.items()
        came = [due_ms for due_ms, _ in model.recurring.due_ms[name]]
        first, last = came[0], came[-1]
        assert last > engine.now_ms, "the next one lies ahead"
        expected = {*range(first, last + 1, every_ms)}
        for begin_ms, end_ms in outages if missed != ALL else ():
            # The one that was published ahead stays, whatever it missed.
            ahead = min(one for one in expected if one > begin_ms)
            delayed = sorted(one for one in expected if ahead < one <= end_ms)
            missed_ms = end_ms - RECURRENCE_MISSED_MS
            if delayed and delayed[0] < missed_ms:
                early = {one for one in delayed if one < missed_ms}
                expected -= set(delayed[:-1]) if missed == LAST else early
        assert came == sorted(expected)
