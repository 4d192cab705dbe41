"""Three nodes whose certificates are replaced while they serve, and then their authority."""

import asyncio
import json
import re
import ssl
import urllib.request
from pathlib import Path
from typing import Any, Final

import trustme

from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from node.config.checks import cluster_nodes, split_address
from node.tools.local_cluster.nodes import LocalCluster
from tests.support.eventually import until_told

COUNT: Final = 3
NAMES: Final = ("node-1", "node-2", "node-3", "127.0.0.1")
REFUSED: Final = re.compile(r"^hourwheel_cluster_tls_files_refused 1", re.MULTILINE)


class Certificates:
    """The files of all nodes: one certificate has the names of all of them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.authority = (folder / one for one in ("crt", "key", "ca"))

    @property
    def section(self) -> dict[str, Any]:
        return {
            "id": "0" * 32,  # else it is made of the authority, which changes
            "secret_file": "",
            "tls_certificate_file": str(self.certificate),
            "tls_key_file": str(self.key),
            "tls_authority_file": str(self.authority),
        }

    def trust(self, *authorities: trustme.CA) -> None:
        self._put(self.authority, b"".join(one.cert_pem.bytes() for one in authorities))

    def show(self, authority: trustme.CA) -> bytes:
        """Put a new certificate in place, as it is on the wire."""
        issued = authority.issue_cert(*NAMES)
        pem = issued.cert_chain_pems[0].bytes()
        self._put(self.key, issued.private_key_pem.bytes())
        self._put(self.certificate, pem)
        return ssl.PEM_cert_to_DER_cert(pem.decode())

    @staticmethod
    def _put(path: Path, content: bytes) -> None:
        beside = path.with_suffix(".new")
        beside.write_bytes(content)
        beside.replace(path)


def shown(address: str) -> bytes:
    """The certificate that a node shows to who connects now."""
    return ssl.PEM_cert_to_DER_cert(
        ssl.get_server_certificate(split_address("address", address), timeout=10)
    )


class World:
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        nodes = cluster_nodes(cluster.nodes[0].config.cluster.nodes).values()
        self.ports = [port for one in nodes for port in (one.data, one.control)]

    async def show_everywhere(self, certificate: bytes) -> bool:
        found = await asyncio.gather(*(asyncio.to_thread(shown, one) for one in self.ports))
        return {*found} == {certificate}

    def told(self, event: str) -> list[int]:
        """How often each broker, and each control process, has said so."""
        found = []
        for node in self.cluster.nodes:
            lines = [json.loads(one) for one in node.log_file.read_text().splitlines()]
            of_control = [one.get("process") for one in lines if one["event"] == event]
            found += [of_control.count(None), of_control.count("control")]
        return found

    async def all_say(self, event: str, before: list[int]) -> bool:
        """Whether each of them has said so once more."""
        return all(now > then for now, then in zip(self.told(event), before, strict=True))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


async def test_cluster_goes_on_when_its_certificates_and_their_authority_change(
    tmp_path: Path,
) -> None:
    old, new = trustme.CA(), trustme.CA()
    files = Certificates(tmp_path)
    files.trust(old)
    first = files.show(old)
    values = {
        "cluster": files.section,
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
        "telemetry": {"log_format": "json"},
    }
    async with LocalCluster(tmp_path / "cluster", COUNT, values=values) as cluster:
        world = World(cluster)
        _, shard = await cluster.wait_for_shard(in_sync=COUNT)
        async with (
            AsyncProducer(cluster.servers) as producer,
            AsyncConsumer(cluster.servers, group="g", topic="t") as consumer,
        ):
            await producer.publish("t", Message(b"old"))
            assert await world.show_everywhere(first)
            second = files.show(old)
            await until_told(lambda: world.show_everywhere(second))

            files.key.write_text("nonsense")
            await until_told(lambda: world.all_say("access_files_refused", [0] * 2 * COUNT))
            for node in cluster.nodes:
                told = await asyncio.to_thread(read, f"http://{node.metrics_address}/metrics")
                assert REFUSED.search(told)
            assert await world.show_everywhere(second)

            files.trust(old, new)
            third = files.show(new)  # at once: each is looked at when it is there
            await until_told(lambda: world.show_everywhere(third))
            before = world.told("access_files_read")
            files.trust(new)
            await until_told(lambda: world.all_say("access_files_read", before))
            await producer.publish("t", Message(b"new"))
            _, same = await cluster.wait_for_shard(in_sync=COUNT)
            assert same.epoch == shard.epoch  # nobody was missed

            # The one that all dial, and the one that dials all: all others run as they did.
            for index in (0, COUNT - 1):
                await cluster.stop_node(index)
                await cluster.start_node(index)
                await cluster.wait_for_master(in_sync=COUNT)
            assert await world.show_everywhere(third)
            await producer.publish("t", Message(b"restarted"))
            bodies = set()
            while len(bodies) < 3:
                for message in await consumer.receive(wait_ms=60_000):
                    bodies.add(message.body)
                    await consumer.ack(message)
            assert bodies == {b"old", b"new", b"restarted"}
