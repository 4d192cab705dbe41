"""I10: of an ordering key messages come one by one, in order, also when the master is killed."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from chaos.cluster import Cluster
from chaos.network import Loopback
from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, ReceivedMessage, errors

NODES: Final = ("n1", "n2", "n3")
KEYS: Final = [f"key-{number}" for number in range(12)]
LENGTH: Final = 8
"""Messages of each key."""
HANG_S: Final = 120


def said(message: ReceivedMessage) -> tuple[str, int]:
    key, _, number = message.body.decode().partition(" ")
    return key, int(number)


async def take_in_order(consumer: AsyncConsumer, done: Counter[str], count: int) -> None:
    """Acknowledge messages, until so many are; each must be the next one of its key.

    Where the answer to an acknowledgement is lost, what the key delivers next says whether it
    counted.
    """
    undecided = set[str]()
    while done.total() < count:
        messages = await consumer.receive(20, wait_ms=5_000)
        heads = [said(one) for one in messages]
        assert len({key for key, _ in heads}) == len(heads), "two of a key at a time"
        done.update(key for key, number in heads if key in undecided and number > done[key])
        undecided -= {key for key, _ in heads}
        if not messages:  # of these keys nothing is left
            done.update(undecided)
            undecided.clear()
        assert heads == [(key, done[key]) for key, _ in heads]
        try:
            await consumer.ack(messages)
        except errors.UndecidedReceipt:
            undecided.update(key for key, _ in heads)
        else:
            done.update(key for key, _ in heads)


@pytest.mark.parametrize("order", ["block", "dead-letter"])
async def test_i10_keys_stay_in_order_when_their_master_is_killed(
    tmp_path: Path, order: str
) -> None:
    done: Counter[str] = Counter()
    async with (
        Loopback(NODES) as network,
        Cluster(tmp_path, network) as cluster,
        asyncio.timeout(HANG_S),
    ):
        await cluster.whole()
        async with (
            AsyncAdmin(cluster.servers) as admin,
            AsyncProducer(cluster.servers) as producer,
        ):
            await admin.create_topic("orders", queue_count=2)
            await admin.put_group("ledger", order=order, invisible_ms=120_000)
            for number in range(LENGTH):
                every = [Message(f"{key} {number}".encode(), ordering_key=key) for key in KEYS]
                await producer.publish_many("orders", every)
            async with AsyncConsumer(
                cluster.servers, group="ledger", topic="orders", prefetch_messages=0
            ) as consumer:
                await take_in_order(consumer, done, 2 * len(KEYS))
                leased: list[ReceivedMessage] = []
                while len(leased) < len(KEYS):
                    leased += await consumer.receive(20, wait_ms=5_000)
                assert {said(one) for one in leased} == {(key, done[key]) for key in KEYS}
                assert await consumer.receive(20, wait_ms=100) == []
                master = await cluster.master()
                await master.kill()
                again = await consumer.receive(4, wait_ms=20_000)
                assert {said(one) for one in again} <= {said(one) for one in leased}
                with pytest.raises(errors.StaleReceipt):  # their leases have died with the master
                    await consumer.ack(leased)
                await consumer.ack(again)
                done.update(said(one)[0] for one in again)
                await take_in_order(consumer, done, LENGTH * len(KEYS))
            (lag,) = (await admin.get_group("ledger")).lags
            assert lag.unresolved_count == 0
    assert done == dict.fromkeys(KEYS, LENGTH)
