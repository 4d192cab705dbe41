"""Calls that reach a node which is not the master: real servers, a fake engine at the master."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Self

import grpc
import pytest
from google.rpc import status_pb2

from hourwheel import errors
from hourwheel.formats.record_batch import build_publish
from hourwheel.types import NodeId
from hourwheel.v1 import admin_pb2, broker_pb2, consumer_pb2
from node.access.control import Identify
from node.access.forwarded import PRINCIPAL
from node.api import forwarder
from node.api.forwarder import OPTIONS, Forwarder
from node.api.server import ApiServer
from node.contracts.access import AccessPolicy
from node.contracts.answer_budget import ANSWER_BYTES_MIN, AnswerBudget
from tests.support.api_world import ApiWorld, refusal_of, refused
from tests.support.callers import identify
from tests.support.engine_world import let_others_run, within
from tests.support.eventually import until
from tests.support.peak_budget import PeakBudget

PUBLISH: Final = "/hourwheel.v1.ProducerService/Publish"
REDIRECT: Final = (("hourwheel-redirect", "1"),)
HOUR: Final = broker_pb2.PublishRequest(
    topic="orders", messages=[broker_pb2.OutgoingMessage(body=b"x", delay_ms=3_600_000)]
)
FORGED: Final = ((PRINCIPAL, b"user\nroot"), ("authorization", "Basic of the client's"))
"""What a client sends in the hope that a master believes it."""
POLL: Final = consumer_pb2.ReceiveRequest(group="billing", topic="orders", wait_ms=60_000)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> float:
    """So long, in seconds, a caller waits for what the node answers when the time is over."""
    monkeypatch.setattr(forwarder, "DEADLINE_SHARE", 1.0)
    monkeypatch.setattr(forwarder, "DEADLINE_MARGIN_S", 20.0)
    return 20.0


class Served(ApiWorld):
    """A node with a port for other nodes, too. `identify`: as of `ApiWorld`."""

    peer_address = ""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.peers = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self.peers.add_generic_rpc_handlers(tuple(self.server.peer_handlers()))
        self.peer_address = f"127.0.0.1:{self.peers.add_insecure_port('127.0.0.1:0')}"
        await self.peers.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self.peers.stop(0)


class Links:
    """To nodes whose names are the addresses of their ports for other nodes."""

    def __init__(self) -> None:
        self.channels: dict[NodeId, grpc.aio.Channel] = {}

    def channel(self, node: NodeId) -> grpc.aio.Channel:
        if node not in self.channels:
            self.channels[node] = grpc.aio.insecure_channel(node, options=list(OPTIONS))
        return self.channels[node]

    def proof(self) -> tuple[tuple[str, str], ...]:
        return (("proof", "of n8"),)

    async def close(self) -> None:
        for channel in self.channels.values():
            await channel.close()


class Elsewhere(Served):
    """A node that is not the master. `master` is where it says that the master is."""

    def __init__(
        self,
        master: str,
        *,
        in_flight_max: int = 8,
        answers: AnswerBudget | None = None,
        identify: Identify | None = None,
    ) -> None:
        super().__init__(identify=identify)
        self.engine.answers = answers or self.engine.answers
        self.master, self.is_master = master, False
        self.links = Links()
        self.forwarder = Forwarder(
            *(self.check, self.links, self.stats, self.engine.answers), in_flight_max=in_flight_max
        )
        self.server = ApiServer(replace(self.server._parts, forwarder=self.forwarder))

    def check(self) -> None:
        if not self.is_master:
            raise errors.NotMaster(
                "not here", master=self.master, master_address=self.master, epoch=7
            )

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        await self.forwarder.close()
        stats = self.stats
        # A caller has its answer a moment before the handler has ended.
        await until(lambda: stats.requests_in_flight == stats.long_polls == stats.streams == 0)
        assert stats.forwarded_in_flight == 0
        await until(lambda: self.engine.answers.held_bytes == 0)


class Spy:
    """A master that only records calls, and answers as it is told."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, str | bytes]] = []
        self.left_s: list[float | None] = []
        self.requests: list[bytes] = []
        self.answer = b""
        self.status: Any = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_cancelled = False
        self.address = ""

    async def handle(self, raw: bytes, context: Any) -> bytes:
        self.metadata.append(dict(context.invocation_metadata()))
        self.left_s.append(context.time_remaining())
        self.requests.append(raw)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        if self.status is not None:
            await context.abort_with_status(self.status)
        return self.answer

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.handle)


