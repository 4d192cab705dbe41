"""Backups of real nodes in an object store: killed halfway, two at once, with the store gone."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hourwheel import AsyncProducer, Message
from node.tools.backup import command, restore_command
from tests.support.audit_runs import errors_of, run_audit
from tests.support.embedded_node import EmbeddedNode
from tests.support.s3_server import BUCKET, S3Server, s3_server

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
HOUR_MS: Final = 3_600_000
COUNT: Final = 300
PLACE: Final = f"s3://{BUCKET}/nightly"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as one:
        yield one


async def lived(data: Path) -> Path:
    async with EmbeddedNode(data, SMALL) as node, AsyncProducer(node.address) as producer:
        await producer.publish_many("orders", [Message(b"later", delay_ms=HOUR_MS)] * COUNT)
    return data


async def begun(*arguments: object) -> asyncio.subprocess.Process:
    """The command in a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hourwheel.cli", "backup", *map(str, arguments), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> dict[str, Any]:
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


async def verified(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The ids of all backups that are there; each is whole."""
    capsys.readouterr()
    code = await asyncio.to_thread(command.main, ["verify", PLACE, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0, lines
    return [one["backup"] for one in lines]


async def test_a_backup_that_is_killed_halfway_is_none_and_the_next_one_goes_on_from_there(
    tmp_path: Path, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    data = await lived(tmp_path / "data")
    halfway, go_on, puts = threading.Event(), threading.Event(), list[str]()

    def answer(method: str, path: str) -> None:
        if method == "PUT" and "/objects/" in path:
            puts.append(path)
            if len(puts) == 3:
                halfway.set()
                go_on.wait()

    server.answer = answer
    process = await begun("create", data, "--to", PLACE)
    try:
        assert await asyncio.to_thread(halfway.wait, 60)
        os.kill(process.pid, signal.SIGKILL)
        await process.communicate()
    finally:
        go_on.set()
    assert await verified(capsys) == []
    taken = await ended(await begun("create", data, "--to", PLACE))
    assert 0 < taken["new_bytes"] < taken["total_bytes"], "pieces of the first one serve the second"
    assert await verified(capsys) == [taken["backup"]]

    new = tmp_path / "new"
    arguments = ["--from", PLACE, "--to", str(new), "--json"]
    assert await asyncio.to_thread(restore_command.main, arguments) == 0
    assert json.loads(capsys.readouterr().out)["pending_count"] == COUNT
    assert errors_of(run_audit(new)) == []

    dead = await asyncio.to_thread(command.main, ["remove", PLACE, taken["backup"]])
    assert dead == command.EXIT_FAILED, "the mark of the one that was killed"
    assert "killed minutes ago" in capsys.readouterr().err
    assert await verified(capsys) == [taken["backup"]]


async def test_two_backups_at_once_share_a_place_and_are_both_whole(
    tmp_path: Path, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    one = await lived(tmp_path / "one")
    other = await lived(tmp_path / "other")
    both = threading.Barrier(2, timeout=60)
    met = set[str]()

    def answer(method: str, path: str) -> None:
        if method == "PUT" and "/adding/" in path and path not in met:
            met.add(path)
            both.wait()  # neither goes on before both are at work

    server.answer = answer
    processes = [await begun("create", data, "--to", PLACE) for data in (one, other)]
    taken = [await ended(process) for process in processes]
    assert await verified(capsys) == sorted(found["backup"] for found in taken)
    assert [path for path in server.paths() if "/adding/" in path] == []


async def test_a_store_that_goes_halfway_leaves_no_backup_and_the_reason_is_said(
    tmp_path: Path, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    data = await lived(tmp_path / "data")
    puts = list[str]()

    def answer(method: str, path: str) -> tuple[str, bytes] | None:
        if method == "PUT" and "/objects/" in path:
            puts.append(path)
        return None if len(puts) < 3 else ("507 Insufficient Storage", b"")

    server.answer = answer
    process = await begun("create", data, "--to", PLACE)
    _, err = await process.communicate()
    assert process.returncode == command.EXIT_FAILED
    assert "no room" in err.decode()
    assert "Traceback" not in err.decode()
    server.answer = lambda _method, _path: None
    assert await verified(capsys) == []
