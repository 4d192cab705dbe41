"""Quotas over real gRPC: unary calls, publish streams, sessions; what a call would make."""

import asyncio
from typing import Any

import grpc
import pytest

from hourwheel import errors
from hourwheel.client.batch_builder import Columns, build, draft_columns
from hourwheel.v1 import (
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    meta_pb2,
    pending_pb2,
    recurrence_pb2,
    session_pb2,
)
from hourwheel.v1.broker_pb2_grpc import ProducerServiceStub
from node.access.quotas import Limits, Quotas
from node.contracts.broker import TopicInfo
from node.contracts.pending_page import ChangedPage
from node.telemetry.stats import QUOTAS
from tests.support.api_world import ApiWorld, Refusal, refused
from tests.support.callers import identify
from tests.support.eventually import before_the_next_look, until, until_told
from tests.support.fake_engine import NOW_MS

ALICE = (("who", "alice"),)
BOB = (("who", "bob"),)


def world_of(**limits: Any) -> ApiWorld:
    quotas = Quotas()
    quotas.replace({"alice": Limits(**limits)})
    return ApiWorld(identify=identify, quotas=quotas)


def publish(world: ApiWorld, who: Any, *bodies: bytes, **fields: Any) -> Any:
    messages = [broker_pb2.OutgoingMessage(body=body, **fields) for body in bodies]
    request = broker_pb2.PublishRequest(topic="orders", messages=messages)
    return world.producer.Publish(request, metadata=who)


def batch(count: int) -> broker_pb2.PublishStreamRequest:
    columns = Columns(bodies=[b"x"] * count, delay_ms=[3_600_000] * count)
    raw = build(draft_columns(columns), 0, 0)
    return broker_pb2.PublishStreamRequest(topic="orders", record_batch=raw)


def assert_exceeded(refusal: Refusal, quota: str) -> None:
    assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
    assert refusal.params["quota"] == quota
    assert int(refusal.params["retry_after_ms"]) > 0


async def test_publishes_are_refused_above_the_rate_and_others_are_served() -> None:
    async with world_of(messages_per_s=2) as world:
        await publish(world, ALICE, b"1", b"2", b"3")
        assert_exceeded(await refused(publish(world, ALICE, b"4")), "messages_per_s")
        await publish(world, BOB, *[b"x"] * 100)
        assert len(world.engine.asked("publish_messages")) == 2
        assert world.stats.rejected_by_quota == {**dict.fromkeys(QUOTAS, 0), "messages_per_s": 1}


async def test_bytes_and_pending_messages_are_counted_and_given_back_when_refused() -> None:
    async with world_of(bytes_per_s=1_000, pending_messages=2) as world:
        await publish(world, ALICE, bytes(4_000))
        assert_exceeded(await refused(publish(world, ALICE, b"4")), "bytes_per_s")
    async with world_of(pending_messages=2) as world:
        world.engine.errors["publish_messages"] = RuntimeError("the outcome is not known")
        assert (await refused(publish(world, ALICE, b"x", delay_ms=9_000))).reason == "INTERNAL"
        del world.engine.errors["publish_messages"]
        await publish(world, ALICE, b"x", delay_ms=9_000)
        refusal = await refused(publish(world, ALICE, b"x", delay_ms=9_000))
        assert_exceeded(refusal, "pending_messages")
        await publish(world, ALICE, b"x")  # due at once


async def reschedule_ids(world: ApiWorld, ids: list[str]) -> Any:
    request = broker_pb2.RescheduleRequest(message_ids=ids, delay_ms=[86_400_000])
    return await world.producer.Reschedule(request, metadata=ALICE)


async def reschedule_keys(world: ApiWorld, ids: list[str]) -> Any:
    keys = [f"key-{number}" for number in range(len(ids))]
    request = broker_pb2.RescheduleRequest(topic="orders", keys=keys, delay_ms=[86_400_000])
    return await world.producer.Reschedule(request, metadata=ALICE)


async def reschedule_pending(world: ApiWorld, ids: list[str]) -> Any:
    world.engine.changed_page = ChangedPage(changed_count=len(ids))
    request = pending_pb2.ReschedulePendingRequest(
        topic="orders", filter={"text": "*"}, new_due_ms=NOW_MS + 86_400_000
    )
    return await world.admin.ReschedulePending(request, metadata=ALICE)


@pytest.mark.parametrize("move", [reschedule_ids, reschedule_keys, reschedule_pending])
async def test_pending_messages_that_are_moved_are_counted(move: Any) -> None:
    async with world_of(pending_messages=4) as world:
        for number in range(4):
            meta = meta_pb2.MessageMeta(keys=[f"key-{number}"])
            await publish(world, ALICE, b"x", meta=meta, delay_ms=1_000)
        published = await publish(world, BOB, *[b"x"] * 6, delay_ms=1_000)
        ids = [one.message_id for one in published.messages]
        await move(world, ids[:4])
        world.engine.clock_ms += 60_000  # the first four would be due
        refusal = await refused(publish(world, ALICE, b"x", delay_ms=1_000))
        assert_exceeded(refusal, "pending_messages")
        await move(world, ids[:4])  # as many as before
        if move is reschedule_keys:
            return
        await move(world, ids)  # more, which nobody knows before it is done
        before = len(world.engine.calls)
        assert_exceeded(await refused(move(world, ids[:1])), "pending_messages")
        assert len(world.engine.calls) == before


