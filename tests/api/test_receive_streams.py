"""Receive streams over a real session: credits, bounds, ends, and clients that make no sense."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType
from typing import Any

import grpc
import pytest

from hourwheel.v1 import session_pb2_grpc
from hourwheel.v1.consumer_pb2 import AckRequest, ReceiveRequest
from hourwheel.v1.session_pb2 import (
    ReceiveCredits,
    ReceiveStreamRequest,
    SessionAnswer,
    SessionCall,
    SessionRequest,
)
from node.api.admission import Admission
from node.api.session import FRAME_CALLS_MAX, UNWRITTEN_BYTES
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from node.contracts.receive_stream import CREDITS_MAX
from tests.support.api_world import ApiWorld, refusal_of
from tests.support.callers import identify
from tests.support.eventually import until
from tests.support.fake_engine import NOW_MS, FakeEngine, Stored
from tests.support.peak_budget import PeakBudget

RECEIVE = ReceiveRequest(group="billing", topic="orders", max_messages=10)


def store(world: ApiWorld, *bodies: bytes) -> None:
    world.engine.stored += [Stored("orders", NOW_MS - 7, body) for body in bodies]
    world.engine.arrival.set()


def allowing(*topics: str) -> AccessPolicy:
    """Alice may do anything with these, and her group."""
    wanted = [(ResourceKind.TOPIC, name) for name in topics] + [(ResourceKind.GROUP, "billing")]
    grants = tuple(Grant("alice", frozenset(Operation), kind, name) for kind, name in wanted)
    return AccessPolicy(is_on=True, grants=grants, administrators=frozenset({"root"}))


class Client:
    """One session with one stream, number 1."""

    def __init__(self, world: ApiWorld) -> None:
        stub = session_pb2_grpc.SessionServiceStub(world.channel)
        self.stream = stub.Session(metadata=(("who", "alice"),))

    async def open(
        self, credits_count: int = 100, receive: ReceiveRequest = RECEIVE, **fields: Any
    ) -> None:
        request = ReceiveStreamRequest(receive=receive, credits=credits_count, **fields)
        call = SessionCall(call_id=1, receive_stream=request)
        await self.stream.write(SessionRequest(calls=[call]))

    async def grant(self, received_count: int, credits_count: int, call_id: int = 1) -> None:
        one = ReceiveCredits(call_id=call_id, received_count=received_count, credits=credits_count)
        await self.stream.write(SessionRequest(credits=[one]))

    async def give_up(self) -> None:
        await self.stream.write(SessionRequest(given_up=[1]))

    async def answer(self) -> SessionAnswer:
        """The next one."""
        while True:
            frame = await self.stream.read()
            if frame.answers:
                (found,) = frame.answers
                return found

    async def bodies(self, count: int) -> list[bytes]:
        """Of the next messages."""
        found: list[bytes] = []
        while len(found) < count:
            for answer in (await self.stream.read()).answers:
                assert answer.call_id == 1
                found += [one.body for one in answer.receive.messages]
        return found

    async def refusal(self) -> str:
        """Why the session is ended."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self._read_all()
        return refusal_of(caught.value).reason

    async def _read_all(self) -> None:
        while (await self.stream.read()) is not grpc.aio.EOF:
            pass


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def is_at_rest(world: ApiWorld, delivered: int) -> bool:
    """No more than so many messages are leased, however often the loop turns."""
    await until(lambda: world.engine.delivered >= delivered)
    for _ in range(100):
        await asyncio.sleep(0)
    return world.engine.delivered == delivered


async def test_messages_come_as_they_are_there() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open()
        await until(lambda: world.stats.long_polls == 1)
        for body in numbered(5):
            store(world, body)
            assert await client.bodies(1) == [body]
        assert len(world.engine.asked("receive_stream")) == 1
        assert not world.engine.asked("receive")
        await until(lambda: world.engine.answers.held_bytes == 0)


async def test_no_more_come_than_there_are_credits() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, *numbered(30))
        await client.open(3)
        assert await client.bodies(3) == numbered(3)
        assert await is_at_rest(world, 3)
        await client.grant(3, 0)
        assert await is_at_rest(world, 3)
        await client.grant(3, 15)
        assert await client.bodies(15) == numbered(18)[3:]
        assert await is_at_rest(world, 18)


