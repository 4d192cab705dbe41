from collections.abc import AsyncIterator

import pytest

from hourwheel import errors
from hourwheel.client import pending
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.client.message import Message
from hourwheel.client.pending import PendingCancelled, PendingCount, PendingRescheduled
from hourwheel.client.producer import AsyncProducer
from hourwheel.filter_language.inputs import Sql
from hourwheel.formats.meta import NO_META
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2
from tests.support import fake_services
from tests.support.fake_cluster import FakeCluster, channel_to
from tests.support.fake_node import STORE_MS, FakeNode
from tests.support.fake_node_thread import FakeNodeThread


@pytest.fixture
async def admin(channel: Channel) -> AsyncIterator[AsyncAdmin]:
    """Of a node with ten messages, due last to first; every second one has a tag."""
    async with AsyncAdmin(channel) as opened, AsyncProducer(channel) as producer:
        for number in range(10):
            tags = ["even"] if number % 2 == 0 else []
            message = Message(
                b"%d" % number, delay_ms=100 - number, tags=tags, properties={"n": f"{number}"}
            )
            await producer.publish("orders", message)
        yield opened


async def test_list_when_there_are_many_pages(admin: AsyncAdmin, node: FakeNode) -> None:
    found = [message async for message in admin.list_pending("orders")]
    assert [message.due_ms - STORE_MS for message in found] == list(range(91, 101))
    assert [message.message_id.sequence for message in found] == list(range(9, -1, -1))
    assert found[1].meta.tags == ("even",)
    assert (found[1].body, found[1].body_bytes, found[1].store_ms) == (None, 1, STORE_MS)
    requests = node.calls["ListPending"]
    assert len(requests) == 4
    assert [bool(request.page_token) for request in requests] == [False, True, True, True]
    assert len({request.page_token for request in requests}) == 4


async def test_list_when_filtered_and_in_a_range(admin: AsyncAdmin) -> None:
    low, high = STORE_MS + 93, STORE_MS + 98
    found = admin.list_pending("orders", "even", from_ms=low, to_ms=high, with_bodies=True)
    assert [message.body async for message in found] == [b"6", b"4"]
    found = admin.list_pending("orders", Sql("n > 7"), page_size=1)
    assert [message.message_id.sequence async for message in found] == [9, 8]


async def test_list_when_a_message_is_damaged(admin: AsyncAdmin, node: FakeNode) -> None:
    node.messages[9].crc = 0
    first = await anext(admin.list_pending("orders", with_bodies=True))
    assert (first.is_corrupt, first.meta, first.body) == (True, NO_META, None)


async def test_list_when_there_is_no_such_topic_or_filter(admin: AsyncAdmin) -> None:
    with pytest.raises(errors.UnknownTopic):
        await anext(admin.list_pending("bills"))
    with pytest.raises(errors.InvalidFilter):
        await anext(admin.list_pending("orders", "a &&"))


async def test_count_when_there_are_many_pages(admin: AsyncAdmin, node: FakeNode) -> None:
    assert await admin.count_pending("orders") == PendingCount(10, 10, 0)
    assert await admin.count_pending("orders", "even") == PendingCount(5, 10, 0)
    assert all(request.count_only for request in node.calls["ListPending"])


async def test_cancel_when_told_of_progress(admin: AsyncAdmin) -> None:
    told: list[PendingCancelled] = []
    done = await admin.cancel_pending("orders", "even", on_progress=told.append)
    assert (done.cancelled_count, done.scanned_count) == (5, 10)
    assert [one.scanned_count for one in told] == [3, 6, 9, 10]
    assert told[-1] == done
    assert (await admin.count_pending("orders")).matched_count == 5
    assert (await admin.cancel_pending("orders", "even")).cancelled_count == 0


