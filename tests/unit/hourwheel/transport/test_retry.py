import pytest

from hourwheel import errors
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import (
    AT_ONCE_MAX,
    SEARCH_MS_MAX,
    SEARCH_SHARE,
    TRY_MS,
    Backoff,
    CallRetries,
    Failure,
    Pace,
    final_error,
    is_undecided,
    least_wait_ms,
    may_retry,
)


@pytest.mark.parametrize("is_definite", [True, False])
@pytest.mark.parametrize("is_repeatable", [True, False])
@pytest.mark.parametrize(
    "error", [errors.InvalidTopic(), errors.UnknownTopic(), errors.Internal(), errors.CorruptLog()]
)
def test_may_retry_when_the_error_is_for_good(
    error: errors.HourwheelError, *, is_repeatable: bool, is_definite: bool
) -> None:
    assert not may_retry(Failure(error, is_definite), is_repeatable=is_repeatable)


@pytest.mark.parametrize(
    "error", [errors.Overloaded(), errors.DiskFull(), errors.NotMaster(), errors.Timeout()]
)
def test_may_retry_when_the_error_passes(error: errors.HourwheelError) -> None:
    assert may_retry(Failure(error, is_definite=True), is_repeatable=True)
    assert may_retry(Failure(error, is_definite=False), is_repeatable=True)
    assert may_retry(Failure(error, is_definite=True), is_repeatable=False)
    assert not may_retry(Failure(error, is_definite=False), is_repeatable=False)


def test_is_undecided_when_a_node_says_so() -> None:
    assert is_undecided(errors.Timeout())
    assert is_undecided(errors.Internal())
    assert not is_undecided(errors.Overloaded())


def test_final_error_when_nobody_knows() -> None:
    lost = Failure(errors.Unavailable("cut"), is_definite=False)
    assert isinstance(final_error(lost, is_repeatable=False), errors.Timeout)
    assert final_error(lost, is_repeatable=True) is lost.error
    refused = Failure(errors.Unavailable("not now"), is_definite=True)
    assert final_error(refused, is_repeatable=False) is refused.error
    full = Failure(errors.DiskFull(), is_definite=False)
    assert final_error(full, is_repeatable=False) is full.error


def test_backoff_when_failures_go_on() -> None:
    backoff = Backoff(ms_min=10.0, ms_max=100.0)
    assert [backoff.wait_ms(n, 1.0) for n in (1, 2, 3, 4, 5, 5_000)] == [10, 20, 40, 80, 100, 100]
    assert backoff.wait_ms(1, 0.0) == 5.0


def session(*, is_repeatable: bool = True) -> CallRetries:
    return CallRetries(
        is_repeatable=is_repeatable,
        now_ms=1_000.0,
        timeout_ms=100.0,
        backoff=Backoff(ms_min=40.0, ms_max=40.0),
        random=lambda: 1.0,
    )


def test_call_session_when_time_runs_out() -> None:
    failure = Failure(errors.Overloaded(), is_definite=True)
    call = session()
    assert call.left_ms(1_030.0) == 70.0
    assert call.find_wait_ms(1_050.0, failure) == 40.0
    assert call.find_wait_ms(1_070.0, failure) is None
    assert call.left_ms(1_200.0) == 0.0


def test_call_session_when_the_call_must_not_be_repeated() -> None:
    call = session(is_repeatable=False)
    assert call.find_wait_ms(1_000.0, Failure(errors.Timeout(), is_definite=False)) is None
    assert call.find_wait_ms(1_000.0, Failure(errors.DiskFull(), is_definite=True)) == 40.0


def test_call_session_when_another_node_may_answer_instead() -> None:
    call = CallRetries(
        is_repeatable=True,
        now_ms=0.0,
        timeout_ms=10_000.0,
        backoff=Backoff(),
        random=lambda: 0.0,
    )
    slow = Failure(errors.Timeout(), is_definite=False)
    tries = []
    for _ in range(4):
        tries.append(call.try_ms(0.0, is_alone=False))
        assert call.find_wait_ms(0.0, slow, Move.AT_ONCE) == 0.0
    assert tries == [TRY_MS, 2 * TRY_MS, 4 * TRY_MS, 10_000.0]
    assert call.try_ms(9_999.0, is_alone=False) == 1.0
    assert session().try_ms(1_000.0, is_alone=True) == 100.0


def test_call_session_when_it_must_not_be_repeated_it_waits_for_its_answer() -> None:
    call = CallRetries(
        is_repeatable=False,
        now_ms=0.0,
        timeout_ms=10_000.0,
        backoff=Backoff(),
        random=lambda: 0.0,
    )
    assert call.try_ms(0.0, is_alone=False) == 10_000.0
    lost = Failure(errors.Unavailable(), is_definite=False)
    assert call.find_wait_ms(0.0, lost, Move.AT_ONCE) is None
    refused = Failure(errors.NotMaster(), is_definite=True)
    assert call.find_wait_ms(0.0, refused, Move.AT_ONCE) == 0.0


def test_pace_when_tries_go_elsewhere_again_and_again() -> None:
    pace = Pace(Backoff(ms_min=10.0, ms_max=1_000.0), lambda: 1.0)
    waits = [pace.on_failure(Move.AT_ONCE) for _ in range(3 * (AT_ONCE_MAX + 1))]
    at_once = [0.0] * AT_ONCE_MAX
    assert waits == [*at_once, 10.0, *at_once, 20.0, *at_once, 40.0]
    pace.on_success()
    assert pace.wait_ms == 0.0
    assert [pace.on_failure(Move.STAY) for _ in range(2)] == [10.0, 20.0]
    assert (pace.wait_ms, pace.move) == (20.0, Move.STAY)


def test_pace_when_it_goes_on() -> None:
    staying, searching = (Pace(Backoff(), lambda: 1.0) for _ in range(2))
    assert [staying.on_failure(Move.STAY) for _ in range(10)][-1] == Backoff().ms_max
    assert [searching.on_failure(Move.SEARCH) for _ in range(40)][-1] == SEARCH_MS_MAX
    searching.on_success()
    assert searching.on_failure(Move.SEARCH) == Backoff().ms_min


@pytest.mark.parametrize("outage_ms", [50.0, 100.0, 300.0, 700.0, 1_500.0])
def test_search_finds_a_new_master_within_a_part_of_the_outage(outage_ms: float) -> None:
    pace, tries, now_ms = Pace(Backoff(), lambda: 1.0), 0, 0.0
    while now_ms < outage_ms:
        now_ms += pace.on_failure(Move.SEARCH)
        tries += 1
    assert now_ms - outage_ms <= max(Backoff().ms_min, outage_ms * SEARCH_SHARE)
    assert tries <= 30


def test_find_wait_ms_when_a_quota_says_when_to_come_back() -> None:
    retries = CallRetries(
        is_repeatable=False, now_ms=0.0, timeout_ms=1_000.0, backoff=Backoff(), random=lambda: 0.5
    )
    used_up = Failure(errors.QuotaExceeded(retry_after_ms=700), is_definite=True)
    assert retries.find_wait_ms(0.0, used_up) == 700.0
    assert retries.find_wait_ms(400.0, used_up) is None  # it would be too late
    assert least_wait_ms(errors.Overloaded(retry_after_ms=700)) == 0.0
    assert least_wait_ms(errors.QuotaExceeded(retry_after_ms="a while")) == 0.0
    never = Failure(errors.QuotaReached(), is_definite=True)
    assert retries.find_wait_ms(0.0, never) is None
