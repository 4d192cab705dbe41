"""What a principal that publishes as fast as it can does to another one, with and without quota."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from hourwheel import errors
from hourwheel.client.access import Limits
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster import security
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, subject
from tests.bench.results import Report, at_most
from tests.bench.sizes import Size

FACTOR_TARGET = at_most(3)
QUOTA: Final = Limits(messages_per_s=2_000)
NODES: Final = 3
_EACH_S: Final = 0.01
_WAIT_S: Final = 60.0
_SECRET: Final = "for this measurement only"
_QUIET, _NOISY = "quiet", "noisy"
_ROOT: Final = Path(__file__).resolve().parents[2]
_NOT_YET: Final = (
    *(errors.PermissionDenied, errors.Unauthenticated, errors.FailedPrecondition),
    errors.Unavailable,
)


async def run(size: Size, folder: Path) -> Report:
    """The quiet one alone, beside the noisy one, and beside it with a quota: in turns."""
    seconds, rounds = size.pick(0.3, 4.0, 10.0), size.pick(1, 3, 5)
    report = Report(
        [
            f"{NODES} nodes with TLS and access control, and both clients, on one machine",
            f"quiet: one message of {load.BODY_BYTES} bytes each {_EACH_S * 1e3:.0f} ms",
            f"noisy: {load.CALLERS} tasks, batches of {load.BATCH:,}, in a process of its own",
            f"quota of the noisy one: {QUOTA.messages_per_s:,} messages/s",
            f"{rounds} rounds of {seconds} s each; time from publish() to its id",
        ]
    )
    values = {
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "access": {"is_on": True, "administrators": security.ADMIN},
    }
    found: dict[str, list[float]] = {"alone": [], "beside noisy": [], "beside noisy, quota": []}
    async with LocalCluster(folder / "cluster", NODES, values=values, is_secure=True) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        tls: Any = {"tls": cluster.access.tls}
        root: Any = {**tls, "user": cluster.access.user}
        async with (
            AsyncAdmin(cluster.servers, **root) as admin,
            AsyncProducer(cluster.servers, **tls, user=(_QUIET, _SECRET)) as producer,
        ):
            for name in (_QUIET, _NOISY):
                await _soon(admin.put_user, name, _SECRET)
                await _soon(admin.grant, name, ["publish"], "topic", load.TOPIC)
            await _soon(producer.publish, load.TOPIC, _message())
            for _ in range(rounds):
                found["alone"].append(await _p99_ms(producer, seconds))
                async with _noisy(cluster):
                    found["beside noisy"].append(await _p99_ms(producer, seconds))
                await admin.put_quota(_NOISY, QUOTA)
                async with _noisy(cluster):
                    found["beside noisy, quota"].append(await _p99_ms(producer, seconds))
                await admin.delete_quota(_NOISY)
    for name, values_ms in found.items():
        report.add_median(f"quiet {name}: p99", values_ms, "ms")
    factors = np.divide(found["beside noisy, quota"], found["alone"]).tolist()
    report.add_median("p99 beside noisy with a quota, against alone", factors, "x", FACTOR_TARGET)
    return report


def _message() -> Message:
    return Message(b"x" * load.BODY_BYTES, delay_ms=load.HOUR_MS)


async def _soon(ask: Any, *arguments: Any) -> None:
    """Until all nodes have heard of it, and the cluster follows the rules that it needs."""
    async with asyncio.timeout(_WAIT_S):
        while True:
            try:
                await ask(*arguments)
            except _NOT_YET:
                await asyncio.sleep(0.05)
            else:
                return


async def _p99_ms(producer: AsyncProducer, seconds: float) -> float:
    took_ms: list[float] = []

    async def publish() -> None:
        begun = time.perf_counter()
        await producer.publish(load.TOPIC, _message())
        took_ms.append(1e3 * (time.perf_counter() - begun))

    with subject.frozen_garbage():
        end = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            while time.perf_counter() < end:
                group.create_task(publish())
                await asyncio.sleep(_EACH_S)
    return float(np.percentile(took_ms, 99))


@asynccontextmanager
async def _noisy(cluster: LocalCluster) -> AsyncIterator[None]:
    """The noisy one publishes inside."""
    authority = cluster.access.tls
    assert authority is not None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.noisy_publisher", cluster.servers, str(authority.ca)),
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{_NOISY}:{_SECRET}\n".encode())
        await process.stdout.readline()
        await asyncio.sleep(0.2)
        yield
    finally:
        process.stdin.close()
        await process.wait()
