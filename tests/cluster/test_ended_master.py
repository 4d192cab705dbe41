"""A master whose process ends: the next one serves at once, however long the lease would last."""

import os
import signal
from pathlib import Path
from typing import Final

from hourwheel import AsyncConsumer, AsyncProducer, Message
from node.tools.local_cluster.nodes import LocalCluster

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
LEASE_MS: Final = 60_000
"""Nobody here waits for so long."""


async def test_next_master_serves_within_the_lease_when_the_former_process_has_ended(
    tmp_path: Path,
) -> None:
    values = {**SMALL, "cluster": {"lease_ms": LEASE_MS}}
    async with LocalCluster(tmp_path, values=values) as cluster:
        former = await cluster.wait_for_master(in_sync=3)
        async with AsyncProducer(cluster.servers) as producer:
            await producer.publish("orders", Message(b"before", delay_ms=1))
            os.kill(cluster.nodes[former].pid, signal.SIGKILL)  # its control process lives
            await cluster.kill_node(former)
            await producer.publish("orders", Message(b"after", delay_ms=1))
        assert await cluster.wait_for_master(timeout_s=LEASE_MS / 2_000) != former
        async with AsyncConsumer(cluster.servers, group="all", topic="orders") as consumer:
            found = [message.body for _ in range(2) for message in await consumer.receive(1)]
        assert sorted(found) == [b"after", b"before"]
