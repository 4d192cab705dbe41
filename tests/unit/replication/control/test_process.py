"""The command; what the process does with others is in tests/cluster/test_control_plane.py."""

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from hourwheel import errors
from replication.control import process
from replication.control.config import EXIT_NO_ROOM, ControlConfig
from replication.raft.journal import RaftJournal
from tests.support.control_cluster import ControlCluster


def config(tmp_path: Path, **changes: object) -> ControlConfig:
    lone = replace(
        ControlCluster(tmp_path)["n1"].process.config,
        peers={},
        min_in_sync=1,
        watch_parent=False,
        linger_ms=0.0,
    )
    return replace(lone, **changes)  # type: ignore[arg-type]


def errors_in(caplog: pytest.LogCaptureFixture) -> str:
    """The `error` fields of what was logged."""
    return "; ".join(str(vars(one).get("error", "")) for one in caplog.records)


def test_process_ends_when_no_broker_comes(tmp_path: Path) -> None:
    assert process.main(config(tmp_path).arguments()) == 0
    assert (tmp_path / "n1" / "journal").exists()


def test_process_says_why_it_cannot_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert process.main(["--config", json.dumps({"node_id": "n1"})]) == 2
    assert "configuration" in errors_in(caplog)
    caplog.clear()
    assert process.main(config(tmp_path).arguments()) == 0
    (tmp_path / "n1" / "journal").unlink()
    assert process.main(config(tmp_path).arguments()) == 2
    assert "must not vote" in errors_in(caplog)


def test_address_in_use_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken = asyncio.new_event_loop()
    one = config(tmp_path)
    host, port = one.listen.split(":")
    server = taken.run_until_complete(asyncio.start_server(lambda r, w: None, host, int(port)))
    try:
        with pytest.raises(SystemExit):
            raise SystemExit(process.main(one.arguments()))
        assert "cannot listen" in errors_in(caplog)
    finally:
        server.close()
        taken.run_until_complete(server.wait_closed())
        taken.close()


def test_false_alarm_of_pysyncobj_is_left_out() -> None:
    def record(text: str) -> logging.LogRecord:
        return logging.LogRecord("pysyncobj", logging.CRITICAL, "", 1, text, (), None)

    assert not process.is_true_alarm(record("truncating already-applied log entries"))
    assert process.is_true_alarm(record("failed"))


def test_process_says_that_it_has_no_room_to_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_journal(*_: object) -> None:
        raise errors.DiskFull("no room to write vote.tmp")

    monkeypatch.setattr(RaftJournal, "open", open_journal)
    assert process.main(config(tmp_path).arguments()) == EXIT_NO_ROOM
    assert "no room to write vote.tmp" in errors_in(caplog)
