"""Filters over the wire, and our own client's part of them; the engine behind it is a fake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hourwheel import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    FilterExpression,
    GeneKind,
    GeneSpec,
    Message,
    Sql,
    Tags,
    errors,
)
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.tag_gene import DEFAULT_SPEC, gene_of
from hourwheel.v1.consumer_pb2 import RECEIVE_FORMAT_BATCH, ReceiveRequest, ReceiveResponse
from hourwheel.v1.filter_pb2 import FilterExpression as Wire
from node.contracts.broker import Delivery, GroupInfo, ReceiveParams, SubscriptionInfo
from tests.support.api_world import ApiWorld, refused
from tests.support.fake_engine import NOW_MS, FakeEngine, Stored

HERE = Tags("a", check_at_client=True)


class LeavingEngine(FakeEngine):
    """Leaves the check to the client."""

    async def receive(self, params: ReceiveParams) -> Delivery | None:
        delivery = await super().receive(params)
        return None if delivery is None else delivery._replace(to_check=HERE)


@asynccontextmanager
async def leaving() -> AsyncIterator[ApiWorld]:
    """Holds four messages: a, none, b, a and b."""
    async with ApiWorld(engine=LeavingEngine()) as world:
        for number, tags in enumerate((("a",), (), ("b",), ("a", "b"))):
            meta = encode(MessageMeta(tags=tags)).raw
            world.engine.stored.append(Stored("orders", NOW_MS, b"%d" % number, meta))
        yield world


def asking(**fields: Any) -> ReceiveRequest:
    return ReceiveRequest(group="g", topic="orders", **fields)


@pytest.mark.parametrize("form", [0, RECEIVE_FORMAT_BATCH])
async def test_receive_tells_what_is_to_be_checked_in_either_format(form: Any) -> None:
    async with leaving() as world:
        answer: ReceiveResponse = await world.consumer.Receive(asking(format=form))
    assert answer.to_check == Wire(kind=1, text="a", check_at_client=True)


async def test_receive_tells_nothing_when_the_node_checks() -> None:
    async with ApiWorld() as world:
        world.engine.stored.append(Stored("orders", NOW_MS, b"x"))
        answer: ReceiveResponse = await world.consumer.Receive(asking())
        assert len(answer.messages) == 1
        assert not answer.HasField("to_check")


@pytest.mark.parametrize("given", [HERE, None])
async def test_client_checks_when_it_is_told_to(given: FilterExpression | None) -> None:
    settings: dict[str, Any] = {"group": "g", "topic": "orders", "filter": given}
    async with leaving() as world:
        async with AsyncConsumer(world.address, **settings, prefetch_messages=0) as consumer:
            received = await consumer.receive()
            assert [message.body for message in received] == [b"0", b"3"]
            await consumer.nack(received)
        acked, nacked = [], []
        for _, selections, ending in world.engine.asked("resolve"):
            chosen = [(one.first, one.count) for one in selections]
            (acked if ending.is_ack else nacked).extend(chosen)
    assert acked == [(1, 2)]
    assert sorted(nacked) == [(0, 1), (3, 1)]


@pytest.mark.parametrize(
    "failure",
    [
        errors.InvalidFilter("it ends too early", position=6),
        errors.SubscriptionMismatch("group g wants a", theirs="a"),
    ],
)
async def test_receive_fails_at_once_when_the_filter_is_refused(
    failure: errors.HourwheelError,
) -> None:
    async with ApiWorld() as world:
        world.engine.errors |= {"receive": failure, "receive_stream": failure}
        refusal = await refused(world.consumer.Receive(asking(filter=Wire(text="a || "))))
        assert (refusal.reason, refusal.params) == (failure.reason, failure.params)
        async with (
            asyncio.timeout(60),
            AsyncConsumer(world.address, group="g", topic="orders", filter="a || ") as consumer,
        ):
            with pytest.raises(type(failure)) as raised:
                await consumer.receive(wait_ms=3_600_000)
            assert raised.value.params == failure.params


async def test_subscriptions_and_genes_come_back_as_they_went() -> None:
    spec = GeneSpec(GeneKind.BLOOM, 2, ("region",))
    wanted = Sql("amount > 5", check_at_client=True)
    async with ApiWorld() as world, AsyncAdmin(world.address) as admin:
        assert (await admin.create_topic("orders", gene=spec)).gene == spec
        assert (await admin.get_topic("orders")).gene == spec
        assert (await admin.put_subscription("g", "orders", wanted)).filter == wanted
        world.engine.known_groups["g"] = GroupInfo(
            *("g", 1, 2, 3, 4),
            subscriptions=(SubscriptionInfo("orders", wanted), SubscriptionInfo("all", None)),
        )
        group = await admin.get_group("g")
    assert [(one.topic, one.filter) for one in group.subscriptions] == [
        ("orders", wanted),
        ("all", FilterExpression.everything()),
    ]


async def test_producer_makes_the_genes_that_the_topic_wants() -> None:
    spec = GeneSpec(GeneKind.SPARSE, 1)
    engine = FakeEngine()
    publish_batch = engine.publish_batch

    async def telling(topic: str, batch: Any) -> Any:
        return replace(await publish_batch(topic, batch), expected_gene=spec)

    engine.publish_batch = telling  # type: ignore[method-assign]
    async with ApiWorld(engine=engine) as world, AsyncProducer(world.address) as producer:
        for _ in range(2):
            await producer.publish("orders", Message(b"x", tags=("a", "b")))
    batches = [batch for _, batch in engine.asked("publish_batch")]
    expected = [(one.number, [gene_of(one, ("a", "b"))]) for one in (DEFAULT_SPEC, spec)]
    assert [(one.header.gene_spec, one.tag_gene.tolist()) for one in batches] == expected
