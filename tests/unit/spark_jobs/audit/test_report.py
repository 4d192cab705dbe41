import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from spark_jobs.audit import report
from tests.support.audit_results import START_MS, bad_result, clean_result


def test_all_files_are_written(tmp_path: Path) -> None:
    result = bad_result()
    written = report.write(result, str(tmp_path / "out"), made_ms=START_MS)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(written)
    summary = json.loads(Path(written["summary.json"]).read_bytes())
    assert summary == {**json.loads(json.dumps(result.summary())), "made_ms": START_MS}
    assert summary["exit_code"] == 1
    found = pq.read_table(written["findings.parquet"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [tuple(one) for one in result.findings]
    assert "<!doctype html>" in Path(written["report.html"]).read_text()


def test_the_figures_can_be_joined(tmp_path: Path) -> None:
    result = clean_result()
    (shard,) = result.shards
    written = report.write(result, f"file://{tmp_path}", made_ms=START_MS)
    late = pq.read_table(written["lateness.parquet"]).to_pydict()
    assert sum(late["messages"]) == int(shard.lateness.count.sum())
    assert set(late["topic"]) == {"orders <b>&", "reminders"}
    assert max(late["late_ms"]) >= 70_000
    ledger = pq.read_table(written["ledger.parquet"]).to_pydict()
    assert sum(ledger["due"]) == int(shard.ledger.due.sum())
    assert set(ledger["step_ms"]) == {1_000}
    pending = pq.read_table(written["pending.parquet"]).to_pydict()
    assert sum(pending["messages"]) == int(shard.pending.count.sum())


def test_without_any_shard_the_tables_are_empty(tmp_path: Path) -> None:
    result = replace(clean_result(), shards=())
    written = report.write(result, str(tmp_path), made_ms=START_MS)
    for name in (report.LATENESS, report.LEDGER, report.PENDING):
        assert pq.read_table(written[name]).num_rows == 0
