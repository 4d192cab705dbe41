import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.audit import delivery
from spark_jobs.audit.facts.findings import CheckOutcome
from spark_jobs.audit.facts.result import AuditResult, Verdict
from spark_jobs.commands import audit
from tests.support.audit_results import bad_result, clean_result


class Session:
    """As much of Spark as a command sees."""

    sparkContext = None  # noqa: N815 - Spark's name


def audited(
    monkeypatch: pytest.MonkeyPatch, result: AuditResult, *given: str
) -> tuple[int, argparse.Namespace]:
    seen: list[argparse.Namespace] = []

    @contextmanager
    def open_session(parsed: argparse.Namespace, _name: str) -> Iterator[Session]:
        seen.append(parsed)
        yield Session()

    monkeypatch.setattr(audit, "open_session", open_session)
    monkeypatch.setattr(delivery, "audit", lambda *_, **__: result)
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
    assert told.startswith("FAULTY")
    assert "queue-missing" in told
    assert "its checkpoint is damaged" in told
    assert "1 x replica-short" in told


def test_for_scripts_it_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _ = audited(monkeypatch, bad_result(), "/srv", "--json", "--out", str(tmp_path))
    told = json.loads(capsys.readouterr().out)
    assert (code, told["verdict"], told["exit_code"]) == (1, "faulty", 1)
    assert told["files"]["report.html"] == str(tmp_path / "report.html")


def test_ignored_checks_are_left_out_and_counted() -> None:
    result = audit.leave_out(bad_result(), ["queue-missing", "log-corrupt"])
    assert result.verdict is Verdict.INCOMPLETE
    assert result.facts["ignored"] == {"log-corrupt": 1, "queue-missing": 1}
    assert {one.check for one in result.findings} == {"replica-short"}


def test_limits_can_be_accepted_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trimmed = CheckOutcome("groups", 0, "", "log-trimmed", "it begins at 4,096")
    result = replace(clean_result(), checks=(trimmed,))
    code, _ = audited(monkeypatch, result, "/srv", "--out", str(tmp_path))
    told = capsys.readouterr().out
    assert code == 2
    assert told.startswith("INCOMPLETE")
    assert "Not checked: groups of shard 0: it begins at 4,096 (log-trimmed)." in told
    given = ("/srv", "--out", str(tmp_path), "--accept", "log-trimmed")
    code, _ = audited(monkeypatch, result, *given)
    told = capsys.readouterr().out
    assert code == 0
    assert "Not checked, and accepted: groups of shard 0" in told
    assert run.main(["audit", "/srv", "--accept", "anything"]) == 2
    assert "no such limit: anything" in capsys.readouterr().err


def test_all_checks_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["audit", "--list-checks"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "queue-missing" in told
    assert "log-trimmed            limited: retention has removed" in told


def test_verdict_when_the_report_cannot_be_written_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file where a folder must be")
    code, _ = audited(monkeypatch, bad_result(), "/srv", "--out", str(tmp_path / "out"))
    told = capsys.readouterr()
    assert code == 2
    assert told.out.startswith("FAULTY")
    assert "queue-missing" in told.out
    assert "out" in told.err


def test_names_when_they_look_like_markup_are_shown_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = clean_result()
    shard = result.shards[0]
    replicas = tuple(one._replace(node="[/red]a[bold]") for one in shard.replicas)
    result = replace(result, shards=(replace(shard, replicas=replicas),))
    audit.show(result, {"report.html": "/x/[/y]/report.html"})
    told = capsys.readouterr().out
    assert "[/red]a[bold]" in told
    assert "/x/[/y]/report.html" in told
