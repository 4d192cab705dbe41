"""Priorities, expiries and bulk moves hold when the master of three real nodes is killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster
from chaos.network import Loopback
from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Channel,
    Columns,
    Message,
    ReceivedMessage,
)
from hourwheel.client.pending import PendingRescheduled
from hourwheel.clock import SystemClock
from hourwheel.formats.meta import MessageMeta

NODES: Final = ("n1", "n2", "n3")
HANG_S: Final = 120
RANKS: Final = (0, 5, 9)
OF_EACH: Final = 20
LIFE_MS: Final = 400
HOUR_MS: Final = 3_600_000
MANY: Final = 40_000
"""More than one page moves, of which each takes a quarter of a second."""


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[tuple[Cluster, AsyncAdmin, AsyncProducer]]:
    """Three nodes in sync, and clients."""
    async with (
        Loopback(NODES) as network,
        Cluster(folder, network) as cluster,
        asyncio.timeout(HANG_S),
    ):
        await cluster.whole()
        async with (
            Channel(cluster.servers, call_timeout_ms=HANG_S * 1_000) as channel,
            AsyncAdmin(channel) as admin,
            AsyncProducer(channel) as producer,
        ):
            yield cluster, admin, producer


async def take(consumer: AsyncConsumer, count: int) -> list[ReceivedMessage]:
    """So many messages at least, acknowledged."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        messages = await consumer.receive(7, wait_ms=5_000)
        assert len({one.priority for one in messages}) <= 1, "one answer has one priority"
        await consumer.ack(messages)
        found += messages
    return found


async def test_highest_priority_comes_first_when_the_master_was_killed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, admin, producer):
        await admin.put_group("mailer", invisible_ms=120_000)
        due_ms = int(SystemClock().wall_ms()) + 300
        messages = [
            Message(b"%d" % number, due_ms=due_ms, priority=RANKS[number % len(RANKS)])
            for number in range(OF_EACH * len(RANKS))
        ]
        await producer.publish_many("mails", messages)
        async with AsyncConsumer(
            cluster.servers, group="mailer", topic="mails", prefetch_messages=0
        ) as consumer:
            found = await take(consumer, OF_EACH // 2)
            leased = await consumer.receive(3, wait_ms=5_000)
            master = await cluster.master()
            await master.kill()
            while len(found) < len(messages):  # what was leased comes again, in its place
                found += await take(consumer, 1)
            assert {one.message_id for one in leased} <= {one.message_id for one in found}
        ranks = [one.priority for one in found]
        assert ranks == sorted(ranks, reverse=True)
        assert len({one.message_id for one in found}) == len(found) == len(messages)
        assert (await admin.get_group("mailer")).lags[0].unresolved_count == 0


async def test_what_has_expired_comes_to_nobody_when_the_master_was_killed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, admin, producer):
        await admin.create_topic("codes")
        await admin.put_group("strict", invisible_ms=120_000, keeps_expired=True)
        messages = [
            Message(b"%d" % number, expire_after_ms=LIFE_MS if number % 2 else None)
            for number in range(40)
        ]
        async with AsyncConsumer(
            cluster.servers, group="strict", topic="codes", prefetch_messages=0
        ) as consumer:
            assert await consumer.receive(1, wait_ms=10) == []
            ids = list(await producer.publish_many("codes", messages))
            leased = await consumer.receive(4, wait_ms=5_000)
            assert len(leased) == 4
            master = await cluster.master()
            await master.kill()
            lasting = {str(one) for one in ids[::2]}
            found: dict[str, ReceivedMessage] = {}
            while not lasting <= found.keys():
                again = await consumer.receive(7, wait_ms=5_000)
                await consumer.ack(again)
                found.update({str(one.message_id): one for one in again})
        late = [
            one
            for one in found.values()
            if str(one.message_id) not in lasting and one.receive_ms >= one.due_ms + LIFE_MS
        ]
        assert late == []
        async with AsyncConsumer(cluster.servers, group="strict", topic="codes") as consumer:
            while (await admin.get_group("strict")).lags[0].unresolved_count:
                assert await consumer.receive(1, wait_ms=50) == []
        letters = {str(one.message_id) async for one in admin.list_dead_letters("strict")}
        assert letters == {str(one) for one in ids} - found.keys()


async def test_bulk_move_goes_on_when_the_master_is_killed_in_the_middle(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, admin, producer):
        begin_ms = int(SystemClock().wall_ms()) + HOUR_MS
        target_ms = begin_ms + 5 * HOUR_MS
        for first in range(0, 2 * MANY, MANY // 4):
            count = MANY // 4
            tag = "moved" if first < MANY else "left"
            columns = Columns(
                bodies=[b"%d" % number for number in range(first, first + count)],
                due_ms=[begin_ms + number % 1_000 for number in range(count)],
                metas=[MessageMeta(tags=(tag,))] * count,
            )
            await producer.publish_batch("orders", columns)
        master = await cluster.master()
        pages, kills = list[PendingRescheduled](), list[asyncio.Task[None]]()

        def on_page(done: PendingRescheduled) -> None:
            pages.append(done)
            if len(pages) == 1:  # the next page is under way when it dies
                kills.append(asyncio.ensure_future(master.kill()))

        done = await admin.reschedule_pending(
            "orders", "moved", due_ms=target_ms, on_progress=on_page
        )
        await asyncio.gather(*kills)
        assert 0 < pages[0].rescheduled_count < MANY, "it was killed in the middle"
        assert done.rescheduled_count <= MANY
        there = await admin.count_pending("orders", from_ms=target_ms, to_ms=target_ms + 1)
        left = await admin.count_pending("orders", to_ms=target_ms)
        assert (there.matched_count, left.matched_count) == (MANY, MANY)
        assert (await admin.count_pending("orders", "moved")).matched_count == MANY
        again = await admin.reschedule_pending("orders", "moved", due_ms=target_ms)
        assert again.rescheduled_count == 0, "they are there already"
