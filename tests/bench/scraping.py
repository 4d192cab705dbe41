"""Scraping: what it costs a node to be asked for its metrics."""

import asyncio
from pathlib import Path

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.producer import AsyncProducer
from tests.bench import load, subject
from tests.bench.results import Report, below
from tests.bench.sizes import Size

_NAMES_TARGET = below(50)
_SCRAPE_TARGET = below(20)
_ANY = "hourwheel_wheel_pending_messages"


async def run(size: Size, folder: Path) -> Report:
    """Processor time of a scrape with few names and with many."""
    count = size.pick(10, 1_000, 10_000)
    scrapes = size.pick(3, 50, 200)
    report = Report(
        [
            f"a node alone, {size.pick(2_000, 200_000, 1_000_000):,} messages pending",
            f"user and system time of the node's process over {scrapes} scrapes in a row",
            "less what it takes in the same time without",
        ]
    )
    limits = {"limits": {"topics": 2 * count, "groups": 2 * count, "subscriptions": 4 * count}}
    async with subject.running(folder / "scraping", limits) as node:
        async with AsyncProducer(node.channel) as producer:
            pending = size.pick(2_000, 200_000, 1_000_000)
            work = load.cut_columns(load.spread_delays(pending), load.make_bodies())
            await load.publish_columns(producer, work)
        if size is not Size.TINY:
            await node.settle()
        few_ms = await _cost_ms(node, scrapes)
        report.add("one scrape, one topic", few_ms, "ms CPU", _SCRAPE_TARGET)
        async with AsyncAdmin(node.channel) as admin:
            for number in range(count):
                await admin.put_subscription(f"group-{number}", f"topic-{number}")
        many_ms = await _cost_ms(node, scrapes)
        note = f"{count:,} topics, groups and subscriptions"
        report.add("one scrape, many names", many_ms, "ms CPU", _NAMES_TARGET, note)
    return report


async def _cost_ms(node: subject.Subject, scrapes: int) -> float:
    """Of one scrape."""
    await node.metric(_ANY)
    with node.span() as busy:
        for _ in range(scrapes):
            await node.metric(_ANY)
    with node.span() as quiet:
        await asyncio.sleep(busy.seconds)
    return max(0.0, busy.node_cpu_s - quiet.node_cpu_s) / scrapes * 1_000
