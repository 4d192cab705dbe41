"""Dead letters as a client lists them and gives them to their group again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.client.groups import dead_letters as module
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta
from hourwheel.outcomes import DeadLetterReason
from hourwheel.transport.channel import Channel
from hourwheel.v1 import groups_pb2, meta_pb2
from tests.support.fake_node import FakeNode
from tests.support.fake_node_thread import FakeNodeThread

IDS = [MessageId(0, 1, number, 5_000 + number) for number in range(5)]


def letter(number: int, topic: str = "orders") -> groups_pb2.DeadLetterMessage:
    return groups_pb2.DeadLetterMessage(
        message_id=str(IDS[number]),
        topic=topic,
        due_ms=5_000 + number,
        last_due_ms=9_000,
        attempts=16,
        reason=groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP,
        meta=meta_pb2.MessageMeta(keys=["17"]),
        body_bytes=3,
    )


@pytest.fixture
async def admin(channel: Channel, node: FakeNode) -> AsyncIterator[AsyncAdmin]:
    """Of a node with five dead letters, the last of a topic that is gone, in pages of two."""
    node.letters, node.letters_page_max = [*map(letter, range(4)), letter(4, "")], 2
    async with AsyncAdmin(channel) as opened:
        yield opened


async def test_all_pages_are_listed(admin: AsyncAdmin, node: FakeNode) -> None:
    found = [one async for one in admin.list_dead_letters("billing", "red", page_size=7)]
    assert [one.message_id for one in found] == IDS
    assert found[0] == module.DeadLetterMessage(
        *(IDS[0], "orders", 5_000, 9_000, 16, DeadLetterReason.ATTEMPTS_USED_UP),
        *(MessageMeta(keys=("17",)), 3),
    )
    assert len(node.calls["ListDeadLetters"]) == 3
    assert {one.filter.text for one in node.calls["ListDeadLetters"]} == {"red"}


async def test_all_pages_are_redriven(admin: AsyncAdmin, node: FakeNode) -> None:
    told: list[int] = []
    done = await admin.redrive(
        "billing", "*", on_progress=lambda one: told.append(one.scanned_count)
    )
    assert done == module.Redriven(4, 1, 0, 5)
    assert told == [2, 4, 5]
    assert [one.message_id for one in node.letters] == [str(IDS[4])]


async def test_named_ones_go_in_pieces(
    admin: AsyncAdmin, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_LETTER_PAGE_SIZE_MAX", 2)
    done = await admin.redrive("billing", ids=[IDS[0], str(IDS[1]), IDS[3]])
    assert done.redriven_count == 3
    assert [len(one.message_ids) for one in node.calls["RedriveDeadLetters"]] == [2, 1]
    assert (await admin.redrive("billing", ids=[])).redriven_count == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, errors.InvalidArgument),
        ({"filter": "*", "ids": IDS}, errors.InvalidArgument),
        ({"ids": "abc"}, errors.InvalidArgument),
        ({"ids": ["abc"]}, errors.InvalidMessageId),
    ],
)
async def test_redrive_is_refused_before_anything_is_sent(
    admin: AsyncAdmin, node: FakeNode, asked: dict[str, Any], error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error):
        await admin.redrive("billing", **asked)
    with pytest.raises(errors.InvalidArgument):
        admin.list_dead_letters("billing", page_size=0)
    assert not node.calls


def test_blocking_twin_does_the_same() -> None:
    with FakeNodeThread() as thread, Admin(thread.address) as admin:
        thread.node.letters = [letter(0), letter(1)]
        assert [one.message_id for one in admin.list_dead_letters("billing")] == IDS[:2]
        assert admin.redrive("billing", ids=[IDS[0]]).redriven_count == 1
