"""Lanes of a session: answers in order, and what becomes of the rest when it ends."""

import asyncio
from typing import Any, cast

import pytest

from hourwheel import AsyncProducer, Message, errors
from hourwheel.client.sender import BULK_BYTES
from hourwheel.transport.connection import STREAMS_MAX
from hourwheel.transport.endpoints import Move
from hourwheel.transport.retry import Failure
from hourwheel.transport.session_lane import SessionLane
from hourwheel.transport.session_stream import CallFailed, NoSession, SessionStream
from hourwheel.transport.stream import StreamBroken
from hourwheel.v1.broker_pb2 import (
    ErrorDetail,
    PublishedBatch,
    PublishStreamRequest,
    PublishStreamResponse,
)
from tests.support.api_world import ApiWorld
from tests.support.eventually import until
from tests.support.fake_node import FakeNode

TIMEOUT_MS = 700.0
LOST = Failure(errors.Unavailable("gone"), is_definite=False)


class FakeSession:
    """What a lane needs of a session."""

    def __init__(self) -> None:
        self.is_over = False
        self.calls: dict[int, asyncio.Future[Any]] = {}
        self.topics: list[str] = []
        self.given_up: list[int] = []

    def begin(
        self, field: str, request: PublishStreamRequest, timeout_ms: float
    ) -> "tuple[int, asyncio.Future[Any]]":
        assert (field, timeout_ms) == ("publish", TIMEOUT_MS)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls[len(self.calls)] = future
        self.topics.append(request.topic)
        return len(self.calls) - 1, future

    def give_up(self, call_id: int) -> None:
        self.given_up.append(call_id)


class World:
    """A lane, and what it told others."""

    def __init__(self) -> None:
        self.session = FakeSession()
        self.failures: list[tuple[str, float]] = []
        self.refusals: list[NoSession] = []
        self.lane = SessionLane(
            cast(SessionStream, self.session),
            TIMEOUT_MS,
            address="a:1",
            on_failure=self._fail,
            on_refused=self.refusals.append,
        )

    def _fail(self, error: errors.HourwheelError, waited_ms: float) -> Move:
        self.failures.append((error.reason, waited_ms))
        return Move.SEARCH

    async def write(self, count: int) -> None:
        for number in range(count):
            await self.lane.write(PublishStreamRequest(topic=f"t{number}"))


def published(count: int) -> PublishStreamResponse:
    return PublishStreamResponse(published=PublishedBatch(count=count))


async def test_answers_are_read_in_the_order_of_the_requests() -> None:
    world = World()
    first = asyncio.create_task(world.lane.read())
    await asyncio.sleep(0)
    await world.write(3)
    world.session.calls[1].set_result(published(2))
    detail = ErrorDetail(reason="INVALID_TOPIC", code=3)
    world.session.calls[2].set_exception(CallFailed(LOST, detail))
    await asyncio.sleep(0)
    assert not first.done()
    world.session.calls[0].set_result(published(1))
    assert (await first).published.count == 1
    assert (await world.lane.read()).published.count == 2
    assert (await world.lane.read()).error == detail
    assert world.session.topics == ["t0", "t1", "t2"]
    assert (world.failures, world.session.given_up) == ([], [])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.Unavailable("gone"), ("UNAVAILABLE", 0.0)),
        (errors.Timeout("no answer came in time"), ("TIMEOUT", TIMEOUT_MS)),
    ],
)
async def test_lane_ends_with_its_session(
    error: errors.HourwheelError, told: tuple[str, float]
) -> None:
    world = World()
    await world.write(2)
    for call in world.session.calls.values():
        call.set_exception(CallFailed(Failure(error, is_definite=False)))
    with pytest.raises(StreamBroken) as broken:
        await world.lane.read()
    assert (broken.value.failure.error, broken.value.failure.is_definite) == (error, False)
    assert broken.value.move is Move.SEARCH
    assert world.failures == [told]
    assert world.lane.has_failed
    world.lane.cancel()


@pytest.mark.parametrize("under_way", [0, 1])
async def test_nothing_is_written_to_a_session_that_is_over(under_way: int) -> None:
    world = World()
    await world.write(under_way)
    told = [world.lane.is_over]
    world.session.is_over = True
    told.append(world.lane.is_over)
    assert told == [False, True]
    with pytest.raises(StreamBroken) as broken:
        await world.write(1)
    assert broken.value.failure.is_definite is (under_way == 0), "the one before may be taken"
    world.lane.cancel()


