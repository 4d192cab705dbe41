"""One flipped bit on the master of three real nodes: the group gets the message, from a peer."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from node.tools.inspect.command import main as inspect
from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from tests.support.stored import SHARD

SMALL: Final = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}, "node": {"metrics_listen": ""}}
_HANG_S: Final = 120.0


def files_of(node: LocalNode, pattern: str) -> list[Path]:
    """Files of a node's shard."""
    return sorted((node.config.node.data_directory / SHARD).glob(pattern))


def flip_body(node: LocalNode, body: bytes, pattern: str) -> Path:
    """Flip a bit of a body where it lies in a running node's files."""
    for path in files_of(node, pattern):
        at = path.read_bytes().find(body)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes((body[0] ^ 1,)))
            return path
    raise AssertionError(f"{body!r} is nowhere in {pattern}")


def is_whole(node: LocalNode) -> bool:
    """Whether `inspect --verify` finds nothing."""
    return inspect(["--verify", "--json", str(node.config.node.data_directory)]) == 0


@pytest.mark.parametrize("with_retry", [False, True], ids=["first", "retry"])
async def test_I8_message_is_delivered_when_a_bit_of_the_masters_log_flips(  # noqa: N802
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, with_retry: bool
) -> None:
    async with LocalCluster(tmp_path, values=SMALL) as cluster:
        master = await cluster.wait_for_master(in_sync=3)
        node = cluster.nodes[master]
        bodies = [b"the body of message number %d" % number for number in range(10)]
        async with (
            AsyncProducer(cluster.servers) as producer,
            AsyncAdmin(cluster.servers) as admin,
            AsyncConsumer(
                cluster.servers, group="workers", topic="orders", prefetch_messages=0
            ) as consumer,
        ):
            delay_ms = 0 if with_retry else 2_000
            drafts = [Message(one, delay_ms=delay_ms) for one in bodies]
            ids = await producer.publish_many("orders", drafts)
            if with_retry:
                seen: set[bytes] = set()
                while len(seen) < len(bodies):
                    messages = await consumer.receive(100, wait_ms=1_000)
                    await consumer.nack(messages, delay_ms=1_000)
                    seen |= {one.body for one in messages}
            for number in (3, 4, 9):
                flip_body(node, bodies[number], "log/*.log")
            found: list[bytes] = []
            async with asyncio.timeout(_HANG_S):
                while len(found) < len(bodies):
                    messages = await consumer.receive(100, wait_ms=1_000)
                    found += [one.body for one in messages]
                    await consumer.ack(messages)
            assert sorted(found) == bodies
            assert await cluster.wait_for_master() == master, "it need not step down"
            (lag,) = (await admin.get_group("workers")).lags
            assert lag.unresolved_count == 0
            assert not await admin.list_damaged()
            assert (await admin.describe(ids[3])).is_damaged is False
            async with asyncio.timeout(_HANG_S):
                while not is_whole(node):
                    await producer.publish("others", Message(b""))
    assert is_whole(node)
    capsys.readouterr()
