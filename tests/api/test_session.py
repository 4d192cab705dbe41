"""SessionService.Session over real gRPC: calls as unary ones, bounds, hostile clients, shutdown."""

import asyncio
from typing import Any

import grpc
import pytest

from hourwheel.formats.record_batch import build_publish
from hourwheel.v1 import session_pb2_grpc
from hourwheel.v1.broker_pb2 import CancelRequest, PublishStreamRequest
from hourwheel.v1.consumer_pb2 import (
    AckRequest,
    ChangeInvisibleRequest,
    NackRequest,
    ReceiptRange,
    ReceiveRequest,
)
from hourwheel.v1.session_pb2 import SessionAnswer, SessionCall, SessionRequest, SessionResponse
from node.api.session import FRAME_CALLS_MAX, IN_FLIGHT_MAX
from tests.support.api_world import ApiWorld, Refusal, refusal_of
from tests.support.eventually import until
from tests.support.fake_engine import NOW_MS, FakeEngine, Stored
from tests.support.peak_budget import PeakBudget

POLL = ReceiveRequest(group="billing", topic="orders", wait_ms=20_000)
ACK = AckRequest(group="billing")


def publish(*bodies: bytes, topic: str = "orders") -> PublishStreamRequest:
    raw = build_publish([NOW_MS + 60_000] * len(bodies), bodies)
    return PublishStreamRequest(topic=topic, record_batch=raw)


def call(call_id: int, timeout_ms: int = 0, **request: Any) -> SessionCall:
    return SessionCall(call_id=call_id, timeout_ms=timeout_ms, **request)


