"""Listing and cancelling what is pending, while the master of three real nodes is killed."""

from pathlib import Path
from typing import Final

from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from node.tools.local_cluster.nodes import LocalCluster

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
HOUR_MS: Final = 3_600_000


async def test_pages_go_on_when_the_master_is_killed_between_them(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        async with AsyncProducer(cluster.servers) as producer, AsyncAdmin(cluster.servers) as admin:
            messages = [
                Message(b"%d" % number, delay_ms=HOUR_MS + number, tags=["ab"[number % 2]])
                for number in range(40)
            ]
            ids = await producer.publish_many("orders", messages)
            found = []
            async for message in admin.list_pending("orders", "a", page_size=5):
                found.append(message.message_id)
                if len(found) == 7:
                    await cluster.kill_node(master)
            assert found == list(ids)[::2]
            done = await admin.cancel_pending("orders", "b")
            assert (done.cancelled_count, done.already_released_count) == (20, 0)
            assert await admin.cancel_many(list(ids)[1::2]) == [CancelOutcome.CANCELLED] * 20
            # Any node answers: one that is not the master passes it on for other clients, and says
            # who is to ours.
            for index, node in enumerate(cluster.nodes):
                if index != master:
                    async with AsyncAdmin(node.address) as other:
                        assert (await other.count_pending("orders")).matched_count == 20
