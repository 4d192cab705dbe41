"""A group is reset as the master of three real nodes is killed: it begins anew, or it does not.

One follower's broker stands still, so that the record is in two logs and cannot be committed when
the master dies. What the caller is told is that nobody knows.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from chaos.cluster import Cluster
from chaos.faults import frozen
from chaos.network import Loopback
from chaos.node_process import NodeProcess
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Channel,
    Message,
    ReceivedMessage,
    errors,
)
from hourwheel.clock import SystemClock
from tests.support.eventually import before_the_next_look, until

NODES: Final = ("n1", "n2", "n3")
HANG_S: Final = 150
COUNT: Final = 24
DONE: Final = 12
"""Acknowledged before the reset; of two more one is leased, and one is to be tried again."""
KEYS: Final = 6
RANKS: Final = (0, 5, 9)
LIFE_MS: Final = 2_500
IN_FLIGHT_MAX: Final = 4
FAR_MS: Final = 3_600_000
PATIENT: Final = {"cluster": {"lag_ms": 120_000, "report_timeout_ms": 30_000}}
"""A follower that stands still stays in sync. That a broker was killed its own control process
tells, at once."""


class Kind(NamedTuple):
    """Of group, and of messages."""

    message: Callable[[int], Message]
    wanted: Callable[[int], bool] = lambda _: True
    """Which of them come when the group begins anew."""
    filter: str | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def body(number: int) -> bytes:
    return b"%d" % number


KINDS: Final = {
    "plain": Kind(lambda number: Message(body(number))),
    "limits": Kind(lambda number: Message(body(number)), settings={"in_flight_max": IN_FLIGHT_MAX}),
    "filter": Kind(
        lambda number: Message(body(number), tags=("red",) if number % 3 else ("blue",)),
        wanted=lambda number: bool(number % 3),
        filter="red",
    ),
    "priorities": Kind(lambda number: Message(body(number), priority=RANKS[number % len(RANKS)])),
    "expiring": Kind(
        lambda number: Message(body(number), expire_after_ms=LIFE_MS if number % 2 else None),
        wanted=lambda number: number % 2 == 0,
    ),
    "ordered": Kind(
        lambda number: Message(body(number), ordering_key=f"key-{number % KEYS}"),
        settings={"order": "block"},
    ),
}


class World(NamedTuple):
    """Three nodes in sync, a group, and who works with it."""

    cluster: Cluster
    admin: AsyncAdmin
    producer: AsyncProducer
    consumer: AsyncConsumer

    async def lags(self) -> tuple[int, int]:
        """(messages that the group has to do, those of them that are leased)."""
        lags = (await self.admin.get_group("billing")).lags
        return sum(one.unresolved_count for one in lags), sum(one.leased_count for one in lags)


@asynccontextmanager
async def a_world(folder: Path, kind: Kind) -> AsyncIterator[World]:
    async with (
        asyncio.timeout(HANG_S),
        Loopback(NODES) as network,
        Cluster(folder, network, values=PATIENT) as cluster,
    ):
        await cluster.whole()
        async with (
            Channel(cluster.servers, call_timeout_ms=HANG_S * 1_000) as channel,
            AsyncAdmin(channel) as admin,
            AsyncProducer(channel) as producer,
            AsyncConsumer(
                channel, group="billing", topic="orders", filter=kind.filter, prefetch_messages=0
            ) as consumer,
        ):
            await admin.create_topic("orders", queue_count=2)
            await admin.put_group("billing", invisible_ms=FAR_MS, **kind.settings)
            yield World(cluster, admin, producer, consumer)


async def work_a_while(world: World) -> list[ReceivedMessage]:
    """Acknowledge some, give one back for long; what is still leased."""
    kept: list[ReceivedMessage] = []
    given_back = done = 0
    while done < DONE:
        messages = await world.consumer.receive(3, wait_ms=5_000)
        if messages and not kept:
            kept.append(messages.pop())
        elif messages and not given_back:
            await world.consumer.nack([messages.pop()], delay_ms=FAR_MS)
            given_back = 1
        if messages:
            await world.consumer.ack(messages)
        done += len(messages)
    return kept


async def kill_in_the_middle(world: World, master: NodeProcess) -> None:
    """The record is in the log of the master and of one follower, and nobody may answer for it."""
    one, other = world.cluster.followers(master)
    async with AsyncAdmin(one.api) as looker, frozen([other], whole=False):
        before = (await looker.status()).shards[0]

        async def is_further(what: str) -> bool:
            status = (await looker.status()).shards[0]
            return bool(getattr(status, what) > getattr(before, what))

        resetting = asyncio.create_task(world.admin.reset_group("billing", "orders", "first"))
        while not await is_further("log_end_offset"):
            assert not resetting.done()
        assert not resetting.done(), "it cannot be committed"
        await master.kill(whole=False)
        with pytest.raises(errors.Timeout):  # nobody knows
            await resetting
        while not await is_further("epoch"):
            await before_the_next_look()
    await world.cluster.whole()  # the killed one is started again


async def take_all(world: World, count: int, *, is_limited: bool) -> list[ReceivedMessage]:
    """All that the group has to do, one answer after the other."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        messages = await world.consumer.receive(7, wait_ms=5_000)
        if is_limited:
            assert (await world.lags())[1] <= IN_FLIGHT_MAX
        await world.consumer.ack(messages)
        found += messages
    assert await world.consumer.receive(7, wait_ms=100) == []
    return found


@pytest.mark.parametrize("name", KINDS)
async def test_group_begins_anew_once_or_not_when_the_master_dies_in_a_reset(
    tmp_path: Path, name: str
) -> None:
    kind = KINDS[name]
    async with a_world(tmp_path, kind) as world:
        ids = await world.producer.publish_many("orders", [kind.message(n) for n in range(COUNT)])
        kept = await work_a_while(world)
        left, _ = await world.lags()
        last_ms = max(one.due_ms for one in ids) + LIFE_MS
        await until(lambda: SystemClock().wall_ms() > last_ms)  # what expires has expired
        await kill_in_the_middle(world, await world.cluster.master())
        unresolved, leased = await world.lags()
        assert leased == 0, "leases have died with the master"
        is_exact = name not in {"expiring", "filter"}  # what need not be done is known of later
        assert unresolved in {COUNT, left} or not is_exact, "anew, or as it was"
        if unresolved != COUNT:
            await world.admin.reset_group("billing", "orders", "first")
        with pytest.raises(errors.StaleReceipt):
            await world.consumer.ack(kept)
        wanted = [number for number in range(COUNT) if kind.wanted(number)]
        found = await take_all(world, len(wanted), is_limited=name == "limits")
        assert Counter(one.body for one in found) == Counter(map(body, wanted)), "each once"
        assert {one.attempt for one in found} == {1}, "no retry of before"
        numbers = [int(one.body) for one in found]
        if name == "priorities":
            ranks = [one.priority for one in found]
            assert ranks == sorted(ranks, reverse=True)
        if name == "ordered":
            for key in range(KEYS):
                line = [number for number in numbers if number % KEYS == key]
                assert line == sorted(line)
        assert await world.lags() == (0, 0)
