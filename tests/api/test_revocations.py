"""Who may not read any more gets nothing more: neither what waits to be written, nor what comes.

A real engine behind a real server: what was leased and not sent comes to others, as if it had never
been leased.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import grpc
import pytest

from hourwheel.clock import SystemClock
from hourwheel.v1 import consumer_pb2_grpc, session_pb2_grpc, transaction_pb2_grpc
from hourwheel.v1.consumer_pb2 import ReceiveRequest, ReceiveResponse
from hourwheel.v1.session_pb2 import (
    ReceiveStreamRequest,
    SessionAnswer,
    SessionCall,
    SessionRequest,
)
from hourwheel.v1.transaction_pb2 import PollChecksRequest
from node.access.control import LOGIN_ENDS_MS, LOGIN_HOLDS
from node.api.session import UNWRITTEN_BYTES
from node.contracts.access import AccessPolicy, Grant, Operation, Principal, ResourceKind
from tests.support.api_world import ApiWorld, refusal_of, refused
from tests.support.callers import identify
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until

BODY_BYTES: Final = 100_000
COUNT: Final = 60
COMES_BACK_MS: Final = 5_000
NARROW: Final[Sequence[tuple[str, int]]] = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1_024),
    ("grpc.max_receive_message_length", 32 << 20),
]
"""Little is on its way to a client that does not read."""
WAITING: Final = ReceiveRequest(group="billing", topic="orders", wait_ms=60_000)
LATE: Final = b"published after"


def allowing(*names: str) -> AccessPolicy:
    """These may read the orders, for their group."""
    on = [(ResourceKind.TOPIC, "orders"), (ResourceKind.GROUP, "billing")]
    grants = [Grant(name, frozenset(Operation), *one) for name in names for one in on]
    return AccessPolicy(is_on=True, grants=tuple(grants), administrators=frozenset({"root"}))


class Login:
    """Who calls: each is who it says, as long as a test says so."""

    def __init__(self) -> None:
        self.ends_ms: int | None = None
        self.holds = True

    async def identify(self, context: Any) -> Principal:
        """See `Identify`."""
        LOGIN_ENDS_MS.set(self.ends_ms)
        LOGIN_HOLDS.set(lambda: self.holds)
        return await identify(context)


class World(NamedTuple):
    """A node, and what a test needs of it."""

    node: EngineWorld
    api: ApiWorld
    login: Login

    @property
    def lease_count(self) -> int:
        """How many there are."""
        return self.node.mastership.receiver.leases.count

    async def told_to_bob(self) -> list[tuple[bytes, int]]:
        """(body, attempt) of all that somebody who may read gets now."""
        found: list[tuple[bytes, int]] = []
        while True:
            request = ReceiveRequest(group="billing", topic="orders", max_messages=1_000)
            answer = await self.api.consumer.Receive(request, metadata=(("who", "bob"),))
            if not answer.messages:
                return found
            found += [(one.body, one.attempt) for one in answer.messages]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    login = Login()
    async with (
        EngineWorld(tmp_path) as node,
        ApiWorld(engine=cast(Any, node.engine), identify=login.identify) as api,
    ):
        await api.publish(b"first")
        api.access.replace(allowing("alice", "bob"))
        yield World(node, api, login)


class Client:
    """Alice's session, of which nothing is read before a test says so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.channel = grpc.aio.insecure_channel(world.api.address, options=NARROW)
        stub = session_pb2_grpc.SessionServiceStub(self.channel)
        self.stream = stub.Session(metadata=(("who", "alice"),))

    async def open_stream(self, **fields: Any) -> None:
        receive = ReceiveRequest(group="billing", topic="orders", max_messages=1)
        request = ReceiveStreamRequest(receive=receive, credits=1_000, stream_id=7, **fields)
        await self.call(SessionCall(call_id=1, receive_stream=request))

    async def poll(self, *call_ids: int, **fields: Any) -> None:
        receive = ReceiveRequest(group="billing", topic="orders", max_messages=1, **fields)
        await self.call(*[SessionCall(call_id=one, receive=receive) for one in call_ids])

    async def call(self, *calls: SessionCall) -> None:
        await self.stream.write(SessionRequest(calls=calls))

    async def read(self, count: int) -> list[SessionAnswer]:
        """The next answers, so many at least."""
        found: list[SessionAnswer] = []
        while len(found) < count:
            found += (await self.stream.read()).answers
        return found

    async def read_to_its_end(self) -> tuple[list[SessionAnswer], str]:
        """All that still comes, and why the session ends."""
        found: list[SessionAnswer] = []
        try:
            while (frame := await self.stream.read()) is not grpc.aio.EOF:
                found += frame.answers
        except grpc.aio.AioRpcError as error:
            return found, refusal_of(error).reason
        return found, ""


