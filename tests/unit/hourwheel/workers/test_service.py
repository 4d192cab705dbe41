import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import App
from hourwheel.clock import SystemClock
from hourwheel.errors import PermissionDenied
from hourwheel.workers import service
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.results import DONE, Result
from hourwheel.workers.service import Parts, Service, Slots, Stopping
from tests.support.eventually import until


class Consumer:
    """A consumer whose first poll is answered when the test says so, and which has no node."""

    has_received = False

    def __init__(self, *_: object, **__: object) -> None:
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.failure: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        """Of the second one."""
        self.given_back: list[tuple[Any, bool]] = []
        self.acknowledged: list[Any] = []

    async def receive(self, *_: object) -> list[Any]:
        if self.answer.done() and self.has_received:
            return await self.failure
        self.has_received = True
        return await self.answer

    async def nack(self, messages: list[Any], delay_ms: int, *, not_begun: bool) -> None:
        assert delay_ms == 0
        self.given_back += [(one, not_begun) for one in messages]

    def ack_soon(self, message: Any) -> None:
        self.acknowledged.append(message)

    async def settle(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


class Runner:
    """Of handlers that take until a test says so; `begins`: as soon as they are to."""

    has_begun = False

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def run(
        self, handler: object, context: MessageContext, note_begun: Callable[[], None]
    ) -> Result:
        if self._begins:
            self.has_begun = True
            note_begun()
        return await self.result


def serve(
    monkeypatch: pytest.MonkeyPatch, runner: Runner, stopping: Stopping
) -> tuple[Consumer, "asyncio.Task[None]"]:
    """A handler of orders, whose consumer is a test's."""
    app = App(group="shop")

    @app.handler("orders")
    def handle() -> None:
        """Never called."""

    made: list[Consumer] = []

    def make(*given: object, **settings: object) -> Consumer:
        made.append(Consumer())
        return made[0]

    monkeypatch.setattr(service, "AsyncConsumer", make)
    channel: Any = SimpleNamespace(is_connected=True)
    parts = Parts(channel, runner, SystemClock())
    one = Service(parts, app.handlers[0], "orders", Slots(4))
    return made[0], asyncio.create_task(one.serve(stopping))


def received() -> Any:
    """A message, leased for a minute."""
    batch = SimpleNamespace(
        invisible_until_ms=60_000,
        lease_until_ms=float("inf"),
        delivery=SimpleNamespace(header=SimpleNamespace(receive_ms=0)),
    )
    meta = SimpleNamespace(tags=(), keys=(), properties={}, client_message_id="", content_type="")
    message = SimpleNamespace(
        message_id="m", topic="orders", body=b"", attempt=1, due_ms=0, receive_ms=0, meta=meta
    )
    message.batch = batch
    return message


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("turns", range(1, 7))
async def test_what_a_poll_has_brought_is_given_back_whenever_the_worker_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, turns: int, *, begins: bool
) -> None:
    """Also in the turn of the loop in which the poll has ended, and nobody has looked yet.

    It costs an attempt where its handler was called, and only there.
    """
    runner, message = Runner(begins=begins), received()
    consumer, serving = serve(monkeypatch, runner, Stopping())
    for _ in range(5):
        await asyncio.sleep(0)
    consumer.answer.set_result([message])
    for _ in range(turns):
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert consumer.given_back == [(message, not runner.has_begun)]


async def test_what_a_handler_has_in_work_is_done_when_it_can_receive_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, stopping = Runner(begins=True), Stopping()
    consumer, serving = serve(monkeypatch, runner, stopping)
    consumer.answer.set_result([received()])
    await until(lambda: runner.has_begun)
    consumer.failure.set_exception(PermissionDenied("revoked"))
    await until(stopping.is_set)
    assert isinstance(stopping.error, PermissionDenied)
    assert not serving.done()
    runner.result.set_result(DONE)
    await serving
    assert (len(consumer.acknowledged), consumer.given_back) == (1, [])
