"""One cause for each stall; and what holds up the loop of a blocking client is kept."""

import asyncio
import functools
import gc
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hourwheel.client.loop_thread import LoopThread
from hourwheel.stalls import (
    GARBAGE,
    MACHINE,
    PAGE_FAULTS,
    SEVERAL,
    UNNAMED,
    WAITING,
    Stall,
    StallRecorder,
    name_of,
)

BUSY = Stall(
    at_ms=1, wall_ms=20.0, cpu_ms=20.0, unscheduled_ms=0.0, gc_ms=0.0, ran_ms={"apply": 20.0}
)


@pytest.mark.parametrize(
    ("stall", "cause"),
    [
        (BUSY, "apply"),
        (replace(BUSY, ran_ms={"apply": 9.0, "turn": 8.0}), SEVERAL),
        (replace(BUSY, ran_ms={"apply": 9.0}), UNNAMED),
        (replace(BUSY, ran_ms={}), UNNAMED),
        (replace(BUSY, gc_ms=10.0), GARBAGE),
        (replace(BUSY, cpu_ms=5.0, unscheduled_ms=12.0), MACHINE),
        (replace(BUSY, cpu_ms=5.0, unscheduled_ms=2.0), WAITING),
        (replace(BUSY, cpu_ms=5.0, major_faults=3), PAGE_FAULTS),
        (replace(BUSY, cpu_ms=12.0, major_faults=3), "apply"),
    ],
)
def test_cause_is_what_took_half(stall: Stall, cause: str) -> None:
    assert stall.cause == cause


def test_told_with_the_longest_work_first() -> None:
    shown = replace(BUSY, ran_ms={"apply": 2.0, "turn": 17.00049}, beside=("merge",)).as_dict()
    assert list(shown["ran_ms"].items()) == [("turn", 17.0), ("apply", 2.0)]
    assert shown["beside"] == ["merge"]
    assert shown["cause"] == "turn"


# --- the loop of a blocking client

LONG_S = 0.02


async def nothing() -> None:
    return


async def hold_up() -> None:
    """The loop stands still."""
    threading.Event().wait(LONG_S)


def block() -> None:
    threading.Event().wait(LONG_S)


async def wait_and_hold_up() -> None:
    loop = asyncio.get_running_loop()
    soon = loop.create_future()
    loop.call_later(0.001, soon.set_result, None)
    await soon
    await hold_up()


async def call_later() -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(0, block)
    loop.call_later(0.001, done.set)
    await done.wait()


@pytest.fixture
def recorder() -> Iterator[StallRecorder]:
    with StallRecorder(LONG_S * 1_000 * 0.9) as made:
        yield made


@pytest.fixture
def thread(recorder: StallRecorder) -> Iterator[LoopThread]:
    del recorder  # it is on
    made = LoopThread(nothing)
    yield made
    made.finish(nothing())


def named(recorder: StallRecorder) -> dict[str, float]:
    """What ran in the stalls, by name."""
    return {name: ms for stall in recorder.stalls() for name, ms in stall.ran_ms.items()}


@pytest.mark.parametrize("way", [hold_up, wait_and_hold_up])
def test_turn_that_took_long_is_kept_with_the_coroutine_that_ran(
    recorder: StallRecorder, thread: LoopThread, way: "functools.partial[None]"
) -> None:
    thread.run(way())
    thread.run(nothing())  # so that the turn is over
    assert named(recorder)[way.__name__] >= LONG_S * 1_000
    stall = next(one for one in recorder.stalls() if way.__name__ in one.ran_ms)
    assert stall.wall_ms >= stall.ran_ms[way.__name__]
    assert stall.cpu_ms <= stall.wall_ms
    assert stall.as_dict()["cause"] in {"waiting", "machine"}, "it only waited"


def test_timers_and_what_other_threads_hand_over_have_their_names(
    recorder: StallRecorder, thread: LoopThread
) -> None:
    thread.run(call_later())
    assert named(recorder).pop("block") >= LONG_S * 1_000
    thread.call_soon(hold := functools.partial(block))
    thread.run(nothing())
    thread.run(nothing())
    assert len([one for one in recorder.stalls() if name_of(hold) in one.ran_ms]) == 2


def test_readers_have_their_names(recorder: StallRecorder, thread: LoopThread) -> None:
    ours, theirs = socket.socketpair()

    async def read() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def take() -> None:
            loop.remove_reader(ours)
            block()
            done.set()

        loop.add_reader(ours, take)
        theirs.send(b"x")
        await done.wait()

    with ours, theirs:
        thread.run(read())
    assert [name for name in named(recorder) if name.endswith("take")]


def test_newest_come_first_and_short_turns_are_none(
    recorder: StallRecorder, thread: LoopThread
) -> None:
    for _ in range(3):
        thread.run(hold_up())
        thread.run(nothing())
    ends = [one.at_ms for one in recorder.stalls()]
    assert len(ends) >= 3
    assert ends == sorted(ends, reverse=True)
    assert all(one.wall_ms > LONG_S * 900 for one in recorder.stalls())


def test_loops_that_began_before_are_not_recorded() -> None:
    thread = LoopThread(nothing)
    thread.run(nothing())
    with StallRecorder() as recorder:
        thread.run(hold_up())
        thread.run(nothing())
    thread.finish(nothing())
    assert recorder.stalls() == []


def test_collections_are_told_and_nothing_is_left_when_it_ends() -> None:
    callbacks = list(gc.callbacks)

    async def collect() -> None:
        gc.collect()
        await hold_up()

    with StallRecorder() as recorder:
        thread = LoopThread(nothing)
        thread.run(collect())
        thread.finish(nothing())
    (stall, *_) = (one for one in recorder.stalls() if one.gc_ms)
    assert stall.gc_ms <= stall.wall_ms
    assert gc.callbacks == callbacks


@pytest.mark.parametrize(
    ("callback", "name"),
    [
        (block, "block"),
        (functools.partial(functools.partial(block)), "block"),
        ([].append, "list.append"),
        (LoopThread(nothing).check, "LoopThread.check"),
    ],
)
def test_name_is_what_people_call_it(callback: "functools.partial[None]", name: str) -> None:
    assert name_of(callback) == name
