"""Strangers at the ports that nodes have for each other: the cluster goes on, and stays small.

With a secret and with certificates. Where there are certificates a stranger may have one of the
cluster's authority, too, that names no node.
"""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import pytest

from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from node.config.checks import cluster_nodes
from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from tests.support.certificates import Authority, Files
from tests.support.hostile_peers import AT_CONTROL, AT_DATA, Port
from tests.support.memory_bound import resident_bytes

GROWTH_BYTES: Final = 96 << 20
"""Of a broker, and of a control process, by all attacks together."""
NAMES: Final = ("node-1", "node-2", "node-3", "127.0.0.1", "localhost")
SERVED_S: Final = 0.02
"""Between two calls of others, while an attack goes on."""


class World(NamedTuple):
    cluster: LocalCluster
    producer: AsyncProducer
    node: LocalNode
    """Whose ports strangers come to: the master."""
    base_bytes: dict[int, int]
    """Of its processes, by id."""

    async def attack(self, run: Callable[[Port], None], port: Port) -> None:
        """Others are served while it goes on, and neither process grows."""
        running, served = asyncio.ensure_future(asyncio.to_thread(run, port)), 0
        while not running.done() or not served:
            async with asyncio.timeout(60):
                await self.producer.publish("orders", Message(b"x", delay_ms=3_600_000))
            served += 1
            await asyncio.wait([running], timeout=SERVED_S)
            for pid, base_bytes in self.base_bytes.items():
                assert resident_bytes(pid) < base_bytes + GROWTH_BYTES
        await running

    def told(self) -> Counter[str]:
        """How often the node and its control process have said what."""
        lines = self.node.log_file.read_text().splitlines()
        return Counter(json.loads(line)["event"] for line in lines)


def processes_of(node: LocalNode) -> set[int]:
    """A broker and its control process: whoever has files of its directory open."""
    directory, found = str(node.config.node.data_directory), set()
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it is gone again
            if str(opened.readlink()).startswith(directory):
                found.add(int(opened.parts[2]))
    return found


def tls(files: Files | None, authority: Authority) -> ssl.SSLContext:
    """Of a stranger, who takes every server for the right one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    return context


def section_of(authority: Authority) -> dict[str, Any]:
    """The nodes' section `cluster`: one certificate has the names of all of them."""
    files = authority.issue("nodes", *NAMES)
    return {
        "id": "0" * 32,
        "secret_file": "",
        "tls_certificate_file": str(files.certificate),
        "tls_key_file": str(files.key),
        "tls_authority_file": str(authority.file),
    }


@pytest.fixture(params=["secret", "certificates"])
def trust(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, Any], Port]:
    """(section `cluster`, with what strangers come)."""
    bomb = tmp_path / "bomb"
    if request.param == "secret":
        return {"id": "0" * 32}, Port("", bomb, (None,))
    own, other = Authority(tmp_path), Authority(tmp_path, "other")
    known = own.issue("client", "client", "localhost")
    foreign = other.issue("foreign", "node-2", "localhost")
    nobodies = (None, tls(None, other), tls(foreign, other))
    credentials = grpc.ssl_channel_credentials(
        own.file.read_bytes(), known.key.read_bytes(), known.certificate.read_bytes()
    )
    return section_of(own), Port("", bomb, nobodies, tls(known, own), credentials)


@pytest.fixture
async def world(trust: tuple[dict[str, Any], Port], tmp_path: Path) -> AsyncIterator[World]:
    values = {
        "cluster": trust[0],
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "telemetry": {"log_format": "json"},
    }
    async with (
        LocalCluster(tmp_path / "cluster", values=values) as cluster,
        AsyncProducer(cluster.servers) as producer,
    ):
        node = cluster.nodes[await cluster.wait_for_master(in_sync=3)]
        await producer.publish("orders", Message(b"x", delay_ms=3_600_000))
        pids = processes_of(node)
        assert len(pids) == 2, "a broker, and its control process"
        yield World(cluster, producer, node, {pid: resident_bytes(pid) for pid in pids})


async def test_peers_are_not_worn_out(world: World, trust: tuple[dict[str, Any], Port]) -> None:
    port, addresses = trust[1], cluster_nodes(world.node.config.cluster.nodes)[world.node.node_id]
    for attack in AT_CONTROL:
        await world.attack(attack, port._replace(address=addresses.control))
    for attack in AT_DATA:
        await world.attack(attack, port._replace(address=addresses.data))
    assert not port.bomb.exists()
    # Nodes are let in as before.
    follower = (world.cluster.nodes.index(world.node) + 1) % 3
    await world.cluster.kill_node(follower)
    await world.cluster.start_node(follower)
    await world.cluster.wait_for_master(in_sync=3)
    told = world.told()
    assert told["raft_connection_cut"]
    assert told["peer_call_refused"]
