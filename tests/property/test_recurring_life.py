"""I10 through random lives of an engine: recurrences are changed while masterships come and go."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.log_model import LogModel
from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import RecurrenceConfig
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
