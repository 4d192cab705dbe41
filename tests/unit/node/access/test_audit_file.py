"""The audit log's file: lines, renaming, and what becomes of events that it cannot take."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from node.access.audit import AuditEvent
from node.access.audit_file import AuditFile
from tests.support.eventually import until


def event(number: int) -> AuditEvent:
    named = [{"kind": "topic", "name": "a\nb"}]
    return AuditEvent(
        1_800_000_000_007,
        "root",
        "token",
        "m",
        named,
        "OK",
        "peer",
        number,
        changed={"is_paused": "true"},
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(caplog: pytest.LogCaptureFixture, key: str) -> list[dict[str, Any]]:
    found: list[Any] = [record.msg for record in caplog.records]
    return [one for one in found if isinstance(one, dict) and one["event"] == key]


def test_event_is_a_line_of_json(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    file = AuditFile(str(path), "n1")
    file.write(event(3))
    file.close()
    (line,) = lines(path)
    assert line == {
        "timestamp": "2027-01-15T08:00:00.007Z",
        "event": "call_audited",
        "node_id": "n1",
        "time_ms": 1_800_000_000_007,
        "principal": "root",
        "principal_method": "token",
        "method": "m",
        "resources": [{"kind": "topic", "name": "a\nb"}],
        "outcome": "OK",
        "peer": "peer",
        "unlogged": 3,
        "claimed": "",
        "changed": {"is_paused": "true"},
    }
    assert path.stat().st_mode & 0o007 == 0


async def test_file_is_made_anew_when_it_was_renamed(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.json", tmp_path / "audit.json.1"
    file = AuditFile(str(path), "n1")
    file.write(event(1))
    await until(lambda: len(lines(path)) == 1)
    path.rename(old)
    file.write(event(2))
    file.close()
    assert [line["unlogged"] for line in lines(old)] == [1]
    assert [line["unlogged"] for line in lines(path)] == [2]


def test_line_that_nobody_finished_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    path.write_text('{"event": "call_au')
    file = AuditFile(str(path), "n1")
    file.write(event(1))
    file.close()
    assert json.loads(path.read_text().splitlines()[1])["unlogged"] == 1


@pytest.mark.parametrize("name", ["missing/audit.json", "."])
def test_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        AuditFile(str(tmp_path / name), "n1")
    assert caught.value.params["key"] == "access.audit_file"


async def test_full_disk_sends_events_to_the_log_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path, write = tmp_path / "audit.json", os.write
    file = AuditFile(str(path), "n1")

    def full(fd: int, raw: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for number in (1, 2):
        file.write(event(number))
        await until(lambda number=number: len(logged(caplog, "call_audited")) == number)
    assert len(logged(caplog, "audit_file_failed")) == 1
    monkeypatch.setattr(os, "write", write)
    file.write(event(3))
    file.close()
    assert [line["unlogged"] for line in lines(path)] == [3]
    assert [one["unlogged"] for one in logged(caplog, "call_audited")] == [1, 2]
    assert len(logged(caplog, "audit_file_recovered")) == 1


def test_node_starts_when_there_is_no_room_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with monkeypatch.context() as patched:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(os, "open", full)
        file = AuditFile(str(tmp_path / "audit.json"), "n1")
    file.write(event(1))
    file.close()
    assert [line["unlogged"] for line in lines(tmp_path / "audit.json")] == [1]
    assert len(logged(caplog, "audit_file_failed")) == 1


async def test_events_that_do_not_fit_into_the_queue_go_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that does not answer: a pipe's other end, here."""
    caplog.set_level("INFO")
    reading, writing = os.pipe()
    write, path = os.write, tmp_path / "audit.json"
    begun: list[bytes] = []

    def wait(fd: int, raw: bytes) -> int:
        begun.append(raw)
        os.read(reading, 1)
        return write(fd, raw)

    monkeypatch.setattr(os, "write", wait)
    file = AuditFile(str(path), "n1", queue_max=2)
    file.write(event(1))
    await until(lambda: begun)
    for number in (2, 3, 4, 5):
        file.write(event(number))
    assert [one["unlogged"] for one in logged(caplog, "call_audited")] == [4, 5]
    monkeypatch.setattr(os, "write", write)
    os.write(writing, b"x")
    file.close()
    assert [line["unlogged"] for line in lines(path)] == [1, 2, 3]
    os.close(reading)
    os.close(writing)


async def test_whoever_watches_is_told_while_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    file = AuditFile(str(tmp_path / "audit.json"), "n1", note=told.append)
    with monkeypatch.context() as patched:

        def full(fd: int, raw: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(os, "write", full)
        file.write(event(1))
        await until(lambda: told)
    file.write(event(3))
    file.close()
    assert told == [True, False]