class Client:
    """One session, whose frames a test writes by itself."""

    def __init__(self, world: ApiWorld) -> None:
        self.stream = world.sessions.Session()

    async def send(self, *calls: SessionCall, given_up: tuple[int, ...] = ()) -> None:
        await self.stream.write(SessionRequest(calls=calls, given_up=given_up))

    async def answers(self, count: int) -> dict[int, SessionAnswer]:
        """The next answers, by call_id."""
        found: dict[int, SessionAnswer] = {}
        while len(found) < count:
            for answer in (await self.stream.read()).answers:
                assert answer.call_id not in found
                found[answer.call_id] = answer
        return found

    async def refusal(self) -> Refusal:
        """Why the session is ended, whatever was answered before."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self._read_all()
        return refusal_of(caught.value)

    async def _read_all(self) -> None:
        while (await self.stream.read()) is not grpc.aio.EOF:
            pass


def store(world: ApiWorld, *bodies: bytes) -> None:
    world.engine.stored += [Stored("orders", NOW_MS - 7, body) for body in bodies]
    world.engine.arrival.set()


async def leased(world: ApiWorld) -> str:
    store(world, b"a")
    answer: Any = await world.consumer.Receive(ReceiveRequest(group="billing", topic="orders"))
    receipt: str = answer.receipt
    return receipt


async def test_calls_are_answered_as_unary_ones() -> None:
    """The same requests by both ways, over two worlds in the same state."""
    async with ApiWorld() as world, ApiWorld() as other:
        receipt = await leased(world)
        assert await leased(other) == receipt
        ranges = [ReceiptRange(receipt=receipt)]
        requests: list[tuple[str, str, Any]] = [
            ("receive", "Receive", ReceiveRequest(group="billing", topic="orders")),
            ("receive", "Receive", ReceiveRequest(group="no group", topic="orders")),
            ("ack", "Ack", AckRequest(group="billing", ranges=ranges)),
            ("ack", "Ack", AckRequest(group="billing", receipts=["garbage"])),
            ("nack", "Nack", NackRequest(group="billing", ranges=ranges, delay_ms=5)),
            (
                "change_invisible",
                "ChangeInvisible",
                ChangeInvisibleRequest(group="billing", ranges=ranges, invisible_ms=5_000),
            ),
            ("cancel", "Cancel", CancelRequest(packed_message_ids=bytes(24))),
            ("cancel", "Cancel", CancelRequest(message_ids=["garbage"])),
        ]
        client = Client(world)
        await client.send(
            *(call(number, **{field: it}) for number, (field, _, it) in enumerate(requests, 1))
        )
        answers = await client.answers(len(requests))
        for number, (field, method, request) in enumerate(requests, 1):
            service = other.producer if method == "Cancel" else other.consumer
            answer = answers[number]
            try:
                expected = await getattr(service, method)(request)
            except grpc.aio.AioRpcError as error:
                refusal = refusal_of(error)
                assert answer.error.code == refusal.code.value[0]
                assert answer.error.reason == refusal.reason
                assert answer.error.message == refusal.message
                assert dict(answer.error.params) == refusal.params
            else:
                assert getattr(answer, field) == expected
        assert world.engine.calls == other.engine.calls
        assert world.stats.method("Ack").handled == other.stats.method("Ack").handled
        assert world.stats.rejected == other.stats.rejected
        assert world.stats.requests_in_flight == 0


async def test_batches_reach_the_engine_in_their_order() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        for first in range(1, 50, 7):
            await client.send(
                *(call(n, publish=publish(b"%d" % n)) for n in range(first, min(50, first + 7)))
            )
        answers = await client.answers(49)
        assert [each.body for each in world.engine.stored] == [b"%d" % n for n in range(1, 50)]
        found = [answers[n].publish.published.base_sequence for n in range(1, 50)]
        assert found == list(range(49))
        await client.send(call(50, publish=publish(b"x", topic="no good")))
        assert (await client.answers(1))[50].error.reason == "INVALID_TOPIC"


async def test_a_poll_waits_while_others_are_answered() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, receive=POLL))
        await until(lambda: world.stats.long_polls == 1)
        await client.send(call(2, ack=ACK))
        assert set(await client.answers(1)) == {2}
        store(world, b"a")
        assert (await client.answers(1))[1].receive.messages[0].body == b"a"
        await until(lambda: world.engine.answers.held_bytes == 0)


async def test_a_poll_is_asked_for_less_than_its_caller_waits() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, timeout_ms=5_000, receive=POLL))
        await until(lambda: world.stats.long_polls == 1)
        (params,) = world.engine.asked("receive")
        assert 4_000 < params.wait_ms < 5_000


async def test_a_poll_ends_when_it_is_given_up() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, receive=POLL), call(2, receive=POLL))
        await until(lambda: world.stats.long_polls == 2)
        await client.send(given_up=(1, 77))
        await until(lambda: world.stats.long_polls == 1)
        store(world, b"a")
        assert set(await client.answers(1)) == {2}


async def test_all_ends_when_the_client_goes_away() -> None:
    async with ApiWorld() as world:
        world.engine.gates["resolve"] = asyncio.Event()
        receipt = await leased(world)
        client = Client(world)
        acks = AckRequest(group="billing", receipts=[receipt])
        await client.send(call(1, receive=POLL), call(2, ack=acks))
        await until(lambda: world.stats.long_polls == 1 and world.stats.requests_in_flight == 1)
        client.stream.cancel()
        await until(lambda: not world.stats.sessions)
        await until(lambda: not world.stats.long_polls and not world.stats.requests_in_flight)
        assert world.stats.bytes_in_flight == world.engine.answers.held_bytes == 0


async def test_what_was_asked_is_answered_when_the_client_has_no_more() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, receive=POLL))
        await client.stream.done_writing()
        await until(lambda: world.stats.long_polls == 1)
        store(world, b"a")
        assert set(await client.answers(1)) == {1}
        assert await client.stream.read() is grpc.aio.EOF
        assert await client.stream.code() is grpc.StatusCode.OK


async def test_a_call_is_refused_alone_when_it_is_unknown_here() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1), call(2, ack=ACK))
        answers = await client.answers(2)
    assert answers[1].error.reason == "INVALID_ARGUMENT"
    assert answers[2].HasField("ack")


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([call(0, ack=ACK)], "INVALID_ARGUMENT"),
        ([call(5, receive=POLL), call(5, ack=ACK)], "INVALID_ARGUMENT"),
        ([call(n + 1, ack=ACK) for n in range(FRAME_CALLS_MAX + 1)], "TOO_MANY_ITEMS"),
    ],
    ids=["no id", "an id twice", "too many"],
)
async def test_a_session_is_ended_when_a_frame_makes_no_sense(
    calls: list[SessionCall], reason: str
) -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, receive=POLL))
        await client.send(*calls)
        assert (await client.refusal()).reason == reason
        await until(lambda: not world.stats.sessions and not world.stats.long_polls)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xff\xff\xff", "INVALID_ARGUMENT"),
        (
            SessionRequest(calls=[call(1, receive=POLL)]).SerializeToString()[:-3],
            "INVALID_ARGUMENT",
        ),
        (b"\x0a\x00" * 1_000_000, "TOO_MANY_ITEMS"),
        (b"\x12\x80\x80\x40" + bytes(1 << 20), "TOO_MANY_ITEMS"),
    ],
    ids=["garbage", "half a frame", "a million calls", "a million given up"],
)
async def test_a_session_is_ended_when_a_frame_is_garbage(frame: bytes, reason: str) -> None:
    async with ApiWorld() as world:
        stream: Any = world.channel.stream_stream("/hourwheel.v1.SessionService/Session")()
        assert SessionResponse.FromString(await stream.read()).offers_receive_streams
        await stream.write(frame)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert refusal_of(caught.value).reason == reason
        await until(lambda: not world.stats.sessions)
        assert world.stats.requests_in_flight == 0


async def test_a_session_is_ended_as_an_error_when_a_bug_is_met(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not as if the client had left."""

    def fail() -> ReceiveRequest:
        raise KeyError("a bug")

    monkeypatch.setattr("node.api.session.ReceiveRequest", fail)
    async with ApiWorld() as world:
        client = Client(world)
        await client.send(call(1, receive=POLL))
        assert (await client.refusal()).reason == "INTERNAL"
    assert "a bug" in caplog.text


