from collections.abc import Awaitable, Callable

import pytest

from hourwheel import errors
from hourwheel.transport.channel import CALL_TIMEOUT_MS, Channel
from hourwheel.transport.endpoints import Move
from hourwheel.transport.failover import Patience, follow
from hourwheel.transport.retry import Backoff, Pace
from tests.support.fake_clock import FakeClock


def failing(
    clock: FakeClock, error: errors.HourwheelError, move: Move, step_ms: float, tries: int
) -> tuple[Callable[[float, Pace], Awaitable[str]], list[float]]:
    """A poll that fails `tries` times, and the list of how long it was told to wait each time."""
    waits: list[float] = []

    async def poll(wait_ms: float, pace: Pace) -> str:
        waits.append(wait_ms)
        if len(waits) > tries:
            return "done"
        clock.pass_ms(step_ms)
        pace.on_failure(move)
        raise error

    return poll, waits


async def test_follow_when_another_place_helps() -> None:
    clock = FakeClock()
    channel = Channel(clock=clock, backoff=Backoff(ms_min=0.0, ms_max=0.0))
    poll, waits = failing(clock, errors.NotMaster(), Move.SEARCH, 40.0, 4)
    assert await follow(channel, 100.0, Patience(0.0), poll) == "done"
    assert waits == [100.0, 60.0, 20.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("error", "move"),
    [(errors.InvalidArgument("no"), Move.STAY), (errors.InvalidGroup(), Move.AT_ONCE)],
)
async def test_follow_when_it_would_not_help(error: errors.HourwheelError, move: Move) -> None:
    clock = FakeClock()
    poll, waits = failing(clock, error, move, 1.0, 1)
    with pytest.raises(type(error)):
        await follow(Channel(clock=clock), 100.0, Patience(1e9), poll)
    assert len(waits) == 1


async def test_follow_when_nobody_can_serve() -> None:
    clock = FakeClock()
    channel = Channel(clock=clock, backoff=Backoff(ms_min=0.0, ms_max=0.0))
    poll, waits = failing(clock, errors.NotMaster(), Move.SEARCH, CALL_TIMEOUT_MS / 2, 1_000)
    with pytest.raises(errors.NotMaster):
        await follow(channel, 0.0, Patience(0.0), poll)
    assert len(waits) == 2


@pytest.mark.parametrize(
    "error", [errors.Timeout("ceased to be master"), errors.NotMaster(), errors.Overloaded()]
)
async def test_follow_when_the_same_place_may_serve_later(error: errors.HourwheelError) -> None:
    """A master that steps down says `Timeout`, and nobody names another yet."""
    clock = FakeClock()
    channel = Channel(clock=clock, backoff=Backoff(ms_min=0.0, ms_max=0.0))
    poll, waits = failing(clock, error, Move.STAY, 30.0, 3)
    assert await follow(channel, 100.0, Patience(1_000.0), poll) == "done"
    assert waits == [100.0, 70.0, 40.0, 10.0]


async def test_follow_when_the_wait_is_over_before_patience_is() -> None:
    """Then there was nothing; what fails for long is told by a later poll, and then anew."""
    clock = FakeClock()
    channel = Channel(clock=clock, backoff=Backoff(ms_min=0.0, ms_max=0.0))
    patience = Patience(250.0)
    poll, _ = failing(clock, errors.Timeout("no"), Move.STAY, 50.0, 1_000)
    assert await follow(channel, 100.0, patience, poll) is None
    assert await follow(channel, 100.0, patience, poll) is None
    with pytest.raises(errors.Timeout):
        await follow(channel, 100.0, patience, poll)
    assert await follow(channel, 100.0, patience, poll) is None


async def test_follow_when_a_success_lies_between_failures() -> None:
    clock = FakeClock()
    channel = Channel(clock=clock, backoff=Backoff(ms_min=0.0, ms_max=0.0))
    patience = Patience(150.0)
    for _ in range(5):
        poll, _ = failing(clock, errors.Unavailable("no"), Move.STAY, 50.0, 1)
        assert await follow(channel, 100.0, patience, poll) == "done"
