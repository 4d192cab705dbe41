"""Unary Publish of single messages, against a server that does nothing but echo."""

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc

from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.v1 import broker_pb2
from tests.bench import load, machine, subject
from tests.bench.echo_server import SERVICE
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size

TARGET = at_least(85)
_CALLERS: Final = 64
_ROOT: Final = Path(__file__).resolve().parents[2]
METHOD: Final = f"/{SERVICE}/Publish"


async def run(size: Size, folder: Path) -> Report:
    """Both servers run all the time and are measured in turn, so that both see the same machine."""
    seconds = size.pick(0.2, 1.0, 3.0)
    rounds = size.pick(1, 5, 9)
    report = Report(
        [
            f"{_CALLERS} callers on one connection, one message of {load.BODY_BYTES} bytes a call",
            f"{rounds} rounds of {seconds} s for each server in turn; the ratio is of each round",
            "one client for all: it sends the same bytes and does not read the answers",
            "echo: grpc.aio, gives the bytes back; the node: durable before it answers",
        ]
    )
    async with (
        subject.running(folder / "unary") as node,
        echo_server("bytes") as echo,
        echo_server("messages") as parsed,
    ):
        servers = {
            "node": (node.child.address, node.pid),
            "echo of bytes": echo,
            "echo that reads and writes the message": parsed,
        }
        speeds: dict[str, list[float]] = {name: [] for name in servers}
        cpu_us: dict[str, list[float]] = {name: [] for name in servers}
        for round_number in range(rounds + 1):
            for name, (address, pid) in servers.items():
                used = machine.cpu_seconds(pid)
                calls, took = await _call(address, seconds if round_number else seconds / 4)
                used = machine.cpu_seconds(pid) - used
                if round_number:  # the first one warms up
                    speeds[name].append(calls / took)
                    cpu_us[name].append(1e6 * used / calls)
        before = await node.commits()
        calls, took = await _call(node.child.address, seconds)
        after = await node.commits()
        through_sdk = await _through_sdk(node.child.address, seconds)
    for name, values in speeds.items():
        cpu = f"server {statistics.median(cpu_us[name]):.0f} us of CPU a call"
        if name == "node":
            cpu += f"; {calls / max(1, after.syncs - before.syncs):.1f} calls for each fsync"
        report.add_median(name, values, "calls/s", None, cpu)
    for name, target in (("echo of bytes", TARGET), ("echo that reads and writes", None)):
        others = next(values for key, values in speeds.items() if key.startswith(name))
        ratios = [100 * own / other for own, other in zip(speeds["node"], others, strict=True)]
        report.add_median(f"node against {name}", ratios, "%", target)
    report.add("the same by AsyncProducer.publish", through_sdk, "msg/s", None, "publish stream")
    return report


@contextlib.asynccontextmanager
async def echo_server(kind: str) -> AsyncIterator[tuple[str, int]]:
    """Address and process number of an echo server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.echo_server", kind),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("no pipe")
        port = int(await asyncio.wait_for(process.stdout.readline(), 30))
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        await process.wait()


def make_request() -> bytes:
    """A Publish call with one message."""
    message = broker_pb2.OutgoingMessage(body=b"x" * load.BODY_BYTES, delay_ms=load.HOUR_MS)
    return broker_pb2.PublishRequest(topic=load.TOPIC, messages=[message]).SerializeToString()


async def _call(address: str, seconds: float) -> tuple[int, float]:
    """Call for so long; calls and seconds."""
    request = make_request()
    async with grpc.aio.insecure_channel(address) as channel:
        method: Any = channel.unary_unary(METHOD)
        await method(request)
        count = 0

        async def call() -> None:
            nonlocal count
            while time.perf_counter() < begun + seconds:
                await method(request)
                count += 1

        with subject.frozen_garbage():
            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(_CALLERS):
                    group.create_task(call())
        return count, time.perf_counter() - begun


async def _through_sdk(address: str, seconds: float) -> float:
    """Messages per second of as many callers that publish through the client library."""
    count, begun = 0, time.perf_counter()
    async with AsyncProducer(address) as producer:

        async def call() -> None:
            nonlocal count
            while time.perf_counter() < begun + seconds:
                message = Message(b"x" * load.BODY_BYTES, delay_ms=load.HOUR_MS)
                await producer.publish(load.TOPIC, message)
                count += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(call())
    return count / (time.perf_counter() - begun)
