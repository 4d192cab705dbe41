import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel import App
from hourwheel.clock import SystemClock
from hourwheel.workers import service
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.results import Result
from hourwheel.workers.service import Parts, Service, Slots


class Consumer:
    """A consumer whose first poll is answered when the test says so, and which has no node."""

    def __init__(self, *_: object, **__: object) -> None:
        self.answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.given_back: list[tuple[Any, bool]] = []

    async def receive(self, *_: object) -> list[Any]:
        if self.answer.done():
            await asyncio.get_running_loop().create_future()
        return await self.answer

    async def nack(self, messages: list[Any], delay_ms: int, *, not_begun: bool) -> None:
        assert delay_ms == 0
        self.given_back += [(one, not_begun) for one in messages]

    async def settle(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        """Nothing is open."""


class Runner:
    """Of handlers that take for ever; `begins`: as soon as they are to."""

    has_begun = False

    def __init__(self, *, begins: bool) -> None:
        self._begins = begins

    async def run(
        self, handler: object, context: MessageContext, note_begun: Callable[[], None]
    ) -> Result:
        if self._begins:
            self.has_begun = True
            note_begun()
        never: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        return await never


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("turns", range(1, 7))
async def test_what_a_poll_has_brought_is_given_back_whenever_the_worker_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, turns: int, *, begins: bool
) -> None:
    """Also in the turn of the loop in which the poll has ended, and nobody has looked yet.

    It costs an attempt where its handler was called, and only there.
    """
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
    runner = Runner(begins=begins)
    parts = Parts(channel, runner, SystemClock())
    one = Service(parts, app.handlers[0], "orders", Slots(4))
    serving = asyncio.create_task(one.serve(asyncio.Event()))
    for _ in range(5):
        await asyncio.sleep(0)
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
    made[0].answer.set_result([message])
    for _ in range(turns):
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert made[0].given_back == [(message, not runner.has_begun)]
