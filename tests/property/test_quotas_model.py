"""Quotas against naive models: each publish in a list, each pending message by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from node.access.quotas import BURST_MS, Limits, PendingCount, Quotas, ranges_of

NOW_MS = 1_800_000_000_000
STEPS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 400)), min_size=1, max_size=40)
DELAYS = st.lists(st.integers(-10, 10**11), max_size=12)


@given(rate=st.integers(1, 500), steps=STEPS)
def test_rate_is_kept_in_each_window_and_waiting_as_told_is_enough(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    quotas = Quotas()
    quotas.replace({"*": Limits(messages_per_s=rate)})
    now_ms, accepted = 0.0, list[tuple[float, int]]()
    for after_ms, count in steps:
        now_ms += after_ms
        try:
            quotas.publish("a", count, 0, now_ms)
        except errors.QuotaExceeded as error:
            now_ms += error.retry_after_ms
            quotas.publish("a", count, 0, now_ms)
        accepted.append((now_ms, count))
    for first in range(len(accepted)):
        for last in range(first, len(accepted)):
            window_ms = accepted[last][0] - accepted[first][0]
            sent = sum(
                count for _, count in accepted[first:last]
            )  # what the last one had to wait for
            assert sent < rate * (window_ms + BURST_MS) / 1_000 + 1e-6


@given(added=st.lists(st.tuples(st.integers(0, 10**9), DELAYS, st.booleans()), max_size=20))
def test_pending_messages_are_those_whose_range_is_not_over(
    added: list[tuple[int, list[int], bool]],
) -> None:
    held, naive, now_ms = PendingCount(), list[int](), NOW_MS
    for after_ms, delays, is_taken_back in added:
        now_ms += after_ms
        held.pass_to(now_ms)
        naive = [end_ms for end_ms in naive if end_ms > now_ms]
        assert held.count == len(naive)
        assert held.next_ms() is None or now_ms < held.next_ms()
        due_ms = np.array([now_ms + delay for delay in delays], np.int64)
        ranges = ranges_of(due_ms, now_ms)
        ends = []
        for delay in delays:
            if delay > 0:
                (end_ms,) = ranges_of(np.array([now_ms + delay], np.int64), now_ms)
                assert now_ms + delay < end_ms <= now_ms + delay + max(1_024, delay / 64)
                ends.append(end_ms)
        assert sum(ranges.values()) == len(ends)
        held.add(ranges)
        if is_taken_back:
            held.take_back(ranges)
        else:
            naive += ends
        assert held.count == len(naive)
