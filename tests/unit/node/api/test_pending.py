"""What is pending, listed, cancelled and moved: what the engine is asked, and what is told."""

from typing import Any

import numpy as np
import pytest

from hourwheel import errors, limits
from hourwheel.clock import SystemClock
from hourwheel.filter_language.inputs import Sql
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.types import DUE_MS_MAX
from hourwheel.v1 import admin_pb2, filter_pb2, pending_pb2
from node.access.control import AccessControl
from node.access.quotas import Quotas
from node.api.pending import (
    PAGE_SIZE_DEFAULT,
    cancel_pending,
    list_pending,
    reschedule_pending,
)
from node.api.quota_gate import QuotaGate
from node.contracts.pending_page import ChangedPage, PendingPage, PendingPart
from node.contracts.pending_token import PendingQuery
from node.shard.pending_scan import Blob
from tests.support.fake_engine import FakeEngine
from tests.support.units import make_units

META = metas.encode(metas.MessageMeta(("a",), ("k",), (("p", "v"),)))
SQL = filter_pb2.FilterExpression(kind=filter_pb2.FILTER_KIND_SQL, text="p = 'v'")


def part_of(*blobs: Blob) -> PendingPart:
    """Messages with sequences from 7 on, due at 1,000 ms."""
    units = make_units(7, len(blobs), due_ms=1_000, store_ms=500, body_len=3)
    ids = np.zeros(len(blobs), ID_DTYPE)
    ids["shard"], ids["epoch"] = 2, 3
    ids["sequence"], ids["due_ms"] = units["sequence"], units["due_ms"]
    return PendingPart(units, list(blobs), ids)


def gate_of(engine: FakeEngine) -> QuotaGate:
    """Nobody is limited."""
    return QuotaGate(Quotas(), AccessControl(), engine, SystemClock())


def request_of(**fields: Any) -> admin_pb2.ListPendingRequest:
    return admin_pb2.ListPendingRequest(**{"topic": "orders", **fields})


async def test_page_tells_of_each_message_and_what_of_it_cannot_be_read() -> None:
    engine = FakeEngine()
    blobs = [Blob(META.raw, b"abc")] * 300
    broken = [Blob(b"", b"", is_corrupt=True), Blob(b"\xff\xff", b"")]
    engine.pending_page = PendingPage([part_of(*blobs), part_of(*broken)], 9, 2, 1, b"next")
    answer = await list_pending(engine, request_of())
    first = answer.messages[0]
    assert first.message_id == str(MessageId(2, 3, 7, 1_000))
    assert (first.due_ms, first.store_ms, first.body_bytes) == (1_000, 500, 3)
    assert (first.body, first.meta.SerializeToString()) == (b"abc", META.raw)
    assert [one.is_corrupt for one in answer.messages] == [False] * 300 + [True, True]
    assert not any(one.HasField("meta") for one in answer.messages[300:])
    counts = (answer.scanned_count, answer.matched_count, answer.corrupt_count)
    assert (counts, answer.next_page_token) == ((9, 2, 1), b"next")


async def test_engine_is_asked_for_what_is_wanted_and_no_more() -> None:
    engine = FakeEngine()
    wanted = {"from_due_ms": 5, "to_due_ms": 6, "page_token": b"t", "with_bodies": True}
    await list_pending(engine, request_of(filter=SQL, page_size=7, **wanted))
    await list_pending(engine, request_of())
    await list_pending(engine, request_of(page_size=9, count_only=True))
    everything = PendingQuery("orders", FilterExpression.everything())
    assert engine.asked("list_pending") == [
        (PendingQuery("orders", Sql("p = 'v'"), 5, 6), b"t", 7, True),
        (everything, b"", PAGE_SIZE_DEFAULT, False),
        (everything, b"", 0, False),
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": ""}, errors.InvalidTopic),
        ({"filter": filter_pb2.FilterExpression(kind=SQL.kind, text="=")}, errors.InvalidFilter),
        ({"page_size": limits.PENDING_PAGE_SIZE_MAX + 1}, errors.InvalidArgument),
        ({"from_due_ms": -1}, errors.InvalidArgument),
        ({"to_due_ms": DUE_MS_MAX + 1}, errors.InvalidArgument),
        ({"from_due_ms": 6, "to_due_ms": 5}, errors.InvalidArgument),
    ],
)
async def test_list_is_refused_before_the_engine_is_asked(
    fields: dict[str, Any], error: type[errors.HourwheelError]
) -> None:
    engine = FakeEngine()
    with pytest.raises(error):
        await list_pending(engine, request_of(**fields))
    assert not engine.calls


async def test_cancel_wants_a_filter_lest_somebody_forgets_it() -> None:
    engine = FakeEngine()
    with pytest.raises(errors.InvalidFilter):
        await cancel_pending(engine, pending_pb2.CancelPendingRequest(topic="orders"))
    assert not engine.calls


async def test_cancel_tells_how_many_and_where_to_go_on() -> None:
    engine = FakeEngine()
    engine.changed_page = ChangedPage(4, 3, 2, 1, b"next")
    request = pending_pb2.CancelPendingRequest(topic="orders", filter=SQL, to_due_ms=9)
    answer = await cancel_pending(engine, request)
    assert (answer.cancelled_count, answer.already_released_count) == (4, 3)
    assert (answer.scanned_count, answer.corrupt_count) == (2, 1)
    assert answer.next_page_token == b"next"
    ((query, *_),) = engine.asked("cancel_pending")
    assert query == PendingQuery("orders", Sql("p = 'v'"), 0, 9)


async def test_move_tells_how_many_and_where_to_go_on() -> None:
    engine = FakeEngine()
    engine.changed_page = ChangedPage(4, 3, 2, 1, b"next")
    request = pending_pb2.ReschedulePendingRequest(topic="orders", key_prefix="a-", new_due_ms=9)
    answer = await reschedule_pending(engine, gate_of(engine), request)
    assert (answer.rescheduled_count, answer.missed_count) == (4, 3)
    assert (answer.scanned_count, answer.corrupt_count) == (2, 1)
    assert answer.next_page_token == b"next"
    ((query, *_),) = engine.asked("reschedule_pending")
    everything = FilterExpression.everything()
    assert query == PendingQuery("orders", everything, key_prefix="a-", new_due_ms=9)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"key_prefix": ""}, errors.InvalidFilter),
        ({"key_prefix": "k" * 256}, errors.InvalidArgument),
        ({"filter": SQL}, errors.InvalidArgument),
        ({"new_due_ms": 0}, errors.InvalidDueTime),
        ({"new_due_ms": -1}, errors.InvalidDueTime),
        ({"new_due_ms": DUE_MS_MAX + 1}, errors.InvalidDueTime),
    ],
)
async def test_move_is_refused_before_the_engine_is_asked(
    changes: dict[str, Any], error: type[errors.HourwheelError]
) -> None:
    engine = FakeEngine()
    fields: dict[str, Any] = {"topic": "orders", "key_prefix": "a-", "new_due_ms": 9}
    request = pending_pb2.ReschedulePendingRequest(**(fields | changes))
    with pytest.raises(error):
        await reschedule_pending(engine, gate_of(engine), request)
    assert not engine.calls


async def test_list_says_by_which_keys_it_has_chosen() -> None:
    """A node that does not know of it says nothing."""
    engine = FakeEngine()
    engine.pending_page = PendingPage()
    answer = await list_pending(engine, request_of(key_prefix="a-", count_only=True))
    assert answer.key_prefix == "a-"
    ((query, *_),) = engine.asked("list_pending")
    assert query.key_prefix == "a-"
