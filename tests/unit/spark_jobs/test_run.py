import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs import run, session
from spark_jobs.commands import audit as run_audit
from spark_jobs.commands import export, forecast
from spark_jobs.commands import schedule as run_schedule
from spark_jobs.commands.options import open_session

ROOT = Path(__file__).resolve().parents[3]


def options(module: object, *given: str) -> argparse.Namespace:
    return run.make_parser("x", module).parse_args(list(given))  # type: ignore[arg-type]


@pytest.mark.parametrize("command", sorted(run.COMMANDS))
def test_help_needs_neither_spark_nor_java(command: str) -> None:
    code = (
        "import sys; sys.modules.update(pyspark=None, py4j=None, pyarrow=None, pandas=None);"
        f" from spark_jobs.run import main; main([{command!r}, '--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"hourwheel {command}" in done.stdout
    assert "Exit codes: 0" in done.stdout


def test_without_spark_it_says_what_is_missing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from spark_jobs.run import main;"
        f" sys.exit(main(['audit', {str(tmp_path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs pyspark" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_java_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run.main(["audit", "--json", str(tmp_path)]) == 2
    told = json.loads(capsys.readouterr().err)
    assert told["error"] == "NO_JAVA"
    assert "openjdk-17" in told["message"]
    assert run.main(["forecast", str(tmp_path)]) == 2
    assert "JAVA_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["adit"]])
def test_an_unknown_command_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(given) == 2
    assert "audit, export, forecast, schedule" in capsys.readouterr().err


def test_a_check_that_is_none_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.main(["audit", "/x", "--ignore", "lost-things"]) == 2
    assert "no such check: lost-things" in capsys.readouterr().err


def test_an_interrupt_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_audit, "run", interrupted)
    assert run.main(["audit", "/x"]) == 130


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(_: argparse.Namespace) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(run_audit, "run", faulty)
    with pytest.raises(ZeroDivisionError):
        run.main(["audit", "/x"])


def test_a_file_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: argparse.Namespace) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_audit, "run", full)
    assert run.main(["audit", "/x"]) == 2
    assert "No space left" in capsys.readouterr().err


class Session:
    """Notes what is done with it."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def stop(self) -> None:
        self.done.append("stop")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of sessions."""
    found: list[str] = []
    monkeypatch.setattr(session, "end_workers", lambda it: it.done.append("end workers"))
    monkeypatch.setattr(session, "build_session", lambda *_, **__: Session(found))
    return found


def test_spark_is_asked_for_what_was_said(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    asked: list[tuple[str, str, dict[str, str]]] = []

    def build(name: str, *, master: str, settings: dict[str, str]) -> Session:
        asked.append((name, master, settings))
        return Session(done)

    monkeypatch.setattr(session, "build_session", build)
    for name, command, given, tries in (
        ("audit", run_audit, ("/x",), 1),
        ("audit", run_audit, ("/x", "--cores", "2", "--memory", "4g"), 1),
        ("schedule", run_schedule, ("f", "--job=j", "--ledger=l"), 4),
        ("export", export, ("/x", "--lake=l", "--master=spark://m", "--set=a.b=c=d"), 1),
    ):
        with open_session(options(command, *given), name, tries=tries):
            pass
    assert asked == [
        ("hourwheel audit", "", {}),
        ("hourwheel audit", "local[2,1]", {"spark.driver.memory": "4g"}),
        ("hourwheel schedule", "local[*,4]", {}),
        ("hourwheel export", "spark://m", {"a.b": "c=d"}),
    ]
    with (
        pytest.raises(errors.ConfigError, match="KEY=VALUE"),
        open_session(options(forecast, "/x", "--set", "ab"), "forecast"),
    ):
        pass


def test_a_session_is_stopped_whatever_happens(done: list[str]) -> None:
    with open_session(options(run_audit, "/x"), "audit"):
        assert done == []
    assert done == ["end workers", "stop"]
    with (
        pytest.raises(errors.NoLogs),
        open_session(options(run_audit, "/x"), "audit"),
    ):
        raise errors.NoLogs("none")
    assert done == ["end workers", "stop", "stop"]


@pytest.mark.parametrize("given", ["0", "-1", "two"])
def test_cores_are_a_number(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(run_audit, "/x", "--cores", given)
    assert "number of cores" in capsys.readouterr().err


def test_what_java_says_is_told_without_its_classes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})

    def fail(_parsed: object) -> int:
        raise kind(
            "An error occurred while calling o57.load.\n"
            ": org.apache.spark.SparkException: [FAILED_READ_FILE] no footer in rows.csv\n"
            "\tat org.apache.spark.Everything(Everything.scala:1)\n"
        )

    monkeypatch.setattr(run_schedule, "run", fail)
    assert run.main(["schedule", "rows.csv", "--job=j", "--ledger=l"]) == 2
    assert capsys.readouterr().err == "[FAILED_READ_FILE] no footer in rows.csv\n"


@pytest.mark.parametrize("given", ["-1", "x", "1.5", "9" * 5_000, "٣"])
@pytest.mark.parametrize(
    ("module", "option"),
    [(run_audit, "--lead-ms"), (forecast, "--rows"), (run_schedule, "--parallelism")],
)
def test_numbers_are_numbers(
    module: object, option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(module, "/x", "--job=j", "--ledger=l", f"{option}={given}")
    assert "is no number from 0" in capsys.readouterr().err
