"""Each benchmark runs, with few messages: what it measures is looked at by people, not here."""

import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.bench import machine
from tests.bench.__main__ import BENCHMARKS, run_one
from tests.bench.peers.__main__ import run as run_peers
from tests.bench.peers.hourwheel_peer import Hourwheel
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.sizes import Size

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
LONG: Final = {
    "audit",
    "cluster_lateness",
    "failover",
    "log_source",
    "noisy_principal",
}
"""Only in `make soak`: half a minute even when they are tiny."""


@pytest.mark.parametrize("name", [one for one in BENCHMARKS if IS_SOAK or one not in LONG])
def test_benchmark_finds_numbers_when_it_is_tiny(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SAMPLE_S", 0.0)
    outcome = run_one(name, Size.TINY, tmp_path / name)
    assert outcome.error == ""
    assert outcome.report is not None
    assert outcome.report.rows
    assert outcome.as_json()["rows"]
    assert list((tmp_path / name).iterdir()) == []


@pytest.mark.parametrize("workload", ["publish", "hot"])
def test_workload_beside_peers_finds_numbers_when_it_is_tiny(workload: str, tmp_path: Path) -> None:
    peer = Hourwheel()
    peer.start(tmp_path)
    try:
        figures = WORKLOADS[workload](peer, Size.TINY)
    finally:
        peer.stop()
    assert all(value > 0 for value in figures.values())


def test_peers_that_are_not_installed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    results = run_peers(["redis"], ["publish"], Size.TINY, tmp_path, lambda _: None)
    assert list(results.missing) == ["redis"]
    assert not results.values
