"""Each benchmark runs, with few messages: what it measures is looked at by people, not here."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.bench import machine
from tests.bench.__main__ import BENCHMARKS, run_one
from tests.bench.sizes import Size

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
LONG: Final = {"audit", "failover", "log_source"}
"""Only in `make soak`: half a minute even when they are tiny."""


@pytest.mark.parametrize("name", [one for one in BENCHMARKS if IS_SOAK or one not in LONG])
def test_benchmark_finds_numbers_when_it_is_tiny(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_SAMPLE_S", 0.0)
    outcome = run_one(name, Size.TINY, tmp_path / name)
    assert outcome.error == ""
    assert outcome.report is not None
    assert outcome.report.rows
    assert outcome.as_json()["rows"]
    assert list((tmp_path / name).iterdir()) == []
