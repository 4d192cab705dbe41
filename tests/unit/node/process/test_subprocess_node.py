"""A node as a process of its own: real signals, real crashes."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc
from node.process.subprocess_node import ChildNode
from tests.support.engine_world import within
from tests.support.eventually import until

SMALL: dict[str, Any] = {
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    "telemetry": {"log_format": "json"},
}


async def publish(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = broker_pb2_grpc.ProducerServiceStub(channel)
        message = broker_pb2.OutgoingMessage(body=b"x", delay_ms=3_600_000)
        await stub.Publish(broker_pb2.PublishRequest(topic="orders", messages=[message]))


async def pending(address: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        status = await stub.GetStatus(admin_pb2.GetStatusRequest())
        return int(status.shards[0].pending_count)


async def test_node_keeps_what_it_acknowledged_when_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    async with ChildNode(tmp_path / "data", SMALL, log_file=log) as node:
        await publish(node.address)
        await node.kill()
        await node.start()
        assert await pending(node.address) == 1
        second = ChildNode(tmp_path / "data", SMALL, log_file=log)
        with pytest.raises(errors.Unavailable) as caught:
            await second.start()
        assert await node.stop() == 0
    assert caught.value.params["exit_code"] == "75"
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events.count("node_started") == 2
    assert "node_start_failed" in events
    assert events[-1] == "node_stopped"


async def test_process_says_what_is_wrong_when_the_configuration_is(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[wheel]\nhorizon_days = 3\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "node", "--config", str(path)),
        cwd=Path(__file__).parents[4],
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 78
    assert b"wheel.horizon_days = 3" in said


async def test_process_is_gone_when_the_body_fails_and_it_hangs(tmp_path: Path) -> None:
    node = ChildNode(tmp_path / "data", SMALL)

    async def fail() -> None:
        async with node:
            os.kill(node.pid, signal.SIGSTOP)
            raise KeyError

    with pytest.raises(KeyError):
        await within(fail())
    assert not node.is_running


async def test_process_is_gone_when_its_start_is_broken_off(tmp_path: Path) -> None:
    node = ChildNode(tmp_path / "data", SMALL)
    starting = asyncio.ensure_future(node.start())
    await until(lambda: node.is_running)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await within(node.failed()) == -signal.SIGKILL


async def test_child_is_no_node_when_it_does_not_run(tmp_path: Path) -> None:
    node = ChildNode(tmp_path)
    with pytest.raises(errors.FailedPrecondition):
        node.pid  # noqa: B018
    with pytest.raises(errors.FailedPrecondition):
        await node.stop()
