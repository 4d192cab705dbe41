"""What goes page by page goes on when the master of three real nodes is killed between two pages;
and limits of groups hold for the next master."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

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
    errors,
)
from hourwheel.client.groups.dead_letters import Redriven
from hourwheel.clock import SystemClock
from hourwheel.outcomes import EventKind
from hourwheel.transport.methods import GET_HISTORY
from hourwheel.v1 import lookup_pb2

NODES: Final = ("n1", "n2", "n3")
HANG_S: Final = 150
MANY: Final = 40_000
"""More dead letters than one page gives back, or two."""
PIECE: Final = 10_000
MOVES: Final = 600
"""More events than one page of a history has."""
HOUR_MS: Final = 3_600_000
IN_FLIGHT_MAX: Final = 3


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[tuple[Cluster, Channel]]:
    """Three nodes in sync, and a way to them."""
    async with (
        Loopback(NODES) as network,
        Cluster(folder, network) as cluster,
        asyncio.timeout(HANG_S),
    ):
        await cluster.whole()
        async with Channel(cluster.servers, call_timeout_ms=HANG_S * 1_000) as channel:
            yield cluster, channel


async def take(consumer: AsyncConsumer, count: int) -> list[ReceivedMessage]:
    """So many messages at least."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.receive(PIECE, wait_ms=5_000)
    return found


async def test_redrive_goes_on_when_the_master_is_killed_between_pages(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, channel):
        admin = AsyncAdmin(channel)
        await admin.put_group("billing", attempts_max=3, invisible_ms=120_000)
        async with AsyncProducer(channel) as producer:
            for first in range(0, MANY, PIECE):
                bodies = [b"%d" % number for number in range(first, first + PIECE)]
                await producer.publish_batch("orders", Columns(bodies=bodies))
        async with AsyncConsumer(
            channel, group="billing", topic="orders", prefetch_messages=0
        ) as consumer:
            rejected_count = 0
            while rejected_count < MANY:
                some = await take(consumer, 1)
                await consumer.nack(some, dead_letter=True)
                rejected_count += len(some)
        master = await cluster.master()
        pages, kills = list[Redriven](), list[asyncio.Task[None]]()

        def on_page(done: Redriven) -> None:
            pages.append(done)
            if len(pages) == 1:  # the next page is under way when it dies
                kills.append(asyncio.ensure_future(master.kill()))

        done = await admin.redrive("billing", "*", on_progress=on_page)
        await asyncio.gather(*kills)
        assert 0 < pages[0].redriven_count < MANY, "it was killed in the middle"
        assert done.redriven_count <= MANY
        assert (await admin.redrive("billing", "*")).redriven_count == 0, "all came back by then"
        async with AsyncConsumer(
            channel, group="billing", topic="orders", prefetch_messages=0
        ) as consumer:
            found: list[ReceivedMessage] = []
            while len(found) < MANY:
                again = await take(consumer, 1)
                await consumer.ack(again)
                found += again
        assert {one.attempt for one in found} == {2}
        assert len({one.message_id for one in found}) == len(found) == MANY
        (lag,) = (await admin.get_group("billing")).lags
        assert lag.unresolved_count == 0
        assert [one async for one in admin.list_dead_letters("billing")] == []


async def test_history_begins_anew_when_the_master_is_killed_between_pages(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, channel):
        admin = AsyncAdmin(channel)
        begin_ms = int(SystemClock().wall_ms()) + HOUR_MS
        async with AsyncProducer(channel) as producer:
            of = await producer.publish("orders", Message(b"moved", due_ms=begin_ms))
            for number in range(1, MOVES + 1):
                await producer.reschedule(of, due_ms=begin_ms + number)
        request = lookup_pb2.GetHistoryRequest(message_id=str(of), topic="orders")
        first = await channel.call(GET_HISTORY, request)
        assert first.next_page_token, "the history has two pages"
        await (await cluster.master()).kill()
        request.page_token = first.next_page_token
        with pytest.raises(errors.InvalidArgument, match="another mastership"):
            await channel.call(GET_HISTORY, request)
        whole = await admin.history(of)
        dues_ms = list(range(begin_ms, begin_ms + MOVES + 1))
        assert [one.due_ms for one in whole.events] == dues_ms, "nothing twice, none left out"
        kinds = [one.kind for one in whole.events]
        assert kinds == [EventKind.PUBLISHED, *[EventKind.RESCHEDULED] * MOVES]
        assert whole.is_complete


async def test_group_holds_no_more_than_it_may_when_the_master_was_killed(tmp_path: Path) -> None:
    async with a_cluster(tmp_path) as (cluster, channel):
        admin = AsyncAdmin(channel)
        await admin.put_group("billing", in_flight_max=IN_FLIGHT_MAX, invisible_ms=120_000)
        async with (
            AsyncProducer(channel) as producer,
            AsyncConsumer(
                channel, group="billing", topic="orders", prefetch_messages=0
            ) as consumer,
        ):
            await producer.publish_many("orders", [Message(b"%d" % n) for n in range(9)])
            before = await take(consumer, IN_FLIGHT_MAX)
            await (await cluster.master()).kill()
            after = await take(consumer, IN_FLIGHT_MAX)
            assert len(before) == len(after) == IN_FLIGHT_MAX, "the next master counts anew"
            assert await consumer.receive(9, wait_ms=500) == []
            done = set()
            while len(done) < 9:
                await consumer.ack(after)
                done |= {one.message_id for one in after}
                after = await consumer.receive(9, wait_ms=5_000) if len(done) < 9 else []
                assert len(after) <= IN_FLIGHT_MAX
        (lag,) = (await admin.get_group("billing")).lags
        assert (lag.leased_count, lag.unresolved_count) == (0, 0)
