"""The HTTP gateway while the master of three nodes is killed."""

import asyncio
import json
from pathlib import Path
from typing import Any

from hourwheel.gateway.command import Gateway
from hourwheel.gateway.prepared import prepare
from hourwheel.gateway.settings import HttpSection
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.http_world import Answer, fetch

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
PATH = "/v1/topics/orders/messages"
MESSAGES: list[dict[str, Any]] = [
    {"text": "a", "delay": "1h", "keys": ["k"]},
    {"text": "b", "delay": "2h", "keys": ["k"]},
]


async def post(url: str, key: str, body: Any) -> Answer:
    headers = {"content-type": "application/json", "idempotency-key": key}
    return await asyncio.to_thread(fetch, url, "POST", PATH, json.dumps(body).encode(), headers)


async def test_a_call_with_an_idempotency_key_happens_once_though_the_master_is_killed(
    tmp_path: Path,
) -> None:
    """The repeat comes by another gateway, which has seen nothing, and meets another master."""
    async with LocalCluster(tmp_path, 3, values=VALUES) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        section = HttpSection(listen="127.0.0.1:0", call_timeout_ms=60_000)
        gateways = [Gateway(cluster.servers, prepare(section)) for _ in range(2)]
        first, other = (gateway.start() for gateway in gateways)
        try:
            done = await post(first, "order-17", MESSAGES)
            assert done.status == 201
            await cluster.kill_node(master)
            repeats = await asyncio.gather(
                *(post(url, "order-17", MESSAGES) for url in (other, first, other))
            )
            assert [(one.status, one.json) for one in repeats] == [(201, done.json)] * 3
            fewer = await post(other, "order-17", MESSAGES[0])
            assert (fewer.status, fewer.reason) == (422, "IDEMPOTENCY_KEY_REUSED")
            found = await asyncio.to_thread(fetch, other, "GET", f"{PATH}?key=k", None, {})
            listed = {one["id"] for one in found.json["messages"]}
            assert listed == {one["id"] for one in done.json["messages"]}
        finally:
            for gateway in gateways:
                await gateway.stop(0)
