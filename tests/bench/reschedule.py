"""Moving messages to other due times by id: moves per second, each with its definite answer."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import RescheduleOutcome
from tests.bench import load, subject
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

TARGET = at_least(50_000)
_TOGETHER: Final = 500
_CALLERS: Final = 5
_DELAY_MS: Final = 30 * 3_600_000


async def run(size: Size, folder: Path) -> Report:
    """Ids in no order at all, for the first time, and then again."""
    pending = size.pick(2_000, 100_000, 10_000_000)
    count = size.pick(1_000, 20_000, 100_000)
    repetitions = size.pick(1, 3, 5)
    report = Report(
        [
            f"{repetitions} x {count:,} ids, {_TOGETHER} a call, {_CALLERS} calls under way",
            f"{pending:,} messages pending, due over 24 hours, in runs and memory",
            "AsyncProducer.reschedule_many with shuffled ids; durable answers",
            "each outcome is checked; a child process serves",
            "client: live objects frozen for the collector",
        ]
    )
    async with (
        subject.running(folder / "reschedule") as node,
        AsyncProducer(node.channel) as producer,
    ):
        work = load.cut_columns(load.spread_delays(pending), load.make_bodies())
        published = await load.publish_columns(producer, work)
        ids = np.concatenate([each.array for each in published])
        if size is not Size.TINY:
            await node.settle()
        np.random.default_rng(load.SEED).shuffle(ids)
        ids = ids[: repetitions * count]
        for name in ("first moves", "moves of moved ones"):
            await measure_moves(report, name, node, producer, [*ids.reshape(repetitions, -1)])
    return report


async def measure_moves(
    report: Report,
    name: str,
    node: Subject,
    producer: AsyncProducer,
    rounds: Sequence[NDArray[np.void]],
) -> None:
    """Move the messages with these ids, round by round, and report how fast."""
    spans = []
    for part in rounds:
        calls = [PublishedIds(part[at : at + _TOGETHER]) for at in range(0, len(part), _TOGETHER)]
        spans.append(await _move(node, producer, calls))
    speeds = [len(part) / span.seconds for part, span in zip(rounds, spans, strict=True)]
    middle = spans[speeds.index(sorted(speeds)[len(speeds) // 2])]
    report.add_median(name, speeds, "ids/s", TARGET, middle.cores)


async def _move(node: Subject, producer: AsyncProducer, calls: Sequence[PublishedIds]) -> Span:
    waiting = iter(calls)

    async def call() -> None:
        for ids in waiting:
            found = await producer.reschedule_many(ids, delay_ms=_DELAY_MS)
            if any(one.outcome is not RescheduleOutcome.RESCHEDULED for one in found):
                raise RuntimeError("not all were moved")

    with subject.frozen_garbage(), node.span() as span:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(call())
    return span
