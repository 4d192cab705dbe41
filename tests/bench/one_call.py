"""One call in flight at a time: how long each kind takes, and where its time goes."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np

from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject, unary
from tests.bench.results import Report, Target, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Subject

LIST_TARGET_MS = at_most(1.7)
CANCEL_TARGET_MS = at_most(2.0)
SINGLE_TARGET_MS = at_most(1.0)
"""Where the echo takes 0.7."""
_TOGETHER: Final = 500
_HANDLING: Final = "hourwheel_grpc_server_handling_seconds_sum"
_NOW: Final = "bench-now"

Call = Callable[[], Awaitable[object]]


async def run(size: Size, folder: Path) -> Report:
    """Each kind of call, one after the other on one node that nobody else uses."""
    count = size.pick(3, 200, 1_000)
    pending = size.pick(2_000, 100_000, 1_000_000)
    report = Report(
        [
            f"{count:,} calls of each kind, the next one begun when the last one is answered",
            f"{pending:,} messages of {load.BODY_BYTES} bytes pending, due over 24 hours",
            "node: from the call's arrival to its answer, without the fsync in it (of metrics)",
            "client and wire: the rest; the client library is in the measuring process",
            "echo: grpc.aio, gives the bytes back; client: live objects frozen",
        ]
    )
    async with (
        subject.running(folder / "one-call") as node,
        unary.echo_server("bytes") as (echo, _),
        AsyncProducer(node.channel) as producer,
        AsyncConsumer(
            node.child.address, group="bench", topic=_NOW, prefetch_messages=0
        ) as consumer,
        grpc.aio.insecure_channel(echo) as echo_channel,
        grpc.aio.insecure_channel(node.child.address) as plain_channel,
    ):
        published = await load.publish_columns(
            producer, load.cut_columns(load.spread_delays(pending), load.make_bodies())
        )
        if size is not Size.TINY:
            await node.settle()
        message = Message(b"x" * load.BODY_BYTES, delay_ms=load.HOUR_MS)
        several = [message] * _TOGETHER
        request = unary.make_request()
        echoed: Any = echo_channel.unary_unary(unary.METHOD)
        plain: Any = plain_channel.unary_unary(unary.METHOD)
        ids = np.concatenate([each.array for each in published])
        np.random.default_rng(load.SEED).shuffle(ids)
        cancels = iter([ids[at : at + _TOGETHER].copy() for at in range(0, pending, _TOGETHER)])

        async def publish_many() -> object:
            return await producer.publish_many(load.TOPIC, several)

        async def publish() -> object:
            return await producer.publish(load.TOPIC, message)

        async def publish_plain() -> object:
            return await plain(request)

        async def cancel() -> object:
            return await producer.cancel_many(PublishedIds(next(cancels)))

        async def receive_and_ack() -> None:
            await consumer.ack(await consumer.receive(1))

        async def echo_call() -> object:
            return await echoed(request)

        kinds: list[tuple[str, Call, int, Target | None]] = [
            (f"publish of {_TOGETHER}", publish_many, count, LIST_TARGET_MS),
            ("publish of one, publish stream", publish, count, SINGLE_TARGET_MS),
            ("publish of one, Publish", publish_plain, count, SINGLE_TARGET_MS),
            (
                *(f"cancel of {_TOGETHER} shuffled ids", cancel),
                *(min(count, pending // _TOGETHER - 1), CANCEL_TARGET_MS),
            ),
            ("receive and acknowledge one", receive_and_ack, count, None),
        ]
        await producer.publish_many(_NOW, [Message(b"x" * load.BODY_BYTES)] * (count + 1))
        await _measure(report, node, "echo", echo_call, count, None)
        for name, call, calls, target in kinds:
            await _measure(report, node, name, call, calls, target)
    return report


async def _measure(
    report: Report, node: Subject, name: str, call: Call, count: int, target: Target | None
) -> None:
    await call()
    took_ms = np.zeros(count)
    handling, before = await node.metric(_HANDLING), await node.commits()
    with subject.frozen_garbage(), node.span() as span:
        for ordinal in range(count):
            begun = time.perf_counter()
            await call()
            took_ms[ordinal] = 1_000 * (time.perf_counter() - begun)
    after = await node.commits()
    node_ms = 1_000 * (await node.metric(_HANDLING) - handling) / count
    sync_ms = 1_000 * (after.sync_s - before.sync_s) / count
    p50, p99 = np.percentile(took_ms, (50, 99)).tolist()
    rest_ms = float(took_ms.mean()) - node_ms
    cpu = [f"{1e6 * each / count:.0f} us" for each in (span.node_cpu_s, span.client_cpu_s)]
    split = (
        f"mean: fsync {sync_ms:.2f}, node {max(0.0, node_ms - sync_ms):.2f}, client and wire "
        f"{rest_ms:.2f} ms; processor time: node {cpu[0]}, client {cpu[1]}"
    )
    report.add(f"{name}: p50", p50, "ms", target, split)
    report.add(f"{name}: p99", p99, "ms")
