"""One cause for each stall: what took half of it."""

from dataclasses import replace

import pytest

from hourwheel.stalls import (
    GARBAGE,
    MACHINE,
    PAGE_FAULTS,
    SEVERAL,
    UNNAMED,
    WAITING,
    Stall,
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
