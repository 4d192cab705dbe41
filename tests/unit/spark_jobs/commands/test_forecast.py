import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.commands import forecast
from spark_jobs.runtime import runner
from spark_jobs.runtime.runner import LocalRunner
from tests.support.log_maker import Made
from tests.unit.spark_jobs.commands.test_audit import Session


def test_the_forecast_is_told_and_written(
    made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(forecast, "open_session", lambda *_: nullcontext(Session()))
    monkeypatch.setattr(runner, "SparkRunner", lambda _: LocalRunner())
    given = ["forecast", str(made.directory), "--quiet"]
    assert run.main([*given, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "messages are pending" in told
    assert str(tmp_path / "forecast.csv") in told
    assert run.main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pending"] > 0
    assert found["files"] == {}
