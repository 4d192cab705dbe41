"""A client's session against a node that is a script, and against real ones, old and full."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from hourwheel import AsyncConsumer, errors
from hourwheel.transport import connection as connections
from hourwheel.transport import session_stream
from hourwheel.transport.connection import Connection
from hourwheel.transport.methods import ACK, OPEN_SESSION, RECEIVE
from hourwheel.transport.session_stream import CallFailed, NoSession, SessionStream
from hourwheel.v1.broker_pb2 import ErrorDetail
from hourwheel.v1.consumer_pb2 import (
    RECEIPT_OUTCOME_OK,
    RECEIPT_OUTCOME_STALE,
    AckRequest,
    AckResponse,
    ReceiptRange,
    ReceiveRequest,
    ReceiveResponse,
)
from hourwheel.v1.session_pb2 import (
    ReceiveStreamEnd,
    ReceiveStreamRequest,
    SessionAnswer,
    SessionRequest,
    SessionResponse,
)
from node.access.quotas import Limits, Quotas
from tests.support.api_world import ApiWorld
from tests.support.callers import identify
from tests.support.eventually import until
from tests.support.fake_node import FakeNode

OK_MS = 20_000.0


class Script:
    """A node that notes the frames that come, and answers what a test says."""

    def __init__(self) -> None:
        self.frames: list[SessionRequest] = []
        self.context: Any = None
        self.address = ""

    async def handle(self, requests: Any, context: Any) -> None:
        self.context = context
        await context.write(SessionResponse())
        async for frame in requests:
            self.frames.append(frame)

    async def answer(self, *answers: SessionAnswer) -> None:
        await self.context.write(SessionResponse(answers=answers))

    @property
    def ids(self) -> list[int]:
        return [call.call_id for frame in self.frames for call in frame.calls]


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Script, SessionStream]]:
    """A session to a script."""
    script, server = Script(), grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        script.handle, SessionRequest.FromString, SessionResponse.SerializeToString
    )
    service = grpc.method_handlers_generic_handler(
        "hourwheel.v1.SessionService", {"Session": handler}
    )
    server.add_generic_rpc_handlers((service,))
    script.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    connection = Connection(script.address)
    session = SessionStream(connection.stream(OPEN_SESSION)())
    try:
        yield script, session
    finally:
        await session.close()
        await connection.close()
        await server.stop(None)


def ask_soon(session: SessionStream, group: str, *receipts: str) -> "asyncio.Task[AckResponse]":
    """Acknowledge what nobody waits for."""
    request = AckRequest(group=group, ranges=[ReceiptRange(receipt=one) for one in receipts])
    return asyncio.create_task(session.ask("ack", request, OK_MS, is_urgent=False))


def running() -> set[str]:
    """Names of the tasks that there are."""
    return {task.get_name() for task in asyncio.all_tasks()}


def ask(session: SessionStream, timeout_ms: float = OK_MS, **fields: Any) -> "asyncio.Task[Any]":
    request = AckRequest(group="g", **fields)
    return asyncio.create_task(session.ask("ack", request, timeout_ms))


def acked(call_id: int) -> SessionAnswer:
    return SessionAnswer(call_id=call_id, ack=AckResponse(outcomes=[RECEIPT_OUTCOME_OK] * call_id))


async def test_calls_of_one_turn_go_in_one_frame() -> None:
    async with scripted() as (script, session):
        calls = [ask(session) for _ in range(5)]
        await until(lambda: script.frames)
        assert [call.call_id for call in script.frames[0].calls] == [1, 2, 3, 4, 5]
        assert {call.timeout_ms for call in script.frames[0].calls} == {20_000}
        await script.answer(acked(4), acked(2))
        await script.answer(acked(1), acked(5), acked(77), acked(3))
        assert [len((await call).outcomes) for call in calls] == [1, 2, 3, 4, 5]


async def test_frames_are_of_limited_size() -> None:
    async with scripted() as (script, session):
        large = [ReceiptRange(receipt="x" * 1_000)] * 500
        calls = [ask(session, ranges=large) for _ in range(5)]
        many = [ask(session) for _ in range(600)]
        await until(lambda: len(script.ids) == 605)
        assert script.ids == list(range(1, 606))
        assert max(frame.ByteSize() for frame in script.frames) <= 1.1 * session_stream.FRAME_BYTES
        counts = [len(frame.calls) for frame in script.frames]
        assert max(counts) <= session_stream.FRAME_CALLS_MAX
        for call in calls + many:
            call.cancel()


async def test_call_when_it_is_refused() -> None:
    async with scripted() as (script, session):
        refused, unsure = ask(session), ask(session)
        await until(lambda: script.frames)
        detail = ErrorDetail(code=14, reason="NOT_MASTER", message="no", params={"epoch": "3"})
        lost = ErrorDetail(code=4, reason="TIMEOUT", message="lost")
        await script.answer(
            SessionAnswer(call_id=1, error=detail), SessionAnswer(call_id=2, error=lost)
        )
        with pytest.raises(CallFailed) as caught:
            await refused
        failure = caught.value.failure
        assert isinstance(failure.error, errors.NotMaster)
        assert failure.error.params["epoch"] == "3"
        assert failure.is_definite
        with pytest.raises(CallFailed) as caught:
            await unsure
        assert isinstance(caught.value.failure.error, errors.Timeout)
        assert not caught.value.failure.is_definite


async def test_call_when_time_runs_out() -> None:
    async with scripted() as (script, session):
        late, in_time = ask(session, 2_000.0), ask(session)
        await until(lambda: script.ids == [1, 2])  # else it is taken back, and not given up
        with pytest.raises(CallFailed) as caught:
            await late
        assert isinstance(caught.value.failure.error, errors.Timeout)
        assert not caught.value.failure.is_definite
        await until(lambda: [1] in [list(frame.given_up) for frame in script.frames])
        await script.answer(acked(1), acked(2))
        assert len((await in_time).outcomes) == 2


async def test_call_when_it_is_cancelled() -> None:
    async with scripted() as (script, session):
        call = ask(session)
        await until(lambda: script.frames)
        call.cancel()
        await until(lambda: [1] in [list(frame.given_up) for frame in script.frames])


async def test_call_when_it_is_cancelled_before_it_is_sent() -> None:
    async with scripted() as (script, session):
        calls = [ask(session) for _ in range(session_stream.FRAME_CALLS_MAX + 2)]
        asyncio.get_running_loop().call_soon(calls[-2].cancel)  # of the second frame
        await until(lambda: len(script.frames) == 2)
        assert script.ids == [*range(1, len(calls) - 1), len(calls)]
        assert not any(frame.given_up for frame in script.frames)
        for call in calls:
            call.cancel()


async def test_calls_when_the_session_is_closed() -> None:
    async with scripted() as (script, session):
        calls = [ask(session), ask(session)]
        await until(lambda: script.frames)
        await script.answer(acked(2))
        await calls[1]
        await session.close()
        with pytest.raises(CallFailed) as caught:
            await calls[0]
        assert isinstance(caught.value.failure.error, errors.Cancelled)


class Ends:
    """Notes how its stream has ended."""

    def __init__(self) -> None:
        self.reasons: list[object] = []

    def on_answer(self, answer: ReceiveResponse) -> None:
        raise AssertionError(answer)

    def on_end(self, reason: CallFailed | NoSession | None) -> None:
        self.reasons.append(reason)


async def test_streams_when_the_session_is_closed_with_grace() -> None:
    async with scripted() as (script, session):
        owner = Ends()
        first = session.open_stream(ReceiveStreamRequest(), owner)
        await until(lambda: script.frames)
        closing = asyncio.create_task(session.close(OK_MS))
        await until(lambda: [first] in [list(frame.given_up) for frame in script.frames])
        await script.answer(SessionAnswer(call_id=first, receive_stream=ReceiveStreamEnd()))
        await closing
        assert owner.reasons == [None]


async def test_streams_when_the_node_does_not_end_them_within_the_grace() -> None:
    async with scripted() as (script, session):
        owner = Ends()
        session.open_stream(ReceiveStreamRequest(), owner)
        await until(lambda: script.frames)
        await session.close(1.0, errors.Unavailable("another token"))
        (reason,) = owner.reasons
        assert isinstance(reason, CallFailed)
        assert isinstance(reason.failure.error, errors.Unavailable)


async def test_stream_when_the_session_is_over() -> None:
    async with scripted() as (_, session):
        await session.close()
        owner = Ends()
        session.open_stream(ReceiveStreamRequest(), owner)
        await until(lambda: owner.reasons)
        (reason,) = owner.reasons
        assert isinstance(reason, CallFailed)
        assert isinstance(reason.failure.error, errors.Unavailable)


async def test_call_when_the_session_is_over() -> None:
    async with scripted() as (_, session):
        await session.close()
        with pytest.raises(CallFailed) as caught:
            await ask(session)
        assert isinstance(caught.value.failure.error, errors.Unavailable)
        assert caught.value.failure.is_definite, "no node has seen it"


async def test_session_ends_when_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_stream, "IDLE_S", 0.01)
    async with scripted() as (script, session):
        call = ask(session, 50.0)
        await until(lambda: script.frames)
        await script.answer(acked(1))
        await call
        await until(lambda: session.is_over)
        await until(lambda: not {"hourwheel-session-read", "hourwheel-session-write"} & running())


async def test_connection_makes_single_calls_when_the_node_is_older(node: FakeNode) -> None:
    """A node that knows no sessions."""
    connection = Connection(node.address)
    requests = [connection.call(ACK, AckRequest(group="g"), OK_MS) for _ in range(3)]
    await asyncio.gather(*requests)
    await connection.call(ACK, AckRequest(group="g"), OK_MS)
    assert len(node.calls["Ack"]) == 4
    await connection.close()


async def test_connection_makes_single_calls_while_the_node_has_too_many_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "NO_SESSION_S", 0.0)
    async with ApiWorld({"limits": {"sessions": 1}}) as world:
        first, second = (Connection(world.address) for _ in range(2))
        ack = AckRequest(group="billing")
        await first.call(ACK, ack, OK_MS)
        assert world.stats.sessions == 1
        await second.call(ACK, ack, OK_MS)
        assert world.stats.rejected == {"OVERLOADED": 1}
        await first.close()
        await until(lambda: not world.stats.sessions)
        await second.call(ACK, ack, OK_MS)
        assert world.stats.sessions == 1
        assert world.stats.method("Ack").handled["OK"] == 3
        await second.close()


async def test_connection_makes_single_calls_while_its_caller_has_too_many_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each process has a session: a quota of one call must not shut out all but one of them."""
    monkeypatch.setattr(connections, "NO_SESSION_S", 0.0)
    quotas = Quotas()
    quotas.replace({"*": Limits(calls_in_flight=1)})
    async with ApiWorld(identify=identify, quotas=quotas) as world:
        first, second = (Connection(world.address) for _ in range(2))
        ack = AckRequest(group="billing")
        await first.call(ACK, ack, OK_MS)
        assert world.stats.sessions == 1
        await second.call(ACK, ack, OK_MS)
        assert await second.find_stream_session() is None
        assert world.stats.rejected == {"QUOTA_EXCEEDED": 2}
        assert world.stats.sessions == 1
        assert world.stats.method("Ack").handled["OK"] == 2
        await first.close()
        await second.close()


