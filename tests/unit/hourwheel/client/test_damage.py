"""Damaged messages as a client lists them and gives them up."""

from collections.abc import AsyncIterator

import pytest

from hourwheel import errors
from hourwheel.client import damage as module
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.formats.message_id import MessageId
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2
from tests.support.fake_node import FakeNode
from tests.support.fake_node_thread import FakeNodeThread

IDS = [MessageId(0, 1, number, 5_000 + number) for number in range(5)]


def damaged(number: int, group: str = "workers") -> admin_pb2.DamagedMessage:
    return admin_pb2.DamagedMessage(
        message_id=str(IDS[number]),
        group=group,
        topic="orders",
        stands_in="%DLQ%workers",
        due_ms=5_000 + number,
        attempt=2,
        body_bytes=7,
        place="shard-0/log/0.log: byte 9",
        found_ms=9_000,
        tries=3,
    )


@pytest.fixture
async def admin(channel: Channel, node: FakeNode) -> AsyncIterator[AsyncAdmin]:
    """Of a node that knows five damaged messages, the last of another group."""
    node.damaged = [*map(damaged, range(4)), damaged(4, "others")]
    async with AsyncAdmin(channel) as opened:
        yield opened


async def test_all_pages_are_listed(
    admin: AsyncAdmin, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    found = await admin.list_damaged()
    assert [one.message_id for one in found] == IDS
    assert found[0] == module.DamagedMessage(
        *(IDS[0], "workers", "orders", "%DLQ%workers"),
        *(5_000, 2, 7, "shard-0/log/0.log: byte 9", 9_000, 3),
    )
    assert len(node.calls["ListDamaged"]) == 3
    assert [one.message_id for one in await admin.list_damaged("others")] == IDS[4:]


async def test_named_messages_are_given_up(
    admin: AsyncAdmin, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    gone = await admin.discard_damaged("workers", [IDS[0], str(IDS[2]), IDS[3], IDS[4]])
    assert [one.message_id for one in gone] == [IDS[0], IDS[2], IDS[3]]
    assert [len(one.message_ids) for one in node.calls["DiscardDamaged"]] == [2, 2]
    with pytest.raises(errors.InvalidMessageId):
        await admin.discard_damaged("workers", [IDS[1], "no id"])
    assert len(await admin.list_damaged("workers")) == 1
    assert await admin.discard_damaged("workers", []) == []


async def test_all_of_a_group_are_given_up(admin: AsyncAdmin, node: FakeNode) -> None:
    node.discard_max = 3
    gone = await admin.discard_damaged("workers", topic="orders")
    assert [one.message_id for one in gone] == IDS[:4]
    assert len(node.calls["DiscardDamaged"]) == 2
    assert await admin.discard_damaged("workers") == []


def test_blocking_twin() -> None:
    with FakeNodeThread() as thread, Admin(thread.address) as admin:
        thread.node.damaged = [damaged(0), damaged(1)]
        assert [one.message_id for one in admin.list_damaged("workers", "orders")] == IDS[:2]
        assert [one.message_id for one in admin.discard_damaged("workers", [IDS[1]])] == IDS[1:2]
