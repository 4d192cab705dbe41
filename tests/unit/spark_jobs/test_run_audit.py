import argparse
import json
from pathlib import Path

import pytest

from spark_jobs import delivery_audit, run, run_audit
from spark_jobs.audit_result import AuditResult, Verdict
from tests.support.audit_results import bad_result, clean_result


class Session:
    """As much of Spark as a command sees."""

    sparkContext = None  # noqa: N815 - Spark's name

    def stop(self) -> None:
        """Nothing runs."""


def audited(
    monkeypatch: pytest.MonkeyPatch, result: AuditResult, *given: str
) -> tuple[int, argparse.Namespace]:
    seen: list[argparse.Namespace] = []

    def open_session(parsed: argparse.Namespace, _name: str) -> Session:
        seen.append(parsed)
        return Session()

    monkeypatch.setattr(run_audit, "open_session", open_session)
    monkeypatch.setattr(delivery_audit, "audit", lambda *_, **__: result)
    return run.main(["audit", *given]), seen[0]


def test_a_clean_audit_ends_with_0_and_its_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, _ = audited(monkeypatch, clean_result(), "/srv", "--out", str(out))
    told = capsys.readouterr().out
    assert code == 0
    assert told.startswith("CLEAN")
    assert "lateness: p50" in told
    assert (out / "report.html").exists()


def test_findings_end_with_1_and_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _ = audited(monkeypatch, bad_result(), "/srv", "--out", str(tmp_path))
    told = capsys.readouterr().out
    assert code == 1
    assert told.startswith("FINDINGS")
    assert "queue-missing" in told
    assert "its checkpoint is damaged" in told
    assert "1 x replica-short" in told


def test_for_scripts_it_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _ = audited(monkeypatch, bad_result(), "/srv", "--json", "--out", str(tmp_path))
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"], told["exit_code"]) == (1, "findings", 1)
    assert told["files"]["report.html"] == str(tmp_path / "report.html")


def test_ignored_checks_are_left_out_and_counted() -> None:
    result = run_audit.leave_out(bad_result(), ["queue-missing", "log-corrupt"])
    assert result.verdict is Verdict.COULD_NOT_AUDIT
    assert result.facts["ignored"] == {"log-corrupt": 1, "queue-missing": 1}
    assert {one.check for one in result.findings} == {"replica-short"}


def test_all_checks_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["audit", "--list-checks"])
    assert ended.value.code == 0
    assert "queue-missing" in capsys.readouterr().out
