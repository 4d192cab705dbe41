"""Messages due in some milliseconds, to consumers that wait for each: none may miss its wake-up."""

import asyncio
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import load, stalls, subject
from tests.bench.results import Report, at_least, at_most
from tests.bench.sizes import Size

MAX_TARGET = at_most(100)
NODES: Final = 3
DELAYS_MS: Final = (3, 8)
PRODUCERS: Final = 4
_SILENCE_MS: Final = 15_000.0
"""A poll: far longer than what is promised, so that one that was missed shows."""
_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


async def run(size: Size, folder: Path) -> Report:
    """The same on one node and on three."""
    count = size.pick(40, 1_000, 10_000)
    report = Report(
        [
            (
                f"{count:,} messages, each published by itself, {DELAYS_MS[0]}-{DELAYS_MS[1]} ms "
                f"ahead, by {PRODUCERS} tasks that each wait for their message to arrive"
            ),
            (
                f"{PRODUCERS} topics, so that nothing else happens on most; on each two consumers "
                "of two groups wait, without prefetching, and acknowledge at once"
            ),
            "lateness: `receive` returns minus due time, by the clock of one machine",
            f"a message that nobody was woken for would be {_SILENCE_MS / 1000:.0f} s late",
            "client: garbage collector off while measuring; publish and receive in one process",
            "stalls: processes that only sleep woke too late; that of usual priority is taken off",
        ]
    )
    async with subject.running(folder / "alone") as node:
        await _measure(report, "1 node", node.child.address, count)
    async with LocalCluster(folder / "cluster", NODES) as cluster:
        await cluster.wait_for_master(in_sync=NODES)
        await _measure(report, f"{NODES} nodes", cluster.servers, count)
    return report


async def _measure(report: Report, name: str, servers: str, count: int) -> None:
    async with stalls.watched() as stood_still:
        due_ms, arrived_ms = await _deliver(servers, count)
    late_ms = arrived_ms - due_ms
    values = np.percentile(late_ms, _PERCENTILES).tolist()
    for percentile, value in zip(_PERCENTILES, values, strict=True):
        note = f"{len(late_ms):,} deliveries" if percentile == _PERCENTILES[0] else ""
        report.add(f"{name}: p{percentile:g}", value, "ms", None, note)
    report.add(f"{name}: max", float(late_ms.max()), "ms", MAX_TARGET)
    above = late_ms > MAX_TARGET.value
    report.add(f"{name}: later than {MAX_TARGET.value:g} ms", int(above.sum()), "messages")
    rest_ms = late_ms - stalls.overlap_ms(stood_still.usual_ms, due_ms, arrived_ms)
    ours = int((rest_ms > MAX_TARGET.value).sum())
    report.add(f"{name}: of these, without the stalls", ours, "messages", at_most(0))
    whose = "" if stood_still.is_real_time else "no real-time priority: others' work is in it"
    longest_ms = stalls.longest_ms(stood_still.spans_ms)
    report.add(f"{name}: longest stall, real-time priority", longest_ms, "ms", None, whose)
    longest_ms = stalls.longest_ms(stood_still.usual_ms)
    report.add(f"{name}: longest stall, usual priority", longest_ms, "ms")
    report.add(f"{name}: min (never early)", float(late_ms.min()), "ms", at_least(0))


async def _deliver(servers: str, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(due, arrived): float64[2 * count], in ms, of each message for each of its two groups."""
    delays = np.random.default_rng(load.SEED).integers(*DELAYS_MS, count, endpoint=True).tolist()
    async with AsyncProducer(servers) as producer, AsyncAdmin(servers) as admin:
        for number in range(PRODUCERS):
            await admin.create_topic(_topic(number))
        lanes = [
            _Lane(servers, producer, lane, delays[lane::PRODUCERS]) for lane in range(PRODUCERS)
        ]
        await asyncio.gather(*(lane.warm_up() for lane in lanes))
        with subject.frozen_garbage(is_off=True):
            await asyncio.gather(*(lane.run() for lane in lanes))
        await asyncio.gather(*(lane.close() for lane in lanes))
    due_ms, arrived_ms = np.array([pair for lane in lanes for pair in lane.arrivals]).T
    return due_ms, arrived_ms


def _topic(number: int) -> str:
    return f"short-{number}"


class _Lane:
    """One topic: a message after the other, for two groups."""

    def __init__(
        self, servers: str, producer: AsyncProducer, number: int, delays: list[int]
    ) -> None:
        self._topic, self._producer, self._delays = _topic(number), producer, delays
        self._consumers = [
            AsyncConsumer(servers, group=f"group-{one}", topic=self._topic, prefetch_messages=0)
            for one in range(2)
        ]
        self.arrivals: list[tuple[float, float]] = []

    async def warm_up(self) -> None:
        """The topic, the groups and each code path."""
        for _ in range(3):
            await self._one(5)
        self.arrivals.clear()

    async def run(self) -> None:
        """All of them."""
        for delay in self._delays:
            await self._one(delay)

    async def _one(self, delay_ms: int) -> None:
        receiving = [asyncio.create_task(self._receive(one)) for one in self._consumers]
        await self._producer.publish(self._topic, Message(b"x" * 100, delay_ms=delay_ms))
        await asyncio.gather(*receiving)

    async def _receive(self, consumer: AsyncConsumer) -> None:
        while True:
            received = await consumer.receive(1, wait_ms=_SILENCE_MS)
            arrived_ms = time.time_ns() / 1e6
            if received:
                break
        self.arrivals.append((float(received[0].due_ms), arrived_ms))
        await consumer.ack(received)

    async def close(self) -> None:
        """End."""
        for consumer in self._consumers:
            await consumer.close()
