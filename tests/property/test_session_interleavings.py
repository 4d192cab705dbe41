"""A session's two ends, joined by a pipe, in whatever order things happen.

What must hold: each call gets its own answer, once; a node sees no call twice, and none that was
given up before it left; what breaks fails all that has no answer, and what is said not to have
reached the node has not; and in the end nobody is in flight.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.transport.session_stream import CallFailed, SessionStream
from hourwheel.v1.broker_pb2 import CancelRequest, CancelResponse
from hourwheel.v1.consumer_pb2 import (
    AckRequest,
    AckResponse,
    ReceiptRange,
    ReceiveRequest,
    ReceiveResponse,
)
from hourwheel.v1.session_pb2 import SessionRequest, SessionResponse
from node.access.control import AccessControl
from node.api.admission import Admission
from node.api.calls import CallContext, Calls
from node.api.session import Sessions
from node.config.model import LimitsSection
from node.telemetry.failure import Failure
from node.telemetry.stats import ApiStats
from tests.support.eventually import until

_HANG_S = 120.0


class Pipe:
    """A stream of gRPC without the network: to the client a call, to the node a context."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.to_node: asyncio.Queue[Any] = asyncio.Queue()
        self.to_client: asyncio.Queue[Any] = asyncio.Queue()
        self.callbacks: list[Callable[[Any], None]] = []
        self._code = grpc.StatusCode.OK
        self.is_over = False
        self.sent: set[int] = set()
        self.given_up_unsent: set[int] = set()
        self.node = _NodeSide(self)

    async def travel(self) -> None:
        for _ in range(self._rng.randrange(3)):
            await asyncio.sleep(0)

    def end(self, code: grpc.StatusCode) -> None:
        if self.is_over:
            return
        self.is_over, self._code = True, code
        self.to_node.put_nowait(None)
        self.to_client.put_nowait(grpc.aio.EOF)

    def on_served(self, _: object) -> None:
        """As gRPC does it: when the handler is done, whenever the stream was over."""
        for callback in self.callbacks:
            callback(None)

    # -- what the client sees ---------------------------------------------------------------------

    async def write(self, frame: SessionRequest) -> None:
        self.given_up_unsent |= set(frame.given_up) - self.sent
        self.sent |= {call.call_id for call in frame.calls}
        await self.travel()
        if self.is_over:
            raise asyncio.InvalidStateError
        self.to_node.put_nowait(frame.SerializeToString())

    async def read(self) -> Any:
        raw = await self.to_client.get()
        await self.travel()
        return raw if raw is grpc.aio.EOF else SessionResponse.FromString(raw)

    def cancel(self) -> None:
        self.end(grpc.StatusCode.CANCELLED)

    async def code(self) -> grpc.StatusCode:
        return self._code

    async def details(self) -> str:
        return ""

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()

    trailing_metadata = initial_metadata


class _NodeSide:
    """What the node sees."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def read(self) -> Any:
        raw = await self._pipe.to_node.get()
        if raw is None:
            raise asyncio.CancelledError
        await self._pipe.travel()
        return raw

    async def write(self, raw: bytes) -> None:
        await self._pipe.travel()
        if self._pipe.is_over:
            raise asyncio.CancelledError
        self._pipe.to_client.put_nowait(raw)

    async def abort_with_status(self, _status: Any) -> None:
        self._pipe.end(grpc.StatusCode.UNAVAILABLE)
        raise grpc.aio.AbortError

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._pipe.callbacks.append(callback)

    def peer(self) -> str:
        return "pipe"


class Node:
    """Answers each call when a test says so."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.joined: dict[int, set[int]] = {}
        """First number of an acknowledgement -> all that came with it."""
        self.gates: dict[int, asyncio.Future[bool]] = {}
        """Of the calls that wait for their answers: whether it is a good one."""
        self.stats = ApiStats()
        limits = LimitsSection()
        calls = Calls(Admission(limits, self.stats), SystemClock(), Failure(), AccessControl())
        methods = {
            "cancel": ("Cancel", self._cancel),
            "receive": ("Receive", self._receive),
            "ack": ("Ack", self._ack),
        }
        self.sessions = Sessions(calls, methods, limits)

    async def _cancel(self, request: CancelRequest, _: CallContext) -> CancelResponse:
        number = int(request.message_ids[0])
        await self._answered(number)
        return CancelResponse(outcomes=[number])

    async def _receive(self, request: ReceiveRequest, _: CallContext) -> ReceiveResponse:
        number = int(request.topic)
        await self._answered(number)
        return ReceiveResponse(receipt=str(number))

    async def _ack(self, request: AckRequest, _: CallContext) -> AckResponse:
        outcomes = [int(one.receipt) for one in request.ranges]
        self.joined[outcomes[0]] = set(outcomes)
        self.seen += self.joined[outcomes[0]] - {outcomes[0]}
        await self._answered(outcomes[0])
        return AckResponse(outcomes=outcomes)  # type: ignore[arg-type]

    async def _answered(self, number: int) -> None:
        self.seen.append(number)
        gate = self.gates[number] = asyncio.get_running_loop().create_future()
        try:
            if not await gate:
                raise errors.Overloaded
        finally:
            del self.gates[number]

    def answer(self, number: int, *, is_good: bool) -> None:
        if not self.gates[number].done():
            self.gates[number].set_result(is_good)


