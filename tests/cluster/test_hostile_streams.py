"""What a node takes of memory while strangers send large batches and read no answers: a bound that
docs/LIMITS.md has as a formula; and that it gives the memory back.

`make soak` sends more, from more streams.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from hourwheel import AsyncProducer, Message
from hourwheel.v1.admin_pb2 import ListPendingRequest
from node.config.model import NodeConfig
from node.tools.local_cluster.nodes import LocalCluster
from tests.bench import subject
from tests.support.eventually import before_the_next_look, until
from tests.support.memory_bound import BASE_BYTES, bound_bytes, resident_bytes
from tests.support.raw_http2 import unread_calls

IS_SOAK: Final = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
TREE: Final = Path(__file__).resolve().parents[2]
STREAMS: Final = 120 if IS_SOAK else 24
CALLS: Final = 500 if IS_SOAK else 60
"""At one time; some thousands until the end."""
UNREAD_PAGES: Final = 100
"""Of 8 MB each."""
BATCHES: Final = 2_000 if IS_SOAK else 24
BODY_BYTES: Final = 4_000_000
VALUES: Final[dict[str, Any]] = {
    "disk": {"free_bytes_min": 0},
    "limits": {
        "publish_streams": 8,
        "sessions": 8,
        "bytes_in_flight": 64 << 20,
        "answer_bytes": 64 << 20,
        "long_polls": 64,
        "requests_in_flight": 64,
    },
}
BOUND_BYTES: Final = bound_bytes(NodeConfig.of(VALUES).limits)


@asynccontextmanager
async def flood(address: str, calls: int = 0) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.hostile_streams"),
        *(address, str(STREAMS), str(calls), str(BODY_BYTES)),
        cwd=TREE,
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def batches_logged(directory: Path) -> int:
    """How far the flood is: in the largest of the logs. No call, which would wait behind it."""
    logged = Counter[Path]()
    for path in directory.rglob("*.log"):
        logged[path.parent] += path.stat().st_size
    return max(logged.values()) // BODY_BYTES


async def test_memory_is_bounded_when_streams_send_much_and_read_nothing(tmp_path: Path) -> None:
    async with subject.running(tmp_path / "data", VALUES) as node:
        async with flood(node.child.address, CALLS):
            while batches_logged(tmp_path) < BATCHES:
                assert resident_bytes(node.pid) <= BOUND_BYTES
                await before_the_next_look()
        # And then it goes back, and others are served.
        await until(lambda: resident_bytes(node.pid) <= BASE_BYTES // 2)
        async with AsyncProducer(node.channel) as producer:
            await producer.publish("orders", Message(b"x"))


async def test_memory_is_bounded_when_pages_are_asked_for_and_not_read(tmp_path: Path) -> None:
    """At the master, and at a follower that passes the calls on; others are served meanwhile."""
    values = {**VALUES, "node": {"metrics_listen": ""}}
    allowed = NodeConfig.of(values).limits.answer_bytes
    request = ListPendingRequest(topic="orders", with_bodies=True).SerializeToString()
    path = b"/hourwheel.v1.AdminService/ListPending"
    async with LocalCluster(tmp_path, values=values) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        bodies = [Message(os.urandom(500_000), delay_ms=3_600_000) for _ in range(16)]
        async with AsyncProducer(cluster.servers) as producer:
            await producer.publish_many("orders", bodies)
            nodes = (cluster.nodes[(master + 1) % 3], cluster.nodes[master])
            before = {node: resident_bytes(node.pid) for node in nodes}
            for node in nodes:
                with unread_calls(node.address, path, request, UNREAD_PAGES):
                    largest = 0
                    for number in range(20):
                        await producer.publish("orders", Message(b"%d" % number))
                        largest = max(largest, resident_bytes(node.pid) - before[node])
                        await before_the_next_look()
                    assert largest <= allowed * 3 // 2


async def test_memory_is_bounded_when_a_follower_passes_a_flood_on(tmp_path: Path) -> None:
    """Streams and unary calls; of the follower, and of the master behind it."""
    values = {**VALUES, "node": {"metrics_listen": ""}}
    async with LocalCluster(tmp_path, values=values) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        nodes = [cluster.nodes[(master + 1) % 3], cluster.nodes[master]]
        async with flood(nodes[0].address, CALLS):
            while batches_logged(tmp_path) < BATCHES:
                for node in nodes:
                    assert resident_bytes(node.pid) <= BOUND_BYTES
                await before_the_next_look()
        for node in nodes:
            await until(lambda node=node: resident_bytes(node.pid) <= BASE_BYTES // 2)
        async with AsyncProducer(cluster.servers) as producer:
            await producer.publish("orders", Message(b"x"))