async def test_move_is_counted_when_its_caller_goes_away_meanwhile() -> None:
    async with world_of(pending_messages=1) as world:
        published = await publish(world, BOB, b"x", delay_ms=1_000)
        gate = world.engine.gates["reschedule"] = asyncio.Event()
        request = broker_pb2.RescheduleRequest(
            message_ids=[published.messages[0].message_id], delay_ms=[86_400_000]
        )
        call: Any = world.producer.Reschedule(request, metadata=ALICE)
        await until(lambda: world.engine.asked("reschedule"))
        call.cancel()
        await until(lambda: world.stats.requests_in_flight == 0)
        gate.set()
        await until_told(lambda: is_refused_for_pending(world))


async def is_refused_for_pending(world: ApiWorld) -> bool:
    try:
        await publish(world, ALICE, b"x", delay_ms=1_000)
    except grpc.aio.AioRpcError:
        return True
    world.engine.clock_ms += 60_000  # what was published is due, and the next may be
    return False


async def test_publish_that_is_refused_costs_nothing_of_the_rate() -> None:
    async with world_of(messages_per_s=2) as world:
        world.engine.errors["publish_messages"] = errors.TopicPaused("not now", topic="orders")
        for _ in range(3):
            refusal = await refused(publish(world, ALICE, *[b"x"] * 10))
            assert refusal.reason == "TOPIC_PAUSED"


async def test_streams_and_sessions_go_on_after_a_batch_that_was_refused() -> None:
    async with world_of(messages_per_s=2) as world:
        stream = world.producer.PublishStream(metadata=ALICE)
        await stream.write(batch(3))
        await stream.write(batch(1))
        assert (await stream.read()).published.count == 3
        error = (await stream.read()).error
        assert error.reason == "QUOTA_EXCEEDED"
        assert int(error.params["retry_after_ms"]) > 0
        session = world.sessions.Session(metadata=ALICE)
        call = session_pb2.SessionCall(call_id=1, publish=batch(1))
        await session.write(session_pb2.SessionRequest(calls=[call]))
        answers: list[Any] = []
        while not answers:
            answers += (await session.read()).answers
        assert answers[0].error.reason == "QUOTA_EXCEEDED"
        stream.cancel()
        session.cancel()


async def accepted(world: ApiWorld) -> None:
    """A publish of hers goes through, as soon as gRPC has told that what was open is over."""
    async with asyncio.timeout(60):
        while True:
            try:
                await publish(world, ALICE, b"x")
            except grpc.aio.AioRpcError:
                await before_the_next_look()
            else:
                return


async def test_batch_is_not_looked_at_when_the_rate_is_used_up() -> None:
    nonsense = broker_pb2.PublishStreamRequest(topic="orders", record_batch=b"no batch")
    async with world_of(messages_per_s=2) as world:
        stream = world.producer.PublishStream(metadata=ALICE)
        found = []
        for request in (nonsense, batch(50), nonsense):
            await stream.write(request)
            found.append((await stream.read()).error.reason)
        assert found == ["INVALID_BATCH", "", "QUOTA_EXCEEDED"]
        assert world.stats.rejected_by_quota["messages_per_s"] == 1
        stream.cancel()


async def test_calls_and_streams_are_counted_until_they_end() -> None:
    async with world_of(calls_in_flight=1) as world:
        stream = world.producer.PublishStream(metadata=ALICE)
        await stream.write(batch(1))
        assert (await stream.read()).published.count == 1
        other = world.producer.PublishStream(metadata=ALICE)
        assert_exceeded(await refused(other.read()), "calls_in_flight")
        gate = world.engine.gates["cancel"] = asyncio.Event()
        cancel = broker_pb2.CancelRequest(packed_message_ids=bytes(24))
        call = asyncio.ensure_future(world.producer.Cancel(cancel, metadata=ALICE))
        await until(lambda: bool(world.engine.asked("cancel")))
        assert_exceeded(await refused(publish(world, ALICE, b"x")), "calls_in_flight")
        await publish(world, BOB, b"x")
        for _ in range(2):  # the stream is not held up by the call
            await stream.write(batch(1))
            assert (await stream.read()).published.count == 1
        gate.set()
        await call
        await accepted(world)
        await stream.done_writing()