async def test_credits_are_taken_back_when_fewer_are_set() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open(10)
        await until(lambda: world.engine.streams)
        await client.grant(0, 2)
        await until(lambda: world.engine.streams[0].credits_count == 2)
        store(world, *numbered(30))
        assert await client.bodies(2) == numbered(2)
        assert await is_at_rest(world, 2)


async def test_nothing_comes_when_there_are_no_credits() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, *numbered(3))
        await client.open(0)
        await until(lambda: world.engine.streams)
        assert await is_at_rest(world, 0)


@pytest.mark.parametrize(
    ("received", "credits_count"),
    [(2, 1), (1 << 63, 1), (0, CREDITS_MAX + 1), (1, (1 << 32) - 1)],
    ids=["more than was sent", "far more", "too many credits", "as many as a field has"],
)
async def test_a_session_is_ended_when_credits_make_no_sense(
    received: int, credits_count: int
) -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, b"a")
        await client.open(1)
        assert await client.bodies(1) == [b"a"]
        await client.grant(received, credits_count)
        assert await client.refusal() == "INVALID_ARGUMENT"
        await until(lambda: not world.stats.sessions and not world.stats.long_polls)


async def test_a_session_is_ended_when_fewer_have_arrived_than_before() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, b"a", b"b")
        await client.open(2)
        await client.bodies(2)
        await client.grant(2, 5)
        await client.grant(1, 5)
        assert await client.refusal() == "INVALID_ARGUMENT"


async def test_a_session_is_ended_when_a_frame_sets_too_many_credits() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        many = [ReceiveCredits(call_id=1)] * (FRAME_CALLS_MAX + 1)
        await client.stream.write(SessionRequest(credits=many))
        assert await client.refusal() == "TOO_MANY_ITEMS"


async def test_credits_mean_nothing_when_the_stream_is_not_there() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.grant(5, 1 << 31, call_id=77)
        store(world, b"a")
        await client.open()
        assert await client.bodies(1) == [b"a"]


@pytest.mark.parametrize(
    ("receive", "credits_count"),
    [
        (ReceiveRequest(group="billing", topic="orders", wait_ms=5), 1),
        (ReceiveRequest(group="billing", topic="orders", poller_id=5), 1),
        (ReceiveRequest(group="billing", topic="orders", poll_number=5), 1),
        (ReceiveRequest(group="no group", topic="orders"), 1),
        (RECEIVE, CREDITS_MAX + 1),
    ],
    ids=["wait", "poller", "number", "group", "credits"],
)
async def test_a_stream_is_refused_alone_when_it_asks_the_impossible(
    receive: ReceiveRequest, credits_count: int
) -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open(credits_count, receive)
        assert (await client.answer()).error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        ack = SessionCall(call_id=2, ack=AckRequest(group="billing"))
        await client.stream.write(SessionRequest(calls=[ack]))
        assert (await client.answer()).HasField("ack")
        assert world.stats.long_polls == world.stats.requests_in_flight == 0


async def test_a_stream_that_is_given_up_ends_behind_what_was_sent() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open()
        store(world, b"a")
        assert await client.bodies(1) == [b"a"]
        await client.give_up()
        assert (await client.answer()).HasField("receive_stream")
        (stream,) = world.engine.streams
        assert stream.is_given_up
        assert world.stats.long_polls == 0
        store(world, b"b")
        assert await is_at_rest(world, 1)


async def test_streams_count_as_polls_that_wait() -> None:
    async with ApiWorld({"limits": {"long_polls": 1}}) as world:
        first, second = Client(world), Client(world)
        await first.open()
        await until(lambda: world.stats.long_polls == 1)
        await second.open()
        assert (await second.answer()).error.params["limit"] == "limits.long_polls"
        await first.give_up()
        await until(lambda: not world.stats.long_polls)
        assert world.stats.requests_in_flight == 0


async def test_a_stream_ends_when_its_permission_is_revoked() -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(allowing("orders", "bills"))
        client = Client(world)
        await client.open()
        await until(lambda: world.stats.long_polls == 1)
        world.access.replace(allowing("orders"))
        store(world, b"a")
        assert await client.bodies(1) == [b"a"]
        world.access.replace(allowing("bills"))
        assert (await client.answer()).error.reason == "PERMISSION_DENIED"
        store(world, b"b")
        assert await is_at_rest(world, 1)


