"""What a node finds of how the one before it ended."""

from pathlib import Path

import pytest

from hourwheel import errors
from node.process.last_exit import FIRST, KILLED, LAST_EXIT, STOPPED, LastExit
from tests.support.eventually import until
from tests.unit.node.process.test_app import node_in


def test_reason_when_there_was_none_or_it_was_killed_or_stopped(tmp_path: Path) -> None:
    assert LastExit(tmp_path).reason == FIRST
    second = LastExit(tmp_path)
    assert second.reason == KILLED
    second.note(STOPPED)
    assert LastExit(tmp_path).reason == STOPPED


@pytest.mark.parametrize("content", [b"", b"\xff", b"no reason", b"A" * 65, b"x", b'A"} 1\nB'])
def test_reason_when_the_note_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LAST_EXIT).write_bytes(content)
    assert LastExit(tmp_path).reason == KILLED


def test_reason_when_nothing_can_be_noted(tmp_path: Path) -> None:
    missing = LastExit(tmp_path / "missing")
    missing.note(STOPPED)
    assert missing.reason == FIRST


async def test_node_notes_that_it_was_stopped_or_failed(tmp_path: Path) -> None:
    note = tmp_path / "data" / LAST_EXIT
    node = node_in(tmp_path)
    await node.start()
    assert note.read_text() == f"{KILLED}\n"
    await node.stop(0)
    assert note.read_text() == f"{STOPPED}\n"
    node = node_in(tmp_path)
    await node.start()
    node.failure.report(errors.FsyncFailed("fdatasync: Input/output error"))
    await until(lambda: note.read_text() == "FSYNC_FAILED\n")
    await node.stop(0)
    assert LastExit(tmp_path / "data").reason == "FSYNC_FAILED"


async def test_node_notes_why_it_did_not_start(tmp_path: Path) -> None:
    node = node_in(tmp_path, node={"listen": "192.0.2.1:1"})
    with pytest.raises(errors.HourwheelError) as caught:
        await node.start()
    assert LastExit(tmp_path / "data").reason == caught.value.reason