async def test_call_when_the_node_goes_away() -> None:
    async with ApiWorld() as world:
        connection = Connection(world.address)
        poll = ReceiveRequest(group="billing", topic="orders", wait_ms=20_000)
        call = asyncio.create_task(connection.call(RECEIVE, poll, OK_MS))
        await until(lambda: world.stats.long_polls == 1)
        await world.server.stop(0)
        with pytest.raises(CallFailed) as caught:
            await call
        assert caught.value.failure.error.retriable
        assert not caught.value.failure.is_definite
        await connection.close()


async def test_calls_that_are_not_urgent_go_with_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_stream, "LINGER_S", 3_600.0)
    monkeypatch.setattr(session_stream, "LINGER_CALLS_MIN", 0)
    async with scripted() as (script, session):
        calls = [ask_soon(session, group) for group in "abc"]
        await asyncio.sleep(0)
        calls.append(ask(session))
        await until(lambda: script.frames)
        assert script.ids == [1, 2, 3, 4]
        assert len(script.frames) == 1
        for call in calls:
            call.cancel()


async def test_lone_call_that_is_not_urgent_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_stream, "LINGER_S", 3_600.0)
    async with scripted() as (script, session):
        request = AckRequest(group="g")
        call = asyncio.create_task(session.ask("ack", request, OK_MS, is_urgent=False))
        await until(lambda: script.frames)
        assert script.ids == [1]
        call.cancel()


