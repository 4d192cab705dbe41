"""What TLS costs a node and its client: batches, and single calls, beside the same in the clear."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import grpc

from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Tls
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster import security
from tests.bench import load, machine, subject
from tests.bench.results import Report
from tests.bench.sizes import Size
from tests.bench.unary import METHOD, make_request

_CALLERS: Final = 16
_NODE: Final = "node-1"
_LEAST_US: Final = 0.001
"""A tiny run may take no tick of the processor's clock."""


class _Side(NamedTuple):
    """A node, and ways to it."""

    node: ChildNode
    producer: AsyncProducer
    channel: grpc.aio.Channel


_Spent: TypeAlias = tuple[float, float]
"""Processor time of one piece, of the node and of the client, in microseconds."""


async def run(size: Size, folder: Path) -> Report:
    """Two nodes that run all the time, one with TLS; each is measured in turn."""
    count, calls = size.pick(2_000, 100_000, 500_000), size.pick(64, 2_000, 10_000)
    rounds = size.pick(1, 5, 9)
    report = Report(
        [
            "two nodes on one machine, one of them with TLS 1.3, measured in turn, A B A B",
            f"{rounds} rounds; processor time, user and system, for each message or call",
            f"batches: {count:,} messages of {load.BODY_BYTES} bytes, {load.BATCH:,} a batch",
            f"calls: {calls:,} of Publish with one message, {_CALLERS} at one time",
        ]
    )
    found: dict[tuple[str, str], list[_Spent]] = {}
    async with _sides(folder) as sides:
        for number in range(rounds + 1):
            for name, side in sides.items():
                batches, single = await _batches(side, count), await _calls(side, calls)
                if number:  # the first one warms up
                    found.setdefault(("batches", name), []).append(batches)
                    found.setdefault(("calls", name), []).append(single)
    for kind in ("batches", "calls"):
        what = "a message" if kind == "batches" else "a call"
        for at, who in enumerate(("node", "client")):
            spent = {name: [one[at] for one in found[kind, name]] for name in ("plain", "TLS")}
            for name, values in spent.items():
                report.add_median(f"{kind}, {name}: {who}", values, f"us CPU {what}")
            ratios = [
                100 * (own / max(other, _LEAST_US) - 1)
                for own, other in zip(spent["TLS"], spent["plain"], strict=True)
            ]
            shown = statistics.median(ratios)
            report.add(f"{kind}: what TLS adds to the {who}", shown, "%")
    return report


@asynccontextmanager
async def _sides(folder: Path) -> AsyncIterator[dict[str, _Side]]:
    files = folder / "security"
    await asyncio.to_thread(security.make_files, files, [_NODE], datetime.now(UTC))
    section = security.sections_of(files, _NODE)["tls"]
    authority = Path(section["authority_file"])
    disk = {"free_bytes_min": 0}
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(
            ChildNode(folder / "plain", {"disk": disk}, log_file=folder / "log")
        )
        secure = await stack.enter_async_context(
            ChildNode(folder / "tls", {"disk": disk, "tls": section}, log_file=folder / "log")
        )
        credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(authority.read_bytes))
        yield {
            "plain": _Side(
                plain,
                await stack.enter_async_context(AsyncProducer(plain.address)),
                await stack.enter_async_context(grpc.aio.insecure_channel(plain.address)),
            ),
            "TLS": _Side(
                secure,
                await stack.enter_async_context(
                    AsyncProducer(secure.address, tls=Tls(ca=authority))
                ),
                await stack.enter_async_context(
                    grpc.aio.secure_channel(secure.address, credentials)
                ),
            ),
        }


async def _batches(side: _Side, count: int) -> _Spent:
    work = load.cut_columns(load.spread_delays(count), load.make_bodies())

    async def publish() -> None:
        await load.publish_columns(side.producer, work)

    return await _measure(side, publish, count)


async def _calls(side: _Side, count: int) -> _Spent:
    call: Any = side.channel.unary_unary(METHOD)
    request, left = make_request(), iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call(request)

    async def publish() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(caller())

    return await _measure(side, publish, count)


async def _measure(side: _Side, work: Any, count: int) -> _Spent:
    node_s, client_s = machine.cpu_seconds(side.node.pid), time.process_time()
    with subject.frozen_garbage():
        await work()
    client_s = time.process_time() - client_s
    node_s = machine.cpu_seconds(side.node.pid) - node_s
    return 1e6 * node_s / count, 1e6 * client_s / count