async def test_reading_stops_when_much_is_in_flight() -> None:
    async with ApiWorld({"limits": {"requests_in_flight": 60_000}}) as world:
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        client = Client(world)
        frame = 64
        count = IN_FLIGHT_MAX + 5 * frame
        for first in range(0, count, frame):
            await client.send(
                *(call(n + 1, publish=publish(b"x")) for n in range(first, first + frame))
            )
        await until(lambda: world.stats.requests_in_flight == IN_FLIGHT_MAX)
        for _ in range(200):
            await asyncio.sleep(0)
        assert world.stats.requests_in_flight == IN_FLIGHT_MAX
        gate.set()
        assert len(await client.answers(count)) == count


async def test_polls_do_not_keep_others_from_being_read() -> None:
    async with ApiWorld({"limits": {"long_polls": 2 * IN_FLIGHT_MAX}}) as world:
        client = Client(world)
        for first in range(1, 2 * IN_FLIGHT_MAX, 512):
            await client.send(*(call(n, receive=POLL) for n in range(first, first + 512)))
        await until(lambda: world.stats.long_polls == 2 * IN_FLIGHT_MAX)
        await client.send(call(9_999, ack=ACK), call(10_000, receive=POLL))
        answers = await client.answers(2)
    assert answers[9_999].HasField("ack")
    assert answers[10_000].error.params["limit"] == "limits.long_polls"


async def test_a_session_is_ended_when_its_answers_are_not_read() -> None:
    async with ApiWorld({"limits": {"answer_wait_ms": 100}}) as world:
        few = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1_024)]
        channel = grpc.aio.insecure_channel(world.address, options=few)
        stream = session_pb2_grpc.SessionServiceStub(channel).Session()
        store(world, *[bytes(1 << 20)] * 3)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        calls = [call(n, receive=one) for n in (1, 2, 3)]
        await stream.write(SessionRequest(calls=[*calls, call(4, receive=POLL)]))
        await until(lambda: world.stats.rejected.get("OVERLOADED"))
        await until(lambda: not world.stats.long_polls)
        assert (world.stats.requests_in_flight, world.stats.bytes_in_flight) == (0, 0)
        # What gRPC holds of it counts until the call has ended.
        assert world.stats.sessions == 1
        assert world.engine.answers.held_bytes == 1 << 20
        await channel.close()
        await until(lambda: not world.stats.sessions)
        assert world.engine.answers.held_bytes == 0


async def test_polls_of_one_frame_are_answered_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, size_bytes, unwritten_bytes = 50, 1 << 10, 4 << 10
    monkeypatch.setattr("node.api.session.UNWRITTEN_BYTES", unwritten_bytes)
    engine = FakeEngine(answers=PeakBudget(1 << 20))
    async with ApiWorld(engine=engine) as world:
        store(world, *[bytes(size_bytes)] * count)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        client = Client(world)
        await client.send(*(call(n + 1, receive=one) for n in range(count)))
        answers = await client.answers(count)
        assert all(len(each.receive.messages) == 1 for each in answers.values())
        assert engine.answers.peak_bytes <= unwritten_bytes + size_bytes


async def test_room_is_given_back_when_the_client_goes_away_before_it_has_read() -> None:
    async with ApiWorld() as world:
        few = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1_024)]
        channel = grpc.aio.insecure_channel(world.address, options=few)
        stream = session_pb2_grpc.SessionServiceStub(channel).Session()
        store(world, *[bytes(1 << 20)] * 3)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        await stream.write(SessionRequest(calls=[call(n, receive=one) for n in (1, 2, 3)]))
        await until(lambda: world.engine.answers.held_bytes == 3 << 20)
        await channel.close()
        await until(lambda: not world.engine.answers.held_bytes)


async def test_a_session_is_refused_when_too_many_are_open() -> None:
    async with ApiWorld({"limits": {"sessions": 2}}) as world:
        clients = [Client(world) for _ in range(2)]
        await until(lambda: world.stats.sessions == 2)
        refusal = await Client(world).refusal()
        assert (refusal.reason, refusal.params["limit"]) == ("OVERLOADED", "limits.sessions")
        await clients[0].stream.done_writing()
        await until(lambda: world.stats.sessions == 1)
        client = Client(world)
        await client.send(call(1, ack=ACK))
        await client.answers(1)


async def test_polls_are_answered_then_the_session_ends_when_the_node_drains() -> None:
    async with ApiWorld() as world:
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        client = Client(world)
        await client.send(call(1, receive=POLL), call(2, publish=publish(b"x")))
        await until(lambda: world.stats.long_polls == 1 and world.engine.stored)
        await world.server.drain()
        assert (await client.answers(1))[1].receive.receipt == ""
        gate.set()
        assert (await client.answers(1))[2].publish.published.count == 1
        assert (await client.refusal()).reason == "SHUTTING_DOWN"
        assert (await Client(world).refusal()).reason == "SHUTTING_DOWN"
