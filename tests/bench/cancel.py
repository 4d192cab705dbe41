"""Taking messages back by id: cancels per second, each with its definite answer."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from tests.bench import load, subject
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

TARGET = at_least(200_000)
_TOGETHER: Final = 500
_CALLERS: Final = 8


async def run(size: Size, folder: Path) -> Report:
    """Ids in the order they were published, and in no order at all."""
    pending = size.pick(2_000, 100_000, 1_000_000)
    count = size.pick(1_000, 50_000, 200_000)
    repetitions = size.pick(1, 3, 5)
    report = Report(
        [
            f"{repetitions} x {count:,} ids, {_TOGETHER} a call, {_CALLERS} calls under way",
            f"never fewer than {pending:,} messages pending, due over 24 hours, in runs and memory",
            "AsyncProducer.cancel_many with the ids that publishing gave; durable answers",
            "each outcome is checked; a child process serves",
            "client: live objects frozen for the collector",
        ]
    )
    total = pending + 2 * repetitions * count
    async with (
        subject.running(folder / "cancel") as node,
        AsyncProducer(node.channel) as producer,
    ):
        work = load.cut_columns(load.spread_delays(total), load.make_bodies())
        published = await load.publish_columns(producer, work)
        ids = np.concatenate([each.array for each in published])
        if size is not Size.TINY:
            await node.settle()
        half = repetitions * count
        rest = ids[half:].copy()
        np.random.default_rng(load.SEED).shuffle(rest)
        for name, chosen in (("consecutive ids", ids[:half]), ("shuffled ids", rest[:half])):
            spans = []
            for first in range(0, half, count):
                part = chosen[first : first + count]
                calls = [
                    PublishedIds(part[at : at + _TOGETHER]) for at in range(0, count, _TOGETHER)
                ]
                spans.append(await _cancel(node, producer, calls))
            speeds = [count / span.seconds for span in spans]
            middle = spans[speeds.index(sorted(speeds)[len(speeds) // 2])]
            report.add_median(name, speeds, "ids/s", TARGET, middle.cores)
        if (await node.status()).cancelled_count != 2 * half:
            raise RuntimeError("the node counts other cancels")
    return report


async def _cancel(node: Subject, producer: AsyncProducer, calls: Sequence[PublishedIds]) -> Span:
    waiting = iter(calls)

    async def call() -> None:
        for ids in waiting:
            outcomes = await producer.cancel_many(ids)
            if outcomes.count(CancelOutcome.CANCELLED) != len(ids):
                raise RuntimeError("not all were cancelled")

    with subject.frozen_garbage(), node.span() as span:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(call())
    return span
