"""Three nodes whose disks are full to the last byte: nobody dies, and what can be done is done."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from chaos.cluster import Cluster
from chaos.faults import fill_disk
from chaos.machine import Tmpfs, can_mount, tmpfs
from chaos.network import Loopback
from chaos.node_process import NodeProcess, members_of
from hourwheel import AsyncConsumer, AsyncProducer, Columns, Message, MessageId, errors
from node.broker.disk_guard import RESERVE
from tests.support.eventually import until, until_told
from tests.support.reaper import complaints_of, say

NAMES: Final = ("n1", "n2", "n3")
MIB: Final = 1 << 20
ROOM_MIB: Final = 48
SMALL_DISK: Final = {"free_bytes_min": 4 * MIB, "reserve_bytes": 2 * MIB}
SOON_MS: Final = 3_000
LATE_MS: Final = 9_000
FAR_MS: Final = 3_600_000
COUNT: Final = 200
FAR_COUNT: Final = 1_000
FULL: Final = {
    *("publishes_refused", "shard_waits_for_room", "control_disk_full", "control_start_no_room"),
}
"""What nodes complain of while their disks are full."""


@contextmanager
def small_disks(cluster: Cluster) -> Iterator[dict[str, Tmpfs]]:
    with ExitStack() as stack:
        rooms = {}
        for name, node in cluster.nodes.items():
            node.folder.mkdir(parents=True)
            rooms[name] = stack.enter_context(tmpfs(node.folder / "small", ROOM_MIB))
            node.disk = rooms[name].path / "data"
        yield rooms


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder / "cluster", Loopback(NAMES), NAMES, values={"disk": SMALL_DISK})
    with small_disks(cluster):
        async with cluster:
            yield cluster


def processes(cluster: Cluster) -> dict[str, list[int]]:
    return {name: sorted(members_of(node.mark)) for name, node in cluster.nodes.items()}


async def publish(producer: AsyncProducer, name: str, delay_ms: int) -> set[bytes]:
    bodies = [f"{name} {number}".encode() for number in range(COUNT)]
    await producer.publish_batch("orders", Columns(bodies=bodies, delay_ms=[delay_ms] * COUNT))
    return set(bodies)


async def take(consumer: AsyncConsumer, expected: set[bytes]) -> None:
    missing = set(expected)
    while missing:
        messages = await consumer.receive(100)
        missing -= {bytes(one.body) for one in messages}
        await consumer.ack(messages)


async def refused(cluster: Cluster) -> None:
    await cluster.refusing()
    async with AsyncProducer(cluster.servers, delivery_timeout_ms=3_000) as producer:
        with pytest.raises(errors.DiskFull):
            await _fill_up(producer)


async def _fill_up(producer: AsyncProducer) -> None:
    """The last block of a file may have room for some. Who finds none there steps down."""
    while True:
        with contextlib.suppress(errors.Timeout):  # the next master has to say it
            await producer.publish("orders", Message(bytes(4_000)))


def fill(cluster: Cluster) -> list[Path]:
    return [fill_disk(node.data) for node in cluster.nodes.values()]


def empty(ballasts: list[Path]) -> None:
    for ballast in ballasts:
        ballast.unlink()


async def cancel_in_turn(cluster: Cluster, ids: Sequence[MessageId]) -> None:
    """Each leaves a record, and the last block of a file has room for some only."""
    async with AsyncProducer(cluster.servers) as producer:
        for one in ids:
            with contextlib.suppress(errors.HourwheelError):
                await producer.cancel(one)


async def kill_broker(cluster: Cluster) -> NodeProcess:
    """Of the master; another one leads when this returns, and the node serves again."""
    master, epoch = await cluster.master(), cluster.epoch()
    await master.kill(whole=False)
    await cluster.master(after_epoch=epoch)
    await master.start()
    return master


def others(told: dict[str, list[int]], killed: NodeProcess) -> dict[str, list[int]]:
    return {name: pids for name, pids in told.items() if name != killed.node_id}


def check_logs(cluster: Cluster) -> None:
    """Nobody has said anything but that the disk is full."""
    assert cluster.deaths == []
    for node in cluster.nodes.values():
        said = {one["event"] for one in complaints_of(node.log)}
        assert said <= FULL
        assert not [one for one in node.read_log() if "raw" in one or "exception" in one]


async def test_nobody_dies_and_the_durable_is_delivered_when_all_disks_are_full(
    tmp_path: Path,
) -> None:
    if not can_mount():
        say("not on full file systems: this machine cannot mount one")
        return
    async with running(tmp_path) as cluster:
        async with AsyncProducer(cluster.servers) as producer:
            soon = await publish(producer, "soon", SOON_MS)
            late = await publish(producer, "late", LATE_MS)
        before = processes(cluster)
        ballasts = fill(cluster)
        async with AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer:
            await refused(cluster)
            await take(consumer, soon)
            assert processes(cluster) == before
            killed = await kill_broker(cluster)
            await take(consumer, late)
            await refused(cluster)
            after = processes(cluster)
            assert others(after, killed) == others(before, killed)
            empty(ballasts)
            async with AsyncProducer(cluster.servers) as producer:
                await take(consumer, await publish(producer, "again", 0))
        await cluster.quiet()
        assert processes(cluster) == after
    check_logs(cluster)


async def test_nobody_dies_when_what_is_given_up_is_taken_by_others_too(tmp_path: Path) -> None:
    """No byte is left, and most reserves are gone: nothing can be delivered. All wait for room."""
    if not can_mount():
        say("not on full file systems: this machine cannot mount one")
        return
    async with running(tmp_path) as cluster:
        async with AsyncProducer(cluster.servers) as producer:
            due = await publish(producer, "due", SOON_MS)
            far = Columns(bodies=[b"far"] * FAR_COUNT, delay_ms=[FAR_MS] * FAR_COUNT)
            ids = await producer.publish_batch("orders", far)
        before = processes(cluster)
        ballasts = fill(cluster)
        nodes = list(cluster.nodes.values())

        async def greedy() -> None:
            while True:
                fill(cluster)
                await asyncio.sleep(0)

        filling = asyncio.create_task(greedy())
        writing = asyncio.create_task(cancel_in_turn(cluster, ids))
        try:
            # The third has nothing to write where the two cannot: it may keep what it has.
            await until(lambda: sum((node.data / RESERVE).exists() for node in nodes) <= 1)
            # Whoever leads the control plane dies; the other two have a vote each, and a journal.
            killed = cluster.nodes[await cluster.find_raft_leader()]
            await killed.kill()

            async def has_a_successor() -> bool:
                return await cluster.find_raft_leader() != killed.node_id

            await until_told(has_a_successor)
            await killed.spawn()  # it serves when there is room
        finally:
            filling.cancel()
            writing.cancel()
            await asyncio.gather(filling, writing, return_exceptions=True)
        assert others(processes(cluster), killed) == others(before, killed)
        empty(ballasts)
        await killed.ready()
        after = processes(cluster)
        async with AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer:
            await take(consumer, due)
            async with AsyncProducer(cluster.servers) as producer:
                await take(consumer, await publish(producer, "again", 0))
        await cluster.quiet()
        assert processes(cluster) == after
    check_logs(cluster)
