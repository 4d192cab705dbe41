import threading
from typing import Any

import pytest

from spark_jobs.runtime.progress import Progress


class Stage:
    numTasks, numCompletedTasks = 8, 3  # noqa: N815 - Spark's names


class Context:
    """Two active stages, of which Spark has forgotten one."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def statusTracker(self) -> "Context":  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        self.asked.set()
        return [1, 2]

    def getStageInfo(self, number: int) -> Any:  # noqa: N802
        return Stage() if number == 1 else None


def test_steps_are_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(None, "auditing", is_quiet=False) as told:
        told("shard 0: scan done")
    captured = capsys.readouterr()
    assert captured.err.strip() == "shard 0: scan done"
    assert captured.out == ""


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(None, "auditing", is_quiet=True) as told:
        told("shard 0: scan done")
    assert capsys.readouterr().err == ""


def test_tasks_of_active_stages_are_counted() -> None:
    assert Progress(Context(), "x", is_quiet=True).tasks() == (3, 8)  # type: ignore[arg-type]
    assert Progress(None, "x", is_quiet=True).tasks() == (0, 0)


def test_on_a_terminal_the_line_is_kept_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    context = Context()
    with Progress(context, "auditing", is_quiet=False):  # type: ignore[arg-type]
        assert context.asked.wait(60)
