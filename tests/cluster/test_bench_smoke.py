"""Each benchmark runs, with few messages: what it measures is looked at by people, not here."""

from pathlib import Path

import pytest

from tests.bench import machine
from tests.bench.__main__ import BENCHMARKS, run_one
from tests.bench.sizes import Size


@pytest.mark.parametrize("name", BENCHMARKS)
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
