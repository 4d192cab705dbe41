"""TransactionService as a client of any language sees it."""

from dataclasses import replace
from typing import Any

import pytest

from hourwheel.formats.meta import MessageMeta, decode, encode
from hourwheel.v1 import broker_pb2, meta_pb2
from hourwheel.v1 import transaction_pb2 as wire
from tests.support.api_world import ApiWorld, refused

TOKEN = bytes(range(16))


def request(**changes: Any) -> wire.PrepareRequest:
    part = wire.PreparedMessages(topic="orders", messages=[broker_pb2.OutgoingMessage(body=b"x")])
    fields: dict[str, Any] = {"producer_group": "tills", "parts": [part], "token": TOKEN}
    return wire.PrepareRequest(**{**fields, **changes})


def parts(*names: str, count: int = 1) -> list[wire.PreparedMessages]:
    messages = [broker_pb2.OutgoingMessage(body=b"x")] * count
    return [wire.PreparedMessages(topic=name, messages=messages) for name in names]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"producer_group": ""}, "INVALID_ARGUMENT"),
        ({"producer_group": "ä" * 64}, "INVALID_ARGUMENT"),
        ({"token": b"short"}, "INVALID_ARGUMENT"),
        ({"parts": []}, "INVALID_ARGUMENT"),
        ({"parts": parts("a", "a")}, "INVALID_ARGUMENT"),
        ({"parts": parts(*(f"t{one}" for one in range(17)))}, "INVALID_ARGUMENT"),
        ({"parts": parts("a", count=0)}, "TOO_MANY_ITEMS"),
        ({"parts": parts("a", "b", count=501)}, "TOO_MANY_ITEMS"),
        ({"parts": parts("o r")}, "INVALID_TOPIC"),
        ({"check_interval_ms": 999}, "INVALID_ARGUMENT"),
        ({"check_interval_ms": 86_400_001}, "INVALID_ARGUMENT"),
        ({"checks_max": 101}, "INVALID_ARGUMENT"),
        ({"age_ms_max": 1}, "INVALID_ARGUMENT"),
        ({"age_ms_max": 4 * 86_400_000}, "INVALID_ARGUMENT"),
    ],
)
async def test_prepare_when_it_cannot_be(changes: dict[str, Any], reason: str) -> None:
    async with ApiWorld() as world:
        refusal = await refused(world.transactions.Prepare(request(**changes)))
        assert refusal.reason == reason
        assert world.engine.transactions.calls == []


async def test_prepare_when_it_is_too_large() -> None:
    async with ApiWorld({"limits": {"batch_bytes": 4_096}}) as world:
        messages = [broker_pb2.OutgoingMessage(body=b"x" * 1_500)]
        halves = [wire.PreparedMessages(topic=name, messages=messages * 2) for name in "ab"]
        refusal = await refused(world.transactions.Prepare(request(parts=halves)))
        assert refusal.reason == "BATCH_TOO_LARGE"


async def test_prepare_when_it_is_repeated() -> None:
    async with ApiWorld() as world:
        first = await world.transactions.Prepare(request())
        again = await world.transactions.Prepare(request())
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.transaction_id == again.transaction_id


@pytest.mark.parametrize(("from_prepare", "due_in_ms"), [(True, 300), (True, None), (False, 300)])
async def test_expiry_counts_from_when_the_delay_does(
    *, from_prepare: bool, due_in_ms: int | None
) -> None:
    async with ApiWorld() as world:
        after_ms = 500 + (due_in_ms or 0)
        metas = [MessageMeta(keys=("k",), expires_ms=one) for one in (-after_ms, 0)]
        messages = [
            broker_pb2.OutgoingMessage(delay_ms=due_in_ms, meta=meta_pb2.MessageMeta())
            for _ in metas
        ]
        for message, meta in zip(messages, metas, strict=True):
            message.meta.ParseFromString(encode(meta).raw)
        one = wire.PreparedMessages(topic="orders", messages=messages)
        await world.transactions.Prepare(request(parts=[one], delays_from_prepare=from_prepare))
        ((_, asked),) = world.engine.transactions.calls
        found = [decode(raw) for raw in asked.parts[0].metas]
        expected = world.engine.clock_ms + after_ms if from_prepare else -after_ms
        assert found == [replace(metas[0], expires_ms=expected), metas[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"producer_group": ""},
        {"topics": []},
        {"topics": ["t"] * 1_025},
        {"wait_ms": 60_001},
        {"max_checks": 101},
    ],
)
async def test_poll_when_it_cannot_be(changes: dict[str, Any]) -> None:
    async with ApiWorld() as world:
        fields = {"producer_group": "tills", "topics": ["orders"], **changes}
        refusal = await refused(world.transactions.PollChecks(wire.PollChecksRequest(**fields)))
        assert refusal.reason == "INVALID_ARGUMENT"


async def test_poll_when_something_is_open() -> None:
    async with ApiWorld() as world:
        made = await world.transactions.Prepare(request(parts=parts("orders", "bills", count=2)))
        found = await world.transactions.PollChecks(
            wire.PollChecksRequest(producer_group="tills", topics=["bills", "orders"], wait_ms=9)
        )
        (check,) = found.checks
        assert check.transaction_id == made.transaction_id
        assert [(one.topic, len(one.messages)) for one in check.parts] == [
            *(("orders", 2), ("bills", 2))
        ]
        assert world.engine.transactions.calls[-1] == (
            *("poll", ("tills", ["bills", "orders"], 16, 9)),
        )
        refusal = await refused(
            world.transactions.ListTransactions(wire.ListTransactionsRequest(page_size=1_001))
        )
        assert refusal.reason == "INVALID_ARGUMENT"
