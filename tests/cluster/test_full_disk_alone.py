"""A node alone whose disk is full to the last byte when it starts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from chaos.faults import fill_disk
from chaos.history import body_of
from chaos.machine import can_lose_power, can_mount, power_disk, tmpfs
from hourwheel import AsyncConsumer, AsyncProducer, Columns, Message, errors
from tests.support.eventually import until
from tests.support.faulty_node import FaultyNode
from tests.support.reaper import complaints_of, events_of, say, small_node

MIB: Final = 1 << 20
ROOM_MIB: Final = 64
DISK: Final = {"free_bytes_min": 4 * MIB, "reserve_bytes": 2 * MIB}
BODIES: Final = [body_of(one) + bytes(1 << 10) for one in range(100)]
WAITS: Final = "shard_waits_for_room"


@contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[Path]:
    """A file system of 64 MiB."""
    if kind == "ext4":
        with power_disk(folder, ROOM_MIB) as disk:
            yield disk.path
    else:
        with tmpfs(folder / "mnt", ROOM_MIB) as room:
            yield room.path


def can_have(kind: str) -> bool:
    """Whether this machine lets us mount such a one."""
    found = can_lose_power() if kind == "ext4" else can_mount()
    if not found:
        say(f"not on a full {kind}: this machine cannot mount one")
    return found


async def publish(node: FaultyNode, delay_ms: int) -> None:
    async with AsyncProducer(node.address) as producer:
        delays_ms = [delay_ms] * len(BODIES)
        await producer.publish_batch("orders", Columns(bodies=BODIES, delay_ms=delays_ms))


async def take(node: FaultyNode) -> None:
    """All that was published, once."""
    found: list[bytes] = []
    async with AsyncConsumer(node.address, group="workers", topic="orders") as consumer:
        while len(found) < len(BODIES):
            messages = await consumer.receive(100)
            found += [one.body for one in messages]
            await consumer.ack(messages)
    assert sorted(found) == sorted(BODIES)


async def refused(node: FaultyNode) -> None:
    async with AsyncProducer(node.address, delivery_timeout_ms=3_000) as producer:
        with pytest.raises(errors.DiskFull):
            await producer.publish("orders", Message(bytes(100_000)))


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_node_delivers_from_its_reserve_when_it_starts_on_a_full_disk(
    tmp_path: Path, kind: str
) -> None:
    if not can_have(kind):
        return
    with small_disk(tmp_path, kind) as room:
        log = tmp_path / "node.log"
        node = FaultyNode(room / "data", small_node(disk=DISK), log_file=log)
        async with node:
            await publish(node, 3_000)
        ballast = fill_disk(room)
        async with node:
            await refused(node)
            await take(node)
            await refused(node)
            ballast.unlink()
            await until(lambda: "publishes_accepted" in [one["event"] for one in events_of(log)])
            await publish(node, 0)
            await take(node)
    assert {one.get("error_type") for one in complaints_of(log)} <= {None, "DiskFull"}


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_node_waits_for_room_when_it_has_no_reserve_left_either(
    tmp_path: Path, kind: str
) -> None:
    if not can_have(kind):
        return
    with small_disk(tmp_path, kind) as room:
        log = tmp_path / "node.log"
        # Whatever comes next begins a segment, for which there is no room.
        values = small_node(disk=DISK, log={"segment_bytes": 1 << 16, "index_interval_bytes": 4096})
        node = FaultyNode(room / "data", values, log_file=log)
        async with node:
            await publish(node, 3_000)
            await node.kill()
        (room / "data" / "reserve").unlink()
        ballast = fill_disk(room)

        def waits() -> int:
            return [one["event"] for one in events_of(log)].count(WAITS)

        try:
            starting = asyncio.ensure_future(node.start())
            await until(lambda: starting.done() or waits())  # it may say so more than once
            assert not starting.done()
            assert await node.stop() == 0, "it can be stopped while it waits"
            with pytest.raises((errors.FailedPrecondition, errors.Unavailable)):
                await starting
            before = waits()
            starting = asyncio.ensure_future(node.start())
            await until(lambda: starting.done() or waits() > before)
            assert not starting.done()
            ballast.unlink()
            await starting
            await take(node)
            assert await node.stop() == 0
        finally:
            if node.is_there:
                await node.kill()
    said = {one["event"] for one in complaints_of(log)}
    assert said <= {WAITS, "publishes_refused"}
