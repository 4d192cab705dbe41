"""All stalls are counted, and the last ones are kept."""

from hourwheel.stalls import KEPT_MAX, Stall
from node.telemetry.stalls import Stalls


def test_last_ones_are_kept_and_all_are_counted() -> None:
    stalls = Stalls()
    for at_ms in range(KEPT_MAX + 3):
        stalls.add(Stall(at_ms, 20.0, 20.0, 0.0, 0.0, {"apply": 20.0}))
    assert stalls.count == stalls.seconds.count == KEPT_MAX + 3
    assert [one.at_ms for one in stalls.last] == list(range(3, KEPT_MAX + 3))
    assert stalls.by_cause["apply"] == KEPT_MAX + 3