async def test_calls_that_are_not_urgent_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_stream, "LINGER_CALLS_MIN", 0)
    async with scripted() as (script, session):
        calls = [ask_soon(session, group) for group in "abc"]
        await until(lambda: script.frames)
        assert script.ids == [1, 2, 3]
        await script.answer(acked(1), acked(2), acked(3))
        await asyncio.gather(*calls)


async def test_acknowledgements_of_one_group_are_one_call() -> None:
    async with scripted() as (script, session):
        calls = [ask_soon(session, "g", *receipts) for receipts in ("ab", "c", "", "de")]
        await until(lambda: script.frames)
        (frame,) = script.frames
        (call,) = frame.calls
        assert [one.receipt for one in call.ack.ranges] == [*"abcde"]
        outcomes = [RECEIPT_OUTCOME_OK] * 4 + [RECEIPT_OUTCOME_STALE]
        answer = AckResponse(outcomes=outcomes)
        await script.answer(SessionAnswer(call_id=call.call_id, ack=answer))
        answers = [[*one.outcomes] for one in await asyncio.gather(*calls)]
        assert answers == [outcomes[:2], outcomes[2:3], [], outcomes[3:]]


async def test_one_of_those_who_joined_a_call_gives_it_up() -> None:
    async with scripted() as (script, session):
        calls = [ask_soon(session, "g", receipt) for receipt in "abc"]
        await until(lambda: script.frames)
        calls[0].cancel()  # by its number the others go, too
        await asyncio.wait(calls[:1])
        await script.answer(SessionAnswer(call_id=1, ack=AckResponse(outcomes=[1, 1, 2])))
        answers = [[*one.outcomes] for one in await asyncio.gather(*calls[1:])]
        assert answers == [[1], [2]]
        assert not any(frame.given_up for frame in script.frames)