@asynccontextmanager
async def spying() -> AsyncIterator[tuple[Spy, grpc.aio.Server]]:
    spy, server = Spy(), grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler: Any = type(
        "Handler", (grpc.GenericRpcHandler,), {"service": lambda _, it: spy.service(it)}
    )
    server.add_generic_rpc_handlers((handler(),))
    spy.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield spy, server
    finally:
        await server.stop(0)


# -- unary ----------------------------------------------------------------------------------------


async def test_call_is_answered_by_the_master() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        published = await node.producer.Publish(HOUR)
        assert len(published.messages) == 1
        assert len(master.engine.asked("publish_messages")) == 1
        await node.admin.CreateTopic(admin_pb2.CreateTopicRequest(name="invoices"))
        topics = await node.admin.ListTopics(admin_pb2.ListTopicsRequest())
        assert [topic.name for topic in topics.topics] == ["invoices"]
        assert node.engine.calls == []
        assert node.stats.forwarded == 3
        assert node.stats.method("Publish").handled["OK"] == 1
        assert len(node.links.channels) == 1


async def test_where_a_message_is_the_master_says_and_no_node_that_may_be_behind() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        published = await node.producer.Publish(HOUR)
        asked = admin_pb2.DescribeMessageRequest(message_id=published.messages[0].message_id)
        found = await node.admin.DescribeMessage(asked)
        assert found.state == admin_pb2.MESSAGE_STATE_PENDING


async def test_nothing_is_passed_on_by_the_master_itself() -> None:
    async with Elsewhere("127.0.0.1:1") as node:
        node.is_master = True
        await node.producer.Publish(HOUR)
        assert len(node.engine.asked("publish_messages")) == 1
        assert node.stats.forwarded == 0


async def test_what_is_of_the_node_itself_is_answered_here() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        status = await node.admin.GetStatus(admin_pb2.GetStatusRequest())
        assert status.nodes[0].address == node.address
        await node.producer.Publish(HOUR)
        assert [name for name, _ in master.engine.calls] == ["publish_messages"]
        health: Any = node.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await health(b"") == b"\x08\x01"
        assert node.stats.forwarded == 1


async def test_bytes_and_metadata_go_through_and_the_call_is_marked() -> None:
    async with spying() as (spy, _), Elsewhere(spy.address) as node:
        spy.answer = b"\x08\x96\x01 or whatever"
        call: Any = node.channel.unary_unary(PUBLISH)
        metadata = (("traceparent", "00-abc"), ("some-bin", b"\x00\xff"), *FORGED)
        assert await call(b"no message of ours", metadata=metadata) == spy.answer
        assert spy.requests == [b"no message of ours"]
        told = spy.metadata[0]
        assert (told["traceparent"], told["some-bin"]) == ("00-abc", b"\x00\xff")
        assert told["proof"] == "of n8"
        assert told.keys().isdisjoint({key for key, _ in FORGED})


async def test_error_is_told_as_the_master_told_it() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        master.engine.errors["publish_messages"] = errors.DiskFull("no room", free=7)
        there = await refused(master.producer.Publish(HOUR))
        here = await refused(node.producer.Publish(HOUR))
        assert here == there
        assert here.params == {"free": "7"}
        await until(lambda: node.stats.method("Publish").handled.get("RESOURCE_EXHAUSTED") == 1)
        assert node.stats.rejected == {}
        for facts, reason in (({}, "UNAVAILABLE"), ({"was_open": "1"}, "TIMEOUT")):
            # Of the node, and not of its caller, who finds another.
            master.engine.errors["publish_messages"] = errors.PeerRefused("it left", **facts)
            assert (await refused(node.producer.Publish(HOUR))).reason == reason


