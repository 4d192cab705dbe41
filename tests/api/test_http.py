"""The HTTP API, from publish to acknowledgement, at a real node."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hourwheel import AsyncAdmin, AsyncConsumer
from hourwheel.clock import SystemClock
from tests.support.eventually import until_told
from tests.support.http_world import HttpWorld

VALUES = {"disk": {"free_bytes_min": 0, "reserve_bytes": 0}}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HttpWorld]:
    async with HttpWorld(tmp_path, VALUES, call_timeout_ms=3_000) as found:
        yield found


async def test_a_message_from_publish_to_ack(world: HttpWorld) -> None:
    sent = {
        "json": {"order": 17, "big": 12345678901234567890, "text": "ü"},
        "tags": ["paid"],
        "keys": ["order-17"],
        "properties": {"region": "eu"},
        "ordering_key": "c-3",
        "priority": 7,
        "client_message_id": "mine",
    }
    published = await world.post("/v1/topics/orders/messages", sent)
    assert published.status == 201
    (message,) = published.json["messages"]
    assert message["outcome"] == "published"

    requested = {"topic": "orders", "wait_ms": 20_000, "invisible": "30s"}
    received = await world.post("/v1/groups/billing/receive", requested)
    assert received.status == 200
    (one,) = received.json["messages"]
    assert json.loads(one["text"]) == sent["json"]
    assert one["id"] == message["id"]
    for name in ("tags", "keys", "properties", "ordering_key", "priority", "client_message_id"):
        assert one[name] == sent[name]
    assert (one["content_type"], one["attempt"]) == ("application/json", 1)
    assert received.json["invisible_until_ms"] > one["store_ms"]

    receipts = {"receipts": [one["receipt"]]}
    extended = await world.post("/v1/groups/billing/extend", {**receipts, "invisible": 60_000})
    assert extended.json["invisible_until_ms"] > received.json["invisible_until_ms"]
    done = await world.post("/v1/groups/billing/ack", receipts)
    assert (done.status, done.json) == (200, {"count": 1})
    again = await world.post("/v1/groups/billing/ack", receipts)
    assert (again.status, again.reason) == (409, "STALE_RECEIPT")
    assert again.json["params"]["indexes"] == "0"
    empty = await world.post("/v1/groups/billing/receive", {"topic": "orders"})
    assert empty.json["messages"] == []
    described = await world.get(f"/v1/messages/{one['id']}")
    assert described.json["state"] == "released"


async def test_a_list_with_bytes_and_text_comes_back_as_it_was(world: HttpWorld) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    answer = await world.post("/v1/topics/t/messages", [{"base64": raw}, {"text": "grün"}])
    assert len(answer.json["messages"]) == 2
    found: dict[str, str] = {}

    async def take() -> bool:
        received = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 5_000})
        for one in received.json["messages"]:
            found[one["id"]] = one.get("base64") or one["text"]
        return len(found) == 2

    await until_told(take)
    assert [found[one["id"]] for one in answer.json["messages"]] == [raw, "grün"]


async def test_a_list_is_refused_as_a_whole_and_says_which(world: HttpWorld) -> None:
    for bad in ({"text": "x", "delay": "100y"}, {"text": "x", "delay": 1 << 50}):
        refused = await world.post("/v1/topics/t/messages", [{"text": "a"}, bad])
        assert refused.status == 400
        assert refused.json["params"]["index"] == "1"
    assert (await world.post("/v1/groups/g/receive", {"topic": "t"})).reason == "UNKNOWN_TOPIC"


async def test_cancel_and_move_by_id_and_by_key(world: HttpWorld) -> None:
    path = "/v1/topics/t/messages"
    listed = [{"text": "x", "delay": "1h", "keys": [f"k{number}"]} for number in range(4)]
    ids = [one["id"] for one in (await world.post(path, listed)).json["messages"]]
    cancelled = await world.post("/v1/messages/cancel", {"ids": [ids[0], "0" * 48]})
    assert [one["outcome"] for one in cancelled.json["outcomes"]] == ["cancelled", "unknown"]
    by_key = await world.post("/v1/topics/t/cancel", {"keys": ["k1", "nobody"]})
    assert [one["count"] for one in by_key.json["outcomes"]] == [1, 0]
    due_s = int(SystemClock().wall_ms()) // 1_000 + 30 * 86_400
    due = datetime.fromtimestamp(due_s, UTC).isoformat()
    moved = await world.post("/v1/messages/move", {"ids": ids[2:3], "due": due})
    assert moved.json["outcomes"][0]["due_ms"] == due_s * 1_000
    assert (await world.get(f"/v1/messages/{ids[2]}")).json["due_ms"] == due_s * 1_000
    now = await world.post("/v1/topics/t/move", {"keys": ["k3"], "delay": 0})
    assert now.json["outcomes"][0]["count"] == 1
    received = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 20_000})
    assert [one["id"] for one in received.json["messages"]] == ids[3:]
    known = await world.get(f"{path}?key=k2&limit=1")
    assert [one["id"] for one in known.json["messages"]] == ids[2:3]
    assert known.json["is_complete"]


async def test_nack_brings_it_again_and_a_filter_leaves_out(world: HttpWorld) -> None:
    await world.post("/v1/topics/t/messages", [{"text": "a", "tags": ["no"]}, {"text": "b"}])
    requested = {"topic": "t", "wait_ms": 20_000, "filter": {"tags": "!no"}}
    for attempt in (1, 2):
        received = await world.post("/v1/groups/g/receive", requested)
        (one,) = received.json["messages"]
        assert (one["text"], one["attempt"]) == ("b", attempt)
        receipts = {"receipts": [one["receipt"]], "delay": 0}
        assert (await world.post("/v1/groups/g/nack", receipts)).status == 200


async def test_nack_of_what_nobody_has_begun_is_no_attempt(world: HttpWorld) -> None:
    await world.post("/v1/topics/t/messages", {"text": "a"})
    for _ in range(3):
        received = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 20_000})
        (one,) = received.json["messages"]
        assert one["attempt"] == 1
        given = {"receipts": [one["receipt"]], "not_begun": True}
        refused = await world.post("/v1/groups/g/nack", {**given, "delay": "1s"})
        assert (refused.status, refused.reason) == (400, "INVALID_ARGUMENT")
        assert (await world.post("/v1/groups/g/nack", given)).status == 200


async def test_nack_makes_a_dead_letter_with_a_reason(world: HttpWorld) -> None:
    await world.post("/v1/topics/t/messages", {"text": "a"})
    received = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 20_000})
    (one,) = received.json["messages"]
    path, finished = "/v1/groups/g/nack", {"receipts": [one["receipt"]], "dead_letter": True}
    refused = await world.post(path, {**finished, "delay": "1s"})
    assert (refused.status, refused.reason) == (400, "INVALID_ARGUMENT")
    assert (await world.post(path, {**finished, "reason": "no such order"})).status == 200
    async with AsyncAdmin(world.node.address) as admin:
        (letter,) = [found async for found in admin.list_dead_letters("g")]
    assert (str(letter.message_id), letter.rejected_because) == (one["id"], "no such order")


async def test_messages_expire(world: HttpWorld) -> None:
    """After the due time, or at an instant; what came too late nobody gets."""
    path = "/v1/topics/t/messages"
    for wrong in (
        {"expires": 4_000_000_000_000, "expire_after": "1m"},
        {"expires": "2100-01-01T00:00:00Z", "due": "2100-01-01T00:00:00Z"},
        {"expires": "5m"},
        {"expire_after": 0},
    ):
        refused = await world.post(path, {"text": "x", **wrong})
        assert (refused.status, refused.reason) == (400, "INVALID_DUE_TIME")
    kept = {"text": "kept", "expires": "2100-01-01T00:00:00Z"}
    await world.post(path, [{"text": "gone", "expire_after": 1}, kept])
    async with AsyncConsumer(world.node.address, group="late", topic="t") as consumer:
        (message,) = await consumer.receive(wait_ms=20_000)
        assert (message.body, message.expires_ms) == (b"kept", 4_102_444_800_000)


async def test_a_group_begins_anew_as_was_counted_before(world: HttpWorld) -> None:
    await world.post("/v1/topics/t/messages", [{"text": "a"}, {"text": "b"}, {"text": "c"}])
    requested, path = {"topic": "t", "wait_ms": 20_000}, "/v1/groups/g/reset"
    receipts: list[str] = []
    while len(receipts) < 3:
        received = await world.post("/v1/groups/g/receive", requested)
        receipts += [one["receipt"] for one in received.json["messages"]]
    assert (await world.post("/v1/groups/g/ack", {"receipts": receipts[:2]})).status == 200
    counted = await world.post(path, {"topic": "t", "positions": [1], "count_only": True})
    wanted = {"again_count": 1, "skipped_count": 0, "retries_dropped_count": 0}
    wanted |= {"unresolved_count": 2, "positions": [1]}
    assert (counted.status, counted.json) == (200, wanted)
    nothing = await world.post("/v1/groups/g/receive", {"topic": "t"})
    assert nothing.json["messages"] == [], "it was only counted"
    done = await world.post(path, {"topic": "t", "positions": [1]})
    assert (done.status, done.json) == (200, wanted)
    stale = await world.post("/v1/groups/g/ack", {"receipts": receipts[2:]})
    assert stale.reason == "STALE_RECEIPT"
    again = await world.post("/v1/groups/g/receive", requested)
    assert [one["text"] for one in again.json["messages"]] == ["b", "c"]
    for to in ("first", "2025-01-01T00:00:00Z"):
        assert (await world.post(path, {"topic": "t", "to": to})).json["unresolved_count"] == 3
    assert (await world.post(path, {"topic": "t", "to": "now"})).json["skipped_count"] == 3
    for wrong in ({}, {"to": "now", "positions": [1]}, {"to": "5m"}, {"positions": [-1]}):
        assert (await world.post(path, {"topic": "t", **wrong})).status in {400, 422}


async def test_a_call_with_an_idempotency_key_happens_once(world: HttpWorld) -> None:
    path, body = "/v1/topics/t/messages", {"text": "x", "delay": "1h", "keys": ["k"]}
    first = await world.post(path, body, idempotency_key="order-17")
    again = await world.post(path, body, idempotency_key="order-17")
    assert first.json == again.json
    other = await world.post(path, {"text": "y"}, idempotency_key="order-17")
    assert (other.status, other.reason) == (422, "IDEMPOTENCY_KEY_REUSED")
    await world.post(path, body, idempotency_key="order-18")
    assert len((await world.get(f"{path}?key=k")).json["messages"]) == 2
    for key in ("", "x" * 256, "a b"):
        assert (await world.post(path, body, idempotency_key=key)).status == 400


async def test_an_idempotency_key_of_a_call_that_was_refused_is_free_for_the_corrected_one(
    world: HttpWorld,
) -> None:
    path, body = "/v1/topics/t/messages", {"text": "x", "delay": "1h", "dedup_key": "d"}
    refused = await world.post(path, body, idempotency_key="a")
    assert (refused.status, refused.reason) == (400, "INVALID_ARGUMENT")
    corrected = {**body, "if_pending": "reject"}
    assert (await world.post(path, corrected, idempotency_key="a")).status == 201
    other = await world.post(path, {**corrected, "delay": "2h"}, idempotency_key="a")
    assert (other.status, other.reason) == (422, "IDEMPOTENCY_KEY_REUSED")
    pending = await world.post(path, corrected, idempotency_key="b")
    assert (pending.status, pending.reason) == (409, "ALREADY_PENDING")
    other = await world.post(path, {"text": "x", "delay": "1h"}, idempotency_key="b")
    assert (other.status, other.reason) == (422, "IDEMPOTENCY_KEY_REUSED"), "a node had it"


async def test_an_idempotency_key_stands_for_one_request_at_all_gateways(world: HttpWorld) -> None:
    path, meta = "/v1/topics/t/messages", {"keys": ["k"], "properties": {"a": "1", "b": "2"}}
    body = [{"text": "x", "delay": "1h", **meta}, {"text": "y", "delay": "1h"}]
    own_url = world.url
    first = await world.post(path, body, idempotency_key="order-17")
    assert first.status == 201
    other = world.another_gateway()
    try:
        swapped = [{**body[0], "properties": {"b": "2", "a": "1"}}, body[1]]
        for same in (body, swapped, body[:1]):
            again = await world.post(path, same, idempotency_key="order-17")
            assert again.status == 201
            assert again.json["messages"] == first.json["messages"][: len(same)]
            await other.stop(0)
            other = world.another_gateway()
        for wrong in (
            [{**body[0], "text": "z"}, body[1]],
            [{**body[0], "tags": ["t"]}, body[1]],
            [body[1], body[0]],
            [*body, body[0]],
            {"text": "other", "delay": "1h"},
        ):
            refused = await world.post(path, wrong, idempotency_key="order-17")
            assert (refused.status, refused.reason) == (422, "IDEMPOTENCY_KEY_REUSED")
            await other.stop(0)
            other = world.another_gateway()
    finally:
        await other.stop(0)
        world.url = own_url
    assert len((await world.get(f"{path}?key=k")).json["messages"]) == 1


async def test_another_instant_under_an_idempotency_key_is_refused_at_all_gateways(
    world: HttpWorld,
) -> None:
    path, own_url = "/v1/topics/t/messages", world.url
    due_ms = int(SystemClock().wall_ms()) + 3_600_000
    body = {"text": "x", "due": due_ms}
    first = await world.post(path, body, idempotency_key="order-17")
    other = world.another_gateway()
    try:
        later = {**body, "due": due_ms + 1_000}
        refused = await world.post(path, later, idempotency_key="order-17")
        assert (refused.status, refused.reason) == (422, "IDEMPOTENCY_KEY_REUSED")
        await other.stop(0)
        other = world.another_gateway()
        again = await world.post(path, body, idempotency_key="order-17")
        assert (again.status, again.json) == (201, first.json)
        await other.stop(0)
        other = world.another_gateway()
        delayed = await world.post(path, {"text": "x", "delay": "2h"}, idempotency_key="order-17")
        assert (delayed.status, delayed.json) == (201, first.json), "as the page says"
    finally:
        await other.stop(0)
        world.url = own_url


async def test_dedup_keys(world: HttpWorld) -> None:
    path, body = "/v1/topics/t/messages", {"text": "x", "delay": "1h", "dedup_key": "d"}
    assert (await world.post(path, body)).json["params"]["field"] == "if_pending"
    first = await world.post(path, {**body, "if_pending": "keep"})
    kept = await world.post(path, {**body, "if_pending": "keep"})
    assert kept.json["messages"][0]["outcome"] == "kept"
    assert kept.json["messages"][0]["id"] == first.json["messages"][0]["id"]
    rejected = await world.post(path, {**body, "if_pending": "reject"})
    assert (rejected.status, rejected.reason) == (409, "ALREADY_PENDING")
    replaced = await world.post(path, {**body, "if_pending": "replace"})
    assert replaced.json["messages"][0]["outcome"] == "replaced"


async def test_a_poll_whose_caller_hangs_up_leases_nothing(world: HttpWorld) -> None:
    await world.post("/v1/topics/t/messages", {"text": "x"})
    await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 9_000, "invisible": "1h"})
    body = json.dumps({"topic": "t", "wait_ms": 60_000, "invisible": "1h"}).encode()
    reader, writer = await asyncio.open_connection(*world.address)
    head = (
        "POST /v1/groups/g/receive HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    await world.post("/v1/topics/t/messages", {"text": "y"})
    received = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 20_000})
    assert [(one["text"], one["attempt"]) for one in received.json["messages"]] == [("y", 1)]


async def test_probes_and_the_document(world: HttpWorld) -> None:
    assert (await world.get("/healthz")).json == {"status": "ok"}
    assert (await world.get("/readyz")).json == {"status": "ok"}
    assert (await world.get("/openapi.json")).json["openapi"] == "3.1.0"
    assert (await world.post("/healthz", {})).status == 405
    world.gateway.begin_stop()
    assert (await world.get("/readyz")).json == {"status": "stopping"}
    gone = await world.post("/v1/groups/g/receive", {"topic": "t", "wait_ms": 60_000})
    assert (gone.status, gone.reason) == (503, "SHUTTING_DOWN")
    assert gone.headers["retry-after"] == "1"
