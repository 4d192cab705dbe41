import json
from contextlib import nullcontext

import pytest

from spark_jobs import run
from spark_jobs.commands import export as export_command
from spark_jobs.lake import export as log_export
from spark_jobs.lake.export import Exported
from tests.unit.spark_jobs.commands.test_audit import Session


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_what_was_exported_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    asked: list[tuple[object, ...]] = []

    def export(*given: object, **options: object) -> list[Exported]:
        asked.append((*given[1:], options["bodies"], options["outcomes"]))
        return [Exported(0, 100, 2_000, 17, 60, ("the log begins later",))]

    monkeypatch.setattr(export_command, "open_session", lambda *_: nullcontext(Session()))
    monkeypatch.setattr(log_export, "export", export)
    given = ["export", "/srv", "--lake", "/lake", "--bodies", "--no-outcomes", *more]
    assert run.main(given) == 0
    assert asked == [(["/srv"], "/lake", True, False)]
    told = capsys.readouterr().out
    if more:
        assert json.loads(told)["shards"][0]["messages"] == 17
    else:
        assert "offsets 100 to 2,000, 17 messages" in told
        assert "60 bytes before that were trimmed" in told
        assert "the log begins later" in told