async def test_error_of_a_newer_master_is_told_byte_for_byte() -> None:
    async with spying() as (spy, _), Elsewhere(spy.address) as node:
        raw = status_pb2.Status(code=9, message="of the future").SerializeToString()
        trailing = (("grpc-status-details-bin", raw), ("more", "to come"))
        code = grpc.StatusCode.FAILED_PRECONDITION
        spy.status = type(
            "Status",
            (grpc.Status,),
            {"code": code, "details": "of the future", "trailing_metadata": trailing},
        )()
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await node.producer.Publish(HOUR)
        assert (told.value.code(), told.value.details()) == (code, "of the future")
        assert dict(told.value.trailing_metadata()) == dict(trailing)


async def test_our_client_is_told_where_the_master_is() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        told = await refused(node.producer.Publish(HOUR, metadata=REDIRECT))
        assert told.reason == "NOT_MASTER"
        assert told.params == {
            "master": master.peer_address,
            "master_address": master.peer_address,
            "epoch": "7",
        }
        told = await refused(
            node.admin.ListTopics(admin_pb2.ListTopicsRequest(), metadata=REDIRECT)
        )
        assert told.reason == "NOT_MASTER"
        assert master.engine.calls == node.engine.calls == []


async def test_call_goes_no_further_when_two_nodes_name_each_other() -> None:
    async with Elsewhere("") as first, Elsewhere(first.peer_address) as second:
        first.master = second.peer_address
        assert (await refused(first.producer.Publish(HOUR))).reason == "NOT_MASTER"
        assert (first.stats.forwarded, second.stats.forwarded) == (1, 0)


async def test_nobody_is_asked_when_no_master_is_known() -> None:
    async with Elsewhere("") as node:
        told = await refused(node.producer.Publish(HOUR))
        assert (told.reason, told.code) == ("NOT_MASTER", grpc.StatusCode.UNAVAILABLE)


async def test_calls_over_the_cap_are_overloaded() -> None:
    async with spying() as (spy, _), Elsewhere(spy.address, in_flight_max=2) as node:
        spy.gate.clear()
        calls = [asyncio.ensure_future(node.producer.Publish(HOUR)) for _ in range(2)]
        await until(lambda: len(spy.requests) == 2)
        told = await refused(node.producer.Publish(HOUR))
        assert (told.reason, told.params["limit"]) == ("OVERLOADED", "limits.forwarded_calls")
        spy.gate.set()
        await asyncio.gather(*calls)
        await node.producer.Publish(HOUR)


async def test_deadline_is_shorter_at_the_master_than_at_the_caller() -> None:
    async with spying() as (spy, _), Elsewhere(spy.address) as node:
        await node.producer.Publish(HOUR, timeout=30)
        await node.producer.Publish(HOUR)
        bounded, unbounded = spy.left_s
        assert bounded is not None
        assert bounded < 30 * 0.99
        assert unbounded is not None


async def test_call_is_cancelled_at_the_master_when_the_caller_leaves() -> None:
    async with spying() as (spy, _), Elsewhere(spy.address) as node:
        spy.gate.clear()
        call = node.producer.Publish(HOUR)
        await until(lambda: spy.requests)
        call.cancel()
        await until(lambda: spy.is_cancelled)
        await until(lambda: node.stats.forwarded_in_flight == 0)


async def test_outcome_is_known_when_the_master_is_not_there() -> None:
    async with spying() as (spy, server), Elsewhere(spy.address) as node:
        await server.stop(0)
        told = await refused(node.producer.Publish(HOUR))
        assert (told.reason, told.message) == ("UNAVAILABLE", "the master cannot be reached")