async def test_a_stream_ends_in_order_when_the_node_drains() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, b"a")
        await client.open()
        assert await client.bodies(1) == [b"a"]
        await world.server.drain()
        assert (await client.answer()).HasField("receive_stream")
        assert await client.refusal() == "SHUTTING_DOWN"


async def test_a_session_is_refused_when_the_node_drains_as_it_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ApiWorld() as world:
        begin = Admission.begin_session

        def begin_and_drain(admission: Admission) -> None:
            begin(admission)
            admission.drain()

        monkeypatch.setattr(Admission, "begin_session", begin_and_drain)
        assert await Client(world).refusal() == "SHUTTING_DOWN"


async def test_many_streams_that_are_given_up_at_once_go_in_one_pass() -> None:
    """Else one small frame would hold up the loop for seconds: a pass looks at all answers."""
    ids, seen = range(1, 101), Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen[frame.f_code.co_filename.rpartition("/")[2]] += 1

    async with ApiWorld() as world:
        client = Client(world)
        store(world, *[bytes(1 << 10)] * 12_000)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        request = ReceiveStreamRequest(receive=one, credits=60)
        calls = [SessionCall(call_id=one, receive_stream=request) for one in ids]
        await client.stream.write(SessionRequest(calls=calls))
        # Nothing is read: more than 4 MB of answers wait to be written.
        await until(lambda: world.engine.answers.held_bytes > UNWRITTEN_BYTES * 3 // 4)
        sys.setprofile(count)
        try:
            await client.stream.write(SessionRequest(given_up=ids))
            await until(lambda: not world.stats.long_polls)
        finally:
            sys.setprofile(None)
        assert all(one.is_given_up for one in world.engine.streams)
        assert 100 < seen["session.py"] < 20_000
        assert len(world.engine.streams) == len(ids)


async def test_a_stream_ends_in_order_when_its_client_has_no_more_to_say() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open()
        await until(lambda: world.stats.long_polls == 1)
        await client.stream.done_writing()
        assert (await client.answer()).HasField("receive_stream")
        assert await client.stream.read() is grpc.aio.EOF
        await until(lambda: not world.stats.sessions)


async def test_a_stream_is_over_when_the_engine_ends_it() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        await client.open()
        await until(lambda: world.engine.streams)
        world.engine.ends_streams.set()
        assert (await client.answer()).HasField("receive_stream")


async def test_nothing_is_left_when_the_client_goes_away() -> None:
    async with ApiWorld() as world:
        client = Client(world)
        store(world, b"a")
        await client.open()
        assert await client.bodies(1) == [b"a"]
        client.stream.cancel()
        await until(lambda: not world.stats.sessions and not world.stats.long_polls)
        (stream,) = world.engine.streams
        assert (stream.is_cut, stream.is_given_up) == (True, False)
        assert world.stats.requests_in_flight == world.engine.answers.held_bytes == 0


async def test_little_is_held_when_a_client_reads_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are leased as they are written, however many credits there are."""
    count, size_bytes, unwritten_bytes = 60, 1 << 10, 4 << 10
    monkeypatch.setattr("node.api.session.UNWRITTEN_BYTES", unwritten_bytes)
    engine = FakeEngine(answers=PeakBudget(1 << 20))
    async with ApiWorld(engine=engine) as world:
        store(world, *[bytes(size_bytes)] * count)
        client = Client(world)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        await client.open(CREDITS_MAX, one)
        assert len(await client.bodies(count)) == count
        assert engine.answers.peak_bytes <= unwritten_bytes + size_bytes
        await until(lambda: not engine.answers.held_bytes)


async def test_a_session_is_ended_when_nothing_of_a_stream_is_read() -> None:
    async with ApiWorld({"limits": {"answer_wait_ms": 100}}) as world:
        few: Sequence[tuple[str, int]] = [
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", 1_024),
        ]
        channel = grpc.aio.insecure_channel(world.address, options=few)
        stream = session_pb2_grpc.SessionServiceStub(channel).Session()
        store(world, *[bytes(1 << 20)] * 30)
        one = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        request = ReceiveStreamRequest(receive=one, credits=CREDITS_MAX)
        call = SessionCall(call_id=1, receive_stream=request)
        await stream.write(SessionRequest(calls=[call]))
        await until(lambda: world.stats.rejected.get("OVERLOADED"))
        assert world.engine.delivered < 10
        await until(lambda: not world.stats.long_polls)
        await channel.close()
        await until(lambda: not world.stats.sessions)
        assert world.engine.answers.held_bytes == 0