class Life:
    """One session, and all that is asked of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node, self.pipe = Node(), Pipe(self.rng)
        context: Any = self.pipe.node
        self.serving = asyncio.create_task(self.node.sessions.handle(None, context))
        self.serving.add_done_callback(self.pipe.on_served)
        self.session = SessionStream(self.pipe)
        self.asked: dict[int, asyncio.Task[Any]] = {}
        self.range_counts: dict[int, int] = {}
        """Of acknowledgements."""
        self.refused: set[int] = set()
        self.given_up: set[int] = set()

    def ask(self) -> None:
        number, kind = len(self.asked) + 1, self.rng.random()
        if kind < 0.4:
            count = self.rng.choice([1, 1, 2, 5])
            ranges = [ReceiptRange(receipt=str(number))] * count
            self.range_counts[number] = count
            request: Any = AckRequest(group=self.rng.choice("ab"), ranges=ranges)
            field = "ack"
        elif kind < 0.7:
            request = CancelRequest(message_ids=[str(number)])
            field = "cancel"
        else:
            request = ReceiveRequest(topic=str(number), wait_ms=self.rng.choice([0, 60_000]))
            field = "receive"
        is_urgent = self.rng.random() < 0.7
        asking = self.session.ask(field, request, 1_000_000.0, is_urgent=is_urgent)
        self.asked[number] = asyncio.create_task(asking)

    async def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.5:
            for _ in range(self.rng.choice([1, 1, 2, 30])):
                self.ask()
        elif choice < 0.65:
            number = self.rng.choice([*self.asked, 0])
            if number and not self.asked[number].done():
                self.asked[number].cancel()
                self.given_up.add(number)
        elif self.node.gates:
            waiting = list(self.node.gates)
            for number in self.rng.sample(waiting, self.rng.randint(1, len(waiting))):
                self.answer(number)
        for _ in range(self.rng.randrange(6)):
            await asyncio.sleep(0)

    def answer(self, number: int) -> None:
        is_good = self.rng.random() < 0.8
        if not is_good and not self.node.gates[number].done():
            self.refused |= self.node.joined.get(number, {number})
        self.node.answer(number, is_good=is_good)

    async def settle(self) -> None:
        """Answer all that comes until nobody waits."""
        async with asyncio.timeout(_HANG_S):
            while not all(task.done() for task in self.asked.values()):
                for number in list(self.node.gates):
                    self.answer(number)
                await asyncio.sleep(0)

    async def close(self) -> None:
        async with asyncio.timeout(_HANG_S):
            await self.session.close()
            self.serving.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AbortError):
                await self.serving
            await until(lambda: not self.node.gates)

    def check(self, *, is_broken: bool) -> None:
        assert len(self.node.seen) == len(set(self.node.seen))
        for number, task in self.asked.items():
            if task.cancelled():
                assert number in self.given_up
                continue
            error = task.exception()
            if error is None:
                answer = task.result()
                is_poll = isinstance(answer, ReceiveResponse)
                assert (int(answer.receipt) if is_poll else answer.outcomes[0]) == number
                if isinstance(answer, AckResponse):
                    assert [*answer.outcomes] == [number] * self.range_counts[number]
                assert number in self.node.seen
                assert number not in self.refused
                continue
            assert isinstance(error, CallFailed)
            failure = error.failure
            if isinstance(failure.error, errors.Overloaded):
                assert number in self.refused
            else:
                assert is_broken
                assert not failure.is_definite or number not in self.node.seen
        if not is_broken:
            assert set(self.node.seen) | self.given_up == set(self.asked)
        assert not self.pipe.given_up_unsent
        stats = self.node.stats
        assert (stats.requests_in_flight, stats.bytes_in_flight, stats.sessions) == (0, 0, 0)


async def live(seed: int, *, is_broken: bool) -> None:
    life = Life(seed)
    for _ in range(life.rng.randrange(40)):
        await life.step()
    if is_broken:
        life.pipe.end(grpc.StatusCode.UNAVAILABLE)
        life.serving.cancel()  # as gRPC does
    await life.settle()
    await life.close()
    life.check(is_broken=is_broken)


@given(seed=st.integers(0, 2**32), is_broken=st.booleans())
def test_session_when_anything_happens_in_any_order(seed: int, *, is_broken: bool) -> None:
    asyncio.run(live(seed, is_broken=is_broken))
