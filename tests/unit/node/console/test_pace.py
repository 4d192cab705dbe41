"""How often consoles ask."""

import random
from heapq import heapify, heapreplace

from node.console.pace import BURST_MAX, POLL_MS_MAX, POLL_MS_MIN, RATE_MAX, REFILL, Pace


def play(pace: Pace, consoles: int, from_ms: float, until_ms: float) -> list[tuple[float, bool]]:
    """When requests came, and whether they were answered.

    Each console asks again after what it was told last, a tenth sooner or later, as browsers do.
    """
    draw = random.Random(7)
    due = [from_ms + number for number in range(consoles)]
    heapify(due)
    came = list[tuple[float, bool]]()
    while due[0] < until_ms:
        now_ms = due[0]
        came.append((now_ms, pace.admit(now_ms)))
        heapreplace(due, now_ms + pace.poll_ms * draw.uniform(0.9, 1.1))
    return came


def test_one_console_looks_often() -> None:
    pace = Pace()
    came = play(pace, 1, 0, 60_000)
    assert all(is_answered for _, is_answered in came)
    assert pace.poll_ms == POLL_MS_MIN
    assert len(came) > 0.9 * 60_000 / POLL_MS_MIN


def test_a_thousand_consoles_together_ask_as_often_as_is_meant() -> None:
    pace = Pace()
    came = play(pace, 1_000, 0, 600_000)
    settled = [is_answered for at_ms, is_answered in came if at_ms > 240_000]
    assert all(settled)
    assert len(settled) / 360 < 1.5 * RATE_MAX
    assert POLL_MS_MIN < pace.poll_ms <= POLL_MS_MAX


def test_console_looks_often_again_when_the_others_are_closed() -> None:
    pace = Pace()
    play(pace, 1_000, 0, 120_000)
    assert pace.poll_ms > 10 * POLL_MS_MIN
    play(pace, 1, 120_000, 120_000 + 4 * POLL_MS_MAX)
    assert pace.poll_ms == POLL_MS_MIN


def test_who_does_not_keep_to_it_is_refused_above_the_rate() -> None:
    pace = Pace()
    answered = sum(pace.admit(at / 10) for at in range(100_000))  # 10,000 a second for 10 s
    assert answered <= BURST_MAX + 10 * REFILL
    assert pace.poll_ms == POLL_MS_MAX
    assert pace.admit(20_000)