async def test_quota_of_one_lets_its_owner_publish_receive_and_acknowledge() -> None:
    async with world_of(calls_in_flight=1) as world:
        stream = world.producer.PublishStream(metadata=ALICE)
        await stream.write(batch(1))
        assert (await stream.read()).published.count == 1
        world.engine.gates["receive"] = asyncio.Event()
        waiting = consumer_pb2.ReceiveRequest(group="billing", topic="orders", wait_ms=60_000)
        poll = asyncio.ensure_future(world.consumer.Receive(waiting, metadata=ALICE))
        await until(lambda: world.stats.long_polls == 1)
        await world.consumer.Ack(consumer_pb2.AckRequest(group="billing"), metadata=ALICE)
        await stream.write(batch(1))
        assert (await stream.read()).published.count == 1
        refusal = await refused(world.consumer.Receive(waiting, metadata=ALICE))
        assert_exceeded(refusal, "calls_in_flight")
        poll.cancel()
        stream.cancel()


async def test_sessions_are_counted_by_themselves_until_they_end() -> None:
    """Else one principal could open all that a node has room for."""
    async with world_of(calls_in_flight=2, connections=1) as world:
        sessions = [world.sessions.Session(metadata=ALICE) for _ in range(2)]
        for session in sessions:
            await session.read()
        other = world.sessions.Session(metadata=ALICE)
        assert_exceeded(await refused(other.read()), "calls_in_flight")
        await world.sessions.Session(metadata=BOB).read()
        await publish(world, ALICE, b"x")  # sessions are not in the way of calls
        sessions[0].cancel()
        await until_told(lambda: opens_session(world))
    async with world_of(calls_in_flight=0) as world:
        refusal = await refused(world.sessions.Session(metadata=ALICE).read())
        assert (refusal.reason, refusal.params["quota"]) == ("QUOTA_REACHED", "calls_in_flight")


async def opens_session(world: ApiWorld) -> bool:
    try:
        await world.sessions.Session(metadata=ALICE).read()
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_session_is_no_call_and_each_call_in_it_is_one() -> None:
    """Else a quota of one call would shut out a client that has a session."""
    async with world_of(calls_in_flight=1) as world:
        session = world.sessions.Session(metadata=ALICE)
        poll = consumer_pb2.ReceiveRequest(group="billing", topic="orders", wait_ms=60_000)
        first = session_pb2.SessionCall(call_id=1, ack=consumer_pb2.AckRequest(group="billing"))
        await session.write(session_pb2.SessionRequest(calls=[first]))
        answers: list[Any] = []
        while not answers:
            answers += (await session.read()).answers
        assert answers[0].HasField("ack")
        calls = [
            session_pb2.SessionCall(call_id=2, receive=poll),
            session_pb2.SessionCall(call_id=3, receive=poll),
        ]
        await session.write(session_pb2.SessionRequest(calls=calls))
        while len(answers) < 2:
            answers += (await session.read()).answers
        assert answers[1].error.params["quota"] == "calls_in_flight"
        session.cancel()


async def test_connections_are_counted_while_a_call_is_under_way() -> None:
    async with world_of(connections=1) as world:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(world.address, options=options) as channel:
            stream = ProducerServiceStub(channel).PublishStream(metadata=ALICE)
            await stream.write(batch(1))
            assert (await stream.read()).published.count == 1
            assert_exceeded(await refused(publish(world, ALICE, b"x")), "connections")
            await publish(world, BOB, b"x")
            second = ProducerServiceStub(channel).PublishStream(metadata=ALICE)
            await second.write(batch(1))
            assert (await second.read()).published.count == 1
            stream.cancel()
            second.cancel()
            await accepted(world)


@pytest.mark.parametrize("limit", [0, 1])
async def test_topics_and_groups_are_made_up_to_the_quota(limit: int) -> None:
    async with world_of(topics=limit, groups=limit) as world:
        world.engine.known_topics["bills"] = TopicInfo("bills", 1)
        refusal = await refused(publish(world, ALICE, b"x"))
        assert (refusal.reason, refusal.params["quota"]) == ("QUOTA_REACHED", "topics")
        create = admin_pb2.CreateTopicRequest(name="orders")
        assert (await refused(world.admin.CreateTopic(create, metadata=ALICE))).reason == (
            "QUOTA_REACHED"
        )
        recurrence = recurrence_pb2.PutRecurrenceRequest(topic="orders", name="r")
        for call in (
            world.recurring.PutRecurrence(recurrence, metadata=ALICE),
            world.recurring.ResumeRecurrence(
                recurrence_pb2.ResumeRecurrenceRequest(topic="orders", name="r"), metadata=ALICE
            ),
        ):
            assert (await refused(call)).params["quota"] == "topics"
        receive = consumer_pb2.ReceiveRequest(group="g", topic="bills")
        if limit:
            await world.consumer.Receive(receive, metadata=ALICE)
        else:
            assert (await refused(world.consumer.Receive(receive, metadata=ALICE))).params[
                "quota"
            ] == "groups"
        await world.admin.CreateTopic(create, metadata=BOB)
        await publish(world, ALICE, b"x")  # it is there now