async def publish_much(world: World) -> None:
    world.api.access.replace(AccessPolicy())
    for number in range(COUNT):
        await world.api.publish(b"%d" % number + bytes(BODY_BYTES))
    world.api.access.replace(allowing("alice", "bob"))


async def until_it_waits(world: World) -> int:
    """Until so much is not written that a stream gets nothing more; how much is leased by then."""
    await until(lambda: world.node.engine.answers.held_bytes >= UNWRITTEN_BYTES)
    assert 30 < world.lease_count < COUNT
    return world.lease_count


def bodies_of(answers: list[SessionAnswer]) -> list[bytes]:
    return [one.body for each in answers for one in each.receive.messages]


async def test_nothing_that_waits_to_be_written_comes_when_a_permission_is_revoked(
    world: World,
) -> None:
    await publish_much(world)
    client = Client(world)
    await client.open_stream()
    leased = await until_it_waits(world)
    world.api.access.replace(allowing("bob"))
    await world.node.publish(world.node.now_ms)
    answers = await client.read(1)
    while not answers[-1].HasField("error"):
        answers += await client.read(1)
    assert answers[-1].error.reason == "PERMISSION_DENIED"
    got = bodies_of(answers)
    assert len(got) < leased / 2, "what was being written when it was revoked, and no more"
    world.node.advance(COMES_BACK_MS)
    await until(lambda: world.lease_count == len(got))
    rest = await world.told_to_bob()
    assert {attempt for _, attempt in rest} == {1}, "nobody has seen it"
    assert len(rest) == COUNT + 2 - len(got)
    assert not {body for body, _ in rest} & set(got)
    await client.channel.close()


@pytest.mark.parametrize("is_user_gone", [False, True])
async def test_who_waits_gets_nothing_that_is_published_when_a_permission_is_revoked(
    world: World, is_user_gone: bool
) -> None:
    """By a stream, by a poll of a session, by a unary poll: each is told, and leases nothing."""
    client = Client(world)
    await client.open_stream()
    assert bodies_of(await client.read(1)) == [b"first"]
    await client.poll(2, wait_ms=60_000)
    unary = world.api.consumer.Receive(WAITING, metadata=(("who", "alice"),))
    poll = asyncio.ensure_future(refused(unary))
    await until(lambda: world.api.stats.long_polls == 3)
    if is_user_gone:
        world.login.holds = False
        world.api.access.replace(allowing("alice", "bob"))
    else:
        world.api.access.replace(allowing("bob"))
    await world.node.publish(world.node.now_ms)
    reason = "UNAUTHENTICATED" if is_user_gone else "PERMISSION_DENIED"
    assert (await poll).reason == reason
    answers = {one.call_id: one.error.reason for one in await client.read(2)}
    assert answers == {1: reason, 2: reason}
    assert world.lease_count == 1, "of the first message"
    world.login.holds = True
    await until(lambda: not world.api.stats.long_polls)
    assert [attempt for _, attempt in await world.told_to_bob()] == [1]
    await client.channel.close()


async def test_answers_of_polls_are_not_written_when_the_permission_is_revoked_meanwhile(
    world: World,
) -> None:
    await publish_much(world)
    client = Client(world)
    await client.poll(*range(1, COUNT + 1))
    await until(lambda: world.lease_count == COUNT)
    world.api.access.replace(allowing("bob"))
    answers = await client.read(COUNT)
    assert len(bodies_of(answers)) < COUNT / 2
    told = {one.error.reason for one in answers if not one.receive.messages}
    assert told == {"PERMISSION_DENIED"}
    assert sorted(one.call_id for one in answers) == list(range(1, COUNT + 1))
    await until(lambda: not world.node.engine.answers.held_bytes)
    await client.channel.close()


