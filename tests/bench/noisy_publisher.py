"""Publishes as fast as it is let: python -m tests.bench.noisy_publisher SERVERS CA.

Its name and secret come on standard input, as `name:secret`. It says `ready` when it begins, and
goes on until its input ends.
"""

import asyncio
import sys
from pathlib import Path

from hourwheel import errors
from hourwheel.client.batch_builder import Columns
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.access import Tls
from tests.bench import load


async def main(servers: str, authority: str) -> None:
    """Publish until nobody wants it any more."""
    name, _, secret = sys.stdin.readline().strip().partition(":")
    work = load.cut_columns(load.spread_delays(load.BATCH), load.make_bodies())
    over = asyncio.ensure_future(asyncio.to_thread(sys.stdin.readline))
    tls = Tls(ca=Path(authority))
    async with AsyncProducer(servers, tls=tls, user=(name, secret)) as producer:
        tasks = [asyncio.ensure_future(_publish(producer, work)) for _ in range(load.CALLERS)]
        print("ready", flush=True)
        await over
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _publish(producer: AsyncProducer, work: list[Columns]) -> None:
    while True:
        try:
            await producer.publish_batch(load.TOPIC, work[0])
        except errors.ResourceExhausted:
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
