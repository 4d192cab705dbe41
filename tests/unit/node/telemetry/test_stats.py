"""Counters of the engine and of the API."""

from node.telemetry.stats import ApiStats, EngineStats


def test_engines_do_not_share_their_histograms() -> None:
    first, second = EngineStats(), EngineStats()
    first.lateness.observe(0.1)
    assert (first.lateness.count, second.lateness.count) == (1, 0)


def test_method_is_made_once_and_counts_codes() -> None:
    stats = ApiStats()
    method = stats.method("Publish")
    method.count("OK", 0.001)
    method.count("UNAVAILABLE", 0.002)
    assert stats.method("Publish") is method
    assert method.handled == {"OK": 1, "UNAVAILABLE": 1}
    assert method.seconds.count == 2


def test_refusals_are_counted_by_reason() -> None:
    stats = ApiStats()
    stats.reject("DISK_FULL")
    stats.reject("DISK_FULL")
    assert stats.rejected == {"DISK_FULL": 2}
