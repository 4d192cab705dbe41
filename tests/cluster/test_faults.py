"""What happens to a process from outside: signals, a second one, a machine that offers no room.

`test_faults_that_this_machine_can_inject` prints which of the faults in tests/cluster run here.
With FAULTS_REQUIRED="strace tmpfs power" it fails where one of these does not.
"""

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from chaos.history import body_of, serial_of
from chaos.machine import can_lose_power, can_mount, tmpfs
from chaos.message_mix import QUICK_MIX
from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Columns, Message, errors
from hourwheel.transport.channel import Channel
from hourwheel.transport.retry import Backoff
from node.process.lifecycle import EXIT_LOCKED
from tests.support.faulty_node import FaultyNode, injectors
from tests.support.reaper import complaints_of, events_of, reaping, say, send, small_node
from tests.support.stored import digests_of

SEED: Final = 11
MIB: Final = 1 << 20


def test_faults_that_this_machine_can_inject() -> None:
    offered = {
        "signals": True,
        "strace": "strace" in injectors(),
        "tmpfs": can_mount(),
        "power": can_lose_power(),
    }
    say(f"\nfaults that this machine can inject: {offered}")
    required = os.environ.get("FAULTS_REQUIRED", "signals").split()
    assert [name for name in required if not offered[name]] == []


async def test_nothing_is_replayed_when_the_node_was_stopped_under_load(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        for number in (signal.SIGTERM, signal.SIGINT):
            await reaper.some_load(200)
            send(reaper.node.pid, number)
            assert await reaper.node.ended() == 0
            await reaper.look(number.name)
            await reaper.start()
    opened = [one for one in events_of(tmp_path / "node.log") if one["event"] == "shard_opened"]
    assert [one["replayed_batches"] for one in opened] == [0, 0, 0]
    assert reaper.load.given_up == []
    assert complaints_of(tmp_path / "node.log") == []


async def test_promises_hold_when_the_node_is_frozen_for_a_while(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        await reaper.some_load(200)
        send(reaper.node.pid, signal.SIGSTOP)
        await reaper.load.pass_ms(3_000)
        send(reaper.node.pid, signal.SIGCONT)
        await reaper.some_load(200)
    assert reaper.load.given_up == []
    assert complaints_of(tmp_path / "node.log") == []


async def test_second_process_gives_way_when_the_first_one_works(tmp_path: Path) -> None:
    async with reaping(tmp_path, SEED, mix=QUICK_MIX) as reaper:
        await reaper.some_load(50)
        log = tmp_path / "second.log"
        second = FaultyNode(reaper.directory, small_node(), log_file=log)
        with pytest.raises(errors.Unavailable) as caught:
            await second.start()
        assert caught.value.params["exit_code"] == str(EXIT_LOCKED)
        (said,) = complaints_of(log)
        assert said["error_type"] == "DirectoryLocked"
        assert str(reaper.node.pid) in said["error"]
        assert await second.ended() == EXIT_LOCKED
        await reaper.some_load(50)


@pytest.mark.parametrize("free_bytes_min", [4 * MIB, 0], ids=["watermark", "no room at all"])
async def test_due_messages_are_delivered_when_the_disk_is_full(
    tmp_path: Path, free_bytes_min: int
) -> None:
    if not can_mount():
        say("not on a full file system: this machine cannot mount one")
        return
    disk_section = {"free_bytes_min": free_bytes_min, "reserve_bytes": 2 * MIB}
    with tmpfs(tmp_path / "mnt", 32) as disk:
        directory, log = disk.path / "data", tmp_path / "node.log"
        async with FaultyNode(directory, small_node(disk=disk_section), log_file=log) as node:
            accepted = await _fill(node.address)
            await _take_all(node.address, set(range(1, 1_001)))
            disk.resize(96)
            async with AsyncProducer(node.address) as producer:
                late = await producer.publish("orders", Message(body_of(1_001)))
            await _take_all(node.address, {1_001})
            async with AsyncAdmin(node.address) as admin:
                status = await admin.status()
            assert await node.stop() == 0
        found = digests_of(directory)
    assert found.restored == found.rebuilt
    assert late.sequence == status.shards[0].published_count - 1
    assert status.shards[0].pending_count in accepted
    events = [one["event"] for one in events_of(log)]
    assert events.index("publishes_refused") < events.index("publishes_accepted")


async def _fill(address: str) -> range:
    """A thousand messages that fall due soon, then more for next year, until one is refused."""
    async with Channel(address, backoff=Backoff(ms_max=50.0)) as channel:
        soon = AsyncProducer(channel)
        bodies = [body_of(serial) for serial in range(1, 1_001)]
        await soon.publish_batch("orders", Columns(bodies=bodies, delay_ms=[1_500] * 1_000))
        await soon.close()
        async with AsyncProducer(channel, delivery_timeout_ms=8_000) as later:
            return await _publish_until_refused(later)


async def _publish_until_refused(producer: AsyncProducer) -> range:
    """How many messages may have been accepted."""
    accepted = 0
    try:
        while True:
            columns = Columns(bodies=[bytes(100_000)] * 5, delay_ms=[365 * 86_400_000] * 5)
            accepted += len(await producer.publish_batch("orders", columns))
    except errors.DiskFull:
        return range(accepted, accepted + 1)
    except errors.Timeout:  # refused all the time, and then just being tried again
        return range(accepted, accepted + 6, 5)


async def _take_all(address: str, expected: set[int]) -> None:
    """Receive exactly these, and acknowledge them."""
    seen: list[int] = []
    async with AsyncConsumer(address, group="workers", topic="orders") as consumer:
        while len(seen) < len(expected):
            messages = await consumer.receive(1_000)
            seen += [serial_of(one.body) or 0 for one in messages]
            await consumer.ack(messages)
    assert sorted(seen) == sorted(expected)
