"""ListPending and CancelPending as a client of any language sees them."""

import numpy as np
import pytest

from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, filter_pb2, pending_pb2
from node.contracts.pending_page import ChangedPage, PendingPage, PendingPart
from node.contracts.pending_token import PendingQuery
from node.shard.pending_scan import Blob
from tests.support.api_world import ApiWorld, refused
from tests.support.units import make_units

META = metas.encode(metas.MessageMeta(("a",), ("k",), (("p", "v"),)))
SQL = filter_pb2.FilterExpression(kind=filter_pb2.FILTER_KIND_SQL, text="p = 'v'")


def part_of(*blobs: Blob) -> PendingPart:
    """Messages due at 1,000 ms, with sequences from 7 on."""
    count = len(blobs)
    units = make_units(7, count, due_ms=1_000, store_ms=500, body_len=3)
    ids = np.zeros(count, ID_DTYPE)
    ids["shard"], ids["epoch"] = 2, 3
    ids["sequence"], ids["due_ms"] = units["sequence"], units["due_ms"]
    return PendingPart(units, list(blobs), ids)


async def test_list_when_answered() -> None:
    async with ApiWorld() as world:
        parts = [part_of(Blob(META.raw, b"abc")), part_of(Blob(b"", b"", is_corrupt=True))]
        world.engine.pending_page = PendingPage(parts, 9, 2, 1, b"next")
        request = admin_pb2.ListPendingRequest(
            topic="orders",
            filter=SQL,
            from_due_ms=5,
            to_due_ms=6,
            page_size=7,
            page_token=b"t",
            with_bodies=True,
        )
        answer = await world.admin.ListPending(request)
        first, second = answer.messages
        assert first.message_id == str(MessageId(2, 3, 7, 1_000))
        assert (first.due_ms, first.store_ms, first.body_bytes) == (1_000, 500, 3)
        assert (first.body, first.is_corrupt) == (b"abc", False)
        assert first.meta.SerializeToString() == META.raw
        assert (second.is_corrupt, second.HasField("meta")) == (True, False)
        counts = (answer.scanned_count, answer.matched_count, answer.corrupt_count)
        assert (counts, answer.next_page_token) == ((9, 2, 1), b"next")
        query = PendingQuery("orders", Sql("p = 'v'"), 5, 6)
        assert world.engine.asked("list_pending") == [(query, b"t", 7, True)]


async def test_list_when_little_is_asked() -> None:
    async with ApiWorld() as world:
        await world.admin.ListPending(admin_pb2.ListPendingRequest(topic="orders"))
        await world.admin.ListPending(
            admin_pb2.ListPendingRequest(topic="orders", count_only=True, page_size=9)
        )
        query = PendingQuery("orders", FilterExpression.everything())
        assert world.engine.asked("list_pending") == [
            (query, b"", 100, False),
            (query, b"", 0, False),
        ]


async def test_list_when_a_page_is_long_and_some_metadata_is_none() -> None:
    async with ApiWorld() as world:
        blobs = [Blob(META.raw, b"")] * 450 + [Blob(b"\xff\xff", b"")]
        world.engine.pending_page = PendingPage([part_of(*blobs)])
        answer = await world.admin.ListPending(admin_pb2.ListPendingRequest(topic="orders"))
        assert len(answer.messages) == 451
        assert [one.is_corrupt for one in answer.messages] == [False] * 450 + [True]
        assert not answer.messages[450].HasField("meta")


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        ({"topic": "o r"}, "INVALID_TOPIC", None),
        ({"topic": "%RETRY%g|orders"}, "INVALID_TOPIC", None),
        ({"page_size": 1_001}, "INVALID_ARGUMENT", "page_size"),
        ({"from_due_ms": -1}, "INVALID_ARGUMENT", "from_due_ms"),
        ({"to_due_ms": DUE_MS_MAX + 1}, "INVALID_ARGUMENT", "to_due_ms"),
        ({"from_due_ms": 6, "to_due_ms": 5}, "INVALID_ARGUMENT", "to_due_ms"),
        ({"filter": filter_pb2.FilterExpression(text="a &&")}, "INVALID_FILTER", None),
        ({"filter": filter_pb2.FilterExpression(kind=99, text="a")}, "INVALID_ARGUMENT", None),
    ],
)
async def test_list_when_it_is_refused(
    request_: dict[str, object], reason: str, field: str | None
) -> None:
    async with ApiWorld() as world:
        fields = {"topic": "orders", **request_}
        found = await refused(world.admin.ListPending(admin_pb2.ListPendingRequest(**fields)))
        assert found.reason == reason
        assert found.params.get("field") == field
        assert world.engine.calls == []


async def test_cancel_when_answered() -> None:
    async with ApiWorld() as world:
        world.engine.changed_page = ChangedPage(5, 1, 9, 2, b"next")
        wanted = filter_pb2.FilterExpression(text="a || b")
        answer = await world.admin.CancelPending(
            pending_pb2.CancelPendingRequest(topic="orders", filter=wanted, page_token=b"t")
        )
        assert (answer.cancelled_count, answer.already_released_count) == (5, 1)
        assert (answer.scanned_count, answer.corrupt_count) == (9, 2)
        assert answer.next_page_token == b"next"
        query = PendingQuery("orders", Tags("a || b"))
        assert world.engine.asked("cancel_pending") == [(query, b"t")]


@pytest.mark.parametrize("given", [None, filter_pb2.FilterExpression(text="")])
async def test_cancel_when_no_filter_is_given(given: filter_pb2.FilterExpression | None) -> None:
    async with ApiWorld() as world:
        request = pending_pb2.CancelPendingRequest(topic="orders", filter=given)
        assert (await refused(world.admin.CancelPending(request))).reason == "INVALID_FILTER"
        assert world.engine.calls == []
