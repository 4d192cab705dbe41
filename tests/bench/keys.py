"""Keys: what publishing with them costs, cancels by key per second, how long a look-up takes.

And moves, by id and by filter: with so many pending that nobody wants to publish them twice.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Columns
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.meta import MessageMeta
from hourwheel.outcomes import CancelOutcome
from tests.bench import load, subject
from tests.bench.reschedule import TARGET, measure_moves
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size
from tests.bench.subject import Span, Subject

CANCEL_TARGET = at_least(100_000)
PUBLISH_TARGET = at_most(1.3)
LOOK_UP_TARGET = at_most(5.0)
_TOGETHER: Final = 500
_CALLERS: Final = 5


async def run(size: Size, folder: Path) -> Report:
    """One node; one unique key a message."""
    pending = size.pick(2_000, 1_000_000, 10_000_000)
    count = size.pick(500, 50_000, 200_000)
    rounds, moved = size.pick(1, 3, 5), size.pick(100, 10_000, 50_000)
    asked = size.pick(50, 2_000, 5_000)
    cancels = f"{rounds} x {count:,} keys in no order, {_TOGETHER} a call"
    report = Report(
        [
            f"{pending:,} messages pending with a key of their own, due over 24 hours",
            f"cancels: {cancels}, {_CALLERS} calls under way; each outcome is checked",
            f"moves: {rounds} x {moved:,} ids in no order, likewise",
            f"moves by filter: all of {_RANGE_MINUTES} minutes, in one call of reschedule_pending",
            f"look-ups: {asked:,}, one after the other, of keys in no order and of none",
            "publishes: with and without keys by turns, batches of 1,000",
            "a child process serves; client: live objects frozen for the collector",
        ]
    )
    async with (
        subject.running(folder / "keys") as node,
        AsyncProducer(node.channel) as producer,
    ):
        published = await _publish(report, node, producer, pending)
        if size is not Size.TINY:
            await node.settle()
        _report_disk(report, folder / "keys", pending)
        order = np.random.default_rng(load.SEED).permutation(pending)
        await _look_up(report, node, order[-asked:].tolist())
        chosen = np.random.default_rng(load.SEED).permutation(published)[: rounds * moved]
        await measure_moves(
            *(report, "reschedule by id", node, producer), [*chosen.reshape(rounds, -1)]
        )
        await _move_a_range(report, node)
        spans = [
            await _cancel(node, producer, order[at : at + count].tolist())
            for at in range(0, rounds * count, count)
        ]
        speeds = [count / span.seconds for span in spans]
        middle = spans[speeds.index(sorted(speeds)[len(speeds) // 2])]
        report.add_median("cancel by key", speeds, "keys/s", CANCEL_TARGET, middle.cores)
        if (await node.status()).cancelled_count != rounds * count:
            raise RuntimeError("the node counts other cancels")
        report.add("node's memory at the end", await node.metric(_MEMORY) / 2**20, "MiB")
    return report


_MEMORY: Final = "process_resident_memory_bytes"
_PART: Final = 250_000
_RANGE_MINUTES: Final = 30
_ROUNDS: Final = 5
"""So many parts are published without keys as well."""


async def _publish(
    report: Report, node: Subject, producer: AsyncProducer, pending: int
) -> NDArray[np.void]:
    """Publish all of them, and as many for some rounds without a key: what a key costs.

    Returns the ids of those of the rounds that have a key.
    """
    ids = list[PublishedIds]()
    bodies, ratios, cpu_ratios = load.make_bodies(), [], []
    delays = load.spread_delays(pending)
    for at in range(0, pending, _PART):
        part = delays[at : at + _PART]
        if at < _ROUNDS * _PART:
            plain, _ = await _publish_part(node, producer, load.cut_columns(part, bodies))
        work = load.cut_columns(part, bodies)
        for number, columns in enumerate(work):
            first = at + number * load.BATCH
            columns.metas = [
                MessageMeta(keys=(_key(first + one),)) for one in range(len(columns.bodies))
            ]
        keyed, found = await _publish_part(node, producer, work)
        if at < _ROUNDS * _PART:
            ids += found
            ratios.append(keyed.seconds / plain.seconds)
            cpu_ratios.append(keyed.node_cpu_s / max(plain.node_cpu_s, 1e-9))
    name = "publish with a key, against without"
    report.add_median(name, ratios, "x", PUBLISH_TARGET, "time until all is answered")
    report.add_median(f"{name}: node's processor time", cpu_ratios, "x")
    return np.concatenate([one.array for one in ids])


async def _publish_part(
    node: Subject, producer: AsyncProducer, work: Sequence[Columns]
) -> tuple[Span, list[PublishedIds]]:
    with subject.frozen_garbage(), node.span() as span:
        ids = await load.publish_columns(producer, work)
    return span, ids


async def _move_a_range(report: Report, node: Subject) -> None:
    """Bulk moves by filter: all that is due in some minutes."""
    admin = AsyncAdmin(node.channel)
    clock_ms = (await admin.status()).nodes[0].clock_ms
    from_ms = clock_ms + 5 * load.HOUR_MS
    part = {"from_ms": from_ms, "to_ms": from_ms + _RANGE_MINUTES * 60_000}
    count = (await admin.count_pending(load.TOPIC, "*", **part)).matched_count
    with node.span() as span:
        done = await admin.reschedule_pending(
            load.TOPIC, "*", due_ms=clock_ms + 40 * load.HOUR_MS, **part
        )
    if (done.rescheduled_count, done.missed_count) != (count, 0):
        raise RuntimeError(f"{count} were to be moved: {done}")
    report.add("reschedule by filter", count / span.seconds, "messages/s", TARGET, span.cores)


def _key(number: int) -> str:
    return f"order-{number:09d}"


def _report_disk(report: Report, folder: Path, pending: int) -> None:
    files = list(folder.rglob("*.keys"))
    size = sum(file.stat().st_size for file in files)
    report.add("key index on disk", size / pending, "B/key", note=f"{len(files)} runs")


async def _look_up(report: Report, node: Subject, numbers: Sequence[int]) -> None:
    admin = AsyncAdmin(node.channel)
    for name, keys in (
        ("look-up by key", [_key(one) for one in numbers]),
        ("look-up of a key that is not there", [f"none-{one}" for one in numbers]),
    ):
        spans_ms = []
        for key in keys:
            begun = time.perf_counter()
            found = await admin.count_by_key(load.TOPIC, key)
            spans_ms.append(1_000 * (time.perf_counter() - begun))
            if found != key.startswith("order"):
                raise RuntimeError("a look-up found something else")
        p99 = float(np.percentile(spans_ms, 99))
        median = f"median {np.median(spans_ms):.2f} ms"
        report.add(f"{name}, p99", p99, "ms", LOOK_UP_TARGET, median)


async def _cancel(node: Subject, producer: AsyncProducer, numbers: Sequence[int]) -> Span:
    keys = [_key(one) for one in numbers]
    waiting = iter(range(0, len(keys), _TOGETHER))

    async def call() -> None:
        for at in waiting:
            part = keys[at : at + _TOGETHER]
            for one in await producer.cancel_by_keys(load.TOPIC, part):
                if one != (CancelOutcome.CANCELLED, 1):
                    raise RuntimeError("not all were cancelled")

    with subject.frozen_garbage(), node.span() as span:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLERS):
                group.create_task(call())
    return span
