"""Access control over real gRPC: who is known, what they may do, and when that ends."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import build_publish
from hourwheel.v1 import admin_pb2, groups_pb2
from hourwheel.v1.broker_pb2 import CancelRequest, PublishStreamRequest
from hourwheel.v1.consumer_pb2 import AckRequest, ReceiveRequest
from hourwheel.v1.session_pb2 import SessionCall, SessionRequest
from node.access.forwarded import PRINCIPAL
from node.access.permissions import RULES
from node.contracts.access import (
    AccessPolicy,
    Grant,
    Operation,
    ResourceKind,
)
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from node.contracts.dead_letters import DeadLetterInfo, DeadLettersInfo
from tests.support.api_world import ApiWorld, refusal_of, refused
from tests.support.callers import identify
from tests.support.embedded_node import EmbeddedNode
from tests.support.eventually import until
from tests.unit.node.access.test_permissions import METHODS
from tests.unit.node.api.test_forwarder import Elsewhere, Served

ALICE = (("who", "alice"),)
BOB = (("who", "bob"),)
POLL = ReceiveRequest(group="billing", topic="orders", wait_ms=20_000)


def grant(kind: ResourceKind, name: str, *operations: Operation, who: str = "alice") -> Grant:
    return Grant(who, frozenset(operations), kind, name)


ALL = (
    grant(ResourceKind.TOPIC, "orders", *Operation),
    grant(ResourceKind.GROUP, "billing", *Operation),
)


def on(*grants: Grant) -> AccessPolicy:
    return AccessPolicy(is_on=True, grants=grants, administrators=frozenset({"root"}))


SHOWN = {"status", "gauges", "topics", "groups"}
"""To whoever is known, as much as it may look at."""


async def call(world: ApiWorld, name: str, metadata: Any) -> Any:
    """Call a method with an empty request; a stream gets one."""
    method = METHODS[name]
    service, _, last = name.rpartition(".")
    request = GetMessageClass(method.input_type)
    answer = GetMessageClass(method.output_type)
    options: Any = {
        "request_serializer": request.SerializeToString,
        "response_deserializer": answer.FromString,
    }
    if not method.client_streaming:
        unary: Any = world.channel.unary_unary(f"/{service}/{last}", **options)
        return await unary(request(), metadata=metadata, timeout=60)
    stream: Any = world.channel.stream_stream(f"/{service}/{last}", **options)
    while True:
        opened = stream(metadata=metadata, timeout=60)
        try:
            await opened.write(request())
            await opened.done_writing()
            return [one async for one in opened]
        except grpc.aio.AioRpcError as error:
            # What is written to a stream that has just ended: grpc.aio loses how it ended.
            if error.details() != "Internal error from Core":
                raise


@pytest.mark.parametrize("name", RULES)
async def test_method_refuses_callers_without_a_permission(name: str) -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on(*ALL))
        for metadata in ((), BOB):
            if METHODS[name].client_streaming and name.endswith("PublishStream"):
                (answer,) = await call(world, name, metadata)
                assert answer.error.reason == "PERMISSION_DENIED"
            elif RULES[name].operation is None and metadata:
                await call(world, name, metadata)  # whoever is known may
            else:
                refusal = await refused(call(world, name, metadata))
                assert refusal.reason == "PERMISSION_DENIED"
                assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
        assert {called for called, _ in world.engine.calls} <= SHOWN
        assert (await refused(call(world, name, (("who", "liar"),)))).message == "no such caller"


FORGED = (PRINCIPAL, b"user\nroot")
"""What a client sends that would like to be somebody else."""


async def assert_refused(world: ApiWorld, name: str, metadata: Any, *, is_known: bool) -> None:
    """Whoever shows this has no permission at all; is it known, it is told what anybody is."""
    if METHODS[name].client_streaming and name.endswith("PublishStream"):
        (answer,) = await call(world, name, metadata)
        assert answer.error.reason == "PERMISSION_DENIED"
    elif RULES[name].operation is None and is_known:
        await call(world, name, metadata)
    else:
        assert (await refused(call(world, name, metadata))).reason == "PERMISSION_DENIED"


@pytest.mark.parametrize("name", RULES)
async def test_method_believes_no_client_that_says_who_it_is_as_a_node_does(name: str) -> None:
    """On the port of clients, of a node that is the master and of one that passes calls on."""
    async with Served(identify=identify) as master:
        master.access.replace(on(*ALL))
        async with Elsewhere(master.peer_address, identify=identify) as node:
            node.access.replace(on(*ALL))
            for world in (master, node):
                for who in ((), BOB):
                    sent = (*who, FORGED)
                    await assert_refused(world, name, sent, is_known=bool(who))
        assert {one for one, _ in master.engine.calls} <= SHOWN
        assert {one for one, _ in node.engine.calls} <= SHOWN


@pytest.mark.parametrize("name", RULES)
async def test_method_refuses_on_the_port_of_nodes_for_whom_they_have_no_permission(
    name: str,
) -> None:
    async with Served(identify=identify) as world:
        world.access.replace(on(*ALL))
        channel, world.channel = world.channel, grpc.aio.insecure_channel(world.peer_address)
        try:
            if name.endswith(".Session"):  # nodes pass its calls on one by one
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(world, name, (FORGED,))
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
                return
            for principal in (b"user\nbob", b"token\nbob", b"certificate\nbob"):
                await assert_refused(world, name, ((PRINCIPAL, principal),), is_known=True)
            for unknown in ((), BOB, (("who", "root"),)):  # what a client shows is nothing here
                await assert_refused(world, name, unknown, is_known=False)
            for nonsense in (b"root", b"king\nroot", b"\xff\nroot"):
                refusal = await refused(call(world, name, ((PRINCIPAL, nonsense),)))
                assert refusal.reason == "PEER_REFUSED"
            assert {one for one, _ in world.engine.calls} <= SHOWN
        finally:
            await world.channel.close()
            world.channel = channel


async def test_refusal_is_the_same_whether_the_topic_exists() -> None:
    async with ApiWorld(identify=identify) as world:
        await world.admin.CreateTopic(admin_pb2.CreateTopicRequest(name="there"))
        world.access.replace(on(*ALL))
        found = []
        for name in ("there", "gone!"):
            request = admin_pb2.GetTopicRequest(name=name)
            refusal = await refused(world.admin.GetTopic(request, metadata=ALICE))
            assert refusal.params == {
                "operation": "look", "resource_kind": "topic", "resource": name
            }  # fmt: skip
            found.append(refusal.message.replace(name, ""))
        assert found[0] == found[1]


async def test_list_shows_what_its_caller_may_look_at_page_by_page() -> None:
    async with ApiWorld(identify=identify) as world:
        for number in range(8):
            name = f"{'mine' if number % 3 else 'others'}-{number}"
            await world.admin.CreateTopic(admin_pb2.CreateTopicRequest(name=name))
        world.access.replace(on(grant(ResourceKind.TOPIC, "mine-*", Operation.LOOK)))
        token, names = b"", []
        while True:
            request = admin_pb2.ListTopicsRequest(page_size=2, page_token=token)
            page = await world.admin.ListTopics(request, metadata=ALICE)
            names += [topic.name for topic in page.topics]
            token = page.next_page_token
            assert b"others" not in token
            if not token:
                break
        assert names == ["mine-1", "mine-2", "mine-4", "mine-5", "mine-7"]
        everything = await world.admin.ListTopics(
            admin_pb2.ListTopicsRequest(), metadata=(("who", "root"),)
        )
        assert len(everything.topics) == 8


async def test_damaged_messages_tell_nothing_of_topics_and_groups_of_others() -> None:
    found = [
        DamagedInfo(MessageId(0, 3, 7, 1_000), group, topic, topic, 1_000, 2, 5, "a file", 9_000, 4)
        for group, topic in (("billing", "orders"), ("billing", "secret"), ("hidden", "orders"))
    ]
    async with ApiWorld(identify=identify) as world:
        world.engine.damaged_page = DamagedPage(found)
        world.access.replace(on(*ALL))
        for asked in ({"group": "billing"}, {"topic": "orders"}):
            listing = await world.admin.ListDamaged(
                admin_pb2.ListDamagedRequest(**asked), metadata=ALICE
            )
            assert [(one.group, one.topic) for one in listing.messages] == [("billing", "orders")]
        request = admin_pb2.DiscardDamagedRequest(group="billing", all=True)
        gone = (await world.admin.DiscardDamaged(request, metadata=ALICE)).messages
        assert [(one.topic, one.stands_in) for one in gone[:2]] == [("orders", "orders"), ("", "")]
        request.topic = "secret"  # whether it is there or not
        refusal = await refused(world.admin.DiscardDamaged(request, metadata=ALICE))
        assert (refusal.reason, refusal.params["resource"]) == ("PERMISSION_DENIED", "secret")
        assert len(world.engine.asked("discard_damaged")) == 1


async def test_dead_letters_of_a_message_are_told_of_groups_that_one_may_look_at() -> None:
    looks = (
        grant(ResourceKind.TOPIC, "*", Operation.LOOK),
        grant(ResourceKind.GROUP, "billing", Operation.LOOK),
    )
    async with ApiWorld(identify=identify) as world:
        reason = groups_pb2.DEAD_LETTER_REASON_ATTEMPTS_USED_UP
        world.engine.dead = DeadLettersInfo(
            [DeadLetterInfo(group, "orders", 3, reason) for group in ("billing", "hidden")]
        )
        published = await world.publish(b"x")
        world.engine.delivered = 1
        world.access.replace(on(*looks))
        request = admin_pb2.DescribeMessageRequest(message_id=published.messages[0].message_id)
        found = await world.admin.DescribeMessage(request, metadata=ALICE)
        assert [letter.group for letter in found.dead_letters] == ["billing"]


async def test_poll_that_waits_ends_when_its_permission_is_revoked() -> None:
    async with ApiWorld(identify=identify) as world:
        world.engine.gates["receive"] = asyncio.Event()
        world.access.replace(on(*ALL))
        poll = asyncio.ensure_future(refused(world.consumer.Receive(POLL, metadata=ALICE)))
        await until(lambda: world.stats.long_polls == 1)
        world.access.replace(on(ALL[0], ALL[1]))  # nothing that matters changed
        await asyncio.sleep(0)
        assert world.stats.long_polls == 1
        world.access.replace(on(ALL[0]))
        refusal = await poll
        assert (refusal.reason, refusal.params["resource"]) == ("PERMISSION_DENIED", "billing")
        await until(lambda: world.stats.requests_in_flight == world.stats.long_polls == 0)


async def test_session_and_stream_that_are_open_are_checked_frame_by_frame() -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on(*ALL))
        session = world.sessions.Session(metadata=ALICE)
        stream = world.producer.PublishStream(metadata=ALICE)
        await session.write(SessionRequest(calls=[SessionCall(call_id=1, ack=ACK)]))
        assert (await answers(session))[0].WhichOneof("answer") == "ack"
        await stream.write(PublishStreamRequest(topic="orders"))
        assert (await stream.read()).error.reason == "INVALID_BATCH"
        await stream.write(PublishStreamRequest(topics=["orders", "others"], counts=[1, 1]))
        assert (await stream.read()).error.params["resource"] == "others"
        world.access.replace(on())
        calls = [SessionCall(call_id=2, ack=ACK), SessionCall(call_id=3, cancel=CancelRequest())]
        await session.write(SessionRequest(calls=calls))
        found = await answers(session)
        while len(found) < len(calls):
            found += await answers(session)
        assert {one.error.reason for one in found} == {"PERMISSION_DENIED"}
        await stream.write(PublishStreamRequest(topic="orders"))
        assert (await stream.read()).error.reason == "PERMISSION_DENIED"
        session.cancel()
        stream.cancel()


async def test_batch_of_many_topics_is_refused_when_one_of_them_is_not_allowed() -> None:
    raw = build_publish([0] * 3, [b"x"] * 3)
    several = PublishStreamRequest(record_batch=raw, topics=["orders", "bills"], counts=[1, 2])
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on(*ALL))
        stream = world.producer.PublishStream(metadata=ALICE)
        session = world.sessions.Session(metadata=ALICE)
        await stream.write(several)
        refused_topic = (await stream.read()).error
        assert (refused_topic.reason, refused_topic.params["resource"]) == (
            "PERMISSION_DENIED",
            "bills",
        )
        await session.write(SessionRequest(calls=[SessionCall(call_id=1, publish=several)]))
        assert (await answers(session))[0].error.params["resource"] == "bills"
        assert world.engine.stored == []
        world.access.replace(on(*ALL, grant(ResourceKind.TOPIC, "bills", Operation.PUBLISH)))
        await stream.write(several)
        assert (await stream.read()).published.count == 3
        session.cancel()
        stream.cancel()


ACK = AckRequest(group="billing")


async def answers(session: Any) -> list[Any]:
    """Of the next frame that has any: the first one is empty."""
    while True:
        frame = await session.read()
        if frame.answers:
            return list(frame.answers)


async def test_session_of_nobody_is_refused_when_it_is_opened() -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on(*ALL))
        session = world.sessions.Session()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answers(session)
        assert refusal_of(caught.value).reason == "PERMISSION_DENIED"
        assert world.stats.sessions == 0


async def test_health_and_reflection_are_for_everybody() -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on())
        health: Any = world.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await health(b"") == b"\x08\x01"


async def test_node_whose_configuration_says_so_refuses_whoever_is_not_known(
    tmp_path: Path,
) -> None:
    values = {"access": {"is_on": True, "administrators": "root"}}
    async with EmbeddedNode(tmp_path, values) as node:
        channel = grpc.aio.insecure_channel(node.address)
        for forged in ((), (("hourwheel-principal-bin", b"user\nroot"),)):
            listing: Any = channel.unary_unary("/hourwheel.v1.AdminService/ListTopics")
            assert (await refused(listing(b"", metadata=forged))).reason == "PERMISSION_DENIED"
        await channel.close()