async def test_cancel_when_the_master_changes_between_two_pages() -> None:
    async with (
        FakeCluster(3) as cluster,
        channel_to(cluster.servers) as channel,
        AsyncProducer(channel) as producer,
        AsyncAdmin(channel) as admin,
    ):
        messages = [Message(b"%d" % number) for number in range(8)]
        ids = await producer.publish_many("orders", messages)
        done = await admin.cancel_pending(
            "orders", "*", on_progress=lambda _: cluster.promote(cluster.nodes[1])
        )
        assert done.cancelled_count == 8
        assert cluster.count("CancelPending") == [2, 2, 0]  # the first one says who is master
        assert set(await admin.cancel_many(ids)) == {CancelOutcome.CANCELLED}


async def test_move_when_told_of_progress_and_begun_again(admin: AsyncAdmin) -> None:
    told: list[PendingRescheduled] = []
    due_ms = STORE_MS + 98
    done = await admin.reschedule_pending("orders", "even", due_ms=due_ms, on_progress=told.append)
    assert told[-1] == done
    assert len(told) > 1
    assert done.rescheduled_count == 4, "one was due then already"
    found = [message.due_ms - STORE_MS async for message in admin.list_pending("orders", "even")]
    assert found == [98] * 5
    again = await admin.reschedule_pending("orders", "even", due_ms=due_ms)
    assert (again.rescheduled_count, again.missed_count) == (0, 0)
    with pytest.raises(errors.InvalidDueTime):
        await admin.reschedule_pending("orders", "even", due_ms=1_790_000_000)


async def test_keys_are_chosen_by_what_they_begin_with(
    admin: AsyncAdmin, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [Message(b"x", keys=[key], delay_ms=500) for key in ("a-1", "a-2", "b-1")]
    async with AsyncProducer(node.address) as producer:
        await producer.publish_many("orders", messages)
    assert (await admin.count_pending("orders", key_prefix="a-")).matched_count == 2
    found = [one.meta.keys async for one in admin.list_pending("orders", key_prefix="a-")]
    assert found == [("a-1",), ("a-2",)]
    assert (await admin.cancel_pending("orders", key_prefix="a-1")).cancelled_count == 1
    moved = await admin.reschedule_pending("orders", key_prefix="a-", due_ms=STORE_MS + 900)
    assert moved.rescheduled_count == 1

    def listed_all(_: object, request: admin_pb2.ListPendingRequest) -> object:
        return admin_pb2.ListPendingResponse(matched_count=12)

    monkeypatch.setattr(fake_services, "list_page", listed_all)
    with pytest.raises(errors.FailedPrecondition, match="earlier version"):
        await admin.count_pending("orders", key_prefix="a-")


def test_blocking_twin_when_used() -> None:
    with FakeNodeThread() as fake, Admin(fake.address) as admin:
        fake.add_topic("orders", *(b"%d" % number for number in range(600)))
        found = list(admin.list_pending("orders", with_bodies=True))
        assert [message.body for message in found] == [b"%d" % number for number in range(600)]
        assert admin.count_pending("orders", "*").matched_count == 600
        told: list[PendingCancelled] = []
        moved = admin.reschedule_pending("orders", "*", due_ms=STORE_MS + 9)
        assert moved.rescheduled_count == 600
        done = admin.cancel_pending("orders", "*", to_ms=1 << 50, on_progress=told.append)
        assert done.cancelled_count == 600
        assert told[-1] == done
        assert list(admin.list_pending("orders")) == []


def test_range_when_its_bounds_are_seconds_by_mistake() -> None:
    now_s, now_ms = 1_790_000_000, 1_790_000_000_000
    for bounds in ((now_s, 0), (0, now_s), (now_ms, now_s)):
        with pytest.raises(errors.InvalidDueTime, match="seconds"):
            pending.range_of("t", None, *bounds)
    assert pending.range_of("t", None, 0, 0) == pending.Range("t", None, 0, 0)
    assert pending.range_of("t", None, now_ms, now_ms + 1).from_ms == now_ms
