"""A member's key in a stranger's hands: what it has open ends when the member is removed."""

import asyncio
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from hourwheel.client.admin import AsyncAdmin
from hourwheel.v1.consumer_pb2 import ReceiveRequest
from hourwheel.v1.consumer_pb2_grpc import ConsumerServiceStub
from node.config.checks import cluster_nodes
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.api_world import refusal_of
from tests.support.certificates import Authority
from tests.support.eventually import until_told

COUNT: Final = 3
HOSTS: Final = ("localhost", "127.0.0.1")
POLL: Final = ReceiveRequest(group="billing", topic="orders", wait_ms=60_000)
WITHIN_S: Final = 30.0
"""Less than the poll would wait, and far more than the second that is promised."""


async def refusal_of_poll(poll: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await poll
    return refusal_of(caught.value)


async def test_open_forwarded_calls_end_with_the_membership(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shared = authority.issue("nodes", *HOSTS, *(f"node-{number + 1}" for number in range(COUNT)))
    section = {
        "id": "0" * 32,
        "secret_file": "",
        "tls_certificate_file": str(shared.certificate),
        "tls_key_file": str(shared.key),
        "tls_authority_file": str(authority.file),
    }
    values = {"cluster": section, "disk": {"free_bytes_min": 0, "reserve_bytes": 0}}
    async with LocalCluster(tmp_path / "cluster", COUNT, values=values) as cluster:
        master = await cluster.wait_for_master(in_sync=COUNT)
        leaving = cluster.nodes[(master + 1) % COUNT].node_id
        stolen = authority.issue("stolen", leaving)
        credentials = grpc.ssl_channel_credentials(
            *(file.read_bytes() for file in (authority.file, stolen.key, stolen.certificate))
        )
        config = cluster.nodes[master].config
        data = cluster_nodes(config.cluster.nodes)[config.node.id].data
        async with (
            AsyncAdmin(cluster.servers) as admin,
            grpc.aio.secure_channel(data, credentials) as channel,
        ):
            await admin.create_topic("orders")
            receive = ConsumerServiceStub(channel).Receive
            poll = receive(POLL)

            async def has_group() -> bool:
                return "billing" in {one.name for one in await admin.groups()}

            await until_told(has_group)
            assert not poll.done()
            await admin.change_members({}, [leaving])
            refusal = await asyncio.wait_for(refusal_of_poll(poll), WITHIN_S)
            assert refusal.reason == "PEER_REFUSED"
            assert refusal.message == "the node has left the cluster"
            refusal = await asyncio.wait_for(refusal_of_poll(receive(POLL)), WITHIN_S)
            assert refusal.message == "the certificate names no node of this cluster"
