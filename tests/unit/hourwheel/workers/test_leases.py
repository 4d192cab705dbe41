from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hourwheel.workers.leases import RETRY_MS, Leases

SPAN_MS = 10_000


def answer(now_ms: float) -> Any:
    return SimpleNamespace(
        lease_until_ms=now_ms + SPAN_MS * 0.9,
        invisible_until_ms=SPAN_MS,
        delivery=SimpleNamespace(header=SimpleNamespace(receive_ms=0)),
    )


def test_a_lease_is_made_longer_when_half_of_it_is_over_and_as_long_as_there_is_work() -> None:
    leases, batch = Leases(), answer(0)
    leases.add(batch, 0)
    leases.add(batch, 0)
    assert leases.find_due(SPAN_MS * 0.4) == []
    assert leases.next_wakeup_ms() == SPAN_MS * 0.45
    assert leases.find_due(SPAN_MS * 0.45) == [(batch, SPAN_MS)]
    batch.lease_until_ms += SPAN_MS
    leases.on_extended(batch, SPAN_MS * 0.45)
    assert leases.find_due(SPAN_MS * 0.5) == []
    leases.remove(batch)
    assert len(leases) == 1
    leases.remove(batch)
    assert len(leases) == 0
    assert leases.next_wakeup_ms() == float("inf")


def test_a_try_that_failed_is_made_again_until_the_lease_is_over() -> None:
    leases, batch = Leases(), answer(0)
    leases.add(batch, 0)
    leases.on_failed(batch, 5_000, is_lost=False)
    assert leases.find_due(5_000) == []
    assert leases.find_due(5_000 + RETRY_MS) == [(batch, SPAN_MS)]
    assert leases.lost_count == 0
    leases.on_failed(batch, batch.lease_until_ms, is_lost=False)
    assert leases.find_due(1e9) == []
    assert leases.lost_count == 1


def test_a_lease_that_is_lost_is_left_alone() -> None:
    leases, batch = Leases(), answer(0)
    leases.add(batch, 0)
    leases.on_failed(batch, 100, is_lost=True)
    assert leases.find_due(1e9) == []
    assert leases.lost_count == 1
    leases.remove(batch)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4_000)), max_size=60))
def test_no_lease_that_can_be_made_longer_ends_while_its_messages_are_in_work(
    steps: list[tuple[int, int]],
) -> None:
    """A worker that wakes up when it is told to, at answers that come and end as they like."""
    leases, now_ms = Leases(), 0.0
    work: list[Any] = []
    for what, later_ms in steps:
        until_ms = now_ms + later_ms
        while (wakeup_ms := leases.next_wakeup_ms()) <= until_ms:
            now_ms = max(now_ms, wakeup_ms)
            for batch, span_ms in leases.find_due(now_ms):
                assert now_ms < batch.lease_until_ms
                batch.lease_until_ms = now_ms + span_ms * 0.9
                leases.on_extended(batch, now_ms)
        now_ms = until_ms
        assert all(now_ms < batch.lease_until_ms for batch in work)
        if what == 0 and work:
            leases.remove(work.pop())
        elif what == 1:
            work.append(answer(now_ms))
            leases.add(work[-1], now_ms)
        elif what == 2 and work:
            work.append(work[0])
            leases.add(work[0], now_ms)
    assert len(leases) == len({id(batch) for batch in work})
