"""Publishing in bulk: messages per second, acknowledged when they are durable."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size
from tests.bench.subject import Subject

TARGET = at_least(330_000)


async def run(size: Size, folder: Path) -> Report:
    """Three ways to publish the same messages, one after the other, on one node."""
    count = size.pick(5_000, 200_000, 1_000_000)
    repetitions = size.pick(1, 3, 5)
    report = Report(
        [
            f"{repetitions} x {count:,} messages of {load.BODY_BYTES} bytes, due over 24 hours",
            f"batches of {load.BATCH:,}, {load.CALLERS} tasks, one producer, one connection",
            "durable: each is acknowledged after fdatasync; idempotent",
            "a child process serves; warm-up before; client: live objects frozen for the collector",
            "a repetition ends with its last acknowledgement; background work of the node goes on",
        ]
    )
    delays, bodies = load.spread_delays(count), load.make_bodies()
    work = load.cut_columns(delays, bodies)

    async def columns(_: Subject, producer: AsyncProducer) -> None:
        await load.publish_columns(producer, work)

    async def objects(_: Subject, producer: AsyncProducer) -> None:
        await load.publish_objects(producer, delays, bodies)

    prebuilt = load.prebuild(work[:50])

    async def raw(node: Subject, _: AsyncProducer) -> None:
        await load.write_prebuilt(node.channel, prebuilt, len(work))

    async with (
        subject.running(folder / "publish") as node,
        AsyncProducer(node.channel) as producer,
    ):
        await _warm_up(producer, size)
        for name, way, target in (
            ("columns, AsyncProducer.publish_batch", columns, TARGET),
            ("Message objects made and published, publish_many", objects, TARGET),
            ("batches built before: the node's own limit", raw, None),
        ):
            if size is not Size.TINY:
                await node.settle()
            speeds, note = await _repeat(node, producer, way, repetitions, count)
            report.add_median(name, speeds, "msg/s", target, note)
    return report


async def _warm_up(producer: AsyncProducer, size: Size) -> None:
    few = load.spread_delays(size.pick(1_000, 20_000, 100_000))
    await load.publish_columns(producer, load.cut_columns(few, load.make_bodies()))


async def _repeat(
    node: Subject,
    producer: AsyncProducer,
    way: Callable[[Subject, AsyncProducer], Awaitable[None]],
    repetitions: int,
    count: int,
) -> tuple[list[float], str]:
    """Messages per second of each repetition, and what was seen."""
    speeds, busy = [], []
    before = await node.commits()
    published = (await node.status()).published_count
    for _ in range(repetitions):
        with subject.frozen_garbage(), node.span() as span:
            await way(node, producer)
        speeds.append(count / span.seconds)
        busy.append(span)
    after = await node.commits()
    arrived = (await node.status()).published_count - published
    if arrived != count * repetitions:
        raise RuntimeError(f"{arrived} messages were published, not {count * repetitions}")
    syncs = after.syncs - before.syncs
    middle = busy[speeds.index(sorted(speeds)[len(speeds) // 2])]
    return speeds, (
        f"{syncs} fsyncs of {1e3 * (after.sync_s - before.sync_s) / max(1, syncs):.2f} ms, "
        f"{(after.batches - before.batches) / max(1, syncs):.1f} batches each; {middle.cores}"
    )