async def test_all_of_those_who_joined_a_call_give_it_up() -> None:
    async with scripted() as (script, session):
        calls = [ask_soon(session, "g", receipt) for receipt in "abc"]
        await until(lambda: script.frames)
        for call in calls:
            call.cancel()
        await until(lambda: len(script.frames) > 1)
        assert [one for frame in script.frames for one in frame.given_up] == [1]


async def test_call_that_is_on_its_way_is_joined_by_nobody() -> None:
    async with scripted() as (script, session):
        calls = [ask_soon(session, "g", "a")]
        await until(lambda: script.frames)
        calls.append(ask_soon(session, "g", "b"))
        await until(lambda: len(script.frames) > 1)
        assert script.ids == [1, 2]
        for call in calls:
            call.cancel()


async def test_acknowledgements_that_were_joined_fail_together_as_by_themselves() -> None:
    async with scripted() as (script, session):
        calls = [ask_soon(session, "g", receipt) for receipt in "ab"]
        await until(lambda: script.frames)
        detail = ErrorDetail(code=8, reason="OVERLOADED", message="no")
        await script.answer(SessionAnswer(call_id=1, error=detail))
        for call in calls:
            with pytest.raises(CallFailed) as caught:
                await call
            assert isinstance(caught.value.failure.error, errors.Overloaded)


async def test_clients_of_a_loop_share_one_session() -> None:
    """Consumers and admins that were made separately, each with its own way to the node."""
    async with ApiWorld() as world:
        consumers = [
            AsyncConsumer(world.address, group="billing", topic=f"t-{number}", polls=1)
            for number in range(5)
        ]
        waiting = [asyncio.create_task(one.receive(1)) for one in consumers]
        await until(lambda: world.stats.long_polls == 5)
        assert world.stats.sessions == 1
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        for consumer in consumers[1:]:
            await consumer.close()
        await until(lambda: world.stats.long_polls == 1)
        assert world.stats.sessions == 1
        await consumers[0].close()
        await until(lambda: not world.stats.sessions)