async def test_outcome_is_unknown_when_the_way_to_the_master_is_cut() -> None:
    async with spying() as (spy, server), Elsewhere(spy.address) as node:
        spy.gate.clear()
        call = asyncio.ensure_future(node.producer.Publish(HOUR))
        await until(lambda: spy.requests)
        await server.stop(0)
        assert (await refused(call)).reason == "TIMEOUT"


# -- who calls ------------------------------------------------------------------------------------


async def test_master_decides_by_who_the_caller_is_and_no_client_can_say_it_is_another() -> None:
    """On both ports of both nodes: forged metadata are believed on none that a client reaches."""
    policy = AccessPolicy(is_on=True, administrators=frozenset({"root"}))
    async with (
        Served(identify=identify) as master,
        Elsewhere(master.peer_address, identify=identify) as node,
    ):
        master.access.replace(policy)
        as_root = (("who", "root"),)
        await node.producer.Publish(HOUR, metadata=as_root)
        stream = node.producer.PublishStream(metadata=as_root)
        await stream.write(batch(b"x"))
        assert (await within(stream.read())).published.count == 1
        stream.cancel()
        for metadata in ((), (("who", "eve"),)):
            for world in (node, master):
                forged = (*metadata, FORGED[0])
                told = await refused(world.producer.Publish(HOUR, metadata=forged))
                assert told.reason == "PERMISSION_DENIED"
                stream = world.producer.PublishStream(metadata=forged)
                await stream.write(batch(b"x"))
                assert (await within(stream.read())).error.reason == "PERMISSION_DENIED"
                stream.cancel()
        assert len(master.engine.calls) == 2


async def test_call_that_is_passed_on_is_audited_once_and_by_its_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Served(identify=identify) as master,
        Elsewhere(master.peer_address, identify=identify) as node,
    ):
        create = admin_pb2.CreateTopicRequest(name="orders")
        await node.admin.CreateTopic(create, metadata=(("who", "root"),))
    logged: list[Any] = [record.msg for record in caplog.records]
    (event,) = [one for one in logged if one["event"] == "call_audited"]
    assert (event["principal"], event["outcome"]) == ("root", "OK")


async def test_poll_that_was_passed_on_ends_when_the_master_revokes_its_permission() -> None:
    policy = AccessPolicy(is_on=True, administrators=frozenset({"root"}))
    async with (
        Served(identify=identify) as master,
        Elsewhere(master.peer_address, identify=identify) as node,
    ):
        master.access.replace(policy)
        poll = asyncio.ensure_future(
            refused(node.consumer.Receive(POLL, metadata=(("who", "root"),)))
        )
        await until(lambda: master.stats.long_polls == 1)
        master.access.replace(AccessPolicy(is_on=True))
        assert (await within(poll)).reason == "PERMISSION_DENIED"


async def test_call_of_nobody_that_there_can_be_is_refused() -> None:
    async with Served() as master:
        channel = grpc.aio.insecure_channel(master.peer_address)
        call: Any = channel.unary_unary(PUBLISH)
        for forged in (b"emperor\nroot", b"\xff"):
            told = await refused(call(b"", metadata=((PRINCIPAL, forged),)))
            assert told.reason == "PEER_REFUSED"
        await channel.close()


async def test_master_of_a_former_version_is_unavailable() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        await master.peers.stop(0)
        bare = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        node.master = f"127.0.0.1:{bare.add_insecure_port('127.0.0.1:0')}"
        await bare.start()
        assert (await refused(node.producer.Publish(HOUR))).reason == "UNAVAILABLE"
        await bare.stop(0)


# -- polls ----------------------------------------------------------------------------------------


