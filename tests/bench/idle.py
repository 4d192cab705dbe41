"""Idle: what a node costs while nothing is due."""

import asyncio
from pathlib import Path

from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, below
from tests.bench.sizes import Size

TARGET = below(2)


async def run(size: Size, folder: Path) -> Report:
    """CPU of a node with many messages pending, none of them near; alone, then with a consumer."""
    count = size.pick(2_000, 200_000, 1_000_000)
    seconds = size.pick(0.5, 10, 20)
    report = Report(
        [
            f"{count:,} messages pending, due in 1 to 25 hours; background work is over",
            f"user and system time of the node's process over {seconds} s, in % of one core",
        ]
    )
    async with subject.running(folder / "idle") as node:
        async with AsyncProducer(node.channel) as producer:
            work = load.cut_columns(load.spread_delays(count), load.make_bodies())
            await load.publish_columns(producer, work)
        settled_s = await node.settle() if size is not Size.TINY else 0.0
        with node.span() as alone:
            await asyncio.sleep(seconds)
        async with AsyncConsumer(node.channel, group="idle", topic=load.TOPIC) as consumer:
            waiting = asyncio.create_task(consumer.receive(wait_ms=600_000))
            await asyncio.sleep(0.2)
            with node.span() as waited:
                await asyncio.sleep(seconds)
            waiting.cancel()
            await asyncio.wait([waiting])
    note = f"quiet {settled_s:.1f} s after publishing"
    report.add("nothing due", alone.node_cpu_s / alone.seconds * 100, "% CPU", TARGET, note)
    report.add(
        "nothing due, one consumer waiting",
        waited.node_cpu_s / waited.seconds * 100,
        "% CPU",
        TARGET,
    )
    return report
