"""ListDeadLetters and RedriveDeadLetters as a client of any language sees them."""

from typing import Any

import pytest

from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.limits import DEAD_LETTER_PAGE_SIZE_MAX
from hourwheel.outcomes import DeadLetterReason
from hourwheel.v1 import filter_pb2, groups_pb2
from node.contracts.dead_letters import (
    DeadLetterMessage,
    DeadLetterQuery,
    DeadLettersPage,
    RedrivenPage,
)
from tests.support.api_world import ApiWorld, refused

ID = MessageId(0, 3, 7, 1_000)
META = encode(MessageMeta(keys=("17",))).raw
EVERYTHING = filter_pb2.FilterExpression(kind=filter_pb2.FILTER_KIND_TAGS, text="*")


def letter(meta: bytes = META) -> DeadLetterMessage:
    reason = DeadLetterReason.ATTEMPTS_USED_UP
    return DeadLetterMessage(ID, "orders", 5_000, 16, reason, 3, meta, b"abc")


async def test_list_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.dead_letters_page = DeadLettersPage([letter(), letter(b"\xff")], 9, b"next")
        request = groups_pb2.ListDeadLettersRequest(
            group="billing",
            topic="orders",
            filter=EVERYTHING,
            message_ids=[str(ID)],
            page_size=7,
            page_token=b"t",
            with_bodies=True,
        )
        answer = await world.admin.ListDeadLetters(request)
        asked = world.engine.asked("list_dead_letters")
        await world.admin.ListDeadLetters(groups_pb2.ListDeadLettersRequest(group="billing"))
        plain = world.engine.asked("list_dead_letters")[1]
    one, garbled = answer.messages
    assert (one.message_id, one.topic, one.due_ms) == (str(ID), "orders", 1_000)
    assert (one.last_due_ms, one.attempts, one.body, one.body_bytes) == (5_000, 16, b"abc", 3)
    assert one.reason == groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP
    assert (list(one.meta.keys), one.is_corrupt, garbled.is_corrupt) == (["17"], False, True)
    assert (answer.scanned_count, answer.next_page_token) == (9, b"next")
    query = DeadLetterQuery("billing", "orders", FilterExpression.everything(), frozenset({ID}))
    assert asked == [(query, b"t", 7, True)]
    assert plain == (DeadLetterQuery("billing"), b"", 100, False)


async def test_redrive_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.redriven_page = RedrivenPage(5, 1, 2, 8, b"next")
        request = groups_pb2.RedriveDeadLettersRequest(group="billing", filter=EVERYTHING)
        answer = await world.admin.RedriveDeadLetters(request)
        ((query, token),) = world.engine.asked("redrive")
    assert (query.filter, query.ids, token) == (FilterExpression.everything(), None, b"")
    assert (answer.redriven_count, answer.unsubscribed_count, answer.corrupt_count) == (5, 1, 2)
    assert (answer.scanned_count, answer.next_page_token) == (8, b"next")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"filter": EVERYTHING}, "INVALID_GROUP"),
        ({"group": "billing", "topic": "a b", "filter": EVERYTHING}, "INVALID_TOPIC"),
        ({"group": "billing"}, "INVALID_FILTER"),
        (
            {"group": "billing", "filter": filter_pb2.FilterExpression(kind=1, text="a &&")},
            "INVALID_FILTER",
        ),
        ({"group": "billing", "message_ids": ["x"]}, "INVALID_MESSAGE_ID"),
        (
            {"group": "billing", "message_ids": [str(ID)] * (DEAD_LETTER_PAGE_SIZE_MAX + 1)},
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_redrive_when_refused(asked: dict[str, Any], reason: str) -> None:
    async with ApiWorld() as world:
        request = groups_pb2.RedriveDeadLettersRequest(**asked)
        assert (await refused(world.admin.RedriveDeadLetters(request))).reason == reason
        assert world.engine.asked("redrive") == []


async def test_list_when_too_much_is_asked_for() -> None:
    async with ApiWorld() as world:
        request = groups_pb2.ListDeadLettersRequest(
            group="billing", page_size=DEAD_LETTER_PAGE_SIZE_MAX + 1
        )
        refusal = await refused(world.admin.ListDeadLetters(request))
    assert (refusal.reason, refusal.params["field"]) == ("INVALID_ARGUMENT", "page_size")