async def test_lane_tells_that_the_node_opens_no_session() -> None:
    world = World()
    await world.write(1)
    world.session.calls[0].set_exception(NoSession(is_for_good=True))
    with pytest.raises(StreamBroken) as broken:
        await world.lane.read()
    assert (broken.value.failure.is_definite, broken.value.move) == (True, Move.AT_ONCE)
    assert [one.is_for_good for one in world.refusals] == [True]
    assert world.failures == [], "the node is not to blame"
    world.lane.cancel()


async def test_what_has_no_answer_is_given_up() -> None:
    world = World()
    await world.write(3)
    reading = asyncio.create_task(world.lane.read())
    await asyncio.sleep(0)
    world.session.calls[1].set_result(published(1))
    world.session.calls[2].set_exception(CallFailed(LOST))
    world.lane.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert world.session.given_up == [0, 1, 2]


# -- producers ------------------------------------------------------------------------------------

COUNT = STREAMS_MAX + 4


def producers(address: str) -> list[AsyncProducer]:
    return [AsyncProducer(address) for _ in range(COUNT)]


async def publish(number: int, producer: AsyncProducer, count: int) -> list[int]:
    """One message after the other; their sequences."""
    ids = [
        await producer.publish("orders", Message(b"%d %d" % (number, at), delay_ms=9_000))
        for at in range(count)
    ]
    return [one.sequence for one in ids]


async def publish_in_turn(some: list[AsyncProducer]) -> None:
    """A message each, so that the last ones are those in the session."""
    for number, one in enumerate(some):
        await publish(number, one, 1)


async def close(some: list[AsyncProducer]) -> None:
    for one in some:
        await one.close()


async def test_producers_above_a_few_share_the_session() -> None:
    """Also where a node would not open so many streams."""
    async with ApiWorld({"limits": {"publish_streams": STREAMS_MAX}}) as world:
        some = producers(world.address)
        found = await asyncio.gather(*(publish(n, one, 5) for n, one in enumerate(some)))
        assert (world.stats.streams, world.stats.sessions) == (STREAMS_MAX, 1)
        await close(some)
        stored = [one.body for one in world.engine.stored]
        handled = world.stats.method("PublishStream").handled
    assert len(stored) == len(set(stored)) == 5 * COUNT
    for number, sequences in enumerate(found):
        assert [stored[one] for one in sequences] == [b"%d %d" % (number, at) for at in range(5)]
    assert handled == {"OK": 5 * COUNT}


async def test_producer_in_a_session_tries_again_what_was_refused_for_now() -> None:
    async with ApiWorld() as world:
        some = producers(world.address)
        await publish_in_turn(some)
        world.engine.errors["publish_batch"] = errors.Overloaded("later")
        again = [asyncio.create_task(publish(9, some[-1], 3))]
        await until(lambda: world.stats.rejected.get("OVERLOADED"))
        del world.engine.errors["publish_batch"]
        await asyncio.gather(*again)
        await close(some)
        stored = [one.body for one in world.engine.stored]
    assert stored[COUNT:] == [b"9 0", b"9 1", b"9 2"]


async def test_producer_of_large_batches_gets_a_stream_of_its_own() -> None:
    async with ApiWorld() as world:
        some = producers(world.address)
        await publish_in_turn(some)
        assert world.stats.streams == STREAMS_MAX
        gate = world.engine.gates["publish_batch"] = asyncio.Event()
        small = asyncio.create_task(publish(9, some[-1], 1))
        await until(lambda: len(world.engine.stored) == COUNT + 1)
        large = [Message(bytes([at]) * BULK_BYTES, delay_ms=9_000) for at in range(3)]
        bulk = asyncio.create_task(some[-1].publish_many("orders", large))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(world.engine.stored) == COUNT + 1, "it waits for what is under way"
        gate.set()
        await asyncio.gather(small, bulk)
        assert world.stats.streams == STREAMS_MAX + 1
        assert [one.body[:1] for one in world.engine.stored[-3:]] == [b"\0", b"\1", b"\2"]
        await publish(9, some[-1], 2)
        assert world.stats.streams == STREAMS_MAX + 1, "and keeps it"
        await close(some)


async def test_producers_of_a_node_without_sessions_have_streams() -> None:
    async with FakeNode() as node:
        some = producers(node.address)
        await asyncio.gather(*(publish(n, one, 3) for n, one in enumerate(some)))
        await close(some)
        assert len({one.body for one in node.messages}) == len(node.messages) == 3 * COUNT
