"""Receiving with a filter: how fast one consumer gets through a queue most of which it skips."""

import asyncio
from pathlib import Path
from typing import Final

from hourwheel.client import batch_builder
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.filter_language.wire import Sql
from hourwheel.v1 import broker_pb2
from tests.bench import load, subject
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

TARGET = at_least(20_000_000)
_BODY_BYTES: Final = 100
_PREFETCH: Final = 49_152
_POLLS: Final = 3
_GIVE_UP_S: Final = 300.0
_ROUNDS: Final = 3
_SHARES: Final = {"rare": 1_000, "tenth": 10, "half": 2}
"""Tag -> every so many-th message has it."""


async def run(size: Size, folder: Path) -> Report:
    """Fill one queue, all released; then drain it once for each filter, each by a new group."""
    count = size.pick(10_000, 2_000_000, 10_000_000)
    report = Report(
        [
            f"{count:,} messages of {_BODY_BYTES} bytes and 1 to 4 tags in a queue, all released",
            f"one AsyncConsumer: whole answers, prefetch {_PREFETCH:,}, {_POLLS} polls",
            "time: from the first poll until the last acknowledgement is durable",
            "the topic's genes are the default; the exact check is the node's unless it is said",
            f"median of {_ROUNDS} groups; the queue and the log are in the page cache",
        ]
    )
    async with subject.running(folder / "filtered") as node:
        await _fill(node, count)
        for name, target, text in (
            ("none", TARGET, "never || last"),
            ("1 in 1,000", TARGET, "rare || last"),
            ("1 in 10", None, "tenth || last"),
            ("1 in 2", None, "half || last"),
        ):
            expected = count // _SHARES.get(text.split()[0], count + 1) + 1
            spans = [
                await _drain(
                    node, f"{name.replace(' ', '-').replace(',', '')}-{turn}", text, expected
                )
                for turn in range(_ROUNDS if size is not Size.TINY else 1)
            ]
            speeds = [(count + 1) / span.seconds for span in spans]
            note = f"{spans[-1].cores}; {expected / spans[-1].seconds:,.0f} messages/s delivered"
            report.add_median(f"matches {name}", speeds, "entries/s", target, note)
        span = await _drain(node, "sql", "share = 'rare' OR share = 'last'", count // 1_000 + 1)
        speed = (count + 1) / span.seconds
        report.add(
            "1 in 1,000 by SQL, no gene of the property", speed, "entries/s", None, span.cores
        )
    return report


async def _fill(node: Subject, count: int) -> None:
    """All the same batch, again and again; behind them one message with a tag of its own."""
    bodies = load.make_bodies(load.BATCH)
    messages = [
        Message(bodies[at][:_BODY_BYTES], delay_ms=0, tags=_tags(at), properties=_properties(at))
        for at in range(load.BATCH)
    ]
    last = Message(b"", delay_ms=0, tags=("last",), properties={"share": "last"})
    await load.write_prebuilt(node.channel, [_request(messages)], count // load.BATCH)
    await load.write_prebuilt(node.channel, [_request([last])], 1)
    async with asyncio.timeout(_GIVE_UP_S):
        while True:
            if (await node.status()).released_count > count:
                return
            await asyncio.sleep(0.01)


def _tags(ordinal: int) -> tuple[str, ...]:
    return ("all", *(tag for tag, share in _SHARES.items() if ordinal % share == 0))


def _properties(ordinal: int) -> dict[str, str]:
    return {"share": "rare" if ordinal == 0 else "other"}


def _request(messages: list[Message]) -> broker_pb2.PublishStreamRequest:
    draft = batch_builder.draft_messages(messages)[0][0]
    raw = batch_builder.build(draft, 0, 0)
    return broker_pb2.PublishStreamRequest(topic=load.TOPIC, record_batch=raw)


async def _drain(node: Subject, group: str, text: str, expected: int) -> Span:
    consumer = AsyncConsumer(
        node.channel,
        group=group,
        topic=load.TOPIC,
        filter=Sql(text) if group == "sql" else text,
        prefetch_messages=_PREFETCH,
        polls=_POLLS,
    )
    received = checked = 0
    async with asyncio.timeout(_GIVE_UP_S):
        with subject.frozen_garbage(), node.span() as span:
            async with consumer:
                while received < expected:
                    batch = await consumer.receive_batch()
                    if batch is None:
                        break
                    checked += len(batch.bodies())
                    received += len(batch)
                    consumer.ack_soon(batch)
                await consumer.flush_acks()
    if not received == checked == expected or consumer.stale_count:
        raise RuntimeError(f"{received} received of {expected}, {consumer.stale_count} stale")
    return span
