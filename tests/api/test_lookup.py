"""LookupService as a client of any language sees it."""

import numpy as np
import pytest

from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.outcomes import MessageState
from hourwheel.v1 import admin_pb2, lookup_pb2
from node.contracts.pending_page import KeyPage, KeyPart
from node.contracts.pending_token import KeyQuery
from tests.support.api_world import ApiWorld, refused

STATES = (MessageState.PENDING, MessageState.RELEASED, MessageState.CANCELLED)


def part_of(count: int) -> KeyPart:
    """Messages due at 1,000 ms, with sequences from 7 on, in all states by turns."""
    ids = np.zeros(count, ID_DTYPE)
    ids["shard"], ids["epoch"], ids["due_ms"] = 2, 3, 1_000
    ids["sequence"] = range(7, 7 + count)
    states = np.array([STATES[at % 3] for at in range(count)], np.uint8)
    return KeyPart(ids, states, np.full(count, 1_000))


async def test_list_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.key_page = KeyPage([part_of(3), part_of(500)], 503, b"next")
        request = lookup_pb2.ListByKeyRequest(
            topic="orders",
            key="ä",
            pending_only=True,
            page_size=9,
            page_token=b"t",
            from_due_ms=5,
            to_due_ms=7,
        )
        answer = await world.lookup.ListByKey(request)
        assert len(answer.messages) == 503
        first = answer.messages[0]
        assert (first.message_id, first.due_ms) == (str(MessageId(2, 3, 7, 1_000)), 1_000)
        assert [one.state for one in answer.messages[:3]] == [
            admin_pb2.MESSAGE_STATE_PENDING,
            admin_pb2.MESSAGE_STATE_RELEASED,
            admin_pb2.MESSAGE_STATE_CANCELLED,
        ]
        assert (answer.matched_count, answer.next_page_token) == (503, b"next")
        query = KeyQuery("orders", "ä".encode(), pending_only=True, from_ms=5, to_ms=7)
        assert world.engine.asked("list_by_key") == [(query, b"t", 9)]


async def test_list_when_little_is_asked() -> None:
    async with ApiWorld() as world:
        await world.lookup.ListByKey(lookup_pb2.ListByKeyRequest(topic="orders", key="k"))
        await world.lookup.ListByKey(
            lookup_pb2.ListByKeyRequest(topic="orders", key="k", count_only=True, page_size=9)
        )
        query = KeyQuery("orders", b"k")
        assert world.engine.asked("list_by_key") == [(query, b"", 100), (query, b"", 0)]


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        ({"topic": "o r"}, "INVALID_TOPIC", None),
        ({"key": ""}, "INVALID_ARGUMENT", "key"),
        ({"key": "k" * 256}, "INVALID_ARGUMENT", "key"),
        ({"page_size": 1_001}, "INVALID_ARGUMENT", "page_size"),
        ({"from_due_ms": -1}, "INVALID_ARGUMENT", "from_due_ms"),
        ({"to_due_ms": 1 << 62}, "INVALID_ARGUMENT", "to_due_ms"),
        ({"from_due_ms": 7, "to_due_ms": 6}, "INVALID_ARGUMENT", "to_due_ms"),
    ],
)
async def test_list_when_it_is_refused(
    request_: dict[str, object], reason: str, field: str | None
) -> None:
    async with ApiWorld() as world:
        fields = {"topic": "orders", "key": "k", **request_}
        found = await refused(world.lookup.ListByKey(lookup_pb2.ListByKeyRequest(**fields)))
        assert (found.reason, found.params.get("field")) == (reason, field)
        assert world.engine.calls == []