async def test_poll_counts_as_one_and_ends_when_the_node_stops() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        poll = asyncio.ensure_future(node.consumer.Receive(POLL))
        await until(lambda: node.stats.long_polls == 1 and master.stats.long_polls == 1)
        assert node.stats.requests_in_flight == 0
        await node.server.drain()
        assert (await refused(poll)).reason == "SHUTTING_DOWN"
        await until(lambda: master.stats.long_polls == 0)


async def test_poll_is_answered_when_something_is_published() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        poll = asyncio.ensure_future(node.consumer.Receive(POLL))
        await until(lambda: master.stats.long_polls == 1)
        await node.publish(b"at last")
        assert [one.body for one in (await within(poll)).messages] == [b"at last"]


async def test_poll_goes_on_at_the_next_master_when_its_own_retires() -> None:
    async with Served() as former, Served() as latter, Elsewhere(former.peer_address) as node:
        former.engine.errors["receive"] = errors.NotMaster("retired")
        poll = asyncio.ensure_future(node.consumer.Receive(POLL))
        await until(lambda: len(former.engine.asked("receive")) > 1)
        node.master = ""  # nobody is, for a moment
        await let_others_run()
        assert not poll.done()
        node.master = latter.peer_address
        await until(lambda: latter.stats.long_polls == 1)
        await latter.publish(b"after all")
        assert [one.body for one in (await within(poll)).messages] == [b"after all"]


async def test_poll_goes_on_at_the_next_master_when_the_way_to_its_own_is_cut() -> None:
    async with spying() as (spy, server), Served() as latter, Elsewhere(spy.address) as node:
        spy.gate.clear()
        poll = asyncio.ensure_future(node.consumer.Receive(POLL))
        await until(lambda: spy.requests)
        node.master = latter.peer_address
        await server.stop(0)
        await until(lambda: latter.stats.long_polls == 1)
        await latter.publish(b"after all")
        assert [one.body for one in (await within(poll)).messages] == [b"after all"]


async def test_poll_is_told_when_its_time_is_over_before_there_is_one(patience: float) -> None:
    async with Elsewhere("") as node:
        told = await refused(node.consumer.Receive(POLL, timeout=0.3 + patience))
        assert told.reason == "NOT_MASTER"


# -- streams --------------------------------------------------------------------------------------


def batch(body: bytes, topic: str = "orders") -> broker_pb2.PublishStreamRequest:
    raw = build_publish([0], [body], relative_due=True)
    return broker_pb2.PublishStreamRequest(topic=topic, record_batch=raw)


async def test_stream_goes_through_in_both_directions() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        stream = node.producer.PublishStream()
        for number in range(3):
            await stream.write(batch(b"%d" % number))
            assert (await within(stream.read())).published.base_sequence == number
        await stream.write(batch(b"x", topic="%no"))
        assert (await within(stream.read())).error.reason == "INVALID_TOPIC"
        await stream.done_writing()
        assert await within(stream.read()) is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert [one.body for one in master.engine.stored] == [b"0", b"1", b"2"]
        assert node.stats.forwarded == 1


async def test_stream_of_our_client_is_told_batch_by_batch() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        node.engine.errors["publish_batch"] = errors.NotMaster(
            "no", master_address=master.peer_address
        )
        stream = node.producer.PublishStream(metadata=REDIRECT)
        await stream.write(batch(b"x"))
        told = (await within(stream.read())).error
        assert (told.reason, told.params["master_address"]) == ("NOT_MASTER", master.peer_address)
        stream.cancel()
        assert master.engine.calls == []
        await until(lambda: node.stats.streams == 0)


async def test_stream_ends_when_the_way_to_the_master_is_cut() -> None:
    async with Elsewhere("") as node:
        async with Served() as master:
            node.master = master.peer_address
            stream = node.producer.PublishStream()
            await stream.write(batch(b"x"))
            await within(stream.read())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await within(stream.read())
        assert refusal_of(ended.value).reason == "TIMEOUT"


