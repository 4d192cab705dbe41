"""ListDamaged and DiscardDamaged as a client of any language sees them."""

from typing import Any

import pytest

from hourwheel.formats.message_id import MessageId
from hourwheel.limits import DAMAGED_PAGE_SIZE_MAX
from hourwheel.v1 import admin_pb2
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from tests.support.api_world import ApiWorld, refused

ID = MessageId(0, 3, 7, 1_000)
INFO = DamagedInfo(ID, "workers", "orders", "%DLQ%workers", 1_000, 2, 5, "a file", 9_000, 4)


async def test_list_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.damaged_page = DamagedPage([INFO], b"next")
        request = admin_pb2.ListDamagedRequest(
            group="workers", topic="orders", page_size=7, page_token=b"t"
        )
        answer = await world.admin.ListDamaged(request)
        (one,) = answer.messages
        assert (one.message_id, one.group, one.topic) == (str(ID), "workers", "orders")
        assert (one.stands_in, one.due_ms, one.attempt) == ("%DLQ%workers", 1_000, 2)
        assert (one.body_bytes, one.place, one.found_ms, one.tries) == (5, "a file", 9_000, 4)
        assert answer.next_page_token == b"next"
        assert world.engine.asked("list_damaged") == [("workers", "orders", b"t", 7)]
        await world.admin.ListDamaged(admin_pb2.ListDamagedRequest())
        assert world.engine.asked("list_damaged")[1] == ("", "", b"", 100)


async def test_discard_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.damaged_page = DamagedPage([INFO])
        request = admin_pb2.DiscardDamagedRequest(group="workers", message_ids=[str(ID)])
        answer = await world.admin.DiscardDamaged(request)
        assert [one.message_id for one in answer.messages] == [str(ID)]
        assert answer.left_count == 7
        await world.admin.DiscardDamaged(
            admin_pb2.DiscardDamagedRequest(group="workers", topic="orders", all=True)
        )
        assert world.engine.asked("discard_damaged") == [
            ("workers", "", [ID], DAMAGED_PAGE_SIZE_MAX),
            ("workers", "orders", None, DAMAGED_PAGE_SIZE_MAX),
        ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"message_ids": [str(ID)]}, "INVALID_GROUP"),
        ({"group": "workers"}, "INVALID_ARGUMENT"),
        ({"group": "workers", "message_ids": [str(ID)], "all": True}, "INVALID_ARGUMENT"),
        ({"group": "workers", "message_ids": ["x"]}, "INVALID_MESSAGE_ID"),
        (
            {"group": "workers", "message_ids": [str(ID)] * (DAMAGED_PAGE_SIZE_MAX + 1)},
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_discard_when_refused(asked: dict[str, Any], reason: str) -> None:
    async with ApiWorld() as world:
        request = admin_pb2.DiscardDamagedRequest(**asked)
        assert (await refused(world.admin.DiscardDamaged(request))).reason == reason
        assert world.engine.asked("discard_damaged") == []


async def test_list_when_too_much_is_asked_for() -> None:
    async with ApiWorld() as world:
        request = admin_pb2.ListDamagedRequest(page_size=DAMAGED_PAGE_SIZE_MAX + 1)
        assert (await refused(world.admin.ListDamaged(request))).reason == "INVALID_ARGUMENT"