async def test_nothing_that_waits_to_be_written_comes_when_the_login_ends(world: World) -> None:
    await publish_much(world)
    now_ms = SystemClock().wall_ms
    world.login.ends_ms = int(now_ms()) + 4_000
    client = Client(world)
    await client.open_stream()
    leased = await until_it_waits(world)
    assert now_ms() < world.login.ends_ms, "the machine is too slow for this test"
    await until(lambda: not world.api.stats.long_polls)
    assert now_ms() >= world.login.ends_ms
    answers, reason = await client.read_to_its_end()
    assert reason == "LOGIN_ENDED"
    assert answers[-1].HasField("receive_stream")
    got = bodies_of(answers)
    assert len(got) < leased / 2
    world.node.advance(COMES_BACK_MS)
    await until(lambda: world.lease_count == len(got))
    await client.channel.close()


async def test_what_waits_to_be_written_is_not_when_the_login_ends_behind_the_last_call(
    world: World,
) -> None:
    """The client has ended its side, so the session only writes what is left."""
    await publish_much(world)
    now_ms = SystemClock().wall_ms
    world.login.ends_ms = int(now_ms()) + 4_000
    client = Client(world)
    await client.open_stream()
    leased = await until_it_waits(world)
    await client.stream.done_writing()
    await until(lambda: not world.api.stats.long_polls)
    assert now_ms() < world.login.ends_ms, "the machine is too slow for this test"
    await until(lambda: now_ms() > world.login.ends_ms)
    answers, reason = await client.read_to_its_end()
    assert reason == "LOGIN_ENDED"
    assert len(bodies_of(answers)) < leased / 2
    await client.channel.close()


async def test_polls_end_with_the_login_of_who_waits(world: World) -> None:
    """Unary ones, those of sessions, and those for checks; empty, so that another one comes."""
    now_ms = SystemClock().wall_ms
    assert (await world.told_to_bob()) == [(b"first", 1)]
    world.login.ends_ms = int(now_ms()) + 1_000
    client = Client(world)
    await client.poll(1, wait_ms=60_000)
    who = (("who", "alice"),)
    consumer = consumer_pb2_grpc.ConsumerServiceStub(client.channel)
    transactions = transaction_pb2_grpc.TransactionServiceStub(client.channel)
    asking = PollChecksRequest(producer_group="shop", topics=["orders"], wait_ms=60_000)
    calls = [
        asyncio.ensure_future(consumer.Receive(WAITING, metadata=who)),
        asyncio.ensure_future(transactions.PollChecks(asking, metadata=who)),
    ]
    answers, reason = await client.read_to_its_end()
    assert reason == "LOGIN_ENDED"
    assert [bool(one.receive.receipt) for one in answers] == [False]
    answer, checks = await asyncio.gather(*calls)
    assert world.login.ends_ms <= now_ms() < world.login.ends_ms + 30_000
    assert not answer.receipt
    assert not checks.checks
    await until(lambda: not world.api.stats.long_polls)
    await world.node.publish(world.node.now_ms)
    assert world.lease_count == 1
    await client.channel.close()


async def test_an_answer_says_for_how_long_it_waited_to_be_written(world: World) -> None:
    """Its lease went on meanwhile. What is written at once says nothing."""
    await publish_much(world)
    client = Client(world)
    await client.open_stream()
    await until_it_waits(world)
    now_ms = SystemClock().monotonic_ms
    since_ms = now_ms()
    await until(lambda: now_ms() > since_ms + 300)
    waited_ms = now_ms() - since_ms
    answers: list[ReceiveResponse] = [one.receive for one in await client.read(COUNT)]
    late = [one.queued_ms for one in answers if one.queued_ms >= waited_ms]
    assert len(late) > 10, "what waited the whole time"
    assert min(one.queued_ms for one in answers) < waited_ms
    assert max(late) < now_ms() - since_ms + 30_000
    await client.channel.close()