async def test_stream_is_answered_to_its_end_when_the_node_stops() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        gate = master.engine.gates["publish_batch"] = asyncio.Event()
        stream = node.producer.PublishStream()
        await stream.write(batch(b"x"))
        await until(lambda: master.engine.stored)
        await node.server.drain()
        await let_others_run()
        gate.set()
        assert (await within(stream.read())).published.count == 1
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await within(stream.read())
        assert refusal_of(ended.value).reason == "SHUTTING_DOWN"


async def test_stream_is_ended_at_the_master_when_its_client_leaves() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        stream = node.producer.PublishStream()
        await stream.write(batch(b"x"))
        await within(stream.read())
        assert master.stats.streams == 1
        stream.cancel()
        await until(lambda: master.stats.streams == 0 and node.stats.streams == 0)


async def test_poll_that_is_passed_on_waits_for_room_for_its_answer() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        await master.publish(b"x")
        answers = node.engine.answers
        answers.take(answers.bytes_max)
        polling = asyncio.ensure_future(node.consumer.Receive(POLL))
        await until(lambda: master.engine.asked("receive"))
        await let_others_run()
        assert not polling.done()
        assert node.stats.long_polls == 1
        answers.let_go(answers.bytes_max)
        answer = await within(polling)
        assert [one.body for one in answer.messages] == [b"x"]


async def test_poll_is_overloaded_when_there_is_no_room_in_all_its_time(patience: float) -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        await master.publish(b"x")
        (answers := node.engine.answers).take(node.engine.answers.bytes_max)
        refusal = await refused(node.consumer.Receive(POLL, timeout=2.0 + patience))
        assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.answer_bytes")
        answers.let_go(answers.bytes_max)


async def test_poll_that_the_master_refuses_is_told_so_when_there_is_no_room() -> None:
    async with Served() as master, Elsewhere(master.peer_address) as node:
        answers = node.engine.answers
        answers.take(answers.bytes_max)
        wrong = consumer_pb2.ReceiveRequest(group="%", topic="orders")
        refusal = await refused(node.consumer.Receive(wrong))
        assert refusal.reason == "INVALID_GROUP"
        answers.let_go(answers.bytes_max)


async def test_answers_that_are_passed_on_are_bounded_when_all_come_at_once() -> None:
    size_bytes, room_bytes = 3_000_000, 3 * ANSWER_BYTES_MIN
    async with spying() as (spy, _):
        budget = PeakBudget(room_bytes)
        async with Elsewhere(spy.address, in_flight_max=64, answers=budget) as node:
            spy.gate.clear()
            message = consumer_pb2.ReceivedMessage(body=bytes(size_bytes))
            spy.answer = consumer_pb2.ReceiveResponse(messages=[message]).SerializeToString()
            polls = [asyncio.ensure_future(node.consumer.Receive(POLL)) for _ in range(24)]
            await until(lambda: len(spy.requests) == len(polls))
            assert budget.held_bytes == 0, "nothing is kept for those who wait for messages"
            spy.gate.set()
            answers = await within(asyncio.gather(*polls))
            assert {len(one.messages[0].body) for one in answers} == {size_bytes}
            assert size_bytes < budget.peak_bytes <= room_bytes
            await until(lambda: budget.held_bytes == 0)


async def test_room_is_given_back_when_a_poll_is_given_up() -> None:
    async with spying() as (spy, _):
        budget = PeakBudget(ANSWER_BYTES_MIN)
        async with Elsewhere(spy.address, answers=budget) as node:
            spy.answer = consumer_pb2.ReceiveResponse(receive_ms=1).SerializeToString()
            budget.take(1)
            given_up, waiting = (asyncio.ensure_future(node.consumer.Receive(POLL)) for _ in "ab")
            await until(lambda: len(spy.requests) == 2)
            given_up.cancel()
            budget.let_go(1)
            assert (await within(waiting)).receive_ms == 1
            await until(lambda: budget.held_bytes == 0)
