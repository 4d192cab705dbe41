"""The commands as a user runs them: `run.main`, with the session of the tests."""

import argparse
import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel.client.admin import AsyncAdmin
from hourwheel.clock import SystemClock
from node.process.subprocess_node import ChildNode
from spark_jobs import run
from spark_jobs.commands import audit as run_audit
from spark_jobs.commands import schedule as run_schedule
from tests.support.fake_node_thread import FakeNodeThread
from tests.support.log_maker import Made, replicate


@pytest.fixture(autouse=True)
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def open_session(
        _parsed: argparse.Namespace, _name: str, *, tries: int = 1
    ) -> Iterator[SparkSession]:
        """The tests' session, which no command stops."""
        assert tries in (1, run_schedule.TRIES)
        yield spark

    for command in (run_audit, run_schedule):
        monkeypatch.setattr(command, "open_session", open_session)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_an_audit_of_three_nodes_is_clean_and_of_a_damaged_one_is_not(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made.directory, tmp_path / "nodes" / "node-1")
    nodes = replicate(tmp_path / "nodes" / "node-1", 3)
    out = tmp_path / "out"
    given = ["audit", str(tmp_path / "nodes"), "--out", str(out)]
    code = run.main([*given, "--json"])
    summary = told(capsys)
    assert (code, summary["verdict"]) == (3, "late"), "the clock of its maker jumps by 20 s"
    code = run.main([*given, "--json", "--late-ms=60000"])
    summary = told(capsys)
    assert (code, summary["verdict"], summary["left_out"]) == (0, "clean", [])
    assert (out / "report.html").stat().st_size > 10_000
    segment = min((nodes[1] / "shard-0" / "log").glob("*.log"))
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 1
    segment.write_bytes(raw)
    code = run.main([*given, "--quiet"])
    assert code == 1
    assert "FAULTY" in capsys.readouterr().out


def test_without_logs_the_audit_cannot_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["audit", str(tmp_path)]) == 2
    assert "no logs" in capsys.readouterr().err


async def test_rows_of_files_are_scheduled(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("topic,body,delay_ms\nt,one,60000\nt,two,60000\nno topic,three,1\n")
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "log") as node:
        given = [
            *("schedule", str(rows), "--format=csv", f"--server={node.address}", "--job=j"),
            f"--ledger={tmp_path / 'ledger'}",
        ]
        code = await in_thread(given)
        said = capsys.readouterr().out
        assert code == 1
        assert "3 rows: 2 scheduled now, 0 before, 1 bad, 0 refused, 0 in doubt" in said
        assert "INVALID_TOPIC" in said
        assert await in_thread([*given, "--json"]) == 1
        done = told(capsys)
        assert (done["scheduled"], done["repeated"], done["bad"]) == (0, 2, 1)


async def test_rows_of_csv_files_are_not_guessed_at(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies that look like numbers are texts; a time that is none is a bad row."""
    rows = tmp_path / "rows.csv"
    due = datetime.fromtimestamp(int(SystemClock().wall_ms()) // 1_000, UTC) + timedelta(days=1)
    rows.write_text(f"topic,body,due\nt,007,{due.isoformat()}\nt,8,tomorrow\n")
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "log") as node:
        given = [
            *("schedule", str(rows), "--format=csv", f"--server={node.address}", "--job=j"),
            f"--ledger={tmp_path / 'ledger'}",
        ]
        assert await in_thread(given) == 1
        said = capsys.readouterr().out
        assert "2 rows: 1 scheduled now, 0 before, 1 bad, 0 refused, 0 in doubt" in said
        assert "INVALID_DUE_TIME" in said
        async with AsyncAdmin(node.address) as admin:
            pending = [one async for one in admin.list_pending("t")]
    assert [(one.due_ms, one.body_bytes) for one in pending] == [(due.timestamp() * 1_000, 3)]


def test_rows_with_a_column_that_csv_has_not_are_refused(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("topic,body,delay_ms,tags\nt,one,60000,a\n")
    with FakeNodeThread() as node:
        given = [
            *("schedule", str(rows), "--format=csv", f"--server={node.address}", "--job=j"),
            f"--ledger={tmp_path / 'ledger'}",
        ]
        assert run.main(given) == 2
    assert "column `tags` is string: it must be list" in capsys.readouterr().err
    assert not list(tmp_path.glob("ledger/j/rows-*")), "nothing was read and written down"


async def in_thread(given: list[str]) -> int:
    """Run a command beside the event loop that the node needs."""
    return await asyncio.to_thread(run.main, given)
