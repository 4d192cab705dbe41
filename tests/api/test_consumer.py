"""Receive in both formats, Ack, Nack, ChangeInvisible over real gRPC."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.filter_language.text import FilterExpression as Wanted
from hourwheel.formats.delivery_batch import DeliveryBatch
from hourwheel.formats.receipt import Receipt, parse
from hourwheel.transport.channel import Channel
from hourwheel.v1.consumer_pb2 import (
    RECEIPT_OUTCOME_INVALID,
    RECEIPT_OUTCOME_OK,
    RECEIPT_OUTCOME_STALE,
    RECEIVE_FORMAT_BATCH,
    AckRequest,
    ChangeInvisibleRequest,
    NackRequest,
    ReceiptRange,
    ReceiveRequest,
    ReceiveResponse,
)
from hourwheel.v1.filter_pb2 import FILTER_KIND_SQL, FilterExpression
from hourwheel.v1.meta_pb2 import MessageMeta
from node.access.control import AccessControl
from node.api.admission import Admission
from node.api.consumer import Consumer
from node.config.model import LimitsSection
from node.contracts.broker import ReceiveParams
from node.contracts.ending import ACKED, Ending
from node.telemetry.stats import ApiStats
from tests.support.api_world import ApiWorld, refused
from tests.support.eventually import until
from tests.support.fake_engine import EPOCH, NOW_MS, FakeEngine, Stored

META = MessageMeta(tags=["eu"], client_message_id="abc").SerializeToString()


def store(world: ApiWorld, *bodies: bytes, meta: bytes = b"") -> None:
    world.engine.stored += [Stored("orders", NOW_MS - 7, body, meta, 2) for body in bodies]


def asking(**fields: Any) -> ReceiveRequest:
    return ReceiveRequest(**{"group": "billing", "topic": "orders", **fields})


async def test_receive_answers_messages_when_asked_so() -> None:
    async with ApiWorld() as world:
        store(world, b"first", b"second", meta=META)
        answer = await world.consumer.Receive(asking())
    assert [message.body for message in answer.messages] == [b"first", b"second"]
    one = answer.messages[1]
    assert one.message_id == f"{0:08x}{EPOCH:08x}{1:016x}{NOW_MS - 7:016x}"
    assert (one.due_ms, one.store_ms, one.attempt) == (NOW_MS - 7, NOW_MS, 2)
    assert (one.topic, list(one.meta.tags)) == ("orders", ["eu"])
    assert (answer.receive_ms, answer.invisible_until_ms) == (NOW_MS, NOW_MS + 30_000)
    whole, own = parse(answer.receipt), parse(one.receipt)
    assert (whole.index, whole.count) == (0, 2)
    assert own == replace(whole, index=1, count=1)
    assert answer.delivery_batch == b""


async def test_receive_answers_a_batch_when_asked_so() -> None:
    async with ApiWorld() as world:
        store(world, b"first", b"second", meta=META)
        answer = await world.consumer.Receive(asking(format=RECEIVE_FORMAT_BATCH))
    batch = DeliveryBatch(answer.delivery_batch)
    batch.verify()
    assert batch.header.count == 2
    assert batch.epoch.tolist() == [EPOCH, EPOCH]
    assert batch.due_ms.tolist() == [NOW_MS - 7] * 2
    assert len(answer.messages) == 0


async def test_receive_delivers_the_body_when_the_meta_cannot_be_read() -> None:
    async with ApiWorld() as world:
        store(world, b"body", meta=b"\x0a\x7f")
        answer = await world.consumer.Receive(asking())
    assert answer.messages[0].body == b"body"
    assert answer.messages[0].meta == MessageMeta()


async def test_receive_is_empty_when_there_is_nothing() -> None:
    async with ApiWorld() as world:
        answer = await world.consumer.Receive(asking())
    assert answer == ReceiveResponse(receive_ms=NOW_MS)


async def test_receive_gives_defaults_when_little_is_asked() -> None:
    async with ApiWorld() as world:
        await world.consumer.Receive(asking())
        await world.consumer.Receive(asking(max_messages=5, max_bytes=9, invisible_ms=100))
        asked = world.engine.asked("receive")
    assert asked == [
        ReceiveParams("billing", "orders", 32, 1 << 20, overhead_bytes=400),
        ReceiveParams("billing", "orders", 5, 9, invisible_ms=100, overhead_bytes=400),
    ]


async def test_receive_waits_when_asked_and_is_woken_by_a_message() -> None:
    async with ApiWorld() as world:
        poll = asyncio.ensure_future(world.consumer.Receive(asking(wait_ms=60_000)))
        await until(lambda: world.stats.long_polls == 1)
        assert world.stats.requests_in_flight == 0
        await world.publish(b"x")
        answer = await poll
        assert answer.messages[0].body == b"x"
        assert (world.stats.long_polls, world.stats.requests_in_flight) == (0, 0)


async def test_receive_waits_no_longer_than_its_deadline_when_it_has_one() -> None:
    async with ApiWorld() as world:
        store(world, b"x")
        await world.consumer.Receive(asking(wait_ms=60_000), timeout=20)
        store(world, b"y")
        await world.consumer.Receive(asking(wait_ms=5_000), timeout=20)
        first_ms, second_ms = (asked.wait_ms for asked in world.engine.asked("receive"))
    assert 15_000 < first_ms <= 19_950
    assert second_ms == 5_000


async def test_receive_leaves_nothing_behind_when_the_caller_goes_away() -> None:
    async with ApiWorld() as world:
        call = world.consumer.Receive(asking(wait_ms=60_000))
        await until(lambda: world.stats.long_polls == 1)
        call.cancel()
        await until(lambda: world.stats.long_polls == 0)
        assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)
        assert world.engine.leases == 0


async def test_nothing_is_leased_to_a_consumer_that_has_been_closed() -> None:
    """Its polls were given up, and a message that came before the node knew it went to one."""
    async with ApiWorld() as world, Channel(world.address) as channel:
        consumer = AsyncConsumer(channel, group="billing", topic="orders")
        assert not await consumer.receive(wait_ms=1)
        await until(lambda: world.stats.long_polls > 0)
        await consumer.close()
        assert world.stats.long_polls == 0
        store(world, b"x")
        async with AsyncConsumer(channel, group="billing", topic="orders") as another:
            (message,) = await another.receive()
        assert message.body == b"x"


async def test_receive_is_empty_when_the_node_drains_meanwhile() -> None:
    async with ApiWorld() as world:
        poll = asyncio.ensure_future(world.consumer.Receive(asking(wait_ms=60_000)))
        await until(lambda: world.stats.long_polls == 1)
        await world.server.drain()
        assert list((await poll).messages) == []
        refusal = await refused(world.consumer.Receive(asking()))
    assert refusal.reason == "SHUTTING_DOWN"


async def test_receive_counts_what_is_handed_out_until_it_is_read() -> None:
    engine, admission = FakeEngine(), Admission(LimitsSection(), ApiStats())
    engine.stored.append(Stored("orders", NOW_MS, bytes(1_000)))
    whenever_read: list[Any] = []
    context: Any = SimpleNamespace(add_done_callback=whenever_read.append)
    await Consumer(engine, admission, AccessControl()).receive(asking(), context)
    assert engine.answers.held_bytes == 1_000
    whenever_read[0](context)
    assert engine.answers.held_bytes == 0


async def test_receive_holds_nothing_when_its_answer_is_read() -> None:
    async with ApiWorld() as world:
        store(world, bytes(1_000))
        await world.consumer.Receive(asking())
        await until(lambda: world.engine.answers.held_bytes == 0)


async def test_receive_is_overloaded_when_too_many_wait() -> None:
    async with ApiWorld({"limits": {"long_polls": 2}}) as world:
        polls = [world.consumer.Receive(asking(wait_ms=60_000)) for _ in range(2)]
        await until(lambda: world.stats.long_polls == 2)
        refusal = await refused(world.consumer.Receive(asking(wait_ms=60_000)))
        assert world.stats.requests_in_flight == 0
        for poll in polls:
            poll.cancel()
    assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.long_polls")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"group": ""}, "INVALID_GROUP"),
        ({"group": "a b"}, "INVALID_GROUP"),
        ({"topic": ""}, "INVALID_TOPIC"),
        ({"topic": "a b"}, "INVALID_TOPIC"),
        ({"max_messages": 16_385}, "INVALID_ARGUMENT"),
        ({"max_bytes": (8 << 20) + 1}, "INVALID_ARGUMENT"),
        ({"wait_ms": 60_001}, "INVALID_ARGUMENT"),
        ({"invisible_ms": 99}, "INVALID_ARGUMENT"),
        ({"invisible_ms": 43_200_001}, "INVALID_ARGUMENT"),
        ({"format": 9}, "INVALID_ARGUMENT"),
    ],
)
async def test_receive_is_refused_when_it_asks_the_impossible(
    fields: dict[str, Any], reason: str
) -> None:
    async with ApiWorld() as world:
        refusal = await refused(world.consumer.Receive(asking(**fields)))
        assert world.engine.asked("receive") == []
    assert refusal.reason == reason
    if reason == "INVALID_ARGUMENT":
        assert refusal.params["field"] == next(iter(fields))


async def test_receive_reads_internal_topics_when_their_name_is_asked() -> None:
    async with ApiWorld() as world:
        await world.consumer.Receive(asking(topic="%DLQ%billing"))
        assert world.engine.asked("receive")[0].topic == "%DLQ%billing"


async def received(world: ApiWorld, count: int) -> ReceiveResponse:
    store(world, *[b"x"] * count)
    answer: ReceiveResponse = await world.consumer.Receive(asking())
    return answer


async def test_ack_finishes_when_given_receipts_and_ranges() -> None:
    async with ApiWorld() as world:
        answer = await received(world, 10)
        acked = await world.consumer.Ack(
            AckRequest(
                group="billing",
                receipts=[answer.messages[7].receipt],
                ranges=[
                    ReceiptRange(receipt=answer.receipt, first=0, count=3),
                    ReceiptRange(receipt=answer.receipt, first=8),
                    ReceiptRange(receipt=answer.messages[4].receipt),
                ],
            )
        )
        ((group, selections, ending),) = world.engine.asked("resolve")
    assert list(acked.outcomes) == [RECEIPT_OUTCOME_OK] * 4
    assert (group, ending) == ("billing", ACKED)
    assert [(each.first, each.count) for each in selections] == [(7, 1), (0, 3), (8, 2), (4, 1)]
    assert {each.receipt.lease_id for each in selections} == {1}


async def test_ack_answers_each_receipt_when_some_are_stale_or_foreign() -> None:
    async with ApiWorld() as world:
        answer, other = await received(world, 3), await received(world, 2)
        good = parse(answer.receipt)
        world.engine.stale_leases.add(parse(other.receipt).lease_id)
        foreign_cluster = replace(good, cluster=good.cluster ^ 1)
        foreign_group = replace(good, group_id=9)
        acked = await world.consumer.Ack(
            AckRequest(
                group="billing",
                receipts=[str(foreign_cluster), other.receipt, answer.receipt, str(foreign_group)],
                ranges=[
                    ReceiptRange(receipt=answer.receipt, first=1, count=3),
                    ReceiptRange(receipt=answer.receipt, first=3),
                    ReceiptRange(receipt=str(replace(good, count=0))),
                    ReceiptRange(receipt=str(replace(good, count=2**32 - 1))),
                ],
            )
        )
        ((_, selections, _),) = world.engine.asked("resolve")
    assert list(acked.outcomes) == [
        RECEIPT_OUTCOME_INVALID,
        RECEIPT_OUTCOME_STALE,
        RECEIPT_OUTCOME_OK,
        RECEIPT_OUTCOME_INVALID,
        *[RECEIPT_OUTCOME_INVALID] * 4,
    ]
    assert len(selections) == 3


@pytest.mark.parametrize("text", ["", "garbage", "A" * 60, "ä" * 60])
async def test_ack_is_refused_when_a_receipt_is_garbage(text: str) -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        asked = AckRequest(group="billing", receipts=[answer.receipt, text])
        refusal = await refused(world.consumer.Ack(asked))
        ranged = AckRequest(group="billing", ranges=[ReceiptRange(receipt=text)])
        ranged_refusal = await refused(world.consumer.Ack(ranged))
        assert world.engine.asked("resolve") == []
    assert refusal.reason == ranged_refusal.reason == "INVALID_RECEIPT"
    assert refusal.params == {"ordinal": "1"}


async def test_ack_is_refused_when_there_are_too_many_receipts() -> None:
    async with ApiWorld() as world:
        receipt = str(Receipt(0, 0, 1, 1, 1, 0, 0, 1))
        asked = AckRequest(
            group="billing", receipts=[receipt] * 16_384, ranges=[ReceiptRange(receipt=receipt)]
        )
        refusal = await refused(world.consumer.Ack(asked))
    assert (refusal.reason, refusal.params["count"]) == ("TOO_MANY_ITEMS", "16385")


async def test_ack_asks_nobody_when_there_is_nothing_to_ask() -> None:
    async with ApiWorld() as world:
        answer = await world.consumer.Ack(AckRequest(group="billing"))
        assert world.engine.asked("resolve") == []
    assert list(answer.outcomes) == []


@pytest.mark.parametrize("delay_ms", [None, 0, 30 * 86_400_000])
async def test_nack_gives_back_when_the_delay_is_possible(delay_ms: int | None) -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        nacked = await world.consumer.Nack(
            NackRequest(group="billing", receipts=[answer.receipt], delay_ms=delay_ms)
        )
        ((_, _, ending),) = world.engine.asked("resolve")
    assert list(nacked.outcomes) == [RECEIPT_OUTCOME_OK]
    assert ending == Ending(retry_delay_ms=delay_ms)


async def test_nack_says_that_nobody_has_begun() -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        asked = NackRequest(group="billing", receipts=[answer.receipt], delay_ms=0, not_begun=True)
        assert list((await world.consumer.Nack(asked)).outcomes) == [RECEIPT_OUTCOME_OK]
        ((_, _, ending),) = world.engine.asked("resolve")
    assert ending == Ending(retry_delay_ms=0, is_unbegun=True)


@pytest.mark.parametrize("reason", ["", "no such order", "ä" * 512])
async def test_nack_rejects_when_it_is_told_to(reason: str) -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        asked = NackRequest(
            group="billing", receipts=[answer.receipt], dead_letter=True, reason=reason
        )
        nacked = await world.consumer.Nack(asked)
        ((_, _, ending),) = world.engine.asked("resolve")
    assert list(nacked.outcomes) == [RECEIPT_OUTCOME_OK]
    assert ending == Ending(rejection=reason)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"dead_letter": True, "reason": "ä" * 512 + "x"}, "reason"),
        ({"dead_letter": True, "delay_ms": 0}, "delay_ms"),
        ({"reason": "for nothing"}, "reason"),
        ({"not_begun": True}, "not_begun"),
        ({"not_begun": True, "delay_ms": 1}, "not_begun"),
        ({"not_begun": True, "dead_letter": True}, "not_begun"),
    ],
)
async def test_nack_is_refused_when_a_rejection_makes_no_sense(
    asked: dict[str, Any], field: str
) -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        request = NackRequest(group="billing", receipts=[answer.receipt], **asked)
        refusal = await refused(world.consumer.Nack(request))
        assert world.engine.asked("resolve") == []
    assert (refusal.reason, refusal.params["field"]) == ("INVALID_ARGUMENT", field)


async def test_nack_is_refused_when_the_delay_is_too_long() -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        refusal = await refused(
            world.consumer.Nack(
                NackRequest(group="g", receipts=[answer.receipt], delay_ms=30 * 86_400_000 + 1)
            )
        )
    assert refusal.params["field"] == "delay_ms"


async def test_change_invisible_moves_the_end_when_it_can() -> None:
    async with ApiWorld() as world:
        answer = await received(world, 3)
        changed = await world.consumer.ChangeInvisible(
            ChangeInvisibleRequest(
                group="billing", ranges=[ReceiptRange(receipt=answer.receipt)], invisible_ms=500
            )
        )
        nothing = await world.consumer.ChangeInvisible(
            ChangeInvisibleRequest(group="billing", invisible_ms=500)
        )
    assert list(changed.outcomes) == [RECEIPT_OUTCOME_OK]
    assert changed.invisible_until_ms == nothing.invisible_until_ms == NOW_MS + 500


@pytest.mark.parametrize(
    ("first", "count", "invisible_ms", "field"),
    [
        (1, 0, 500, "ranges"),
        (0, 2, 500, "ranges"),
        (0, 3, 99, "invisible_ms"),
        (0, 3, 43_200_001, "invisible_ms"),
    ],
)
async def test_change_invisible_is_refused_when_it_cannot(
    first: int, count: int, invisible_ms: int, field: str
) -> None:
    async with ApiWorld() as world:
        answer = await received(world, 3)
        part = ReceiptRange(receipt=answer.receipt, first=first, count=count)
        refusal = await refused(
            world.consumer.ChangeInvisible(
                ChangeInvisibleRequest(group="billing", ranges=[part], invisible_ms=invisible_ms)
            )
        )
    assert (refusal.reason, refusal.params["field"]) == ("INVALID_ARGUMENT", field)


async def test_consuming_is_refused_when_the_engine_does_not_know_the_group() -> None:
    async with ApiWorld() as world:
        answer = await received(world, 1)
        for name in ("receive", "resolve", "change_invisible"):
            world.engine.errors[name] = errors.UnknownGroup("no such group", group="billing")
        calls = (
            world.consumer.Receive(asking()),
            world.consumer.Ack(AckRequest(group="billing", receipts=[answer.receipt])),
            world.consumer.Nack(NackRequest(group="billing", receipts=[answer.receipt])),
            world.consumer.ChangeInvisible(
                ChangeInvisibleRequest(group="billing", receipts=[answer.receipt], invisible_ms=500)
            ),
        )
        assert {(await refused(call)).reason for call in calls} == {"UNKNOWN_GROUP"}


async def test_receive_hands_on_what_the_group_wants() -> None:
    async with ApiWorld() as world:
        wanted = FilterExpression(kind=FILTER_KIND_SQL, text="a = 1", check_at_client=True)
        await world.consumer.Receive(asking(filter=wanted))
        await world.consumer.Receive(asking())
        wanted.kind = 77
        refusal = await refused(world.consumer.Receive(asking(filter=wanted)))
    asked = [params.filter for params in world.engine.asked("receive")]
    assert asked == [Wanted.sql("a = 1", check_at_client=True), None]
    assert refusal.reason == "INVALID_ARGUMENT"
